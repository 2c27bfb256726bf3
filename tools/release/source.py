"""The source archive, with the same bytes from any folder, by any user and at any time.

setuptools writes the archive. It keeps each file's time, owner and mode, so all members are written again without them.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

# The whole permissions of a member: everybody may read it, its owner may write it.
FILE_MODE, FOLDER_MODE = 0o644, 0o755


def release_time(root: Path) -> int:
    """Return the time (s since 1970) of all archives: SOURCE_DATE_EPOCH, else that of the last commit.

    Source: reproducible-builds.org/specs/source-date-epoch. Raises CalledProcessError outside of a clone."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    line = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def build_source_archive(root: Path, folder: Path, scratch: Path, time: int) -> Path:
    """Write the source archive of the last commit in `root` into `folder`, and return its path.

    `scratch`: a folder for the commit's files. Changes and files that are not committed are left out."""
    committed = scratch / "commit"
    committed.mkdir()
    packed = subprocess.run(["git", "-C", str(root), "archive", "HEAD"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(committed, filter="data")
    line = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(folder), str(committed)]
    subprocess.run(line, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    archive.write_bytes(without_origin(archive.read_bytes(), time))
    return archive


def without_origin(archive: bytes, time: int) -> bytes:
    """Return a .tar.gz with the same files, sorted, of nobody, and all of the same time."""
    plain, packed = io.BytesIO(), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            copy = tarfile.TarInfo(member.name)
            copy.type, copy.size, copy.mtime = member.type, member.size, time
            copy.mode = FOLDER_MODE if member.isdir() else FILE_MODE
            target.addfile(copy, source.extractfile(member))
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=time) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()

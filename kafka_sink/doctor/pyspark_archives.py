"""The archives of modules that Spark puts in front of the path of its Python workers, and whether they are compiled.

pip's pyspark has `pyspark.zip` and `py4j-*-src.zip` in `python/lib`. They hold sources only, and Python keeps no
compiled module of an archive, so each worker compiles what it imports. `compile_archive` puts `x.pyc` beside each
`x.py`. Python takes it first, without a look at the source, if it is of its own version. Any other Python takes the
source.

Source: zipimport (_zip_searchorder, _unmarshal_code), PEP 552; PythonUtils.scala (sparkPythonPath).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.util import MAGIC_NUMBER, source_hash
from marshal import dumps
from pathlib import Path

# PEP 552: a module with the hash of its source, which Python does not compare.
_UNCHECKED_HASH = (1).to_bytes(4, "little")


def own_archives() -> list[Path]:
    """Return the archives of the pyspark that is installed in this Python. None, if it is not there or not pip's."""
    spec = PathFinder.find_spec("pyspark", [each for each in sys.path if not each.endswith(".zip")])
    places = [] if spec is None else spec.submodule_search_locations or []
    return sorted(archive for place in places for archive in Path(place, "python", "lib").glob("*.zip"))


def compiles_pyspark() -> bool:
    """Whether this process has taken the sources of pyspark from an archive of its own pyspark."""
    loaded = Path(getattr(sys.modules.get("pyspark"), "__file__", None) or "")
    return loaded.suffix == ".py" and any(loaded.is_relative_to(each) for each in own_archives())


def is_compiled(archive: Path) -> bool:
    """Whether this Python finds each module of `archive` compiled from its source. Raises OSError, BadZipFile."""
    with zipfile.ZipFile(archive) as opened:
        return not any(True for _ in _missing(opened))


def compile_archive(archive: Path) -> int:
    """Add what is missing, and return the number of modules. Raises OSError, BadZipFile.

    Sources stay where they are in the file, because a running Python has noted the places.
    """
    if is_compiled(archive):
        return 0
    strip_archive(archive)
    with _replaced(archive) as copy, zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED) as opened:
        missing = list(_missing(opened))
        for name, source in missing:
            opened.writestr(f"{name}c", _compiled(source, f"{archive}/{name}"))
    return len(missing)


def strip_archive(archive: Path) -> int:
    """Remove all compiled modules, and return their number. Raises OSError, BadZipFile."""
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        kept = [each for each in entries if not each.filename.endswith(".pyc")]
        if len(kept) < len(entries):
            with _replaced(archive) as copy, zipfile.ZipFile(copy, "w") as written:
                for each in kept:
                    written.writestr(each, opened.read(each))
    return len(entries) - len(kept)


def _missing(opened: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the source of each module without a compiled one that is of this Python and of this source."""
    names = set(opened.namelist())
    for name in sorted(each for each in names if each.endswith(".py")):
        source = opened.read(name)
        if f"{name}c" not in names or not opened.read(f"{name}c").startswith(_header(source)):
            yield name, source


def _header(source: bytes) -> bytes:
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source)


def _compiled(source: bytes, path: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a compiler warns of in pyspark is nothing for its users
        return _header(source) + dumps(compile(source, path, "exec", dont_inherit=True, optimize=0))


@contextmanager
def _replaced(archive: Path) -> Iterator[Path]:
    """A copy of `archive` to change, which takes its place at the end. An error leaves `archive` as it is."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        copy = Path(shutil.copy2(archive, folder))
        yield copy
        os.replace(copy, archive)

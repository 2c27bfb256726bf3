"""Source archive -> wheels.

`setup.py` of the archive builds every wheel, so the archive is complete. Zig's C compiler builds the kernel for each
target: it has the headers and the symbol versions of each system's library. The headers of Python are those of the
interpreter that runs this. They serve every target: the limited API has no member of a structure whose layout differs,
and on all targets a long and a pointer have 64 bits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from release.sbom import add_sbom
from release.targets import System, Target

# No local path and no debug information in the kernel: both would differ between two builds.
LINK = "-O3 -shared -s"
# Python's symbols come from the interpreter that imports the kernel.
MACOS_LINK = f"{LINK} -undefined dynamic_lookup"


def build_wheel(archive: Path, target: Target | None, folder: Path, scratch: Path, time: int) -> Path:
    """Build the wheel for `target`, or the pure one for None, into `folder`. Return its path.

    `scratch`: an empty folder for the unpacked sources and the compiler's cache. `time`: of all files, s since 1970."""
    sources = unpacked(archive, scratch)
    built = scratch / "wheel"
    line = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(built)]
    if target is not None:
        line.append(f"--config-setting=--build-option=--plat-name={target.tag}")
    environment = {**os.environ, **compiler(target, sources, scratch), "SOURCE_DATE_EPOCH": str(time)}
    ended = subprocess.run([*line, str(sources)], env=environment, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"{target.tag if target else 'the pure wheel'}: {ended.stdout}{ended.stderr}")
    (wheel,) = built.glob("*.whl")
    expected = f"cp311-abi3-{target.tag}" if target else "py3-none-any"
    if not wheel.stem.endswith(expected):
        raise RuntimeError(f"{wheel.name} was built, and not one for {expected}")
    return add_sbom(wheel, folder, scratch, time)


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def compiler(target: Target | None, sources: Path, scratch: Path) -> Mapping[str, str]:
    """Return the environment in which setuptools compiles for `target`. For None no compiler works, and setup.py makes
    a pure wheel."""
    if target is None:
        return {"CC": "false", "PYKAFKA_REQUIRE_KERNEL": "0"}
    zig = f"{sys.executable} -m ziglang cc -target {target.triple}"
    return {
        "CC": zig,
        "LDSHARED": f"{zig} {MACOS_LINK if target.system is System.MACOS else LINK}",
        "CFLAGS": f"-ffile-prefix-map={sources}=.",
        "LDFLAGS": "",
        "PYKAFKA_REQUIRE_KERNEL": "1",
        # The kernel is compiled each time. Zig compiles parts of the system's library once for a user.
        "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig"),
    }

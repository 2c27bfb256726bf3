"""This package as users bring it to a cluster: a wheel, and environments with it and without it.

The environments have links to the packages of the tests' environment; the package itself is the wheel.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240
OURS = ("kafka_sink", "pyspark_pykafka", "__editable__", "__pycache__")


@dataclass(frozen=True, slots=True)
class Shipment:
    """The package in the forms that it is shipped in. `bare`: a Python with all but the package."""

    wheel: Path
    installed: Path
    bare: Path
    kernel: str


def shipped(folder: Path) -> Shipment:
    wheel = built_wheel(folder)
    installed, bare = (environment(folder / name) for name in ("installed", "bare"))
    pip("--python", str(installed), "install", "--no-deps", "--no-index", str(wheel))
    return Shipment(wheel, installed, bare, "compiled" if "abi3" in wheel.name else "vectorised")


def built_wheel(folder: Path) -> Path:
    sources = folder / "sources"
    sources.mkdir()
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "pyspark_pykafka.py"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(ROOT / "kafka_sink", sources / "kafka_sink", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(sources))
    return next(folder.glob("*.whl"))


def environment(folder: Path) -> Path:
    """The Python of a new virtual environment, which has the packages of this one but ours."""
    links = folder.with_name(f"{folder.name}-packages")
    links.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(OURS) and package.suffix != ".pth":
            (links / package.name).symlink_to(package)
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "links.pth").write_text(f"{links}\n")
    return folder / "bin" / "python"


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)

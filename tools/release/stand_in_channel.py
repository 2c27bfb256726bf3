"""A conda channel on this disk, of what is installed here, for a build where conda-forge cannot be reached.

    python               the interpreter that runs this
    its packages         pyspark (without Spark's jars), pyarrow, ... as pip installed them
    compilers            empty packages: the build then uses this machine's

conda names these packages as the package index does. The versions are those of requirements/release.txt.
"""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SERIES = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/{SERIES}/site-packages"
# What an interpreter's folder has and a new environment must not get, and what no test of the recipe reads.
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test"}
JARS = ("pyspark", "jars")


def asked_for(recipe: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Return the packages that a rendered recipe asks for, without the interpreter, and the names that an empty package
    serves: compilers, and conda-forge's marks for an interpreter."""
    required = recipe["requirements"]
    tests = [each for test in recipe["tests"] for each in test.get("requirements", {}).get("run", ())]
    names = {each.split()[0] for each in (*required["host"], *required["run"], *tests)} - {"python"}
    marks = {name for name in names if name.startswith("python-")}
    return names - marks, {each.split()[0] for each in required["build"]} | marks


def write_channel(folder: Path, subdir: str, names: Iterable[str], empty: Iterable[str]) -> None:
    """Write a conda package into `folder/subdir` for this interpreter, for each installed package of `names` and those
    that they require, and an empty one for each name of `empty`. rattler-build writes the index.

    `subdir`: conda's name of this platform. Raises PackageNotFoundError if a package is not installed."""
    target = folder / subdir
    target.mkdir(parents=True)
    _assemble(target, subdir, "python", platform.python_version(), interpreter(), ())
    for name in sorted(with_required(names)):
        requires = [f"python {platform.python_version()}", *map(as_conda_says, required(name))]
        _assemble(target, subdir, name, distribution(name).version, installed(name), requires)
    for name in empty:
        _assemble(target, subdir, name, platform.python_version(), (), ())


def interpreter() -> Iterator[tuple[Path, str]]:
    """Yield the files of this interpreter with their places in an environment of conda."""
    base = Path(sys.base_prefix)
    for name in ("python", "python3", SERIES):
        yield base / "bin" / SERIES, f"bin/{name}"
    yield from ((library, f"lib/{library.name}") for library in (base / "lib").glob("libpython*.so*"))
    for folder, place in (("stdlib", f"lib/{SERIES}"), ("include", f"include/{SERIES}")):
        root = Path(sysconfig.get_path(folder))
        for path in root.rglob("*"):
            relative = path.relative_to(root)
            if path.is_file() and LEFT_OUT.isdisjoint(relative.parts):
                yield path, f"{place}/{relative}"


def installed(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a package in site-packages, without byte code, commands and jars."""
    package = distribution(name)
    for file in package.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts and file.parts[:2] != JARS:
            yield Path(str(package.locate_file(file))), f"{SITE}/{file}"


def required(name: str) -> list[Requirement]:
    """Return what an installed package requires here, without extras."""
    every = map(Requirement, distribution(name).requires or ())
    return [each for each in every if each.marker is None or each.marker.evaluate({"extra": ""})]


def with_required(names: Iterable[str]) -> set[str]:
    """Return the names, and those of all packages that they require."""
    found: set[str] = set()
    open_names = set(names)
    while open_names:
        found.add(name := open_names.pop())
        open_names |= {canonicalize_name(each.name) for each in required(name)} - found
    return found


def as_conda_says(requirement: Requirement) -> str:
    """Return the requirement in conda's words: `numpy<3,>=1.26` is `numpy <3,>=1.26`."""
    return f"{canonicalize_name(requirement.name)} {requirement.specifier}".strip()


def _assemble(
    target: Path, subdir: str, name: str, version: str, files: Iterable[tuple[Path, str]], depends: Iterable[str]
) -> None:
    # Only `make conda` installs it.
    from rattler_build import assemble_package

    with TemporaryDirectory(prefix="pykafka-conda.") as scratch:
        for path, place in files:
            (Path(scratch) / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, Path(scratch) / place)
        assemble_package(
            name, version, subdir, "0", target, files_dir=scratch, depends=list(depends), compression_level=0
        )

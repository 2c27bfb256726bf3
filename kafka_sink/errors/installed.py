"""Which pyspark this Python imports, and whose it is. pykafka installs none, because a cluster has its own.

    the cluster's              below SPARK_HOME, on PYTHONPATH as spark-submit sets it
    package pyspark            Spark with its jars: pip install 'pyspark-pykafka[spark]'
    package pyspark-client     the client of Spark Connect, without Java: [connect], and [sail] beside Sail

The packages share one folder, `pyspark`. pip installs one over the other without a word: files of both are there, and
to uninstall one takes the files of the other. Nothing here imports pyspark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder

NEEDED = (
    "kafka_sink needs a pyspark, and this Python has none: put the cluster's on PYTHONPATH, or pip install "
    "'pyspark-pykafka[spark]' for Spark, 'pyspark-pykafka[connect]' for a client of Spark Connect without Java, or "
    "'pyspark-pykafka[sail]' for Sail."
)
# Each brings the folder `pyspark`.
PACKAGES = ("pyspark", "pyspark-client", "databricks-connect")
_VERSION = re.compile(r"""^__version__\s*(?::\s*str\s*)?=\s*["']([^"']+)["']""", re.MULTILINE)


@contextmanager
def needs_pyspark() -> Iterator[None]:
    """Around the import of pyspark: raise ModuleNotFoundError in the words of NEEDED if there is none."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise ModuleNotFoundError(NEEDED, name="pyspark") from None


@dataclass(frozen=True, slots=True)
class Pyspark:
    """The pyspark that an import takes.

    `folder` may be in a zip. `packages`: those with files in it, with their versions. `home`: SPARK_HOME, if the folder
    is of it. `home_version`: of the pyspark in SPARK_HOME that is not imported. `beside`: packages that are installed
    elsewhere, and not imported. `is_client`: it has no Java side. Without `version` the folder is only a rest.
    """

    version: str
    folder: str
    is_client: bool
    packages: tuple[str, ...] = ()
    home: str | None = None
    home_version: str = ""
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.version or 'damaged'}, {self.origin}"

    @property
    def origin(self) -> str:
        """Whose it is."""
        if self.home is not None:
            whose = f"the cluster's (SPARK_HOME={self.home})"
        elif self.packages:
            whose = f"package{'s' * (len(self.packages) > 1)} {' and '.join(self.packages)}"
        else:
            whose = f"the platform's, of no package, in {self.folder}"
        client = ": a client of Spark Connect, without Java" if self.is_client else ""
        return f"{whose}{client}{''.join(f'; not imported: {each}' for each in self.beside)}"

    def trouble(self) -> tuple[str, str] | None:
        """Return what is wrong with it and how to fix it, or None."""
        names = " ".join(each.split()[0] for each in self.packages)
        again = f"pip uninstall {names or 'pyspark'}, then pip install the one that is needed"
        if not self.version:
            return f"{self.folder} lacks files: a package that shared the folder was uninstalled", again
        if len(self.packages) > 1:
            return (
                f"{self.origin} share the folder {self.folder}: the later one has overwritten the other's files, and "
                "to uninstall one breaks both"
            ), again
        if self.home_version not in ("", self.version) and not self.is_client:
            return (
                f"{self}, and SPARK_HOME has pyspark {self.home_version}: Spark runs that one's Java, with this one's "
                "Python"
            ), "uninstall this one and use the cluster's, as spark-submit does; or unset SPARK_HOME"
        return None


def found_pyspark(environ: Mapping[str, str] = os.environ) -> Pyspark | None:
    """Return the pyspark that this Python would import, or None. Reads files, and imports nothing of it."""
    spec = PathFinder.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = os.path.realpath(next(iter(spec.submodule_search_locations)))
    installed = _installed()
    of_folder = {package for package, place in installed.items() if _is_in(folder, place)}
    home = environ.get("SPARK_HOME") or None
    # pip's pyspark is its own SPARK_HOME.
    if home is not None and os.path.realpath(home) in installed.values():
        home = None
    is_of_home = home is not None and _is_in(folder, os.path.realpath(os.path.join(home, "python")))
    return Pyspark(
        version=_version_in(folder),
        folder=folder,
        is_client=PathFinder.find_spec("pyspark.core", [folder]) is None,
        packages=tuple(each for each in installed if each in of_folder),
        home=home if is_of_home else None,
        home_version="" if home is None or is_of_home else _version_in(os.path.join(home, "python", "pyspark")),
        beside=tuple(each for each in installed if each not in of_folder),
    )


def _installed() -> dict[str, str]:
    """Return the folder `pyspark` of each package that brings one."""
    # Only commands ask, and it takes longer than all else here.
    from importlib.metadata import PackageNotFoundError, distribution

    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        found[f"{name} {package.version}"] = os.path.realpath(str(package.locate_file("pyspark")))
    return found


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _version_in(folder: str) -> str:
    """Return the version of the pyspark in `folder`, or "" if it has none."""
    spec = PathFinder.find_spec("pyspark.version", [folder])
    # The loader of zips is no InspectLoader by its class.
    source = None if spec is None or spec.loader is None else getattr(spec.loader, "get_source", None)
    found = _VERSION.search((source and source("pyspark.version")) or "")
    return found[1] if found else ""

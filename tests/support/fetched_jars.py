"""Jars that pyspark lacks. The Ivy that pyspark ships fetches them once, and they are kept beside the brokers' jars."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from kafka_sink.broker import resolve


class Module(NamedTuple):
    """`transitive`: fetched with what it depends on."""

    organisation: str
    name: str
    revision: str
    transitive: bool = False

    @property
    def jar(self) -> str:
        return f"{self.organisation}_{self.name}-{self.revision}.jar"

    @property
    def dependency(self) -> str:
        names = zip(("org", "name", "rev", "transitive"), (*self[:3], str(self.transitive).lower()), strict=True)
        return f'<dependency conf="default->default" {" ".join(f"{name}={quoteattr(text)}" for name, text in names)}/>'


def fetched_jars(kind: str, version: str, modules: Sequence[Module]) -> list[Path]:
    """The modules' jars, fetched if need be. `kind`: names their folder, with the version. Raises DownloadFailed,
    DiskFull."""
    folder = resolve.default_cache_dir(os.environ) / f"{kind}-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with resolve.exclusive(folder.with_suffix(".lock")):
        if not all((folder / module.jar).exists() for module in modules):
            work = folder.with_suffix(".part")
            fetched = work / "jars"
            shutil.rmtree(fetched, ignore_errors=True)
            fetched.mkdir(parents=True)
            dependencies = "".join(module.dependency for module in modules)
            (work / "ivy.xml").write_text(
                f'<ivy-module version="2.0"><info organisation="local" module={quoteattr(kind)}/>'
                f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
                "</ivy-module>",
                encoding="utf-8",
            )
            ivy_jar = resolve.find_ivy_jar(resolve.installed_pyspark())
            ivy: resolve.Command = [resolve.find_java(os.environ), "-jar", ivy_jar]
            resolve.run_ivy(f"{kind} {version}", ivy, work, fetched)
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)
            shutil.rmtree(work, ignore_errors=True)
    return sorted(folder.glob("*.jar"))


def pyspark_jars() -> Path:
    return resolve.installed_pyspark() / "jars"


def hadoop_version() -> str:
    """Of pyspark's Hadoop client."""
    return next(pyspark_jars().glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]

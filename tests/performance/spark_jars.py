"""The jars of Spark's own Kafka sink, fetched once by the Ivy that PySpark ships and kept beside the broker's.

Asked for by name and not with what they depend on: that would be Spark itself once more, which PySpark has. The token
provider's version is the newest that has been published on its own; the sink only asks it whether delegation tokens are
in use. kafka-clients and commons-pool2 are of the versions that the sink's own POM names. Compressors (zstd-jni,
lz4-java, snappy-java) come with PySpark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_sink.broker import resolve

SINK_VERSION = "4.2.0"


@dataclass(frozen=True, slots=True)
class Module:
    organisation: str
    name: str
    revision: str

    @property
    def file_name(self) -> str:
        return f"{self.organisation}_{self.name}-{self.revision}.jar"


MODULES = (
    Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", SINK_VERSION),
    Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Module("org.apache.kafka", "kafka-clients", "3.9.2"),
    Module("org.apache.commons", "commons-pool2", "2.13.1"),
)


def resolve_spark_jars(cache_dir: Path, ivy_command: Callable[[], resolve.Command]) -> list[Path]:
    """The jars, fetched if need be. `ivy_command` yields what runs Ivy. Raises DownloadFailed, DiskFull."""
    jars = cache_dir / f"spark-sql-kafka-{SINK_VERSION}"
    wanted = [jars / module.file_name for module in MODULES]
    if all(jar.exists() for jar in wanted):
        return wanted
    cache_dir.mkdir(parents=True, exist_ok=True)
    with resolve.exclusive(jars.with_suffix(".lock")):
        work = jars.with_suffix(".part")
        fetched = work / "jars"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir(parents=True)
        (work / "ivy.xml").write_text(ivy_module(), encoding="utf-8")
        resolve.run_ivy(f"clients for Spark {SINK_VERSION}", ivy_command(), work, fetched)
        shutil.rmtree(jars, ignore_errors=True)
        fetched.rename(jars)
        shutil.rmtree(work, ignore_errors=True)
    return wanted


def ivy_module() -> str:
    """An ivy.xml that depends on MODULES and on nothing else."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)}"
        f' rev={quoteattr(module.revision)} conf="default->default" transitive="false"/>'
        for module in MODULES
    )
    return f"""\
<ivy-module version="2.0">
  <info organisation="local" module="spark-kafka-sink"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""

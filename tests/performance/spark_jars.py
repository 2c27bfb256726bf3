"""The jars of Spark's own Kafka sink and of its Avro, fetched once by the Ivy that PySpark ships and kept beside the
broker's.

Asked for by name and not with what they depend on: that would be Spark itself once more, which PySpark has. The token
provider's version is the newest that has been published on its own; the sink only asks it whether delegation tokens are
in use. kafka-clients and commons-pool2 are of the versions that the sink's own POM names. Compressors (zstd-jni,
lz4-java, snappy-java) come with PySpark.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from kafka_sink.broker import resolve
from kafka_sink.broker.resolve import find_java

SINK_VERSION = "4.2.0"


class Module(NamedTuple):
    organisation: str
    name: str
    revision: str


MODULES = (
    Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", SINK_VERSION),
    Module("org.apache.spark", "spark-avro_2.13", SINK_VERSION),
    Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Module("org.apache.kafka", "kafka-clients", "3.9.2"),
    Module("org.apache.commons", "commons-pool2", "2.13.1"),
)
_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="false"/>\n'
# Depends on MODULES and on nothing else.
IVY_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="local" module="spark-kafka-sink"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{"".join(_DEPENDENCY.format(*module) for module in MODULES)}  </dependencies>
</ivy-module>
"""


def spark_jars() -> list[Path]:
    """The jars, fetched if need be. Raises DownloadFailed, DiskFull."""
    jars = resolve.default_cache_dir(os.environ) / f"spark-sql-kafka-{SINK_VERSION}"
    wanted = [jars / f"{module.organisation}_{module.name}-{module.revision}.jar" for module in MODULES]
    if all(jar.exists() for jar in wanted):
        return wanted
    ivy: resolve.Command = [find_java(os.environ), "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())]
    jars.parent.mkdir(parents=True, exist_ok=True)
    with resolve.exclusive(jars.with_suffix(".lock")):
        work = jars.with_suffix(".part")
        fetched = work / "jars"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir(parents=True)
        (work / "ivy.xml").write_text(IVY_MODULE, encoding="utf-8")
        resolve.run_ivy(f"clients for Spark {SINK_VERSION}", ivy, work, fetched)
        shutil.rmtree(jars, ignore_errors=True)
        fetched.rename(jars)
        shutil.rmtree(work, ignore_errors=True)
    return wanted

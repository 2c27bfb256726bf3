"""The jars of Spark's own Kafka sink and of its Avro, fetched once by the Ivy that PySpark ships and kept beside the
broker's.

Asked for by name and not with what they depend on: that would be Spark itself once more, which PySpark has. The token
provider's version is the newest that has been published on its own; the sink only asks it whether delegation tokens are
in use. kafka-clients and commons-pool2 are of the versions that the sink's own POM names. Compressors (zstd-jni,
lz4-java, snappy-java) come with PySpark.
"""

from pathlib import Path

from fetched_jars import Module, fetched_jars

SINK_VERSION = "4.2.0"
MODULES = (
    Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", SINK_VERSION),
    Module("org.apache.spark", "spark-avro_2.13", SINK_VERSION),
    Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Module("org.apache.kafka", "kafka-clients", "3.9.2"),
    Module("org.apache.commons", "commons-pool2", "2.13.1"),
)


def spark_jars() -> list[Path]:
    """The jars, fetched if need be. Raises DownloadFailed, DiskFull."""
    return fetched_jars("spark-sql-kafka", SINK_VERSION, MODULES)

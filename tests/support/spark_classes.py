"""A Spark application that loads the classes that those of the tests load. `make` has its JVM archive them (JEP 350),
so that an application of five small jobs takes 5 s of CPU instead of 10."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


class Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Writer().write(iterator)


class Discarded(DataSource):
    @classmethod
    def name(cls) -> str:
        return "discarded"

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter()


def batches(spark: SparkSession, scratch: Path) -> DataFrame:
    """Jobs of the kinds that tests run; a frame of 1,000 rows in files."""
    spark.createDataFrame([("a", 1), ("b", None)], "word string, count int").write.json(str(scratch / "json"))
    frame = spark.range(1000).select(
        F.concat(F.lit("k"), "id").cast("binary").alias("key"),
        F.to_json(F.struct("id")).alias("value"),
        F.array(F.struct(F.lit("h").alias("key"), F.lit(b"v").alias("value"))).alias("headers"),
        F.current_timestamp().alias("timestamp"),
    )
    frame.write.parquet(str(scratch / "rows"))
    rows = spark.read.parquet(str(scratch / "rows"))
    counted = rows.groupBy(F.length("value").alias("length")).count().orderBy("count")
    counted.join(spark.range(10), F.col("length") == F.col("id")).collect()
    rows.repartition(3).write.format("discarded").mode("append").save()
    rows.limit(5).toPandas()
    rows.mapInArrow(lambda each: each, rows.schema).count()
    return rows


def streams(spark: SparkSession, scratch: Path, rows: DataFrame) -> None:
    stream = spark.readStream.schema(rows.schema).parquet(str(scratch / "rows"))
    checkpoint = scratch / "checkpoint"
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.format("discarded").start().awaitTermination()
    counted = stream.withWatermark("timestamp", "1 minute").groupBy("key").count().writeStream.outputMode("update")
    counted.foreachBatch(collect).trigger(availableNow=True).start().awaitTermination()


def collect(frame: DataFrame, _: int) -> None:
    frame.collect()


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.dataSource.register(Discarded)
    with tempfile.TemporaryDirectory() as folder:
        streams(spark, Path(folder), batches(spark, Path(folder)))
        spark.stop()


if __name__ == "__main__":
    main()

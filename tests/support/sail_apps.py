"""Applications on Sail, each with a server of its own: `python sail_apps.py FUNCTION ARGUMENT...` prints, as JSON, what
the function returns. The Python has pysail and pyspark-client, and no Java."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from kafka_sink.errors import KafkaSinkError


def failure(call: Callable[..., object], *arguments: Any, **options: Any) -> dict[str, Any]:
    """What the user sees: the error's class, message and fields."""
    try:
        call(*arguments, **options)
    except (PySparkException, KafkaSinkError) as error:
        found = kafka_sink.error_of(error)
        fields = {} if found is None else {name: repr(fact) for name, fact in vars(found).items()}
        return {"class": type(found).__name__, "text": str(found or error), **fields}
    raise AssertionError("it must fail")


def read(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    return spark.read.format("pykafka").options(**given).load()


def save(frame: DataFrame, servers: str, topic: str, **options: str | int) -> None:
    given: dict[str, str | int] = {"kafka.bootstrap.servers": servers, "topic": topic, **options}
    frame.write.format("pykafka").mode("append").options(**given).save()


def numbers(spark: SparkSession, end: int, first: int = 0) -> DataFrame:
    return spark.range(first, end).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def reads(spark: SparkSession, servers: str, topic: str, missing: str) -> dict[str, Any]:
    """Write 0 to 2,999 to `topic` of three partitions, with a header and a time each, and read them in many ways."""
    header = F.array(F.struct(F.lit("of").alias("key"), F.lit("sail").cast("binary").alias("value")))
    rows = numbers(spark, 3_000).withColumns({"headers": header, "timestamp": F.expr("TIMESTAMP'2020-01-01 12:00:00'")})
    save(rows.coalesce(1), servers, topic, sailPartitions=1)
    frame = read(spark, servers, topic, includeHeaders="true")
    number = "CAST(CAST(value AS STRING) AS INT)"
    first = frame.filter("CAST(value AS STRING) = '17'").collect()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    in_zone = read(spark, servers, topic).selectExpr("CAST(max(timestamp) AS STRING) AS t").collect()
    named = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    of_user = spark.read.format("pykafka").schema("value BINARY, timestamp TIMESTAMP").options(**named).load()
    of_user_rows = of_user.filter("CAST(value AS STRING) = '17'").collect()
    of_user_in_zone = of_user.selectExpr("CAST(max(timestamp) AS STRING) AS t").collect()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    counted = [frame.count()]
    frame.createOrReplaceTempView("orders")
    save(numbers(spark, 3_010, first=3_000).coalesce(1), servers, topic, sailPartitions=1)
    again = spark.sql("SELECT count(*) AS n FROM orders").collect()
    return {
        "schema": frame.schema.simpleString(),
        "first": [[row.topic, row.partition, bytes(row.headers[0].value).decode(), row.timestampType] for row in first],
        "sum": frame.filter("offset < 100000").selectExpr(f"sum({number}) AS n").collect()[0].n,
        "cast": [frame.filter(f"CAST(offset{wrap} AS INT) = 5").count() for wrap in ("", " % 256")],
        "narrow": frame.filter("CAST(offset AS TINYINT) = 5").count(),
        "counted": [*counted, again[0].n, frame.count()],
        "partitions": frame.groupBy("partition").count().count(),
        "bounds": read(spark, servers, topic, endingOffsets=json.dumps({topic: {"0": 2, "1": 2, "2": 2}})).count(),
        "divided": read(spark, servers, topic, minPartitions="9").count(),
        "joined": frame.alias("a").join(read(spark, servers, topic).alias("b"), ["partition", "offset"]).count(),
        "zone": [in_zone[0].t, of_user_in_zone[0].t],
        "of user": [[row.timestamp.isoformat(), bytes(row.value).decode()] for row in of_user_rows],
        "missing": failure(read(spark, servers, missing).count),
        "in task": failure(read(spark, servers, topic, includeHeaders="true", maxHeadersPerBatch="1").collect),
        "option": failure(read(spark, servers, topic, startingOffset="earliest").count),
    }


def writes(spark: SparkSession, servers: str, topic: str, letters: str, receipts: str) -> dict[str, Any]:
    """Write 0 to 999 in one partition and 1,000 to 1,999 in four to `topic`, and bad rows to `letters`."""
    save(numbers(spark, 1_000).coalesce(1), servers, topic, sailPartitions=1)
    parallel = numbers(spark, 2_000, first=1_000).repartition(4)
    save(parallel, servers, topic, sailPartitions=4, receiptsPath=receipts, receiptName="four")
    bad = numbers(spark, 10).withColumn("partition", F.lit(99)).repartition(2)
    save(bad, servers, topic, sailPartitions=2, badRows="deadLetter", deadLetterTopic=letters)
    slots = kafka_sink.receipts(spark, receipts).select("slot", "record_count", "rows").collect()
    return {"receipts": [list(row) for row in slots], "letters": read(spark, servers, letters).count()}


def refusals(spark: SparkSession, servers: str, topic: str) -> dict[str, Any]:
    """Writes that Sail cannot carry, none of which may write a row."""
    rows = numbers(spark, 100)
    one = rows.coalesce(1)
    stream = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    to_topic = {"kafka.bootstrap.servers": servers, "topic": topic, "sailPartitions": "1"}

    def run_stream() -> None:
        writer = stream.load().select("value").coalesce(1).writeStream.format("pykafka").options(**to_topic)
        writer.option("checkpointLocation", "/tmp/pykafka-sail").start().awaitTermination(30)

    def co_partitioned() -> None:
        kafka_sink.export(rows, topic, key="key", value="json", co_partition=True, bootstrap_servers=servers)

    found = {
        "plain": failure(save, rows, servers, topic),
        "exactly-once": failure(save, one, servers, topic, sailPartitions=1, deliveryGuarantee="exactly-once"),
        "rowIdentity": failure(save, one, servers, topic, sailPartitions=1, rowIdentity="true"),
        "column": failure(save, one.withColumn("x", F.lit(1)), servers, topic, sailPartitions=1),
        "stream": failure(run_stream),
        "co_partition": failure(co_partitioned),
        "export exactly-once": failure(
            kafka_sink.export, rows, topic, value="json", exactly_once=True, bootstrap_servers=servers
        ),
    }
    spark.conf.set("spark.pykafka.badRows", "drop")
    found["conf"] = failure(kafka_sink.export, rows, topic, value="json", bootstrap_servers=servers)
    return found


def exports(spark: SparkSession, servers: str, topic: str, missing: str, receipts: str) -> dict[str, Any]:
    """Export any DataFrames: of one partition, of several, of pandas."""
    to: dict[str, Any] = {"bootstrap_servers": servers}
    rows = numbers(spark, 1_000)
    grouped = rows.groupBy((F.col("key").cast("int") % 7).cast("string").alias("key")).agg(
        F.max("value").alias("value")
    )
    results = [
        kafka_sink.export(rows, topic, key="key", value="json", headers={"of": F.lit("sail")}, **to),
        kafka_sink.export(grouped, topic, key="key", value="value", **to),
        kafka_sink.export(rows, topic, value="value", sail_partitions=3, receipts_path=receipts, **to),
        kafka_sink.export(rows.limit(5).toPandas(), topic, key="key", value="value", **to),
    ]
    return {
        "rows": [[each.rows, sum(part.record_count for part in each.partitions)] for each in results],
        "path": str(results[2].path),
        "missing": failure(kafka_sink.export, rows, missing, value="json", max_block_ms=2_000, **to),
    }


def thousand(spark: SparkSession, servers: str, topic: str) -> int | None:
    """Write 0 to 999 to `topic`."""
    return kafka_sink.export(numbers(spark, 1_000), topic, bootstrap_servers=servers).rows


if __name__ == "__main__":
    # Only the environment of these tests has it.
    from pysail.spark import SparkConnectServer  # type: ignore[import-not-found]

    server = SparkConnectServer()
    server.start()
    session = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
    kafka_sink.register(session)
    found = globals()[sys.argv[1]](session, *sys.argv[2:])
    print(json.dumps(found), flush=True)
    # Threads of the server outlive a stop.
    os._exit(0)

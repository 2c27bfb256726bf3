"""Applications of Spark Connect, each on a server of its own: `python connect_apps.py FUNCTION ARGUMENT...` prints, as
JSON, what the function returns."""

import contextlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafka_sink
from exactly_once_runs import is_unrecorded
from kafka_sink.errors import KafkaSinkError
from kafka_sink.registry import deserialized, serialized
from spark_writes import finish, numbers, pykafka, save

NOW = {"availableNow": True}


def failure(call: Callable[..., object], *arguments: Any) -> dict[str, Any]:
    """What the client sees: the exception's text, and the error's own with its fields."""
    try:
        call(*arguments)
    except (PySparkException, KafkaSinkError) as error:
        found = kafka_sink.error_of(error)
        fields = {"topic": getattr(found, "topic", None), "cause": type(error.__cause__).__module__}
        shown = f"{found} {vars(found) if found else ''}"
        return {"class": type(found).__name__, "text": str(error), "found": shown, **fields}
    raise AssertionError("it must fail")


class Negative(kafka_sink.Interceptor):
    def on_send(self, arrow_batch: Any) -> Any:
        import pyarrow.compute as pc

        return arrow_batch.set_column(0, "value", pc.binary_join_element_wise("-", arrow_batch["value"], ""))


class Raising(kafka_sink.Interceptor):
    def on_send(self, arrow_batch: Any) -> Any:
        raise RuntimeError("this row is not for the eyes of others")


def later_half(spark: SparkSession, folder: str) -> Any:
    """A stream of 1,000 to 1,999."""
    numbers(spark, 1_000, first=1_000).write.parquet(f"{folder}/in")
    return spark.readStream.schema("value STRING").parquet(f"{folder}/in")


def writes(spark: SparkSession, servers: str, topic: str, exported: str, folder: str) -> dict[str, Any]:
    """Write 0 to 1,999 to `topic`, half by a batch write, half by a stream. To `exported`, of several partitions, the
    same by `export` and `to_kafka`, a task for each partition."""
    one, source = numbers(spark, 1), later_half(spark, folder)
    save(numbers(spark, 1_000), servers, topic)
    writer = source.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(**NOW)
    finish(pykafka(writer, servers, topic).start())
    of_option = failure(lambda: save(one, servers, topic, compression_type="brotli"))

    given: dict[str, Any] = {"topic": exported, "key": F.col("value"), "co_partition": True}
    given["bootstrap_servers"] = servers
    named = numbers(spark, 1_000).withColumn("order.id", F.col("value")).repartition(3)
    receipt = kafka_sink.export(named, order_by=F.col("value").cast("int"), **given | {"key": "order.id"})
    finish(kafka_sink.to_kafka(source, trigger=NOW, checkpoint_location=f"{folder}/to-kafka-checkpoint", **given))

    missing: dict[str, Any] = {"topic": "nobody-made-this", "max_block_ms": 30_000, "bootstrap_servers": servers}
    of_export = failure(lambda: kafka_sink.export(one, **missing))
    query = kafka_sink.to_kafka(source, trigger=NOW, checkpoint_location=f"{folder}/missing-checkpoint", **missing)
    of_stream = failure(query.awaitTermination, 120)
    assert str(kafka_sink.error_of(query)) == of_stream["text"]
    return {
        "export": of_export, "stream": of_stream, "option": of_option["text"], "rows": receipt.rows,
        "offsets": {each.partition: [each.first_offset, each.last_offset] for each in receipt.partitions},
    }  # fmt: skip


def of_conf(spark: SparkSession, servers: str, topic: str, folder: str) -> dict[str, Any]:
    """Write -1 to -1,999 to `topic`, which the conf names and an interceptor makes negative, half by a batch
    write, half by a stream. The errors of another interceptor and of the conf."""
    one = numbers(spark, 1)
    spark.conf.set("spark.pykafka.kafka.bootstrap.servers", servers)
    spark.conf.set("spark.pykafka.topic", topic)
    kafka_sink.register(spark, interceptors=[Negative()])
    numbers(spark, 999, first=1).write.format("pykafka").mode("append").save()
    writer = later_half(spark, folder).writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(**NOW)
    finish(writer.format("pykafka").start())
    kafka_sink.register(spark, interceptors=[Negative(), Raising()])
    of_interceptor = failure(one.write.format("pykafka").mode("append").save)
    spark.conf.set("spark.pykafka.kafka.acks", "2")
    wrong = failure(one.write.format("pykafka").mode("append").save)
    return {"interceptor": of_interceptor["text"], "conf": wrong["text"]}


def updates(spark: SparkSession, servers: str, topic: str, folder: str) -> dict[str, Any]:
    """Sums in update mode to `topic`: three micro-batches, one after the other and then the last one again. From 4.3 on
    Spark runs the write of a micro-batch in a clone of the session, which has the session's conf and interceptors."""
    spark.conf.set("spark.pykafka.kafka.bootstrap.servers", servers)
    kafka_sink.register(spark, interceptors=[Negative()])
    for number in range(3):
        spark.range(2).selectExpr(f"id + {number} AS n").coalesce(1).write.mode("append").parquet(f"{folder}/in")
    source = spark.readStream.schema("n BIGINT").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    sums = source.groupBy().sum("n").selectExpr("CAST(`sum(n)` AS STRING) AS value")

    def run(to: str, checkpoint: str) -> Any:
        query = kafka_sink.to_kafka(
            sums, to, bootstrap_servers=servers, output_mode="update", exactly_once=True, trigger=NOW,
            checkpoint_location=f"{folder}/{checkpoint}", max_block_ms=30_000, validate=False,
        )  # fmt: skip
        query.awaitTermination()
        return query

    first = run(topic, "checkpoint")
    is_unrecorded(Path(folder))
    again = run(topic, "checkpoint")
    return {"again": again.id == first.id, "error": failure(run, "nobody-made-this", "missing")["class"]}


def reads(spark: SparkSession, servers: str, topic: str) -> dict[str, Any]:
    """What was read as a batch and as a stream, and the errors where a topic is missing."""
    read = spark.read.format("pykafka").option("kafka.bootstrap.servers", servers)
    whole = read.option("subscribe", topic).option("includeHeaders", "true").load()
    told: dict[str, Any] = {"rows": whole.count(), "columns": whole.columns}
    pruned = read.option("subscribe", topic).schema("offset BIGINT, value BINARY").load().where("offset = 7")
    told["pruned"] = [[row.offset, bytes(row.value).decode()] for row in pruned.collect()]
    told["error"] = failure(read.option("subscribe", "nobody-made-this").load().collect)["class"]

    def stream(name: str) -> Any:
        """A stream that has ended. Its rows are in a table of the same name."""
        options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
        started = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers).options(**options)
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = started.load().writeStream.format("memory").queryName(name.replace("-", "_"))
            query = writer.option("checkpointLocation", checkpoint).trigger(**NOW).start()
            with contextlib.suppress(PySparkException):
                query.awaitTermination()
        return query

    query = stream(topic)
    told["streamed"] = spark.table(query.name).select("partition", "offset").distinct().count()
    told["latest"] = json.loads(query.lastProgress["sources"][0]["latestOffset"])[topic]["0"]
    return {**told, "stream error": type(kafka_sink.error_of(stream("nobody-made-this"))).__name__}


# --- tenants ----------------------------------------------------------------------------------------------------------


def write(session: SparkSession, topic: str, options: dict[str, str]) -> None:
    frame = session.sql("select 'row' as value").coalesce(1)
    frame.write.format("pykafka").options(**options, topic=topic).mode("append").save()


def read(session: SparkSession, topic: str, options: dict[str, str]) -> int:
    return session.read.format("pykafka").options(**options, subscribe=topic).load().count()


def export(session: SparkSession, topic: str, options: dict[str, str]) -> None:
    kafka_sink.export(session.sql("select 'row' as value"), topic, value="value", options=options)


def tenants(spark: SparkSession, users: str, given: str) -> dict[str, Any]:
    """`users`: of two a token and a topic, of the first the options with a password. `given`: options without
    credentials. How many records each reads, and the errors."""
    (bob, dan), options = json.loads(users), json.loads(given)
    sessions = spark, spark.newSession()
    for user, session in zip((bob, dan), sessions, strict=True):
        kafka_sink.register(session, token=lambda token=user["token"]: (token, 3_600.0))  # type: ignore[misc]
        write(session, user["topic"], options)
    of_bob, of_dan = sessions
    write(of_bob, bob["topic"], bob["options"])
    found = {"read": [read(of_bob, bob["topic"], options), read(of_dan, dan["topic"], options)], "refused": [
        *(failure(call, of_bob, dan["topic"], options) for call in (write, read)),
        *(failure(call, of_dan, bob["topic"], options) for call in (write, read)),
        failure(write, of_bob, dan["topic"], bob["options"]),
    ]}  # fmt: skip
    # What one tenant has in the conf of its session is not the other's.
    for name, text in bob["options"].items():
        of_bob.conf.set(f"spark.pykafka.{name}", text)
    write(of_bob, bob["topic"], {})
    return {**found, "without": failure(write, of_dan, dan["topic"], {})}


def hostile(spark: SparkSession, peers: str) -> list[dict[str, Any]]:
    """The errors of a write, an export and a read at each of these peers."""
    return [
        failure(call, spark, "orders", each[kind])
        for each in json.loads(peers)
        for call, kind in ((write, "write"), (export, "write"), (read, "read"))
    ]


def decodes(spark: SparkSession, url: str, folder: str) -> dict[str, Any]:
    """Records that are encoded and decoded by the registry at `url`, in a batch and a stream, the reasons of two that
    are not, and the plan. `folder`: for the stream's input."""
    registry = {"url": url, "basic.auth.user.info": "alice:hunter2"}
    frame = spark.range(0, 4, 1, 1).selectExpr("id", "array(id, null) AS pair")
    value = serialized(frame, ["id", "pair"], topic="orders", form="avro", registry=registry)
    records = frame.select(value.alias("value"), (F.col("id") + 100).alias("offset"), F.lit("orders").alias("topic"))
    broken = "CASE offset WHEN 101 THEN X'7B' WHEN 102 THEN concat(value, X'00') ELSE value END AS value"
    bad = records.selectExpr(broken, "offset", "topic", "7 AS partition")

    def decoded(of: Any, **more: Any) -> Any:
        return of.select(deserialized(of, "value", topic="orders", form="avro", registry=registry, **more).alias("r"))

    records.write.parquet(f"{folder}/records")
    stream = decoded(spark.readStream.schema(records.schema).parquet(f"{folder}/records"))
    finish(stream.writeStream.format("memory").queryName("streamed").trigger(**NOW).start())
    with_reasons = decoded(bad, bad_rows="null")
    plan = with_reasons._explain_string(extended=True)
    return {
        "rows": [row.asDict(recursive=True)["r"] for row in decoded(records).collect()],
        "streamed": [row.asDict(recursive=True)["r"] for row in spark.table("streamed").orderBy("r.id").collect()],
        "reasons": [row.reason for row in with_reasons.select("r.*").collect()],
        "failure": failure(decoded(bad).collect), "plan": plan,
    }  # fmt: skip


def main(name: str, *arguments: str) -> None:
    # The server takes a free port, and not the one of every other server of this machine.
    os.environ["SPARK_TESTING"] = "1"
    spark, status = SparkSession.builder.remote("local[2]").getOrCreate(), 1
    kafka_sink.register(spark)
    try:
        print(json.dumps(globals()[name](spark, *arguments)), flush=True)
        status = 0
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()
    # An exit in the usual way waits for a server that has ended, or that runs on after an error.
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])

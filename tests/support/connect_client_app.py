"""A user's application for Spark Connect, where pyspark-client is all that is installed of Spark: no py4j, no Java.

SPARK_REMOTE=sc://... python connect_client_app.py BOOTSTRAP_SERVERS FOLDER prints, as JSON, what it saw of each thing
that kafka_sink does.
"""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafka_sink
from kafka_sink import functions as K
from kafka_sink.errors import KafkaSinkError
from kafka_sink.errors.installed import found_pyspark

NOW = {"availableNow": True}
ROWS = 1_000


class Minus(kafka_sink.Interceptor):
    def on_send(self, arrow_batch: Any) -> Any:
        import pyarrow.compute as pc

        return arrow_batch.set_column(0, "value", pc.binary_join_element_wise("-", arrow_batch["value"], ""))


def values(spark: SparkSession, servers: str, topic: str) -> list[str]:
    read = spark.read.format("pykafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return sorted(bytes(row.value).decode() for row in read.load().select("value").collect())


def main(servers: str, folder: str) -> dict[str, Any]:
    spark = SparkSession.builder.getOrCreate()
    kafka: dict[str, Any] = {"create_topics": {"partitions": 2}, "bootstrap_servers": servers}
    told: dict[str, Any] = {
        "py4j": importlib.util.find_spec("py4j") is not None,
        "java": shutil.which("java"),
        "pyspark": str(found_pyspark()),
        "server": spark.version,
    }
    numbers = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")

    report = kafka_sink.validate(numbers, "client-exported", executors=True, **kafka)
    told["validated"] = [report.ok, any(each.seen_from != "driver" for each in report.verdicts)]
    result = kafka_sink.export(
        numbers, "client-exported", key="value", exactly_once=True, txn_app_id="client", txn_version=0,
        co_partition=True, receipts_path=f"{folder}/receipts", **kafka,
    )  # fmt: skip
    told["exported"] = [result.rows, values(spark, servers, "client-exported") == sorted(map(str, range(ROWS)))]
    told["receipts"] = kafka_sink.receipts(spark, f"{folder}/receipts").count() > 0
    told["of a table"] = kafka_sink.export(pa.table({"value": ["a", "b"]}), "client-of-a-table", **kafka).rows

    kafka_sink.register(spark, interceptors=[Minus()])
    options = {"kafka.bootstrap.servers": servers, "topic": "client-plain", "createTopics": "true"}
    numbers.write.format("pykafka").mode("append").options(**options).save()
    told["plain"] = values(spark, servers, "client-plain") == sorted(f"-{each}" for each in range(ROWS))
    kafka_sink.register(spark)

    placed = numbers.withColumn("partition", K.kafka_partition("value", 2)).withColumn("key", K.string_bytes("value"))
    kafka_sink.export(placed, "client-functions", **kafka)
    told["functions"] = len(values(spark, servers, "client-functions"))
    told["partitions"] = kafka_sink.partition_count({"kafka.bootstrap.servers": servers, "topic": "client-functions"})

    stream = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers)
    source = stream.option("subscribe", "client-exported").option("startingOffsets", "earliest").load()
    for mode in ("append", "update"):
        query = kafka_sink.to_kafka(
            source.select(F.col("value")), f"client-streamed-{mode}", exactly_once=True, trigger=NOW, output_mode=mode,
            checkpoint_location=f"{folder}/checkpoint-{mode}", **kafka,
        )  # fmt: skip
        query.awaitTermination()
        told[f"streamed by {mode}"] = len(values(spark, servers, f"client-streamed-{mode}"))
    try:
        kafka_sink.export(numbers, "nobody-made-this", bootstrap_servers=servers, max_block_ms=30_000)
    except KafkaSinkError as error:
        told["error"] = type(error).__name__
    return told


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], str(Path(sys.argv[2]).resolve()))))

"""Writes of rows to Amazon MSK with IAM: a batch of one row, and an exactly-once stream of two. Run as a script:

msk_iam_app.py <options as JSON> <topic> <folder of the event log> <checkpoint>"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import kafka_sink


def main(options: str, topic: str, event_log: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file://{event_log}")
        .getOrCreate()
    )
    kafka_sink.register(spark)
    msk = {**json.loads(options), "topic": topic}
    spark.sql("SELECT 'let in' AS value").write.format("pykafka").mode("append").options(**msk).save()
    spark.sql("SELECT 'a' AS value UNION ALL SELECT 'b'").write.parquet(f"{checkpoint}-rows")
    query = (
        spark.readStream.schema("value string").parquet(f"{checkpoint}-rows")
        .writeStream.format("pykafka").options(**msk).option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    query.explain(extended=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

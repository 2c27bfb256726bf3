"""Writes that fail, a batch and a stream, with a canary in every secret option. Run as a script:

secrets_app.py <canary> <folder of the event log> <checkpoint>"""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def main(canary: str, event_log: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file://{event_log}")
        .config("spark.pykafka.kafka.ssl.key.password", canary)
        .getOrCreate()
    )
    kafka_sink.register(spark)
    common = {
        "kafka.bootstrap.servers": "localhost:1",
        "topic": "t",
        "kafka.max.block.ms": "500",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
    }
    jaas = {**common, "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{canary}";'}
    password = {
        **common,
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": canary,
        "kafka.sasl.oauthbearer.client.credentials.client.secret": canary,
    }
    key = {**password, "kafka.ssl.keystore.certificate.chain": "chain", "kafka.ssl.keystore.key": canary}
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    for options in (jaas, password, key):
        try:
            frame.write.format("pykafka").options(**options).mode("append").save()
        except PySparkException as error:
            print(f"failed: {error}")
    rate = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writer = rate.writeStream.format("pykafka").options(**jaas).option("checkpointLocation", checkpoint)
    query = writer.start()
    try:
        query.awaitTermination()
    except PySparkException as error:
        print(f"failed: {error}")
    print(query.lastProgress, query.status)
    query.explain(extended=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

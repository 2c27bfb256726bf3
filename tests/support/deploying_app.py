"""A user's application, which tests submit with different Pythons, packages and clusters.

python deploying_app.py BOOTSTRAP_SERVERS TOPIC [ZIP] writes the numbers below 1,000 to TOPIC; where Spark finds no
`format("pykafka")`, after `kafka_sink.register(spark)`. ZIP is sent to a Spark Connect server before. It prints, as
JSON, whether the format was found, and which interpreters a write has, as `pykafka check --spark` says it.
"""

import json
import sys

from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.spark.interpreters import examine_interpreters

bootstrap_servers, topic, *archives = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
for archive in archives:
    spark.addArtifacts(archive, pyfile=True)


def write() -> None:
    rows = spark.range(0, 1_000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    rows.write.format("pykafka").mode("append").options(**options).save()


try:
    write()
    found = True
except Exception as failure:
    if "[DATA_SOURCE_NOT_FOUND]" not in str(failure):
        raise
    found = False
    kafka_sink.register(spark)
    write()
verdicts = [(each.where, each.status, each.finding.found) for each in examine_interpreters(spark).verdicts]
print(json.dumps({"found": found, "verdicts": verdicts}))
spark.stop()

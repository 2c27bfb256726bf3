"""Writes the numbers below 1,000 to each topic, by a batch, and by a stream if there is a folder. Run as a script:

writes_app.py <JSON: [[topic, options of a write], ...]> [<folder of rows and checkpoints>]"""

import json
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.range(1_000).selectExpr("CAST(id AS STRING) AS value")
for number, (topic, options) in enumerate(json.loads(sys.argv[1])):
    rows.write.format("pykafka").mode("append").options(**options, topic=topic).save()
    if sys.argv[2:]:
        folder = f"{sys.argv[2]}/{number}"
        rows.write.parquet(f"{folder}/rows")
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").writeStream.format("pykafka")
        stream.options(**options, topic=topic, checkpointLocation=f"{folder}/checkpoint")
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        query.explain(extended=True)
spark.stop()

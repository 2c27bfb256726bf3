"""A batch write, a stream and a write with a wrong option over Spark Connect, on a server of its own.

python spark_connect_app.py BOOTSTRAP_SERVERS TOPIC FOLDER prints, as JSON, what the wrong option's user reads.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink
from spark_writes import finish, pykafka, save

bootstrap_servers, topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
kafka_sink.register(spark)

save(spark.range(0, 1_000, 1, 1).selectExpr("cast(id AS STRING) AS value"), bootstrap_servers, topic)

spark.range(1_000, 2_000, 1, 1).selectExpr("cast(id AS STRING) AS value").write.parquet(f"{folder}/incoming")
source = spark.readStream.schema("value STRING").parquet(f"{folder}/incoming")
writer = pykafka(source.writeStream, bootstrap_servers, topic).option("checkpointLocation", f"{folder}/checkpoint")
finish(writer.trigger(availableNow=True).start())

try:
    save(spark.range(1).selectExpr("'v' AS value"), bootstrap_servers, topic, compression_type="brotli")
except PySparkException as error:
    print(json.dumps(str(error)))
spark.stop()

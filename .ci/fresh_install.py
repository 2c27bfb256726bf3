"""Run in a new environment with only the wheel, its dependencies and its extra `spark`, outside the sources.

Spark must find the format itself. Its workers must try to reach a broker that does not exist: before that they import
everything that the sink needs.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pkgutil import iter_modules

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

assert "pyspark_pykafka" in {module.name for module in iter_modules()}
for extra in ("pandas", "confluent_kafka", "pytest", "tests", "jobs", "demo"):
    assert find_spec(extra) is None, f"{extra} is there"

quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[1]").config(map=quiet).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.createDataFrame([(b"value",)], "value BINARY")
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "none", "kafka.max.block.ms": "1000"}
try:
    rows.write.format("pykafka").mode("append").options(**options).save()
except PySparkException as error:
    assert "BrokersUnreachable" in str(error), error
    print("Spark found the format; the worker looked for the broker that is not there")
else:
    raise AssertionError("rows were written to a broker that is not there")
finally:
    spark.stop()

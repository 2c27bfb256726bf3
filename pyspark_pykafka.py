"""What Spark looks for when it meets `format("pykafka")`: a top-level module `pyspark_*` with a `DefaultSource`.

Source: pyspark/sql/worker/lookup_data_sources.py.
"""

from kafka_sink.spark.source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]

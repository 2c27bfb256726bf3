"""The "pykafka" data source: what Spark's driver and executors call."""

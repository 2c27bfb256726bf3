"""The "pykafka" data source, which Spark's driver and executors call."""

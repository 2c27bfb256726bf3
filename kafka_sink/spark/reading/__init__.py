"""Reads Kafka for Spark: which ranges of offsets, in how many tasks, and the rows of each."""

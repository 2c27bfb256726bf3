"""The consumer's half of the client: reads ranges of partitions. Pure: the time is an argument."""

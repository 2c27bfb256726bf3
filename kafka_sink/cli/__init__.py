"""The commands of `pykafka`, one module for each."""

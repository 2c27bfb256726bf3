"""The commands of `pykafka`: one module each."""

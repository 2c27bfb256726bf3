"""A real Kafka on this machine, for development and tests only, no replacement for a cluster.

`LocalKafka` is the context manager that tests use; `pykafka broker` is the same at the command line. All that it
needs beside this package is Java 17 and, once per Kafka version, the network: the Ivy that PySpark ships fetches the
broker's jars into a cache (`resolve`).

What is where:

* `resolve`: the jars of a Kafka version, from the cache or the network
* `java`: the Java to run them with
* `settings`: `server.properties` and the logging of a node, as text (pure)
* `leash`, `process`: processes that end when the one that started them does
* `ports`: ports that are free and stay so
* `requests`: the two requests that a broker is asked, over a plain socket
* `cluster`: `LocalKafka`
* `state`: what `stop` and `status` know of a cluster that another process runs
* `storage`: writing to the disk, and saying so clearly when that fails
* `__main__`: the command line
"""

from __future__ import annotations

from kafka_sink.broker.cluster import LocalKafka
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS

__all__ = ["DEFAULT_KAFKA_VERSION", "KAFKA_VERSIONS", "LocalKafka"]

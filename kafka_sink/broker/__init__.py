"""A real Kafka on this machine, for development and tests only. It does not replace a cluster.

Tests use the context manager `LocalKafka`. `pykafka broker` is the same at the command line. It needs Java 17, and once
for each Kafka version the network: the Ivy that PySpark ships fetches the broker's jars into a cache (`resolve`).

The modules:

* `resolve`: the jars of a Kafka version, from the cache or the network, and the Java that runs them
* `settings`: free ports, `server.properties` and the logging of a node
* `leash`, `process`: processes that end when the process that started them ends
* `requests`: the two requests to a broker, over a plain socket
* `cluster`: `LocalKafka`
* `state`: files by which `stop` and `status` find a cluster of another process
* `errors`: also for failed writes to the disk
* `__main__`: the command line
"""

from __future__ import annotations

from kafka_sink.broker.cluster import LocalKafka
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS

__all__ = ["DEFAULT_KAFKA_VERSION", "KAFKA_VERSIONS", "LocalKafka"]

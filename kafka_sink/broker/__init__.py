"""A real Kafka on this machine, for development and tests only. It does not replace a cluster.

Tests use the context manager `LocalKafka`. `pykafka broker` is the same at the command line. It needs Java 17, and once
for each Kafka version the network: the Ivy that PySpark ships fetches the broker's jars into a cache (`resolve`).

The modules:

* `resolve`: the jars of a Kafka version, from the cache or the network
* `java`: finds the Java that runs them
* `settings`: `server.properties` and the logging of a node, as text (pure)
* `leash`, `process`: processes that end when the process that started them ends
* `ports`: chooses free ports that stay free
* `requests`: the two requests to a broker, over a plain socket
* `cluster`: `LocalKafka`
* `state`: files by which `stop` and `status` find a cluster of another process
* `storage`: clear errors when writing to the disk fails
* `__main__`: the command line
"""

from __future__ import annotations

from kafka_sink.broker.cluster import LocalKafka
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS

__all__ = ["DEFAULT_KAFKA_VERSION", "KAFKA_VERSIONS", "LocalKafka"]

"""A real broker that accepts SCRAM credentials with an unsafe number of iterations, and sends that number to clients.

An unchanged Kafka refuses twice: the controller does not store such a credential (ScramControlManager), and the broker
does not offer one (ScramSaslServer). Both read the minimum from ScramMechanism. This module puts a copy of that class
before Kafka's jars, with a different minimum. The rest of the broker is unchanged.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from kafka_sink.broker import resolve
from kafka_sink.broker.java import find_java

CLASS = "org/apache/kafka/common/security/scram/internals/ScramMechanism.class"
# The instruction that loads a number of two bytes: of the least iterations, and of the most (16,384).
SIPUSH = b"\x11"
LEAST = 4096


def careless_java(kafka_version: str, least: int, folder: Path) -> str:
    """Write the changed class to `folder` and return the JAVA_TOOL_OPTIONS for such a broker."""
    jars = resolve.resolve_jars(
        resolve.KAFKA_VERSIONS[kafka_version],
        resolve.default_cache_dir(os.environ),
        lambda: [find_java(os.environ), "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())],
    )
    with zipfile.ZipFile(jars / f"org.apache.kafka_kafka-clients-{kafka_version}.jar") as archive:
        compiled = archive.read(CLASS)
    loads = SIPUSH + LEAST.to_bytes(2, "big")
    assert compiled.count(loads) == 2, "one for each mechanism"
    target = folder / CLASS
    target.parent.mkdir(parents=True)
    target.write_bytes(compiled.replace(loads, SIPUSH + least.to_bytes(2, "big")))
    return f"-Xbootclasspath/a:{folder}"

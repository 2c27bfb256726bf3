"""A real broker that lets passwords be kept with fewer SCRAM iterations than is safe, and asks clients for as few.

Kafka's own refuses twice: the controller to store such a credential (ScramControlManager), the broker to offer one
that it has (ScramSaslServer). Both ask ScramMechanism for the least; here it says another, by a copy of that class in
which the one number differs, put before Kafka's jars. All else is the broker as it is.
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
    """What JAVA_TOOL_OPTIONS has to be for such a broker; `folder` gets the class."""
    jars = resolve.resolve_jars(
        kafka_version,
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

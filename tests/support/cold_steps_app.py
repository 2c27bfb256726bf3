"""Runs the steps of queries as Spark runs them, each in a fork of a process that has Spark's modules, and prints the
modules that each step imported over those."""

import json
import os
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.worker
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.sql.worker import (  # noqa: F401 (what Spark has imported before it calls a source)
    create_data_source,
    lookup_data_sources,
    plan_data_source_read,
    python_streaming_sink_runner,
    write_into_data_source,
)

Step = Callable[[Any], Any]
SCHEMA = StructType([StructField("value", BinaryType())])


def rows() -> pa.RecordBatch:
    """One row, made of buffers as Spark's are: `pa.array` of a list imports pandas."""
    offsets = pa.py_buffer(bytes(4) + (3).to_bytes(4, "little"))
    return pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(b"row")])], ["value"]
    )


def source(options: dict[str, str]) -> Any:
    from pyspark_pykafka import DefaultSource

    return DefaultSource(options)


def in_fork(step: Step, handed: bytes) -> tuple[bytes, list[str]]:
    """Return what the step hands on, as cloudpickle's bytes, and the modules that it imported."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        before = set(sys.modules)
        made = cloudpickle.dumps(step(pickle.loads(handed)))  # type: ignore[no-untyped-call]
        with os.fdopen(writing, "wb") as file:
            pickle.dump((made, sorted({*sys.modules} - before)), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        found: tuple[bytes, list[str]] = pickle.load(file)
    os.wait()
    return found


def read_columns(options: dict[str, str]) -> Any:
    return source(options).schema()


def plan_read(options: dict[str, str]) -> Any:
    reader = source(options).reader(source(options).schema())
    return reader, reader.partitions()[0]


def plan_read_of_stream(options: dict[str, str]) -> Any:
    return source(options).streamReader(source(options).schema()).initialOffset()


def read(planned: Any) -> Any:
    return next(planned[0].read(planned[1])).num_rows


def write(writer: Any) -> Any:
    context = TaskContext._getOrCreate()
    context._partitionId = context._attemptNumber = 0
    context._localProperties = {}
    return writer.write(iter([rows()]))


def commit(handed: tuple[bytes, bytes]) -> None:
    writer, message = map(pickle.loads, handed)
    writer.commit([message])


def connect(options: dict[str, str]) -> None:
    """What a client does before its first connection."""
    from kafka_sink.kafka.connections import connect as connected
    from kafka_sink.options.config import sink_config

    connected(sink_config(options).producer, rng=random.Random()).close()


def main(servers: str, topic: str, folder: str) -> None:
    write_options = {"kafka.bootstrap.servers": servers, "topic": topic}
    of_slots = write_options | {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic}
    checkpoint = {"checkpointlocation": Path(folder, "checkpoint").as_uri()}
    read_options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    password = {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.username": "u", "kafka.sasl.password": "p"}
    imported: dict[str, list[str]] = {}
    # Only tests have it, and kio imports it where it is.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]

    def run(name: str, step: Step, handed: bytes) -> bytes:
        made, imported[name] = in_fork(step, handed)
        return made

    def options(*each: dict[str, str]) -> bytes:
        return pickle.dumps({key: value for given in each for key, value in given.items()})

    run("look-up", lambda _: source({}), options())
    run("create for a write", source, options(write_options))
    run("create for a read", read_columns, options(read_options))
    planned = run("plan of a write", lambda given: source(given).writer(SCHEMA, False), options(write_options))
    run(
        "plan of a stream's write", lambda given: source(given).streamWriter(SCHEMA, False),
        options(write_options, checkpoint),
    )  # fmt: skip
    message = run("first row of a write", write, planned)
    run("commit of a write", commit, pickle.dumps((planned, message)))
    planned = run("plan, exactly-once", lambda given: source(given).writer(SCHEMA, False), options(of_slots))
    run("first row, exactly-once", write, planned)
    run("plan of a stream's read", plan_read_of_stream, options(read_options))
    run("first row of a read", read, run("plan of a read", plan_read, options(read_options)))
    run("SASL", connect, options(write_options, password, {"kafka.security.protocol": "SASL_PLAINTEXT"}))
    run("TLS", connect, options(write_options, {"kafka.security.protocol": "SSL"}))
    run("SASL over TLS", connect, options(write_options, password, {"kafka.security.protocol": "SASL_SSL"}))
    print(json.dumps(imported))


if __name__ == "__main__":
    assert pyspark.worker
    main(*sys.argv[1:])

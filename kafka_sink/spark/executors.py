"""The doctor's steps of the hosts, from the executors: where rows go out, names and firewalls may be others.

A job of a few tasks, which connect to every bootstrap server and broker from their own host; one report a host. How
tasks are spread is Spark's affair: a host that gets none is not looked from, and is not in the report. There are more
tasks than hosts, so that each gets one, and a Python worker that gets several looks once.
"""

from __future__ import annotations

import functools
import socket
import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_sink.doctor.engine import examine_hosts
from kafka_sink.doctor.report import Report, from_json, to_json
from kafka_sink.kafka.config import ProducerConfig

# Enough to meet the executors of a small cluster, and few enough for brokers to bear.
TASKS = 16


def examine_from_executors(spark: SparkSession, config: ProducerConfig) -> Report:
    """What the hosts of `spark` see of `config`'s brokers."""
    job = uuid.uuid4().hex

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pylist([{"host": socket.gethostname(), "verdicts": _seen_for(job, config)}])

    rows = spark.range(0, TASKS, 1, TASKS).mapInArrow(look, "host STRING, verdicts STRING").collect()
    by_host = {row.host: row.verdicts for row in sorted(rows, key=lambda row: row.host)}
    return sum((Report(from_json(verdicts, seen_from=host)) for host, verdicts in by_host.items()), start=Report(()))


@functools.lru_cache(maxsize=1)
def _seen_for(job: str, config: ProducerConfig) -> str:
    """What this process sees; looked at once a job."""
    return to_json(examine_hosts(config).verdicts)

"""Queries that want a few rows of a large topic, with real Spark and a real broker: how much their tasks fetch."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark.cloudpickle as cloudpickle
import pytest
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from broker_admin import producer
from kafka_reads import PYKAFKA, frame, new_topic
from kafka_sink import Interceptor
from kafka_sink.broker import LocalKafka

pytestmark = pytest.mark.long

# Workers do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

MIB = 1024 * 1024


class Weighing(Interceptor):
    """Notes in a file how many bytes of records its worker gets, a line for each answer."""

    current = Path()

    def __init__(self, file: Path) -> None:
        self.file = file

    def __setstate__(self, state: dict[str, Any]) -> None:
        from kafka_sink.kafka.net.network_client import NetworkClient

        vars(self).update(state)
        poll = NetworkClient.poll
        # A worker may have noted those of another test.
        Weighing.current = self.file

        def noted(client: NetworkClient, timeout_ms: int) -> Any:
            answers = poll(client, timeout_ms)
            parts = [part for each in answers for part in getattr(each.response, "parts", (each.response,))]
            if size := sum(len(getattr(part, "records", b"")) for part in parts):
                with Weighing.current.open("a") as notes:
                    notes.write(f"{size}\n")
            return answers

        if poll.__name__ != "noted":
            NetworkClient.poll = noted  # type: ignore[method-assign]


QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "limit": lambda read: read.limit(10).collect(), "show": lambda read: read.show(), "head": lambda read: read.head(),
    "isEmpty": lambda read: read.isEmpty(), "a limit in each task": lambda read: read.limit(10).count(),
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"maxPartitions": "2"}])
def test_a_query_that_wants_a_few_rows_fetches_a_few_answers(
    own_session: SparkSession, kafka: LocalKafka, tmp_path: Path, options: dict[str, str]
) -> None:
    """Spark closes the socket when it has them. Until then a task reads on."""
    name, of = new_topic(kafka, 2), producer(kafka, **{"batch.num.messages": 10})
    for number in range(40_000):
        of.produce(name, os.urandom(1_000), partition=number % 2)
        of.poll(0)
    assert of.flush(60) == 0
    notes = tmp_path / "answers"
    kafka_sink.register(own_session, interceptors=[Weighing(notes)])
    for query, run in QUERIES.items():
        notes.write_text("")
        run(frame(own_session, PYKAFKA, kafka, subscribe=name, **options))
        sizes = [int(line) for line in notes.read_text().split()]
        # Of 20 MB that each of two tasks has.
        assert 0 < sum(sizes) <= 12 * MIB, query
        assert sizes[0] <= MIB / 8, query
    notes.write_text("")
    assert frame(own_session, PYKAFKA, kafka, subscribe=name, **options).count() == 40_000
    assert sum(map(int, notes.read_text().split())) >= 40 * 10**6

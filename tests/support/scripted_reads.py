"""Reads over scripted brokers, whose time only polls move: plans of batches, and streams from one micro-batch to the
next."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.errors import ReadError
from kafka_sink.kafka import reader
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kept import once
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.reading import stream_logs, stream_plan
from kafka_sink.spark.reading.filters import Wanted
from kafka_sink.spark.reading.plan import plan
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.stream_plan import StreamPlan
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients

Spans = list[tuple[str, int, int, int]]


def connect_reads(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    """Plans and readers of the test talk to these brokers."""
    network = connect_clients(ScriptedNetwork(kafka), monkeypatch)
    monkeypatch.setattr(reader, "connect", lambda *_, **__: network)
    for module in (reader, stream_logs, stream_plan):
        monkeypatch.setattr(module, "monotonic_ms", lambda: kafka.now_ms)
    return network


def asked(options: dict[str, str], *, is_stream: bool = False) -> ReadConfig:
    """The topic `a` is read, unless they say what."""
    topics = {} if {"assign", "subscribe", "subscribePattern"} & options.keys() else {"subscribe": "a"}
    given = {"kafka.bootstrap.servers": "localhost:1", **topics, **options}
    return read_config(given_options(given, table=READING), is_stream=is_stream)


def planned(wanted: Wanted | None = None, **options: str) -> list[FetchRange]:
    """The ranges of a batch."""
    config = asked(options)
    with once(AdminClient, config.consumer) as client:
        return plan(client, config, wanted or Wanted())


def spans_of(ranges: list[FetchRange]) -> Spans:
    return [(each.topic, each.partition, each.first, each.end) for each in ranges]


class Stream:
    """A plan in one process, with the client that it keeps. `told`: its losses, unless `tell` takes them."""

    def __init__(self, tell: Callable[[ReadError], None] | None = None, **options: str) -> None:
        self.config = asked(options, is_stream=True)
        self.told: list[ReadError] = []
        self.plan = StreamPlan(self.config, tell or self.told.append)
        self.is_limited = not options.keys().isdisjoint({"maxOffsetsPerTrigger", "minOffsetsPerTrigger"})
        self._once: Any = once(AdminClient, self.config.consumer)
        self._client = self._once.__enter__()

    def initial(self) -> Positions:
        return self.plan.initial(self._client)

    def end(self, start: Positions, *, is_limited: bool | None = None) -> Positions:
        return self.plan.end(self._client, start, is_limited=self.is_limited if is_limited is None else is_limited)

    def ranges(self, start: Positions, end: Positions) -> list[FetchRange]:
        return self.plan.ranges(self._client, start, end)

    def spans(self, start: Positions, end: Positions) -> Spans:
        return spans_of(self.ranges(start, end))

    def goes_on(self, start: Positions) -> Positions:
        """A whole micro-batch. Return where it ends."""
        end = self.end(start)
        self.ranges(start, end)
        return end

"""Reads over scripted brokers, whose time only polls move: plans of batches, and streams from one micro-batch to the
next."""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import apis
from kafka_sink.errors import ReadError
from kafka_sink.kafka import reader
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.fetcher import FetchSettings
from kafka_sink.kafka.metadata import Metadata
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.kept_clients import once
from kafka_sink.spark.reading import batch_reader, group_starts, stream_logs, stream_plan
from kafka_sink.spark.reading.plan import Wanted, plan
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.stream_plan import StreamPlan
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients


def read_settings(
    *, fail_on_data_loss: bool = True, reads_replacements: bool = True, poll_timeout_ms: int = 120_000, **changed: Any
) -> FetchSettings:
    """Java's defaults, but for what was changed of the configuration."""
    defaults = {
        "isolation_level": IsolationLevel.READ_UNCOMMITTED, "fetch_max_bytes": 1024 * 1024,
        "max_partition_fetch_bytes": 1024 * 1024, "fetch_min_bytes": 1,
        "fetch_max_wait_ms": 500, "client_rack": "", "request_timeout_ms": 30_000, "metadata_max_age_ms": 300_000,
        "retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000,
    }  # fmt: skip
    config = replace(asked({}).consumer, **{**defaults, **changed})
    return FetchSettings(
        config=config, fail_on_data_loss=fail_on_data_loss, reads_replacements=reads_replacements,
        poll_timeout_ms=poll_timeout_ms,
    )  # fmt: skip


def readers_metadata(topic: str = "") -> Metadata:
    return Metadata(
        max_age_ms=300_000, max_idle_ms=300_000, backoff_initial_ms=100, backoff_max_ms=1_000, rng=random.Random(1),
        creates_topics=False,
    )  # fmt: skip


@dataclass
class ScriptedLog:
    """`stable`: where an open transaction begins, None without one. `times`: offsets and timestamps of records.
    `starts`: where the records of each leader epoch begin, all of them at 0 if not said."""

    earliest: int
    latest: int
    stable: int | None = None
    times: Mapping[int, int] = field(default_factory=dict)
    leader_epoch: int = 0
    starts: Mapping[int, int] = field(default_factory=dict)

    def offset(self, timestamp_ms: int, isolation_level: IsolationLevel) -> int:
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        end = self.latest if self.stable is None or not is_committed else self.stable
        if timestamp_ms in (apis.EARLIEST, apis.LATEST):
            return self.earliest if timestamp_ms == apis.EARLIEST else end
        there = (each for each in sorted(self.times.items()) if self.earliest <= each[0] < end)
        return next((offset for offset, time_ms in there if time_ms >= timestamp_ms), apis.NO_OFFSET)

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        starts = self.starts or {0: 0, self.leader_epoch: 0}
        found = max(epoch for epoch in starts if epoch <= leader_epoch)
        return found, min((start for epoch, start in starts.items() if epoch > found), default=self.latest)


Logs = Mapping[tuple[str, int], ScriptedLog]


def serve(kafka: ScriptedKafka, logs: Logs) -> None:
    """Let the first broker lead the partitions of these logs, and answer for them."""
    kafka.leaders |= dict.fromkeys(logs, min(kafka.brokers))

    def answer(request: apis.ListOffsetsRequest) -> apis.ListOffsetsResponse:
        return apis.ListOffsetsResponse(0, tuple(_listed(logs, request.asked, request.isolation_level)))

    def answer_epoch(request: apis.OffsetForLeaderEpochRequest) -> apis.OffsetForLeaderEpochResponse:
        log = logs[request.topic, request.partition]
        assert request.current_leader_epoch == log.leader_epoch
        return apis.OffsetForLeaderEpochResponse(0, 0, *log.epoch_end(request.leader_epoch))

    kafka.always(apis.ListOffsetsRequest, answer)
    kafka.always(apis.OffsetForLeaderEpochRequest, answer_epoch)


def refused_offsets(code: int) -> Callable[[apis.ListOffsetsRequest], apis.ListOffsetsResponse]:
    """Offsets are -1 then, and a plan that believes it would have no rows."""
    return lambda request: apis.ListOffsetsResponse(
        0, tuple(apis.ListedOffset(each.topic, each.partition, code, -1, -1, -1) for each in request.asked)
    )


def _listed(
    logs: Logs, asked: Iterable[apis.AskedOffset], isolation_level: IsolationLevel
) -> Iterable[apis.ListedOffset]:
    for each in asked:
        log = logs[each.topic, each.partition]
        offset = log.offset(each.timestamp_ms, isolation_level)
        time_ms = -1 if each.timestamp_ms < 0 else log.times.get(offset, -1)
        yield apis.ListedOffset(each.topic, each.partition, 0, time_ms, offset, log.leader_epoch)


Spans = list[tuple[str, int, int, int]]


def connect_reads(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    """Plans and readers of the test talk to these brokers."""
    network = connect_clients(ScriptedNetwork(kafka), monkeypatch)
    monkeypatch.setattr(reader, "connect", lambda *_, **__: network)
    for module in (reader, group_starts, stream_logs, stream_plan):
        monkeypatch.setattr(module, "monotonic_ms", lambda: kafka.now_ms)
    for module in (batch_reader, stream_plan):
        monkeypatch.setattr(module, "wall_clock_ms", lambda: kafka.now_ms)
    return network


def asked(options: dict[str, str], *, is_stream: bool = False) -> ReadConfig:
    """The topic `a` is read, unless they say what."""
    topics = {} if {"assign", "subscribe", "subscribePattern"} & options.keys() else {"subscribe": "a"}
    given = {"kafka.bootstrap.servers": "localhost:1", **topics, **options}
    return read_config(given_options(given, table=READING), is_stream=is_stream)


def planned(wanted: Wanted | None = None, *, now_ms: int = 0, **options: str) -> list[FetchRange]:
    """The ranges of a batch."""
    config = asked(options).at(now_ms)
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
        self.is_limited = self.config.limits_micro_batches or self.config.min_offsets_per_trigger is not None
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

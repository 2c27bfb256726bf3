"""The clock of a driver is an hour ahead of the brokers', or behind: a read goes by the records' timestamps and by the
offsets that brokers tell."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable

import pytest

from kafka_sink.errors import OffsetsLost
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kept import once
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.spark.reading import stream_logs, stream_plan
from kafka_sink.spark.reading.filters import Wanted
from kafka_sink.spark.reading.plan import plan
from kafka_sink.spark.reading.stream_plan import StreamPlan
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients
from scripted_logs import ScriptedLog, serve

HOUR_S = 3_600
# A record a minute, of the brokers' last two hours.
NOW_MS = 1_760_000_000_000
TIMES = {offset: NOW_MS - 60_000 * (119 - offset) for offset in range(120)}
OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


@pytest.fixture(params=[HOUR_S, 0, -HOUR_S])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ScriptedLog:
    """Of a driver whose clock is so far off."""
    skewed: Callable[[], float] = lambda: NOW_MS / 1_000 + request.param  # noqa: E731
    monkeypatch.setattr(time, "time", skewed)
    monkeypatch.setattr(time, "time_ns", lambda: round(skewed() * 10**9))
    log, kafka = ScriptedLog(0, 120, times=TIMES), ScriptedKafka()
    serve(kafka, {("t", 0): log})
    kafka.topic_ids["t"] = uuid.UUID(int=1)
    connect_clients(ScriptedNetwork(kafka), monkeypatch)
    for module in (stream_logs, stream_plan):
        monkeypatch.setattr(module, "monotonic_ms", lambda: kafka.now_ms)
    return log


def span(**options: str) -> tuple[int, int]:
    config = read_config(given_options(OPTIONS | options, table=READING))
    with once(AdminClient, config.consumer) as client:
        (found,) = plan(client, config, Wanted())
    return found.first, found.end


def test_timestamps_are_compared_with_those_of_records(log: ScriptedLog) -> None:
    half_an_hour_ago = str(NOW_MS - 30 * 60_000)
    assert span(startingTimestamp=half_an_hour_ago) == (89, 120)
    assert span(startingOffsetsByTimestamp=json.dumps({"t": {"0": int(half_an_hour_ago)}})) == (89, 120)
    assert span(endingTimestamp=half_an_hour_ago) == (0, 89)
    # Of a time to come there is no record, whatever our clock says.
    later = {"startingTimestamp": str(NOW_MS + 60_000), "startingOffsetsByTimestampStrategy": "latest"}
    config = read_config(given_options(OPTIONS | later, table=READING), is_stream=True)
    with once(AdminClient, config.consumer) as client:
        assert list(StreamPlan(config).initial(client).values()) == [120]


def test_retention_is_what_brokers_have_deleted(log: ScriptedLog) -> None:
    log.earliest, log.times = 60, {offset: at_ms for offset, at_ms in TIMES.items() if offset >= 60}
    assert span() == (60, 120)
    # From before what is left, by the brokers' clock.
    assert span(startingTimestamp=str(NOW_MS - 90 * 60_000)) == (60, 120)
    with pytest.raises(OffsetsLost, match="offsets 0 to 59 of t-0"):
        span(startingOffsets='{"t": {"0": 0}}')

"""A broker that throttles for as long as it likes: each throttle has a cap, and no limit of time stands still."""

import logging
from datetime import timedelta

import pytest

from kafka_sink.doctor import engine, findings
from kafka_sink.doctor.examinations import examine_read
from kafka_sink.doctor.report import Status
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.waits import MAX_THROTTLE_MS, THROTTLED_LIMITS, without_throttles
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.reading import READING, read_config
from network_world import World
from scripted_peers import peer, scripted

FORGED_MS = 2**31 - 1
FORGED = timedelta(milliseconds=FORGED_MS)


def test_a_forged_throttle_ends_after_an_hour_and_is_logged_with_its_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.open()
    with caplog.at_level(logging.WARNING):
        world.throttle(29_999)
        assert caplog.records == [], "short ones are not logged"
        world.transport.now_ms += 29_999
        world.throttle(FORGED_MS)
    assert world.client.delay_ms(-1, world.now_ms) == MAX_THROTTLE_MS
    assert world.client.can_send(-1, world.now_ms + MAX_THROTTLE_MS)
    (record,) = caplog.records
    assert "throttles this client for 2,147,484 s" in record.getMessage()
    assert "sends it nothing for 3,600 s" in record.getMessage()


@pytest.mark.parametrize("limit_ms", [1_000, 60_000])
def test_a_limit_of_time_passes_while_brokers_throttle_without_end(limit_ms: int) -> None:
    """For all that has a deadline on the clock: metadata, planning, coordinators, memory."""
    assert without_throttles(limit_ms, 0) == limit_ms
    assert without_throttles(THROTTLED_LIMITS * limit_ms - 10, THROTTLED_LIMITS * limit_ms - 10) < limit_ms
    assert without_throttles(THROTTLED_LIMITS * limit_ms, THROTTLED_LIMITS * limit_ms) == limit_ms
    times = [without_throttles(now_ms, now_ms) for now_ms in range(100)]
    assert times == sorted(times), "the clock never goes back"


@pytest.mark.parametrize(
    ("throttle_time_ms", "status"), [(1_000, Status.WARNING), (59_999, Status.WARNING), (FORGED_MS, Status.FAILED)]
)
def test_check_judges_the_time(throttle_time_ms: int, status: Status) -> None:
    client = sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.client.id": "nightly"}).producer
    finding = findings.throttled(throttle_time_ms, client)
    assert finding.status is status
    assert f"{throttle_time_ms / 1_000:,.0f} s" in finding.found
    assert "nightly" in finding.remedy


def test_check_shows_a_broker_that_throttles(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its other steps say what they find."""
    monkeypatch.setattr(engine, "PATIENCE_S", 0.1)
    with peer(scripted([(MetadataRequest((), False), {"brokers": [], "topics": [], "throttle_time": FORGED})])) as port:
        options = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "subscribe": "t"}
        report = examine_read(read_config(given_options(options, table=READING)))
    (finding,) = (each.finding for each in report.verdicts if each.step == "throttle")
    assert finding.status is Status.FAILED
    assert "2,147,484 s" in finding.found

"""The reader of a stream, as Spark calls it, over scripted brokers. Its progress in a consumer group: failures are
warnings, and warnings are few."""

import json
import logging
import pickle
import uuid
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark.cloudpickle as cloudpickle
import pytest

import apis
from kafka_sink.errors import AuthenticationFailed, KafkaSinkError, LogBroken, RefusedOption
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis import offsets as epochs
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options import cautions
from kafka_sink.spark.reading import stream_reader
from kafka_sink.spark.reading.stream_reader import PAUSE_FACTOR, SAME_OFFSETS_PAUSE_MS, GroupProgress
from kafka_sink.spark.source import KafkaDataSource
from record_sets import plain
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, asked, connect_reads, serve

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog(0, 6)


@pytest.fixture
def kafka(log: ScriptedLog) -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, {("t", 0): log})
    made.topic_ids["t"] = uuid.UUID(int=1)
    records = memoryview(bytes(plain(*(b"%d" % number for number in range(6)))))
    made.always(apis.FetchRequest, lambda request: apis.FetchResponse(0, 0, 6, 6, 0, (), records=records))
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(kafka, monkeypatch)


def reader(**options: str) -> Any:
    source = KafkaDataSource(OPTIONS | {"startingOffsets": "earliest"} | options)
    return source.streamReader(source.schema())


class Limit:
    def __init__(self, count: int = 0) -> None:
        self.count = count


# The part of Spark 4.2's module that the reader uses.
NAMES = ("ReadAllAvailable", "ReadMaxRows", "ReadMinRows", "ReadMaxBytes")
LIMITS = SimpleNamespace(**{name: type(name, (Limit,), {}) for name in NAMES})
ALL = LIMITS.ReadAllAvailable()


@pytest.fixture(autouse=True)
def spark_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "_limits", LIMITS)


def ranges(partitions: Any) -> list[tuple[int, int]]:
    return [(each.first, each.end) for part in partitions for each in part.ranges]


def test_offsets_are_those_of_sparks_source() -> None:
    made = reader()
    start = made.initialOffset()
    assert json.dumps(start) == '{"t": {"0": 0}}'
    assert made.reportLatestOffset() is None
    end = made.latestOffset(start, ALL)
    assert json.dumps(end) == '{"t": {"0": 6}}'
    assert ranges(made.partitions(start, end)) == [(0, 6)]
    assert made.reportLatestOffset() == end
    made.commit(end)


def test_a_micro_batch_that_is_planned_again_has_the_same_tasks_whoever_leads(kafka: ScriptedKafka) -> None:
    """An exactly-once sink compares the rows of each task with those of the attempt before."""
    serve(kafka, {("t", number): ScriptedLog(0, 6 + number % 2) for number in range(7)})
    found = []
    for node_ids in ((1, 1), (1, 2), (2, 1)):
        kafka.brokers = set(node_ids)
        kafka.leaders |= {("t", number): node_ids[number % 2] for number in range(7)}
        made = reader(maxPartitions="2")
        start = made.initialOffset()
        parts = made.partitions(start, made.latestOffset(start, ALL))
        found.append([[(each.partition, each.first, each.end) for each in part.ranges] for part in parts])
    assert found[0] == found[1] == found[2]
    assert [len(ranges) for ranges in found[0]] == [4, 3]


def answer(kafka: ScriptedKafka, code: int) -> None:
    kafka.always(apis.ProgressCommitRequest, apis.ProgressCommitResponse(0, (apis.PartitionResult("t", 0, code),)))


def committed(kafka: ScriptedKafka) -> list[int]:
    return [request.offsets["t", 0] for _, request in kafka.asked(apis.ProgressCommitRequest)]


@pytest.mark.parametrize("is_before_4_2", [False, True])
def test_the_group_has_a_micro_batch_once_spark_looks_for_the_next(kafka: ScriptedKafka, is_before_4_2: bool) -> None:
    """Spark calls `commit` only when it has found a next micro-batch, and so never for the last one."""
    answer(kafka, 0)
    made = reader(groupId="lag")
    start = made.initialOffset()
    look = (lambda at: made.latestOffset()) if is_before_4_2 else (lambda at: made.latestOffset(at, ALL))
    end = look(start)
    made.partitions(start, end)
    assert committed(kafka) == [0]
    assert look(end) == end
    assert committed(kafka) == [0, 6]
    look(end)
    made.commit(end)
    assert committed(kafka) == [0, 6]


def test_spark_before_4_2_gives_no_arguments(log: ScriptedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """And begins a new process without a start."""
    monkeypatch.setattr(stream_reader, "_limits", None)
    made = reader()
    start = made.initialOffset()
    end = made.latestOffset()
    assert end == {"t": {"0": 6}}
    made.partitions(start, end)
    made.commit(end)
    again = reader()
    assert again.latestOffset() == end
    assert ranges(again.partitions({"t": {"0": 4}}, end)) == [(4, 6)]
    log.latest = 4
    with pytest.raises(LogBroken, match="at offset 6"):
        made.latestOffset()
    log.latest = 3
    again = reader()
    with pytest.raises(LogBroken, match=r"at offset 4.* but at 3"):
        again.partitions({"t": {"0": 4}}, again.latestOffset())


@pytest.mark.parametrize(("options", "kind", "count", "end"), [
    ({}, "ReadAllAvailable", 0, 6), ({"maxOffsetsPerTrigger": "2"}, "ReadMaxRows", 2, 2),
    ({"minOffsetsPerTrigger": "3"}, "ReadMinRows", 3, 6),
    ({"minOffsetsPerTrigger": "1", "maxOffsetsPerTrigger": "2"}, "ReadMaxRows", 2, 2),
    ({"maxOffsetsPerPartitionPerTrigger": "4"}, "ReadMaxRows", 4, 4),
    ({"maxOffsetsPerPartitionPerTrigger": "3", "maxOffsetsPerTrigger": "5"}, "ReadMaxRows", 5, 3),
    ({"maxBytesPerTrigger": "1m", "maxOffsetsPerTrigger": "5"}, "ReadMaxBytes", 2**20, 5),
])  # fmt: skip
def test_the_limit_that_spark_is_told(options: dict[str, str], kind: str, count: int, end: int) -> None:
    made = reader(**options)
    limit, start = made.getDefaultReadLimit(), made.initialOffset()
    assert (type(limit).__name__, limit.count) == (kind, count)
    assert made.latestOffset(start, limit) == {"t": {"0": end}}
    assert made.latestOffset(start, ALL) == {"t": {"0": 6}}, "trigger once asks for all"


@pytest.mark.parametrize("name", [
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerPartitionPerTrigger",
])  # fmt: skip
def test_limits_are_refused_where_spark_has_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "_limits", None)
    with pytest.raises(RefusedOption, match=f"{name}.*needs Spark 4.2"):
        reader(**{name: "5"})


def test_available_now(log: ScriptedLog) -> None:
    made = reader(maxOffsetsPerTrigger="5")
    start, limit = made.initialOffset(), made.getDefaultReadLimit()
    made.prepareForTriggerAvailableNow()
    end = made.latestOffset(start, limit)
    made.partitions(start, end)
    log.latest = 20
    assert made.latestOffset(end, limit) == {"t": {"0": 6}}


@pytest.mark.parametrize("is_used", [False, True])
def test_a_task_reads_with_a_copy_of_the_reader(is_used: bool) -> None:
    made = reader()
    sent = cloudpickle.dumps(made)
    start = made.initialOffset()
    (part,) = made.partitions(start, made.latestOffset(start, ALL))
    copy, sent_part = pickle.loads(cloudpickle.dumps(made) if is_used else sent), pickle.loads(pickle.dumps(part))
    batches = list(copy.read(sent_part))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [b"%d" % number for number in range(6)]
    assert list(copy.read(None)) == []


def test_a_task_leaves_what_replaced_its_records_to_the_next_batch(kafka: ScriptedKafka, log: ScriptedLog) -> None:
    """The log was truncated at 4 since the plan, and has grown again. An answer has records of both."""
    made = reader(failOnDataLoss="false")
    start = made.initialOffset()
    end = made.latestOffset(start, ALL)
    (part,) = made.partitions(start, end)
    log.leader_epoch = kafka.leader_epoch = 1
    kafka.always(epochs.OffsetForLeaderEpochRequest, epochs.OffsetForLeaderEpochResponse(0, 0, 0, 4))
    assert [row["offset"] for batch in made.read(part) for row in batch.to_pylist()] == [0, 1, 2, 3]
    step = made.latestOffset(end, ALL)
    assert step == {"t": {"0": 4}}
    assert made.partitions(end, step) == []
    (part,) = made.partitions(step, made.latestOffset(step, ALL))
    assert [row["offset"] for batch in made.read(part) for row in batch.to_pylist()] == [4, 5]


@pytest.mark.parametrize(("options", "without_effect"), [
    ({}, ""), ({"kafka.group.id": "orders"}, "kafka.group.id"), ({"groupId": "lag"}, ""),
    ({"kafka.GROUP.id": "orders", "groupIdPrefix": "spark"}, "kafka.group.id, groupIdPrefix"),
    ({"groupId": "lag", "kafka.group.id": "orders"}, ""),
])  # fmt: skip
def test_a_group_that_has_no_effect_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, options: Any, without_effect: str
) -> None:
    monkeypatch.setattr(cautions, "LOGGED", set())
    for _ in range(2):
        reader(**options)
    found = [record.getMessage() for record in caplog.records]
    assert [text.split(" without effect:")[0] for text in found] == [without_effect] * bool(without_effect)
    assert all("set groupId to a group without members" in text for text in found)


def test_another_cluster_behind_the_same_address_is_an_error(kafka: ScriptedKafka, network: ScriptedNetwork) -> None:
    """Its topic of the same name is another, even if its offsets would fit."""
    made = reader()
    start = made.initialOffset()
    made.partitions(start, made.latestOffset(start, ALL))
    kafka.cluster_id = "another"
    network.interruptions += 1
    with pytest.raises(KafkaSinkError, match="another"):
        made.latestOffset({"t": {"0": 6}}, ALL)


# --- the progress in a group ------------------------------------------------------------------------------------------

T0 = TopicPartition("t", 0)
NO_MEMBER, DENIED = 25, 29


@pytest.fixture
def progress(kafka: ScriptedKafka) -> GroupProgress:
    answer(kafka, 0)
    return GroupProgress(asked({"subscribe": "t"}).consumer, "g", clock_ms=lambda: kafka.now_ms)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


def test_a_failure_is_told_when_it_begins_when_it_changes_and_when_it_is_over(
    kafka: ScriptedKafka, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    for code, offset in ((NO_MEMBER, 0), (NO_MEMBER, 1), (DENIED, 2), (DENIED, 3), (0, 4), (0, 5), (DENIED, 6)):
        answer(kafka, code)
        progress.commit({T0: offset})
    assert committed(kafka) == list(range(7))
    members, denied, again, denied_again = warnings(caplog)
    assert "'g': UNKNOWN_MEMBER_ID (error 25) for t-0. To fix it: set groupId to" in members
    assert "TOPIC_AUTHORIZATION_FAILED" in denied and denied == denied_again
    assert "committed to consumer group 'g' again" in again
    # What a failed write or read means for the data is not what this failure means.
    assert all("reads on" in text and "sent again" not in text for text in (members, denied))


def test_a_coordinator_that_is_away_takes_a_tenth_of_the_streams_time(
    kafka: ScriptedKafka, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.coordinator, kafka.silent = 2, {2}
    waited_ms, minutes_ms = 0, 600_000
    while kafka.now_ms < minutes_ms:
        began_ms = kafka.now_ms
        progress.commit({T0: began_ms})
        waited_ms += kafka.now_ms - began_ms
        kafka.pass_time(100)
    assert minutes_ms / 20 < waited_ms <= minutes_ms / PAUSE_FACTOR
    assert len(warnings(caplog)) == 1
    # Then it is back, and the newest offsets are committed.
    kafka.silent = set()
    kafka.pass_time(minutes_ms)
    progress.commit({T0: 7})
    assert committed(kafka)[-1] == 7
    assert "again" in warnings(caplog)[-1]


def test_offsets_that_the_group_has_are_not_sent_again(kafka: ScriptedKafka, progress: GroupProgress) -> None:
    """An idle stream comes with the same ones at each look."""
    for offset in (5, 5, 5, 6, 6, 4):
        progress.commit({T0: offset})
        kafka.pass_time(60_000)
    assert committed(kafka) == [5, 6, 4]


def test_the_same_offsets_are_sent_again_after_a_pause_if_they_were_refused(
    kafka: ScriptedKafka, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    answer(kafka, NO_MEMBER)
    for _ in range(10):
        progress.commit({T0: 5})
        kafka.pass_time(SAME_OFFSETS_PAUSE_MS // 5)
    assert committed(kafka) == [5, 5]
    answer(kafka, 0)
    kafka.pass_time(SAME_OFFSETS_PAUSE_MS)
    for _ in range(3):
        progress.commit({T0: 5})
    assert committed(kafka) == [5, 5, 5]
    refused, again = warnings(caplog)
    assert "UNKNOWN_MEMBER_ID" in refused and "again" in again


def test_no_error_of_the_connection_ends_the_stream_or_shows_a_secret(
    progress: GroupProgress, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = AuthenticationFailed(broker="a:1", mechanism="PLAIN", user="bob", reason="Authentication failed")
    monkeypatch.setattr(AdminClient, "ask_all", mock.Mock(side_effect=[refusal, ZeroDivisionError]))
    progress.commit({T0: 1})
    (warning,) = warnings(caplog)
    assert "user 'bob' were not authenticated" in warning and "rows" not in warning
    # A mistake of ours is not hidden.
    with pytest.raises(ZeroDivisionError):
        progress.commit({T0: 2})

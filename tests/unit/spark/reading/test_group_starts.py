"""Reads that begin where a consumer group is, over scripted brokers."""

import logging
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import apis
from kafka_sink import errors
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.batch_reader import KafkaBatchReader
from kafka_sink.spark.source import KafkaDataSource
from kafka_sink.spark.task import Task
from scripted_kafka import HANG_UP, ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, Stream, connect_reads, planned, serve, spans_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
DENIED, GROUP_DENIED, LOADING, UNSTABLE, NOT_COORDINATOR = 29, 30, 14, 88, 16
GROUP = {"startingGroup": "g"}
LENIENT = {"failOnDataLoss": "false"}
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def logs() -> dict[tuple[str, int], ScriptedLog]:
    return {A0: ScriptedLog(10, 50, leader_epoch=3, starts={0: 0, 3: 20}), A1: ScriptedLog(0, 7), B0: ScriptedLog(0, 9)}


@pytest.fixture
def kafka(logs: dict[tuple[str, int], ScriptedLog]) -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, logs)
    made.committed["g"] = {A0: (30, 3), A1: (7, -1)}
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(kafka, monkeypatch)


def begins(**options: str) -> dict[TopicPartition, int]:
    """Where a stream begins, as its first micro-batch records it."""
    stream = Stream(**GROUP, **options)
    recorded = stream.end(stream.initial())
    assert stream.ranges(stream.initial(), recorded) == []
    return dict(recorded)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_read_begins_at_the_committed_offsets(kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture) -> None:
    kafka.coordinator = 2
    assert spans_of(planned(**GROUP)) == [("a", 0, 30, 50)]
    assert begins() == {A0: 30, A1: 7}
    assert told(caplog) == []
    # One request has all partitions, and goes to the coordinator. Nothing is committed, and no group is joined.
    asked = kafka.asked(apis.GroupOffsetsRequest)
    assert [node_id for node_id, _ in asked] == [2, 2]
    assert asked[0][1].partitions == (A0, A1)
    assert not kafka.asked(apis.ProgressCommitRequest)


@pytest.mark.parametrize(("options", "positions"), [
    ({"subscribePattern": "^a$"}, {A0: 30, A1: 7}),
    ({"assign": '{"a": [1]}'}, {A1: 7}), ({"subscribePattern": "x"}, {}),
    ({"subscribe": "a,b", "startingGroupStrategy": "earliest"}, {A0: 30, A1: 7, B0: 0}),
    ({"subscribe": "a,b", "startingGroupStrategy": "latest"}, {A0: 30, A1: 7, B0: 9}),
])  # fmt: skip
def test_of_what_is_read(options: dict[str, str], positions: dict[TopicPartition, int]) -> None:
    assert begins(**options) == positions


def test_a_partition_without_a_committed_offset_follows_the_strategy_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(
        errors.NoCommittedOffset, match=r"'g' has committed no offset of b-0\. The read has 3.*Strategy"
    ):
        planned(**GROUP, subscribe="a,b")
    assert ("b", 0, 0, 9) in spans_of(planned(**GROUP, subscribe="a,b", startingGroupStrategy="earliest"))
    (line,) = told(caplog)
    assert "'g' has committed no offset of b-0. The read begins at the earliest offset there" in line
    found = planned(**GROUP, subscribe="a,b", startingGroupStrategy="latest")
    assert [each.topic for each in found] == ["a"]


@pytest.mark.parametrize("strategy", ["error", "earliest", "latest"])
def test_a_group_that_is_misspelt_never_begins_at_the_strategy(strategy: str) -> None:
    for group in ("G", "g ", "orders-consumer"):
        with pytest.raises(errors.NoCommittedOffset) as failure:
            planned(startingGroup=group, startingGroupStrategy=strategy)
        assert f"{group!r} has committed no offset of any partition of the read, such as a-0" in str(failure.value)
        assert (failure.value.missing_count, failure.value.partition_count) == (2, 2)


@given(st.text(min_size=1, max_size=20))
def test_a_group_of_any_name_is_asked_for_by_that_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    kafka = ScriptedKafka()
    serve(kafka, {A0: ScriptedLog(0, 50)})
    kafka.committed[name] = {A0: (30, -1)}
    with pytest.MonkeyPatch.context() as patch:
        connect_reads(kafka, patch)
        assert spans_of(planned(startingGroup=name)) == [("a", 0, 30, 50)]


# --- offsets that are gone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "cause", "goes_on_at"), [
    # Behind the end of the log, with an epoch or without.
    ((60, -1), LossCause.TRUNCATED, 50), ((60, 3), LossCause.TRUNCATED, 50),
    # The records before it were of epoch 1, which ends earlier in the log of the leader.
    ((30, 1), LossCause.TRUNCATED, 20),
    # Leader epochs of a topic only grow.
    ((30, 4), LossCause.TOPIC_RECREATED, 10),
])  # fmt: skip
def test_a_committed_offset_at_which_the_log_does_not_go_on(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture, committed: Any, cause: str, goes_on_at: int
) -> None:
    kafka.committed["g"] = {A0: committed, A1: (3, -1)}
    with pytest.raises(errors.CommittedOffsetGone) as failure:
        planned(**GROUP)
    error = failure.value
    assert (error.group_id, error.topic, error.partition) == ("g", "a", 0)
    assert (error.offset, error.cause, error.goes_on_at) == (committed[0], cause, goes_on_at)
    assert kafka.now_ms >= ABSENT_PATIENCE_MS, "a second answer has confirmed it"
    rest = [("a", 0, goes_on_at, 50)] if goes_on_at < 50 else []
    assert spans_of(planned(**GROUP, **LENIENT)) == [*rest, ("a", 1, 3, 7)]
    assert any(f"committed offset {committed[0]} of a-0" in line and "failOnDataLoss" in line for line in told(caplog))
    stream = Stream(**GROUP, **LENIENT)
    assert stream.initial() == {A0: goes_on_at, A1: 3}
    assert [type(each) for each in stream.told] == [errors.CommittedOffsetGone]
    with pytest.raises(errors.CommittedOffsetGone):
        begins()


@pytest.mark.parametrize("committed", [(30, 3), (30, -1), (20, 1), (50, 3), (10, 0), (10, -1)])
def test_a_committed_offset_that_is_there_is_asked_for_once(kafka: ScriptedKafka, committed: Any) -> None:
    kafka.committed["g"] = {A0: committed, A1: (7, -1)}
    assert begins()[A0] == committed[0]
    assert kafka.now_ms == 0


def test_offsets_that_retention_has_deleted_follow_fail_on_data_loss(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.committed["g"] = {A0: (4, 0), A1: (7, -1)}
    with pytest.raises(errors.OffsetsLost, match="offsets 4 to 9 of a-0"):
        planned(**GROUP)
    with pytest.raises(errors.OffsetsLost, match="offsets 4 to 9 of a-0"):
        begins()
    assert spans_of(planned(**GROUP, **LENIENT)) == [("a", 0, 10, 50)]
    assert begins(**LENIENT) == {A0: 10, A1: 7}
    assert any("failOnDataLoss is false" in line for line in told(caplog))


def test_a_leader_that_lags_is_asked_again(kafka: ScriptedKafka, logs: Any) -> None:
    """A leader that was replaced answers with an older epoch, and with an earlier end."""
    kafka.committed["g"] = {A0: (60, 4), A1: (7, -1)}
    newer = ScriptedLog(10, 70, leader_epoch=4, starts={0: 0, 3: 20, 4: 55})
    kafka.at.append((ABSENT_PATIENCE_MS // 2, lambda: logs.update({A0: newer})))
    stream = Stream(**GROUP)
    assert stream.initial()[A0] == 60
    assert kafka.now_ms < ABSENT_PATIENCE_MS


def test_a_leader_that_does_not_tell_where_an_epoch_ends_is_no_proof(kafka: ScriptedKafka) -> None:
    kafka.committed["g"] = {A0: (30, 1), A1: (7, -1)}
    kafka.always(apis.OffsetForLeaderEpochRequest, HANG_UP)
    with pytest.raises(errors.LeaderUnavailable, match="a-0"):
        planned(**GROUP, **LENIENT, **{"kafka.default.api.timeout.ms": "20000"})
    # A log that does not know the epoch any more says nothing.
    kafka.always(apis.OffsetForLeaderEpochRequest, apis.OffsetForLeaderEpochResponse(0, 0, -1, -1))
    assert spans_of(planned(**GROUP)) == [("a", 0, 30, 50)]


def test_an_offset_behind_an_open_transaction_is_there(kafka: ScriptedKafka, logs: Any) -> None:
    """A consumer of uncommitted records has committed it. A reader of committed ones begins there, too."""
    logs[A0].stable = 25
    assert begins(**COMMITTED) == {A0: 30, A1: 7}
    assert planned(**GROUP, **COMMITTED) == []
    stream = Stream(**GROUP, **COMMITTED)
    recorded = stream.goes_on(stream.initial())
    assert stream.end(recorded) == recorded
    logs[A0].stable = 45
    assert stream.spans(recorded, stream.end(recorded)) == [("a", 0, 30, 45)]


# --- coordinators and groups ------------------------------------------------------------------------------------------


def offsets_with(code: int, group_code: int = 0) -> Callable[[apis.GroupOffsetsRequest], apis.GroupOffsetsResponse]:
    return lambda request: apis.GroupOffsetsResponse(
        0, group_code, tuple(apis.CommittedOffset(*each, code, 5, -1) for each in request.partitions)
    )


@pytest.mark.parametrize("answer", [
    HANG_UP, offsets_with(UNSTABLE), offsets_with(LOADING), offsets_with(0, NOT_COORDINATOR),
])  # fmt: skip
def test_offsets_that_are_not_certain_are_asked_for_again(kafka: ScriptedKafka, answer: Any) -> None:
    """A transaction of the consumer is about to commit others."""
    kafka.script(apis.GroupOffsetsRequest, answer, answer)
    assert begins() == {A0: 30, A1: 7}
    assert len(kafka.asked(apis.GroupOffsetsRequest)) == 3


def test_offsets_of_a_transaction_that_stays_open_are_not_guessed(kafka: ScriptedKafka) -> None:
    kafka.always(apis.GroupOffsetsRequest, offsets_with(UNSTABLE))
    with pytest.raises(errors.CoordinatorUnavailable, match=r"group 'g'.*UNSTABLE_OFFSET_COMMIT"):
        planned(**GROUP, **{"kafka.default.api.timeout.ms": "20000"})


@pytest.mark.parametrize("where", [apis.FindCoordinatorRequest, apis.GroupOffsetsRequest])
def test_a_group_that_may_not_be_described_is_refused_with_the_acl(kafka: ScriptedKafka, where: type) -> None:
    kafka.always(where, GROUP_DENIED if where is apis.FindCoordinatorRequest else offsets_with(0, GROUP_DENIED))
    with pytest.raises(errors.GroupNotReadable, match=r"'g'.*ACL: GROUP g DESCRIBE \(READ implies it\) for principal"):
        planned(**GROUP)
    assert kafka.now_ms == 0


def test_another_refusal_is_none_of_an_offset(kafka: ScriptedKafka) -> None:
    kafka.always(apis.GroupOffsetsRequest, offsets_with(DENIED))
    with pytest.raises(errors.GroupNotReadable, match=r"TOPIC_AUTHORIZATION_FAILED \(error 29\)"):
        planned(**GROUP)


def test_brokers_without_stable_offsets_are_refused(kafka: ScriptedKafka) -> None:
    kafka.lacking = ("OffsetFetch 7 (Kafka 2.5; reads committed offsets)",)
    with pytest.raises(errors.BrokerUnsupported, match=r"startingGroup.*OffsetFetch 7|OffsetFetch 7"):
        planned(**GROUP)


@pytest.mark.parametrize(("state", "is_told"), [
    ("Stable", True), ("PreparingRebalance", True), ("CompletingRebalance", True), ("Empty", False), ("Dead", False),
])  # fmt: skip
def test_a_group_with_members_is_told(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture, state: str, is_told: bool
) -> None:
    kafka.group_state = state
    assert spans_of(planned(**GROUP)) == [("a", 0, 30, 50)]
    assert any("consumer group 'g' has members" in line for line in told(caplog)) is is_told


def test_a_broker_that_cannot_describe_groups_tells_the_offsets(kafka: ScriptedKafka) -> None:
    kafka.spoken = lambda request: None if isinstance(request, apis.DescribeGroupRequest) else request.versions()[1]
    assert spans_of(planned(**GROUP)) == [("a", 0, 30, 50)]
    assert not kafka.asked(apis.DescribeGroupRequest)


# --- restarts and later actions ---------------------------------------------------------------------------------------


def test_a_stream_whose_first_micro_batch_failed_does_not_ask_the_group_again(kafka: ScriptedKafka, logs: Any) -> None:
    stream = Stream(**GROUP)
    recorded = stream.end(stream.initial())
    logs[A0].latest = 80
    for of_group in ({A0: (70, 3), A1: (7, -1)}, {}):
        # The group goes on, or is deleted once the query has been moved.
        kafka.committed["g"] = of_group
        again = Stream(**GROUP)
        assert again.ranges(again.initial(), recorded) == []
        assert again.spans(recorded, again.end(recorded)) == [("a", 0, 30, 80)]


def test_a_new_stream_of_a_group_that_is_not_there_fails_before_it_reads(kafka: ScriptedKafka) -> None:
    del kafka.committed["g"]
    stream = Stream(**GROUP, startingGroupStrategy="earliest")
    start = stream.initial()
    for _ in range(2):
        with pytest.raises(errors.NoCommittedOffset):
            stream.end(start)


def test_partitions_that_are_added_later_are_read_from_their_start(kafka: ScriptedKafka, logs: Any) -> None:
    stream = Stream(**GROUP)
    recorded = stream.goes_on(stream.initial())
    added = TopicPartition("a", 2)
    logs[added] = ScriptedLog(0, 4)
    kafka.leaders[added] = min(kafka.brokers)
    assert ("a", 2, 0, 4) in stream.spans(recorded, stream.end(recorded))


def test_a_later_action_on_a_batch_begins_where_the_group_was(
    kafka: ScriptedKafka, logs: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    source = KafkaDataSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a", **GROUP})
    made = source.reader(source.schema())
    assert isinstance(made, KafkaBatchReader)
    tasks = made.partitions()
    kafka.committed["g"] = {A0: (48, 3), A1: (9, -1)}
    logs[A0].latest, logs[A1].latest = 60, 11
    found = []
    for execution in ("1", "2"):
        conf = {"spark.sql.execution.id": execution}
        monkeypatch.setattr(Task, "current", lambda conf=conf: Task(0, conf, 1))
        found.append(spans_of([each for task in tasks for each in made._ranges(task)]))
    assert found == [[("a", 0, 30, 50)], [("a", 0, 30, 60), ("a", 1, 7, 11)]]


def test_a_topic_that_is_made_again_with_fewer_epochs_is_read_from_its_start(kafka: ScriptedKafka, logs: Any) -> None:
    kafka.committed["g"] = {A0: (30, 3), A1: (2, 5)}
    logs[A0], logs[A1] = ScriptedLog(0, 90, leader_epoch=0), ScriptedLog(0, 90, leader_epoch=0)
    kafka.topic_ids["a"] = uuid.UUID(int=9)
    assert begins(**LENIENT) == {A0: 0, A1: 0}

"""Offsets over scripted brokers: by time, where logs end asked again and again, and those that a group commits."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import apis
from kafka_sink.errors import GroupCommitFailed, LeaderUnavailable, TopicAuthorizationFailed, TopicToReadMissing
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.group_offsets import COMMIT_PATIENCE_MS, commit_group_offsets, refusal_of
from kafka_sink.kafka.admin.offsets import (
    SAMPLE_BYTES,
    Logs,
    Sample,
    Topics,
    epoch_ends,
    list_offsets,
    log_ends,
    samples,
)
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.reading import READING, read_config
from kafka_sink.spark.kept_clients import once
from record_sets import plain
from scripted_kafka import HANG_UP, ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, refused_offsets, serve

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
UNKNOWN, OFFLINE, NOT_LEADER, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, TOO_LARGE = 3, 5, 6, 14, 15, 16, 28
NO_MEMBER, REBALANCE, DENIED, GROUP_DENIED, NO_GROUP, FENCED = 25, 27, 29, 30, 69, 74

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def logs() -> dict[tuple[str, int], ScriptedLog]:
    return {P: ScriptedLog(3, 9, stable=7, times={3: 100, 8: 200}, leader_epoch=2), Q: ScriptedLog(0, 0)}


@pytest.fixture
def kafka(logs: dict[tuple[str, int], ScriptedLog]) -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, logs)
    made.leaders[Q], made.topic_ids["t"] = 2, uuid.UUID(int=1)
    made.always(apis.ProgressCommitRequest, committed())
    return made


def offsets(timestamps_ms: dict[TopicPartition, int], level: IsolationLevel = UNCOMMITTED) -> dict[TopicPartition, int]:
    config = sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.max.block.ms": "10000"}).producer
    with once(AdminClient, config) as client:
        return {each: found.offset for each, found in list_offsets(client, timestamps_ms, level).items()}


@pytest.mark.parametrize(("time_ms", "level", "expected"), [
    (apis.EARLIEST, UNCOMMITTED, {P: 3, Q: 0}),
    (apis.LATEST, UNCOMMITTED, {P: 9, Q: 0}),
    (apis.LATEST, COMMITTED, {P: 7, Q: 0}),
    (150, UNCOMMITTED, {P: 8, Q: apis.NO_OFFSET}),
    (150, COMMITTED, {P: apis.NO_OFFSET, Q: apis.NO_OFFSET}),
])  # fmt: skip
def test_each_partition_has_an_offset_or_none(
    time_ms: int, level: IsolationLevel, expected: dict[TopicPartition, int]
) -> None:
    assert offsets(dict.fromkeys([P, Q], time_ms), level) == expected


def test_each_partition_has_its_own_time_and_its_own_leader(kafka: ScriptedKafka) -> None:
    assert offsets({P: 150, Q: apis.EARLIEST}) == {P: 8, Q: 0}
    assert [node_id for node_id, _ in kafka.asked(apis.ListOffsetsRequest)] == [1, 2]


@pytest.mark.parametrize("trouble", [HANG_UP, refused_offsets(NOT_LEADER), refused_offsets(OFFLINE)])
def test_trouble_that_passes_is_waited_out(kafka: ScriptedKafka, trouble: object) -> None:
    kafka.script(apis.ListOffsetsRequest, trouble, trouble)
    assert offsets({P: apis.EARLIEST}) == {P: 3}


def test_trouble_that_stays_ends_in_time_and_is_named(kafka: ScriptedKafka) -> None:
    kafka.always(apis.ListOffsetsRequest, refused_offsets(NOT_LEADER))
    with pytest.raises(LeaderUnavailable, match="NOT_LEADER_OR_FOLLOWER"):
        offsets({P: apis.EARLIEST})
    assert 9_000 <= kafka.now_ms <= 10_000


def test_a_topic_that_is_gone_is_not_waited_for_as_a_leader_is(kafka: ScriptedKafka) -> None:
    kafka.always(apis.ListOffsetsRequest, refused_offsets(UNKNOWN))
    kafka.topic_codes["t"] = UNKNOWN
    with pytest.raises(TopicToReadMissing):
        offsets({P: apis.EARLIEST})


def test_a_missing_acl_is_an_error_at_once(kafka: ScriptedKafka, client: AdminClient) -> None:
    earlier = ends(client)
    kafka.always(apis.ListOffsetsRequest, refused_offsets(DENIED))
    with pytest.raises(TopicAuthorizationFailed, match=r"READ.*principal User:ANONYMOUS") as failure:
        offsets({P: apis.EARLIEST})
    assert (failure.value.topic, kafka.now_ms) == ("t", 0)
    for known in (Logs(), earlier):
        with pytest.raises(TopicAuthorizationFailed, match="READ"):
            ends(client, known)


# --- where logs end ---------------------------------------------------------------------------------------------------


@pytest.fixture
def client(network: ScriptedNetwork) -> Iterator[AdminClient]:
    options = given_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, table=READING)
    with once(AdminClient, read_config(options).consumer) as made:
        yield made


def every(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(name, each.partition) for name, topic in topics.items() for each in topic.partitions]


def ends(client: AdminClient, earlier: Logs | None = None, level: IsolationLevel = UNCOMMITTED) -> Logs:
    return log_ends(client, ("t",), every, level, earlier or Logs())


def latest(found: Logs) -> dict[TopicPartition, int]:
    return {each: end.offset for each, end in found.ends.items()}


def test_the_first_answer(client: AdminClient) -> None:
    assert (latest(ends(client)), latest(ends(client, level=COMMITTED))) == ({P: 9, Q: 0}, {P: 7, Q: 0})


def test_each_leader_is_asked_once_and_what_is_new_again(
    client: AdminClient, kafka: ScriptedKafka, logs: dict[tuple[str, int], ScriptedLog]
) -> None:
    earlier = ends(client)
    del kafka.received[:]
    assert latest(ends(client, earlier)) == {P: 9, Q: 0}
    assert sorted(node for node, _ in kafka.asked(apis.ListOffsetsRequest)) == [1, 2]
    assert len(kafka.received) == len(kafka.asked(apis.MetadataRequest)) + 2
    new = TopicPartition("t", 2)
    logs[new], kafka.leaders[new] = ScriptedLog(0, 7), 1
    del kafka.received[:]
    assert latest(ends(client, earlier)) == {P: 9, Q: 0, new: 7}
    assert [len(request.asked) for _, request in kafka.asked(apis.ListOffsetsRequest)] == [1, 1, 1]


def test_the_answer_about_an_earlier_topic_does_not_count(client: AdminClient, kafka: ScriptedKafka) -> None:
    earlier = ends(client)
    kafka.topic_ids["t"] = uuid.UUID(int=2)
    del kafka.received[:]
    assert ends(client, earlier).topics["t"].topic_id == uuid.UUID(int=2)
    assert len(kafka.asked(apis.ListOffsetsRequest)) == 4


def test_a_partition_that_is_gone_is_in_no_answer(client: AdminClient, kafka: ScriptedKafka) -> None:
    earlier = ends(client)
    del kafka.leaders[Q]
    assert latest(ends(client, earlier)) == {P: 9}


@pytest.mark.parametrize("goes", ["the partition", "the topic"])
def test_what_goes_while_it_is_asked_for_is_in_no_answer(client: AdminClient, kafka: ScriptedKafka, goes: str) -> None:
    """Its leader does not have it any more, and later no broker does."""
    earlier = ends(client)

    def refuse(request: apis.ListOffsetsRequest) -> apis.ListOffsetsResponse:
        if goes == "the topic":
            kafka.topic_codes["t"] = UNKNOWN
        else:
            kafka.leaders.pop(Q, None)
        of_each = {0: (0, -1, 10, 0), 1: (UNKNOWN, -1, -1, -1)}
        answers = (apis.ListedOffset("t", each.partition, *of_each[each.partition]) for each in request.asked)
        return apis.ListOffsetsResponse(0, tuple(answers))

    kafka.always(apis.ListOffsetsRequest, refuse)
    before_ms = client.caller.now_ms()
    assert latest(ends(client, earlier)) == {P: 10}
    assert ABSENT_PATIENCE_MS <= client.caller.now_ms() - before_ms < 2 * ABSENT_PATIENCE_MS


def test_where_epochs_end(client: AdminClient, kafka: ScriptedKafka) -> None:
    kafka.always(
        apis.OffsetForLeaderEpochRequest,
        lambda request: apis.OffsetForLeaderEpochResponse(0, FENCED if request.partition else 0, 1, 7),
    )
    found = epoch_ends(client, ends(client), {P: 1, Q: 0})
    assert found == {P: apis.OffsetForLeaderEpochResponse(0, 0, 1, 7)}, "whose leader answers"
    asked = sorted(kafka.asked(apis.OffsetForLeaderEpochRequest), key=repr)
    assert asked == [
        (1, apis.OffsetForLeaderEpochRequest("t", 0, 2, 1)),
        (2, apis.OffsetForLeaderEpochRequest("t", 1, 0, 0)),
    ]


def test_batches_are_weighed_where_leaders_answer(
    client: AdminClient, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, run = ends(client), client.caller.run
    at_once: list[int] = []
    monkeypatch.setattr(client.caller, "run", lambda calls, due_ms: at_once.append(len(calls)) or run(calls, due_ms))

    def answer(request: apis.FetchRequest) -> apis.FetchResponse:
        assert request.max_bytes == SAMPLE_BYTES
        if request.offset == 2:
            return apis.FetchResponse(0, NOT_LEADER)
        if request.offset == 3:
            return apis.FetchResponse(0, 0, 9, 9, 0)
        batch = plain(b"a", b"b", base_offset=request.offset)
        return apis.FetchResponse(0, 0, 9, 9, 0, records=memoryview(bytes(batch)))

    kafka.always(apis.FetchRequest, answer)
    size = len(bytes(plain(b"a", b"b")))
    found = samples(client, logs, [(P, offset) for offset in range(20)])
    assert found == {(P, n): Sample(n, n + 2, n + 2, size) for n in range(20) if n not in (2, 3)}
    assert at_once == [8, 8, 4], "a bound for the answers in memory"
    assert samples(client, logs, []) == {}


def test_nobody_is_asked_where_no_epoch_ends_or_brokers_lack_the_request(
    client: AdminClient, kafka: ScriptedKafka
) -> None:
    now = ends(client)
    del kafka.received[:]
    assert epoch_ends(client, now, {}) == {}
    assert not kafka.received
    kafka.spoken = lambda request: None
    assert epoch_ends(client, now, {P: 1}) == {P: None}
    assert not kafka.asked(apis.OffsetForLeaderEpochRequest)


# --- what a group without members commits -----------------------------------------------------------------------------

OFFSETS = {P: 7, Q: 0, TopicPartition("u", 0): 9}


def committed(code: int = 0, **of_topic: int) -> Callable[[apis.ProgressCommitRequest], apis.ProgressCommitResponse]:
    """The same code for each partition, other than for those of the topics that are named."""
    return lambda request: apis.ProgressCommitResponse(
        0, tuple(apis.PartitionResult(*each, of_topic.get(each.topic, code)) for each in request.offsets)
    )


def commit(**options: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | {k.replace("_", "."): v for k, v in options.items()}
    with once(AdminClient, read_config(given_options(given, table=READING)).consumer) as client:
        commit_group_offsets(client, "g", OFFSETS)


def refused(**options: str) -> GroupCommitFailed:
    with pytest.raises(GroupCommitFailed) as failure:
        commit(**options)
    return failure.value


def test_one_request_to_the_coordinator_has_all_offsets(kafka: ScriptedKafka) -> None:
    kafka.coordinator = 2
    commit()
    assert kafka.asked(apis.ProgressCommitRequest) == [(2, apis.ProgressCommitRequest("g", OFFSETS))]
    assert kafka.now_ms == 0


@pytest.mark.parametrize("trouble", [HANG_UP, committed(LOADING), committed(NOT_AVAILABLE)])
def test_trouble_of_a_coordinator_that_passes_is_waited_out(kafka: ScriptedKafka, trouble: Any) -> None:
    kafka.script(apis.ProgressCommitRequest, trouble, trouble)
    commit()
    assert len(kafka.asked(apis.ProgressCommitRequest)) == 3


def test_a_coordinator_that_has_moved_is_found(kafka: ScriptedKafka) -> None:
    def moved(request: apis.ProgressCommitRequest) -> apis.ProgressCommitResponse:
        kafka.coordinator = 3
        return committed(NOT_COORDINATOR)(request)

    kafka.script(apis.ProgressCommitRequest, moved)
    commit()
    assert [node_id for node_id, _ in kafka.asked(apis.ProgressCommitRequest)] == [1, 3]


@pytest.mark.parametrize("options", [{}, {"kafka_default_api_timeout_ms": "2000"}], ids=str)
def test_a_coordinator_that_does_not_answer_is_given_up_in_time(kafka: ScriptedKafka, options: dict[str, str]) -> None:
    kafka.coordinator, kafka.silent = 2, {2}
    patience_ms = 2_000 if options else COMMIT_PATIENCE_MS
    assert f"no definite answer within {patience_ms} ms" in refused(**options).reason
    assert kafka.now_ms == patience_ms
    # And one that loads for long.
    kafka.silent.clear()
    kafka.always(apis.ProgressCommitRequest, committed(LOADING))
    error = refused(**options)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in error.reason and "__consumer_offsets" in error.remedy
    assert kafka.now_ms == 2 * patience_ms


@pytest.mark.parametrize(("code", "remedy"), [
    *((code, "consumers are members") for code in (NO_MEMBER, REBALANCE)),
    (DENIED, "ACL TOPIC t READ (it implies DESCRIBE) for principal User:ANONYMOUS"),
    (GROUP_DENIED, "ACL GROUP g READ (it implies DESCRIBE) for principal User:ANONYMOUS"),
    (UNKNOWN, "if topic t was deleted"),
    (NO_GROUP, "share group"),
    (TOO_LARGE, "max.message.bytes"),
    (1234, "the log"),
])  # fmt: skip
def test_a_refusal_says_at_once_what_to_do(kafka: ScriptedKafka, code: int, remedy: str) -> None:
    kafka.always(apis.ProgressCommitRequest, committed(code))
    error = refused()
    assert (remedy in error.remedy, f"(error {code}) for t-0 and 2 of 2 others" in error.reason) == (True, True)
    assert (len(kafka.asked(apis.ProgressCommitRequest)), kafka.now_ms) == (1, 0)


def test_a_group_whose_coordinator_is_not_told_is_refused_at_once(kafka: ScriptedKafka) -> None:
    kafka.always(apis.FindCoordinatorRequest, GROUP_DENIED)
    error = refused()
    assert "GROUP_AUTHORIZATION_FAILED" in error.reason and "ACL GROUP g READ" in error.remedy
    assert (kafka.asked(apis.ProgressCommitRequest), kafka.now_ms) == ([], 0)


def test_the_topic_that_is_refused_is_the_one_that_is_named(kafka: ScriptedKafka) -> None:
    kafka.always(apis.ProgressCommitRequest, committed(u=DENIED))
    error = refused()
    assert "TOPIC_AUTHORIZATION_FAILED (error 29) for u-0 and 0 of 2 others" in error.reason
    assert "ACL TOPIC u READ" in error.remedy


def test_a_single_partition_has_no_others() -> None:
    assert refusal_of("g", [apis.PartitionResult("t", 0, 0)], None) is None
    error = refusal_of("g", [apis.PartitionResult("t", 0, GROUP_DENIED)], None)
    assert error is not None and "for this principal" in error.remedy
    assert error.reason == "GROUP_AUTHORIZATION_FAILED (error 30) for t-0"

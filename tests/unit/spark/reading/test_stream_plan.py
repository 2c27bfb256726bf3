"""Plans of the micro-batches of a stream, over scripted brokers."""

import json
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import apis
from kafka_sink import errors
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.apis.offsets import OffsetForLeaderEpochRequest as EpochRequest
from kafka_sink.kafka.protocol.apis.offsets import OffsetForLeaderEpochResponse as EpochResponse
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading import continuity
from kafka_sink.spark.reading.positions import Positions
from record_sets import plain
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, Stream, connect_reads, refused_offsets, serve

DENIED, FENCED, INVALID_REQUEST = 29, 74, 42
SERVER_ERROR, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TIMED_OUT = -1, 3, 5, 7
A0, A1, A2, B0, C0 = (TopicPartition(topic, number) for topic, number in zip("aaabc", (0, 1, 2, 0, 0), strict=True))
ID_A, ID_B, ID_AGAIN = (uuid.UUID(int=number) for number in (1, 2, 3))
LENIENT = {"failOnDataLoss": "false"}
COMMITTED = {"kafka.isolation.level": "read_committed"}


@dataclass
class Cluster:
    """Two topics, of two partitions and one."""

    kafka: ScriptedKafka = field(default_factory=ScriptedKafka)
    logs: dict[tuple[str, int], ScriptedLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logs |= {A0: ScriptedLog(0, 10, leader_epoch=3), A1: ScriptedLog(0, 0), B0: ScriptedLog(0, 100)}
        serve(self.kafka, self.logs)
        self.kafka.topic_ids |= {"a": ID_A, "b": ID_B}

    def add(self, partition: TopicPartition, log: ScriptedLog) -> None:
        self.logs[partition] = log
        self.kafka.leaders[partition] = min(self.kafka.brokers)

    def delete(self, topic: str) -> None:
        for partition in [each for each in self.kafka.leaders if each[0] == topic]:
            del self.kafka.leaders[partition]

    def recreate(self, topic: str, *logs: ScriptedLog) -> None:
        self.delete(topic)
        for number, log in enumerate(logs):
            self.add(TopicPartition(topic, number), log)
        self.kafka.topic_ids[topic] = ID_AGAIN

    def elect(self, partition: TopicPartition, *, epoch_end: int, latest: int) -> None:
        """A leader whose log has the records of the leader before up to `epoch_end`."""
        log = self.logs[partition]
        log.leader_epoch, log.latest = log.leader_epoch + 1, latest
        log.starts = {0: 0, log.leader_epoch - 1: 0, log.leader_epoch: epoch_end}

    def lead(self, epoch: int, latest: int, starts: dict[int, int]) -> None:
        """A leader of A0 in whose log the records of leader epochs begin there."""
        log = self.logs[A0]
        log.leader_epoch, log.latest, log.starts = epoch, latest, {0: 0, **starts}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(autouse=True)
def network(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(cluster.kafka, monkeypatch)


def begun(**options: str) -> tuple[Stream, Positions]:
    """A stream that has done its first micro-batch, and where that ended."""
    stream = Stream(**options)
    return stream, stream.goes_on(stream.initial())


def planned(**options: str) -> tuple[Stream, Positions, Positions]:
    """A stream, and where its first micro-batch begins and ends."""
    stream = Stream(**options)
    start = stream.initial()
    return stream, start, stream.end(start)


@pytest.mark.parametrize(("options", "positions"), [
    ({}, {A0: 10, A1: 0}), ({"startingOffsets": "latest"}, {A0: 10, A1: 0}),
    ({"startingOffsets": "earliest"}, {A0: 2, A1: 0}),
    ({"startingOffsets": json.dumps({"a": {"0": 7, "1": -1}})}, {A0: 7, A1: 0}),
    ({"startingOffsets": json.dumps({"a": {"0": -2, "1": -2}})}, {A0: 2, A1: 0}),
    ({"assign": '{"a": [0]}', "startingTimestamp": "500"}, {A0: 6}),
    ({"startingOffsetsByTimestamp": json.dumps({"a": {"0": 900, "1": 0}}),
     "startingOffsetsByTimestampStrategy": "latest", }, {A0: 10, A1: 0}),
    ({"assign": '{"a": [1], "b": [0]}'}, {A1: 0, B0: 100}),
    ({"subscribe": "a,b", "startingOffsets": '{"a": "earliest", "b": {"0": 7}}'}, {A0: 2, A1: 0, B0: 7}),
    ({"subscribe": "a,b", "startingOffsets": '{"a": "earliest", "b": "latest"}'}, {A0: 2, A1: 0, B0: 100}),
    ({"subscribePattern": "[ab]"}, {A0: 10, A1: 0, B0: 100}), ({"subscribePattern": "x"}, {}),
])  # fmt: skip
def test_where_a_stream_begins(cluster: Cluster, options: dict[str, str], positions: Positions) -> None:
    cluster.logs[A0] = ScriptedLog(2, 10, times={4: 100, 6: 600})
    assert Stream(**options).initial() == positions


@pytest.mark.parametrize(("options", "error", "words", "begins"), [
    ({"subscribe": "a,x"}, errors.TopicToReadMissing, "x", None),
    ({"startingTimestamp": "900"}, errors.NoRecordSince, "a-0 has no record from time 900", None),
    ({"startingOffsets": '{"a": {"0": 5}}'}, errors.InvalidOption, "a-1 has none", None),
    ({"startingOffsets": '{"a": {"0": 1, "1": 0}}'}, errors.OffsetsLost, "offsets 1 to 1 of a-0", 2),
    ({"startingOffsets": '{"a": {"0": 11, "1": 0}}'}, errors.OffsetNotWritten, "offset 11 of a-0", 10),
])  # fmt: skip
def test_beginnings_that_cannot_be(cluster: Cluster, options: Any, error: Any, words: str, begins: int | None) -> None:
    cluster.logs[A0] = ScriptedLog(2, 10)
    with pytest.raises(error, match=words):
        Stream(**options).initial()
    assert begins is None or Stream(**options, **LENIENT).initial() == {A0: begins, A1: 0}


def test_of_a_partition_that_begins_at_its_end_the_first_micro_batch_records_that(cluster: Cluster) -> None:
    stream = Stream(startingOffsets=json.dumps({"a": {"0": 4, "1": -1}}))
    start = stream.initial()
    cluster.logs[A0].latest, cluster.logs[A1].latest = 12, 5
    end = stream.end(start)
    assert end == {A0: 12, A1: 0}
    assert (stream.spans(start, end), stream.end(end)) == ([("a", 0, 4, 12)], {A0: 12, A1: 5})


def test_spark_asks_twice_where_a_stream_begins(cluster: Cluster) -> None:
    stream = Stream()
    end = stream.end(stream.initial())
    cluster.logs[A0].latest = 15
    start = stream.initial()
    assert (start[A0], end[A0]) == (15, 10)
    assert (stream.ranges(start, end), stream.spans(end, stream.end(end))) == ([], [("a", 0, 10, 15)])


@pytest.mark.parametrize("pattern", ["[ac]", "c"])
def test_a_partition_that_is_new_before_the_first_micro_batch_is_read_whole(cluster: Cluster, pattern: str) -> None:
    stream = Stream(subscribePattern=pattern)
    start = stream.initial()
    cluster.add(C0, ScriptedLog(0, 3))
    assert stream.end(start) == start
    # Spark asks again where the stream begins.
    assert stream.spans(stream.initial(), start) == []
    assert stream.spans(start, stream.end(start)) == [("c", 0, 0, 3)]


def test_a_new_process_runs_the_first_micro_batch_again_from_latest(cluster: Cluster) -> None:
    """Nothing between the beginning of then and that of now is left out."""
    stream = Stream()
    logged = stream.end(stream.initial())
    cluster.logs[A0].latest = 15
    again = Stream()
    assert again.ranges(again.initial(), logged) == []
    cluster.logs[A0].latest = 17
    assert again.spans(logged, again.end(logged)) == [("a", 0, 10, 17)]
    assert not again.told


def test_a_new_process_runs_the_first_micro_batch_again_from_earliest(cluster: Cluster) -> None:
    stream = Stream(startingOffsets="earliest")
    logged = stream.end(stream.initial())
    cluster.logs[A0] = ScriptedLog(4, 15, leader_epoch=3)
    again = Stream(startingOffsets="earliest")
    assert again.spans(again.initial(), logged) == [("a", 0, 4, 10)]
    # All of it is deleted by then. The next micro-batch tells that, as it begins where this one ended.
    cluster.logs[A0] = ScriptedLog(12, 15, leader_epoch=3)
    third = Stream(startingOffsets="earliest")
    assert third.spans(third.initial(), logged) == []
    assert third.spans(logged, third.end(logged)) == [("a", 0, 10, 15)]


def test_what_is_new_since_the_first_micro_batch_is_not_taken_for_deleted(cluster: Cluster) -> None:
    stream = Stream(subscribePattern=".", startingOffsets="earliest")
    logged = stream.end(stream.initial())
    cluster.add(C0, ScriptedLog(0, 3))
    again = Stream(subscribePattern=".", startingOffsets="earliest")
    assert again.spans(again.initial(), logged) == [("a", 0, 0, 10), ("b", 0, 0, 100)]
    assert again.spans(logged, again.end(logged)) == [("c", 0, 0, 3)]


def test_micro_batches_follow_each_other(cluster: Cluster) -> None:
    stream, start, end = planned(startingOffsets="earliest")
    assert stream.ranges(start, end) == [FetchRange("a", ID_A, 0, 0, 10, 3, 3)]
    assert stream.end(end) == end
    cluster.logs[A0].latest, cluster.logs[A1].latest = 14, 2
    following = stream.end(end)
    assert stream.ranges(end, following) == [FetchRange("a", ID_A, 0, 10, 14, 3, 3), FetchRange("a", ID_A, 1, 0, 2, 0)]
    assert stream.plan.latest == following
    # A new process plans what was recorded.
    assert Stream().ranges({A0: 10, A1: 0}, {A0: 12, A1: 0}) == [FetchRange("a", ID_A, 0, 10, 12, 3, 3)]
    assert Stream().ranges({A0: 10, A1: 0}, {A0: 10, A1: 0}) == []


def test_a_micro_batch_is_planned_again_without_a_question(cluster: Cluster) -> None:
    stream, start, end = planned(startingOffsets="earliest", minPartitions="2")
    assert stream.spans(start, end) == [("a", 0, 0, 5), ("a", 0, 5, 10)]
    asked = len(cluster.kafka.received)
    assert stream.spans(start, end) == [("a", 0, 0, 5), ("a", 0, 5, 10)]
    assert len(cluster.kafka.received) == asked


def test_new_partitions_and_new_topics_are_read_from_their_start(cluster: Cluster) -> None:
    stream, start = begun(subscribePattern="[abc]")
    cluster.add(A2, ScriptedLog(0, 4))
    cluster.add(C0, ScriptedLog(0, 3))
    end = stream.end(start)
    assert end == {**start, A2: 4, C0: 3}
    assert stream.spans(start, end) == [("a", 2, 0, 4), ("c", 0, 0, 3)]
    assert not stream.told


def test_what_a_new_partition_has_lost_is_told(cluster: Cluster) -> None:
    stream, start = begun(**LENIENT)
    cluster.add(A2, ScriptedLog(3, 4))
    end = stream.end(start)
    assert stream.spans(start, end) == [("a", 2, 3, 4)]
    lost = errors.OffsetsLost(topic="a", partition=2, first=0, end=3, cause=LossCause.DELETED)
    assert list(map(str, stream.told)) == [str(lost)]
    with pytest.raises(errors.OffsetsLost, match="offsets 0 to 2 of a-2"):
        Stream().ranges(start, end)
    # And nothing of it is left.
    cluster.logs[A2] = ScriptedLog(9, 9)
    assert Stream(**LENIENT).spans(start, end) == []


def test_a_limit_counts_for_new_partitions_from_their_start(cluster: Cluster) -> None:
    stream, start, end = planned(subscribe="a,b", maxOffsetsPerTrigger="22", startingOffsets="earliest")
    assert end == {A0: 2, A1: 0, B0: 20}
    assert stream.end(start, is_limited=False) == {A0: 10, A1: 0, B0: 100}
    stream.goes_on(start)
    cluster.logs[A1] = ScriptedLog(0, 90)
    assert stream.end({A0: 10, B0: 100}) == {A0: 10, A1: 22, B0: 100}
    cluster.logs[A1] = ScriptedLog(80, 90)
    assert stream.end({A0: 10, B0: 100}) == {A0: 10, A1: 90, B0: 100}


def weighs(cluster: Cluster, records: int, value_bytes: int) -> int:
    """Let the logs have batches of so many records. Return the bytes of one."""
    batch = plain(*[b"x" * value_bytes] * records)

    def answer(request: apis.FetchRequest) -> apis.FetchResponse:
        log = cluster.logs[request.topic, request.partition]
        bases = range(request.offset // records * records, log.latest, records)[: max(1, 65_536 // len(bytes(batch)))]
        found = b"".join(bytes(replace(batch, base_offset=base)) for base in bases)
        return apis.FetchResponse(0, 0, log.latest, log.latest, 0, records=memoryview(found))

    cluster.kafka.always(apis.FetchRequest, answer)
    return len(bytes(batch))


def test_a_micro_batch_has_about_as_many_bytes_as_it_may(cluster: Cluster) -> None:
    size = weighs(cluster, 10, 1_000)
    cluster.logs[A0], cluster.logs[A1] = ScriptedLog(0, 3_000), ScriptedLog(0, 1_000)
    options = {"subscribe": "a", "maxBytesPerTrigger": str(100 * size), "startingOffsets": "earliest"}
    stream, start, end = planned(**options)
    assert end == {A0: 750, A1: 250}
    assert stream.end(start, is_limited=False) == {A0: 3_000, A1: 1_000}
    stream.plan.is_begun = True
    assert stream.goes_on(end) == {A0: 1_500, A1: 500}
    assert Stream(**options).goes_on({A0: 1_500, A1: 500}) == {A0: 2_250, A1: 750}, "a restart"
    # A partition that is new is weighed from its start.
    cluster.add(A2, ScriptedLog(0, 6_000))
    assert stream.goes_on({A0: 3_000, A1: 1_000}) == {A0: 3_000, A1: 1_000, A2: 1_000}


def test_limits_of_bytes_of_offsets_and_of_a_partition_hold_together(cluster: Cluster) -> None:
    size = weighs(cluster, 10, 1_000)
    cluster.logs[A0], cluster.logs[A1] = ScriptedLog(0, 3_000), ScriptedLog(0, 300)

    def ends(**options: str) -> Positions:
        return planned(subscribe="a", startingOffsets="earliest", **options)[2]

    cap, most = {"maxOffsetsPerPartitionPerTrigger": "100"}, {"maxOffsetsPerTrigger": "80"}
    assert ends(**cap) == {A0: 100, A1: 100}
    # The hot partition is cut first, so the shares of both are the same.
    assert ends(**cap, **most) == {A0: 40, A1: 40}
    assert ends(**cap, maxBytesPerTrigger=str(10 * size)) == {A0: 50, A1: 50}
    assert ends(**most, maxBytesPerTrigger="1g") == ends(**most)
    stream = Stream(startingOffsets="earliest", minOffsetsPerTrigger="50", **cap)
    end = stream.goes_on(stream.initial())
    assert stream.end(end)[A0] == 200


@pytest.mark.parametrize("options", [
    {"maxBytesPerTrigger": "50k"}, {"maxBytesPerTrigger": "1"}, {"maxOffsetsPerPartitionPerTrigger": "7"},
    {"maxBytesPerTrigger": "50k", "maxOffsetsPerTrigger": "3", "maxOffsetsPerPartitionPerTrigger": "2"},
])  # fmt: skip
@pytest.mark.parametrize("answers", [True, False])
def test_available_now_reads_all_with_each_limit(cluster: Cluster, options: dict[str, str], answers: bool) -> None:
    """A look that finds no end behind the start would end the query."""
    if answers:
        weighs(cluster, 10, 1_000)
    cluster.logs[A0], cluster.logs[A1] = ScriptedLog(0, 120), ScriptedLog(0, 11)
    stream = Stream(startingOffsets="earliest", **options)
    stream.plan.end_now()
    end = stream.initial()
    while (found := stream.goes_on(end)) != end:
        end = found
        cluster.logs[A1].latest += 1
    assert end == {A0: 120, A1: 11}


def test_a_micro_batch_waits_for_enough_records_but_not_too_long(cluster: Cluster) -> None:
    stream, end = begun(minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    cluster.logs[A0].latest = 14
    assert stream.end(end) == end
    cluster.logs[A0].latest = 15
    end = stream.end(end)
    assert end[A0] == 15
    cluster.logs[A0].latest = 16
    assert stream.end(end) == end
    cluster.kafka.pass_time(10_000)
    assert stream.end(end)[A0] == 16
    # One that waited is limited, too.
    stream, end = begun(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    cluster.logs[A0].latest = 20
    assert stream.end(end) == end
    cluster.logs[A0].latest = 30
    assert stream.end(end)[A0] == 22


def test_available_now_reads_what_is_there_at_its_first_look(cluster: Cluster) -> None:
    stream = Stream(startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    stream.plan.end_now()
    end = stream.goes_on(stream.initial())
    assert end == {A0: 6, A1: 0}
    cluster.logs[A0].latest = 50
    end = stream.goes_on(end)
    assert end == {A0: 10, A1: 0}
    assert stream.goes_on(end) == end


def test_available_now_with_a_step(cluster: Cluster) -> None:
    stream = Stream(**LENIENT, maxOffsetsPerTrigger="6")
    stream.plan.end_now()
    end = stream.goes_on({A0: 12, A1: 0})
    assert end == {A0: 10, A1: 0}
    cluster.logs[A0].latest = 50
    assert (stream.goes_on(end), len(stream.told)) == (end, 1)
    # And one into a new topic.
    stream, end = begun(**LENIENT)
    cluster.recreate("a", ScriptedLog(0, 4))
    stream.plan.end_now()
    end = stream.goes_on(end)
    assert end == {A0: 0}
    cluster.logs[A0].latest = 8
    assert stream.ranges(end, stream.end(end)) == [FetchRange("a", ID_AGAIN, 0, 0, 4, 0)]


def test_available_now_ends_with_a_log_that_breaks_before_it_was_read(cluster: Cluster) -> None:
    stream = Stream(startingOffsets="earliest", maxOffsetsPerTrigger="6")
    stream.plan.end_now()
    end = stream.goes_on(stream.initial())
    # With fewer partitions, and fewer records than the stream is to read.
    cluster.recreate("a", ScriptedLog(0, 7, leader_epoch=3))
    with pytest.raises(errors.LogBroken, match=r"a-0 does not go on at offset 6.*created again"):
        stream.end(end)


def test_available_now_runs_a_micro_batch_again_although_partitions_are_new(cluster: Cluster) -> None:
    stream = Stream(startingOffsets="earliest")
    stream.plan.end_now()
    logged = stream.end(stream.initial())
    cluster.add(A2, ScriptedLog(0, 4))
    again = Stream(startingOffsets="earliest")
    again.plan.end_now()
    assert again.spans(again.initial(), logged) == [("a", 0, 0, 10)]
    assert again.spans(logged, again.end(logged)) == [("a", 2, 0, 4)]


def test_a_look_is_one_round_trip(cluster: Cluster, network: ScriptedNetwork) -> None:
    kafka = cluster.kafka
    kafka.leaders[A1] = kafka.leaders[B0] = 2
    stream, end = begun(subscribe="a,b")
    stream.goes_on(end)
    for latest in (20, 30, 40):
        cluster.logs[A0].latest = latest
        del kafka.received[:]
        polls = len(network.waits)
        end = stream.goes_on(end)
        assert end[A0] == latest
        assert sorted(node for node, _ in kafka.asked(apis.ListOffsetsRequest)) == [1, 2]
        assert (len(kafka.asked(apis.MetadataRequest)), len(kafka.received)) == (1, 3)
        assert len(network.waits) - polls == 1


def test_a_missing_acl_is_an_error_with_the_acl_to_add(cluster: Cluster) -> None:
    stream, end = begun(**LENIENT)
    cluster.kafka.topic_codes["a"] = DENIED
    with pytest.raises(errors.TopicAuthorizationFailed, match="READ"):
        stream.end(end)
    assert cluster.kafka.now_ms < ABSENT_PATIENCE_MS


@pytest.mark.parametrize("options", [{}, LENIENT])
def test_a_topic_of_a_pattern_that_may_not_be_described_is_not_gone(cluster: Cluster, options: dict[str, str]) -> None:
    stream, end = begun(subscribePattern="[ab]", **options)
    cluster.kafka.topic_codes["a"] = DENIED
    for process in (stream, Stream(subscribePattern="[ab]", **options)):
        with pytest.raises(errors.TopicAuthorizationFailed, match="TOPIC a READ"):
            process.end(end)
        assert not process.told
    # One that the pattern no longer matches needs no ACL.
    assert Stream(subscribePattern="b", **LENIENT).goes_on(end) == {B0: 100}
    del cluster.kafka.topic_codes["a"]
    assert stream.goes_on(end) == end


@pytest.mark.parametrize("named", [{}, {"subscribePattern": "[ab]"}, {"assign": '{"a": [0, 1]}'}])
@pytest.mark.parametrize("code", [SERVER_ERROR, LEADER_NOT_AVAILABLE, TIMED_OUT])
def test_an_error_of_a_topic_is_no_proof_that_it_is_gone(cluster: Cluster, code: int, named: dict[str, str]) -> None:
    kafka = cluster.kafka
    stream, end = begun(**named, **LENIENT)
    kafka.topic_codes["a"] = code
    kafka.at.append((kafka.now_ms + 3 * ABSENT_PATIENCE_MS, kafka.topic_codes.clear))
    assert stream.goes_on(end) == end
    kafka.topic_codes["a"] = code
    with pytest.raises(errors.LeaderUnavailable, match=str(code)):
        stream.end(end)
    assert not stream.told


@pytest.mark.parametrize("named", [{}, {"subscribePattern": "[ab]"}])
def test_a_broker_that_has_just_started_is_no_proof_of_a_loss(cluster: Cluster, named: dict[str, str]) -> None:
    """Without the cluster's state it lists no brokers either."""
    kafka = cluster.kafka
    stream, end = begun(**named, **LENIENT)
    until_ms = kafka.now_ms + 3 * ABSENT_PATIENCE_MS

    def answer(request: apis.MetadataRequest) -> apis.MetadataResponse | int:
        if kafka.now_ms >= until_ms:
            return 0
        topics = tuple(apis.TopicMetadata(UNKNOWN_TOPIC, name, None, ()) for name in request.topics or ())
        return apis.MetadataResponse(0, kafka.cluster_id, -1, (), topics)

    kafka.always(apis.MetadataRequest, answer)
    assert Stream(**named).initial() == end
    until_ms = kafka.now_ms + 3 * ABSENT_PATIENCE_MS
    assert stream.goes_on(end) == end
    assert not stream.told


def test_a_list_that_lacks_a_topic_for_a_moment_is_no_loss(cluster: Cluster) -> None:
    stream, end = begun(subscribePattern="[ab]")
    cluster.kafka.unlisted_topics.add("a")
    assert stream.goes_on(end) == end
    assert cluster.kafka.now_ms < ABSENT_PATIENCE_MS


def test_an_answer_that_refuses_is_no_loss(cluster: Cluster) -> None:
    stream, end = begun(**LENIENT)
    cluster.kafka.always(apis.ListOffsetsRequest, refused_offsets(INVALID_REQUEST))
    with pytest.raises(errors.FetchRefused, match="INVALID_REQUEST"):
        stream.end(end)
    assert not stream.told


def broken(position: int, cause: LossCause, goes_on_at: int, partition: TopicPartition = A0) -> str:
    return str(errors.LogBroken(**partition._asdict(), position=position, cause=cause, goes_on_at=goes_on_at))


def assert_a_step(cluster: Cluster, start: Positions, stream: Stream, step: Positions, *told: str) -> None:
    """The stream takes the step in a micro-batch without rows, once, and tells it once."""
    assert (stream.end(start), stream.ranges(start, step)) == (step, [])
    assert list(map(str, stream.told)) == list(told)
    stream.end(step)
    assert list(map(str, stream.told)) == list(told), "once"


def test_a_topic_that_is_deleted(cluster: Cluster) -> None:
    (stream, start), (strict, _) = begun(**LENIENT, subscribe="a,b"), begun(subscribe="a,b")
    cluster.delete("a")
    gone = (broken(10, LossCause.TOPIC_DELETED, -1), broken(0, LossCause.TOPIC_DELETED, -1, A1))
    assert_a_step(cluster, start, stream, {B0: 100}, *gone)
    with pytest.raises(errors.LogBroken, match=r"a-0 does not go on at offset 10.*does not exist any more"):
        strict.end(start)
    # It is made again, and read from its start.
    cluster.recreate("a", ScriptedLog(0, 2))
    end = stream.end({B0: 100})
    assert end == {B0: 100, A0: 2}
    assert stream.ranges({B0: 100}, end) == [FetchRange("a", ID_AGAIN, 0, 0, 2, 0)]


@pytest.mark.parametrize(("options", "error"), [
    ({"subscribe": "a,c"}, errors.TopicToReadMissing), ({"assign": '{"a": [0, 1, 7]}'}, errors.PartitionToReadMissing),
])  # fmt: skip
def test_a_new_process_tells_what_its_options_name_and_is_not_there(
    cluster: Cluster, options: dict[str, str], error: type[errors.ReadError]
) -> None:
    start = {A0: 5, A1: 0}
    with pytest.raises(error):
        Stream(**options).end(start)
    assert cluster.kafka.now_ms >= ABSENT_PATIENCE_MS
    stream = Stream(**options, **LENIENT)
    end = stream.goes_on(start)
    assert end == {A0: 10, A1: 0}
    looked_ms = cluster.kafka.now_ms
    stream.goes_on(end)
    assert [type(each) for each in stream.told] == [error]
    assert cluster.kafka.now_ms < looked_ms + ABSENT_PATIENCE_MS
    if error is errors.TopicToReadMissing:
        cluster.recreate("c", ScriptedLog(0, 2))
        assert stream.spans(end, stream.end(end)) == [("c", 0, 0, 2)]


def test_a_stream_may_lose_all_of_its_topics(cluster: Cluster) -> None:
    stream, start = begun(**LENIENT)
    cluster.delete("a")
    assert (stream.goes_on(start), stream.goes_on({})) == ({}, {})
    cluster.recreate("a", ScriptedLog(0, 2))
    assert stream.spans({}, stream.end({})) == [("a", 0, 0, 2)]


def test_a_topic_that_is_made_again(cluster: Cluster) -> None:
    (stream, start), (strict, _) = begun(**LENIENT), begun()
    cluster.recreate("a", ScriptedLog(0, 30, leader_epoch=3), ScriptedLog(0, 0))
    told = (broken(10, LossCause.TOPIC_RECREATED, 0), broken(0, LossCause.TOPIC_RECREATED, 0, A1))
    assert_a_step(cluster, start, stream, {A0: 0, A1: 0}, *told)
    assert stream.ranges({A0: 0, A1: 0}, {A0: 30, A1: 0}) == [FetchRange("a", ID_AGAIN, 0, 0, 30, 3, 3)]
    with pytest.raises(errors.LogBroken, match=r"at offset 10, .* but at 0: the topic was deleted and created again"):
        strict.end(start)


def test_a_topic_that_is_made_again_twice(cluster: Cluster) -> None:
    stream, start = begun(**LENIENT, assign='{"a": [0]}')
    cluster.recreate("a", ScriptedLog(0, 30, leader_epoch=3))
    step = stream.goes_on(start)
    cluster.kafka.topic_ids["a"] = uuid.UUID(int=9)
    assert stream.end(step) == {A0: 0}
    assert list(map(str, stream.told)) == [broken(at, LossCause.TOPIC_RECREATED, 0) for at in (10, 0)]
    assert [each.topic_id for each in stream.ranges(step, stream.end(step))] == [uuid.UUID(int=9)]


def test_a_topic_that_is_made_again_at_brokers_without_ids(cluster: Cluster) -> None:
    cluster.kafka.topic_ids.clear()
    stream, start = begun(**LENIENT, assign='{"a": [0]}')
    cluster.logs[A0] = ScriptedLog(0, 30, leader_epoch=0)
    assert_a_step(cluster, start, stream, {A0: 0}, broken(10, LossCause.TOPIC_RECREATED, 0))
    assert stream.spans({A0: 0}, {A0: 30}) == [("a", 0, 0, 30)]
    # Brokers that learn ids, or forget them, change nothing.
    stream, start = begun()
    for ids in ({"a": ID_A}, {}):
        cluster.kafka.topic_ids = ids
        assert stream.end(start) == start


@pytest.mark.parametrize("latest", [8, 10, 30])
def test_a_log_that_is_truncated(cluster: Cluster, latest: int) -> None:
    """However far it has grown again by then."""
    (stream, start), (strict, _) = begun(**LENIENT), begun()
    cluster.elect(A0, epoch_end=7, latest=latest)
    with pytest.raises(errors.LogBroken, match=r"a-0 does not go on at offset 10.* but at 7"):
        strict.end(start)
    assert_a_step(cluster, start, stream, {A0: 7, A1: 0}, broken(10, LossCause.TRUNCATED, 7))
    end = stream.end({A0: 7, A1: 0})
    assert stream.ranges({A0: 7, A1: 0}, end) == [FetchRange("a", ID_A, 0, 7, latest, 4, 4, 7)]


def test_a_log_that_is_truncated_twice(cluster: Cluster) -> None:
    stream, start = begun(**LENIENT)
    cluster.elect(A0, epoch_end=7, latest=9)
    step = stream.goes_on(start)
    cluster.elect(A0, epoch_end=5, latest=20)
    step = stream.goes_on(step)
    assert step == {A0: 5, A1: 0}
    assert list(map(str, stream.told)) == [broken(at, LossCause.TRUNCATED, to) for at, to in ((10, 7), (7, 5))]
    assert stream.spans(step, stream.end(step)) == [("a", 0, 5, 20)]


def test_a_new_leader_is_compared_once(cluster: Cluster) -> None:
    stream, start = begun()
    cluster.elect(A0, epoch_end=10, latest=10)
    del cluster.kafka.received[:]
    assert stream.end(start) == stream.end(start) == start
    # Where the records of leader 3 end, which is where those of leader 4 begin; and where those of leader 3 begin.
    asked = [request for _, request in cluster.kafka.asked(EpochRequest)]
    assert asked == [EpochRequest("a", 0, 4, 3), EpochRequest("a", 0, 4, 2)]


def test_a_leader_that_has_written_is_asked_once_and_not_again(cluster: Cluster) -> None:
    stream, position = begun()
    cluster.elect(A0, epoch_end=10, latest=12)
    del cluster.kafka.received[:]
    position = stream.goes_on(position)
    for latest in (13, 20):
        cluster.logs[A0].latest = latest
        position = stream.goes_on(position)
    ((_, request),) = cluster.kafka.asked(EpochRequest)
    assert request == EpochRequest("a", 0, 4, 3)


def test_records_that_several_earlier_leaders_wrote_become_readable(cluster: Cluster) -> None:
    """A new leader's high watermark lags behind its log at first."""
    stream, position = begun()
    for latest in (10, 15):
        cluster.lead(5, latest, {3: 4, 4: 12, 5: 20})
        position = stream.goes_on(position)
    assert stream.ranges({A0: 10, A1: 0}, position) == [FetchRange("a", ID_A, 0, 10, 15, 5, 4, 12)]
    cluster.lead(6, 30, {3: 4, 4: 12, 6: 20})
    assert stream.goes_on(position)[A0] == 30


@pytest.mark.parametrize("written", [0, 1], ids=["a leader that wrote nothing", "a leader that wrote"])
def test_a_log_is_compared_by_the_epoch_of_its_last_record(cluster: Cluster, written: int) -> None:
    """Two unclean elections: the records before the stream's position are of leader 3, and leader 5 may have written
    nothing. Leader 6 has records of leader 4 where leader 5 had those of leader 3."""
    cluster.lead(3, 10, {3: 4})
    stream, position = begun(**LENIENT)
    for latest in (10, 10 + written):
        cluster.lead(5, latest, {3: 4, 5: 10})
        position = stream.goes_on(position)
    assert not stream.told
    end = FetchRange("a", ID_A, 0, 9, 10 + written, 5, *((5, 10) if written else (3, 4)))
    assert stream.ranges({A0: 9, A1: 0}, position) == [end]
    cluster.lead(6, 30, {3: 4, 4: 7, 6: 12})
    # It has no record of leader 5 at all, but where the records of leader 5 began, it has others.
    at = 10 if written else 7
    assert_a_step(cluster, position, stream, {A0: at, A1: 0}, broken(10 + written, LossCause.TRUNCATED, at))


def test_a_log_that_is_cut_behind_the_position_goes_on(cluster: Cluster) -> None:
    """Truncated there, or without the records of a leader, which the stream has not read."""
    stream, start = begun(startingOffsets=json.dumps({"a": {"0": 4, "1": 0}}), maxOffsetsPerTrigger="2")
    cluster.elect(A0, epoch_end=6, latest=20)
    assert stream.ranges(start, stream.end(start)) == [FetchRange("a", ID_A, 0, 6, 8, 4, 4, 6)]
    stream = Stream(startingOffsets=json.dumps({"a": {"0": 0, "1": 0}}), maxOffsetsPerTrigger="8")
    cluster.lead(3, 10, {3: 9})
    position = stream.goes_on(stream.initial())
    assert position[A0] < 9
    cluster.lead(4, 30, {1: 8, 4: 20})
    assert stream.goes_on(position)[A0] > position[A0]
    assert not stream.told


def test_what_a_new_process_sees_of_a_truncation(cluster: Cluster) -> None:
    """It has only offsets, and the checkpoint may be another cluster's. A step that was recorded is taken again."""
    cluster.logs[A0].latest = 8
    start, step = {A0: 10, A1: 0}, {A0: 8, A1: 0}
    assert_a_step(cluster, start, Stream(**LENIENT), step, broken(10, LossCause.TRUNCATED, 8))
    broken_at_8 = r"at offset 10.* but at 8: .* or the checkpoint is of another cluster"
    with pytest.raises(errors.LogBroken, match=broken_at_8):
        Stream().end(start)
    cluster.logs[A0].latest = 10
    with pytest.raises(errors.LogBroken, match=broken_at_8):
        Stream().ranges(start, step)
    for recorded, cause, at in ((step, LossCause.TRUNCATED, 8), ({A1: 0}, LossCause.TOPIC_DELETED, -1)):
        again = Stream(**LENIENT)
        assert again.ranges(start, recorded) == []
        assert list(map(str, again.told)) == [broken(10, cause, at)]


def test_a_recorded_micro_batch_whose_end_is_gone(cluster: Cluster) -> None:
    start, end = {A0: 5, A1: 0}, {A0: 15, A1: 3}
    stream = Stream(**LENIENT)
    assert stream.spans(start, end) == [("a", 0, 5, 10)]
    lost = [(each.first, each.end) for each in stream.told if isinstance(each, errors.OffsetsLost)]
    assert lost == [(10, 15), (0, 3)]
    with pytest.raises(errors.OffsetsLost, match="offsets 10 to 14 of a-0"):
        Stream().ranges(start, end)
    cluster.delete("a")
    gone = Stream(**LENIENT)
    assert gone.ranges(start, end) == []
    assert [type(each) for each in gone.told] == [errors.LogBroken, errors.LogBroken]


@pytest.mark.parametrize("latest", [12, 15, 30])
def test_what_follows_in_a_log_that_ended_before_a_recorded_micro_batch_is_read(cluster: Cluster, latest: int) -> None:
    """Spark goes on at the recorded end, however far the log has grown by then."""
    start, end = {A0: 5, A1: 0}, {A0: 15, A1: 0}
    stream = Stream(**LENIENT)
    assert stream.spans(start, end) == [("a", 0, 5, 10)]
    cluster.logs[A0].latest = latest
    step = stream.goes_on(end)
    assert step == {A0: 10, A1: 0}
    assert stream.spans(step, stream.end(step)) == [("a", 0, 10, latest)]
    assert stream.goes_on(step) == {A0: latest, A1: 0}


@pytest.mark.parametrize("is_another", [False, True])
def test_a_log_that_ended_before_a_recorded_micro_batch_and_is_cut_then(cluster: Cluster, is_another: bool) -> None:
    stream, end = Stream(**LENIENT), {A0: 15, A1: 0}
    stream.ranges({A0: 5, A1: 0}, end)
    if is_another:
        cluster.recreate("a", ScriptedLog(0, 30, leader_epoch=3), ScriptedLog(0, 0))
    else:
        cluster.elect(A0, epoch_end=7, latest=20)
    assert stream.goes_on(end) == {A0: 0 if is_another else 7, A1: 0}


@pytest.mark.parametrize("is_new", [False, True])
def test_a_step_does_not_hide_what_happens_to_other_partitions_meanwhile(cluster: Cluster, is_new: bool) -> None:
    stream = Stream(**LENIENT, subscribe="a,b")
    start = {A0: 12, A1: 0, B0: 100}
    if not is_new:
        start = stream.goes_on(start | {A0: 10})
        cluster.recreate("a", ScriptedLog(0, 3), ScriptedLog(0, 0))
    step = stream.end(start)
    assert step == start | {A0: 10 if is_new else 0}
    cluster.elect(B0, epoch_end=90, latest=120)
    assert (stream.ranges(start, step), stream.end(step)) == ([], step | {B0: 90})


def test_a_loss_is_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    Stream(continuity.warn, **LENIENT).end({A0: 12, A1: 0})
    assert "the log of a-0 does not go on at offset 12" in caplog.text
    assert "The stream goes on (failOnDataLoss is false)." in caplog.text


@pytest.mark.parametrize("gone", ["topic", "partition", "id", "end"])
def test_a_broker_that_lags_is_no_loss(cluster: Cluster, gone: str) -> None:
    kafka = cluster.kafka
    stream, start = begun()
    before = dict(kafka.leaders), dict(kafka.topic_ids), replace(cluster.logs[A0])
    match gone:
        case "topic":
            cluster.delete("a")
        case "partition":
            del kafka.leaders[A1]
        case "id":
            kafka.topic_ids["a"] = ID_AGAIN
        case "end":
            cluster.logs[A0].latest = 9

    def catch_up() -> None:
        kafka.leaders, kafka.topic_ids = before[0], before[1]
        cluster.logs[A0] = before[2]

    kafka.at.append((kafka.now_ms + ABSENT_PATIENCE_MS - 1_000, catch_up))
    assert stream.end(start) == start
    assert kafka.now_ms < ABSENT_PATIENCE_MS + 1_000


def test_a_loss_is_confirmed_by_a_request_that_was_sent_later(cluster: Cluster) -> None:
    stream, start = begun(**LENIENT, subscribe="a,b")
    since_ms = cluster.kafka.now_ms
    cluster.delete("a")
    step = stream.goes_on(start)
    assert since_ms + ABSENT_PATIENCE_MS <= cluster.kafka.now_ms <= since_ms + ABSENT_PATIENCE_MS + 2_000
    since_ms = cluster.kafka.now_ms
    assert stream.goes_on(step) == step
    assert cluster.kafka.now_ms - since_ms < 1_000, "a step that was taken is not doubted again"


def test_the_answer_of_an_earlier_leader_never_counts(cluster: Cluster) -> None:
    stream, start = begun(**LENIENT, **{"kafka.default.api.timeout.ms": "20000"})
    cluster.logs[A0] = ScriptedLog(0, 4, leader_epoch=2)
    with pytest.raises(errors.LeaderUnavailable, match="a broker answers that knows an older leader"):
        stream.end(start)
    assert not stream.told
    assert cluster.kafka.now_ms <= 30_000
    cluster.logs[A0] = ScriptedLog(0, 12, leader_epoch=3)
    assert stream.end(start)[A0] == 12


def test_a_leader_that_does_not_tell_where_an_epoch_ends_is_asked_again(cluster: Cluster) -> None:
    stream, start = begun()
    cluster.elect(A0, epoch_end=10, latest=12)
    cluster.kafka.script(EpochRequest, *[EpochResponse(0, FENCED, -1, -1)] * 2)
    assert stream.end(start)[A0] == 12
    cluster.kafka.always(EpochRequest, EpochResponse(0, FENCED, -1, -1))
    cluster.elect(A0, epoch_end=12, latest=12)
    with pytest.raises(errors.LeaderUnavailable, match=r"a-0.*where the records before it end"):
        stream.end(start)


def test_brokers_that_lack_the_comparison_are_believed(cluster: Cluster) -> None:
    stream, start = begun()
    del cluster.kafka.received[:]
    speaks = cluster.kafka.spoken

    def spoken(request: Any) -> int | None:
        return None if request.api.name == "OffsetForLeaderEpoch" else speaks(request)

    cluster.kafka.spoken = spoken
    cluster.elect(A0, epoch_end=7, latest=12)
    assert stream.end(start)[A0] == 12
    assert not cluster.kafka.asked(EpochRequest)


def test_a_stream_of_committed_records_ends_before_the_first_open_transaction(cluster: Cluster) -> None:
    cluster.logs[A0].stable = 6
    stream, start, end = planned(**COMMITTED, startingOffsets="earliest")
    assert stream.spans(start, end) == [("a", 0, 0, 6)]
    cluster.logs[A0].stable = None
    assert stream.spans(end, stream.end(end)) == [("a", 0, 6, 10)]


def test_a_transaction_that_is_open_again_is_no_loss(cluster: Cluster) -> None:
    """A truncation took its marker. Its records were read, and are not read again."""
    stream, start = begun(**COMMITTED, **LENIENT)
    cluster.elect(A0, epoch_end=8, latest=9)
    cluster.logs[A0].stable = 5
    assert_a_step(cluster, start, stream, {A0: 8, A1: 0}, broken(10, LossCause.TRUNCATED, 8))
    step = {A0: 8, A1: 0}
    assert stream.end(step) == step
    assert Stream(**COMMITTED).end(step) == step, "a new process"
    cluster.logs[A0].stable = None
    assert stream.spans(step, stream.end(step)) == [("a", 0, 8, 9)]


def test_a_log_that_begins_inside_of_an_open_transaction_goes_on(cluster: Cluster) -> None:
    """Kafka 4 tells a last stable offset before the first offset then."""
    cluster.logs[A0] = ScriptedLog(6, 10, stable=4)
    stream = Stream(**COMMITTED, startingOffsets="earliest")
    start = stream.initial()
    assert start[A0] == 6
    assert stream.goes_on(start) == start
    cluster.logs[A0].stable = None
    assert stream.spans(start, stream.end(start)) == [("a", 0, 6, 10)]

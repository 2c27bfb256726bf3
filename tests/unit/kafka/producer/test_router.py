import itertools
import pickle
import random
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from effort import examples
from given_rows import converted
from kafka_sink.errors import PartitionOutOfRange, TooManyBadRows, TopicNameInvalid, TopicNull
from kafka_sink.errors.quoting import LONGEST
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.bad_row_tally import (
    FIRST_ROWS,
    BadRowCounts,
    BadRowLimits,
    BadRowPolicy,
    BadRowTally,
    check_limits,
    total,
)
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.router import RoutedRows, Router, RowTopics
from kafka_sink.kafka.producer.row_limits import ANY_MS, TopicLimits, TopicRules, topic_rules, wire_sizes
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.bad_rows import GOOD, Reason
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import Codec, codec_for
from kafka_sink.records.dead_letters import Origin
from kafka_sink.records.fallback.encoder import RecordEncoder
from kafka_sink.records.record_batch import HEADER_BYTES
from record_cases import Case, cases, int64s


def state(name: str, leaders: list[int]) -> TopicSnapshot:
    return TopicSnapshot(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), tuple(leaders), (0,) * len(leaders))


def columns(**given: pa.Array) -> RecordColumns:
    return RecordColumns.from_arrow(pa.record_batch(given), now_ms=0)


def counts(rows: RoutedRows) -> dict[TopicPartition, int]:
    per_destination = rows.end_row - rows.next_row
    return {tp: int(n) for tp, n in zip(rows.destinations, per_destination, strict=True) if n}


def router(topic: str | None = None, batch_bytes: int = 1_000_000, partitioner: str = "murmur2") -> Router:
    return Router(topic=topic, batch_bytes=batch_bytes, rng=random.Random(3), partitioner=partitioner)


def partitions_of(made: Router, rows: RecordColumns, leaders: list[int]) -> dict[int, int]:
    """Rows a partition, of the topic "t" with these leaders."""
    routed = made.route(rows, made.topics_of(rows), {"t": state("t", leaders)})
    return {tp.partition: n for tp, n in counts(routed).items()}


def test_rows_go_to_the_topics_they_name_and_to_their_keys_partitions() -> None:
    keys = [b"key-%d" % n for n in range(500)]
    names = [("a", "b", "c")[n % 3] for n in range(500)]
    rows = columns(value=pa.array(keys), key=pa.array(keys), topic=pa.array(names))
    states = {name: state(name, [0] * count) for name, count in (("a", 3), ("b", 1), ("c", 8))}
    made = router()
    topics = made.topics_of(rows)
    assert set(topics.names) == {"a", "b", "c"}
    expected: dict[TopicPartition, int] = {}
    for key, name in zip(keys, names, strict=True):
        partition = (murmur2(key) & 0x7FFFFFFF) % states[name].partition_count
        expected[TopicPartition(name, partition)] = expected.get(TopicPartition(name, partition), 0) + 1
    routed = made.route(rows, topics, states)
    assert counts(routed) == expected
    assert routed.topic_ids == [states[tp.topic].topic_id for tp in routed.destinations]


@pytest.mark.parametrize("topic", [None, pa.array(["a", None]), pa.array(["a", ""]), pa.nulls(2)])
def test_a_row_without_a_topic_is_a_bad_row(topic: pa.Array | None) -> None:
    given = {"value": pa.array([b"a", b"b"])} | ({} if topic is None else {"topic": topic})
    with pytest.raises(TopicNull):
        router().topics_of(columns(**given))


KINDS = pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize("name", (
    b"\xfd\xed", b"t\n", b"t\0", "t\u202e".encode(), b"..", b"a b", b"t" * 250, b"\xfd" * 10**6, b"\xc3\xa9" * 10**6,
), ids=lambda name: repr(name[:9]))  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_no_topic_can_have_is_a_bad_row_and_shown_with_escapes(name: bytes, kind: pa.DataType) -> None:
    """A long text is cut where a name would end. The option wins over the column."""
    rows = columns(value=pa.array([b"v", b"w"]), topic=converted([b"fine", name], kind, pa.string()))
    with pytest.raises(TopicNameInvalid) as failure:
        router().topics_of(rows)
    assert str(failure.value).isprintable() and len(str(failure.value)) < 1_500
    assert len(failure.value.topic) <= LONGEST
    assert router("t").topics_of(rows).names == ("t",)


def test_rows_without_a_key_stick_to_a_partition_with_a_leader_for_a_batch() -> None:
    made = router("t", batch_bytes=10_000)
    states = {"t": state("t", [0, -1, 0, 0])}
    seen: list[TopicPartition] = []
    for _ in range(1_200):
        rows = columns(value=pa.array([bytes(90)]))
        seen += counts(made.route(rows, made.topics_of(rows), states))
    assert {tp.partition for tp in seen} == {0, 2, 3}
    assert 10 <= sum(a != b for a, b in itertools.pairwise(seen)) <= 12  # 1,200 rows of about 93 bytes


KEYED = columns(value=pa.array([b"v"] * 300), key=pa.array([b"key-%d" % n for n in range(300)]))
KEYLESS = columns(value=pa.array([b"v"] * 300))


def test_a_topic_that_grows_keeps_its_keys_and_takes_the_other_rows() -> None:
    made = router("t", partitioner="murmur2", batch_bytes=1)
    before = partitions_of(made, KEYED, [0] * 3)
    assert partitions_of(made, KEYED, [0] * 8) == before
    assert set(partitions_of(made, KEYLESS, [0] * 8)) == set(range(8))
    explicit = columns(value=pa.array([b"a"]), partition=pa.array([7], pa.int32()), key=pa.array([b"k"]))
    assert partitions_of(made, explicit, [0] * 8) == {7: 1}
    # A broker that lags behind, on a cluster where topics only grow.
    assert (partitions_of(made, explicit, [0] * 2), partitions_of(made, KEYED, [0] * 2)) == ({7: 1}, before)
    assert partitions_of(router("t"), KEYED, [0] * 8) != before


def test_each_topic_has_turns_of_its_own() -> None:
    made = router(partitioner="roundrobin")
    rows = columns(value=pa.array([b"v"] * 60), topic=pa.array(["a", "b"] * 30), key=pa.array([b"k"] * 60))
    states = {"a": state("a", [0, -1, 0, 0]), "b": state("b", [0] * 5)}
    topics = made.topics_of(rows)
    assert counts(made.route(rows, topics, states)) == {
        **{TopicPartition("a", partition): 10 for partition in (0, 2, 3)},
        **{TopicPartition("b", partition): 6 for partition in range(5)},
    }


def test_a_new_state_of_a_topic_replaces_what_was_made_for_the_old_one() -> None:
    made = router("t", batch_bytes=1)
    for leaders, led in ([0, 0], {0, 1}), ([-1, 0, 0, 0], {1, 2, 3}), ([0, -1, -1, -1], {0}):
        rows = columns(value=pa.array([b"a"] * 200))
        routed = made.route(rows, made.topics_of(rows), {"t": state("t", leaders)})
        assert [tp.partition for tp in routed.destinations] == list(range(len(leaders)))
        assert {tp.partition for tp in counts(routed)} == led


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(-2, 4))), min_size=1))
def test_out_of_range_are_exactly_the_rows_that_cannot_be_routed(rows: list[tuple[str, int | None]]) -> None:
    states = {"a": state("a", [0]), "b": state("b", [0, 0, 0])}

    def given_rows(some: list[tuple[str, int | None]]) -> RecordColumns:
        return columns(
            value=pa.array([b"v"] * len(some)),
            topic=pa.array([topic for topic, _ in some]),
            partition=pa.array([partition for _, partition in some], pa.int32()),
        )

    def is_refused(row: tuple[str, int | None]) -> bool:
        one, made = given_rows([row]), router()
        try:
            made.route(one, made.topics_of(one), states)
        except PartitionOutOfRange:
            return True
        return False

    made, several = router(), given_rows(rows)
    outside = made.out_of_range(several, made.topics_of(several), states)
    assert outside.tolist() == [is_refused(row) for row in rows]
    without_the_column = columns(value=pa.array([b"v"] * 3))
    assert not router("t").out_of_range(without_the_column, RowTopics(("a",), None), states).any()


def values(*sizes: int) -> RecordColumns:
    """Rows that compress to little."""
    return RecordColumns.from_arrow(pa.record_batch({"value": pa.array([bytes(size) for size in sizes])}), now_ms=5)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@settings(max_examples=examples(40))
@given(case=cases(), reverse=st.booleans())
def test_the_wire_size_is_that_of_a_batch_that_is_closed(case: Case, reverse: bool, codec: str) -> None:
    rows = int64s(list(range(len(case.rows)))[:: -1 if reverse else 1])
    pool = BufferPool(total_bytes=64 * 1024, buffer_bytes=64 * 1024)
    closed = []
    for row in rows.tolist():
        data, _ = RecordEncoder(case.columns, int64s([row])).encode(slice(None), int64s([0]), int64s([0]))
        buffer = pool.try_allocate(HEADER_BYTES + len(data))
        assert buffer is not None
        batch = ProducerBatch(TopicPartition("t", 0), None, buffer, Acknowledgements(), 0, 0)
        buffer.view[HEADER_BYTES : HEADER_BYTES + len(data)] = data.data
        batch.end, batch.record_count = HEADER_BYTES + len(data), 1
        batch.close(codec_for(codec))
        closed.append(batch.size_bytes)
        pool.deallocate(buffer)
    assert wire_sizes(case.columns, rows, codec_for(codec)).tolist() == closed


class Counting:
    id = 4

    def __init__(self) -> None:
        self.compressed = 0

    def compress(self, records: memoryview) -> bytes:
        self.compressed += 1
        return bytes(len(records) // 2)

    def decompress(self, compressed: memoryview, size_bytes: int) -> bytes:
        raise AssertionError


def limits(**max_message_bytes: int) -> TopicLimits:
    made = TopicLimits(10_000, "letters")
    made.learn({topic: TopicRules(max_message_bytes.get(topic)) for topic in ("t", "u", "letters")})
    return made


def test_candidates_alone_are_compressed_and_each_goes_by_its_own_topic() -> None:
    codec = Counting()
    rows = values(100, 3_000, 9_000, 20_000, 3_000, 9_000)
    too_large, sizes = limits(t=2_000, u=5_000).too_large(rows, ("t", "u"), int64s([0, 0, 0, 0, 1, 1]), codec)
    # Half of 3,000 fits 2,000, half of 9,000 fits 5,000 but not 2,000; 20,000 is too much before it is compressed.
    assert too_large.tolist() == [False, False, True, True, False, False]
    assert codec.compressed == 3
    assert 4_500 < sizes[2] < 4_600
    assert 20_000 < sizes[3] < 20_100


@pytest.mark.parametrize("codec", [Counting(), codec_for("none")])
def test_where_a_topic_does_not_tell_its_limit_max_request_size_decides(codec: Codec) -> None:
    too_large, _ = limits().too_large(values(9_000, 9_999), ("t",), None, codec)
    assert too_large.tolist() == [False, True]


@pytest.mark.parametrize("codec", [Counting(), codec_for("none")])
def test_a_limit_is_what_a_batch_may_be_and_not_what_it_must_stay_below(codec: Codec) -> None:
    (size,) = wire_sizes(values(500), int64s([0]), codec).tolist()
    for allowed, is_too_large in ((size, False), (size - 1, True)):
        too_large, _ = limits(t=allowed).too_large(values(500), ("t",), None, codec)
        assert too_large.tolist() == [is_too_large]


def test_the_least_limit_is_of_topics_of_rows() -> None:
    made = limits(letters=100)
    assert (made.least, made.of("letters"), made.of("t")) == (10_000, 100, 10_000)
    assert made.unknown({"t", "v"}) == {"v"}
    made.learn({"v": TopicRules(700)})
    assert (made.least, made.unknown({"t", "v"})) == (700, set())
    # max.request.size bounds what a topic allows beyond it.
    made.learn({"w": TopicRules(1_000_000)})
    assert (made.least, made.of("w")) == (700, 10_000)


BEFORE, AFTER, OLDER = (f"message.timestamp.{what}.max.ms" for what in ("before", "after", "difference"))


@pytest.mark.parametrize(("settings", "rules"), [
    ({}, TopicRules()), ({"cleanup.policy": "compaction"}, TopicRules()),
    ({"cleanup.policy": "delete", "max.message.bytes": "700"}, TopicRules(700)),
    ({"cleanup.policy": "compact"}, TopicRules(needs_key=True)),
    ({"cleanup.policy": "delete, compact"}, TopicRules(needs_key=True)),
    # 4.x
    ({BEFORE: str(ANY_MS), AFTER: "3600000"}, TopicRules(after_max_ms=3_600_000)),
    ({BEFORE: "0"}, TopicRules(before_max_ms=0)),
    # 3.6 to 3.9: the older name counts for what is at its default.
    ({BEFORE: "5", AFTER: str(ANY_MS), OLDER: "9"}, TopicRules(before_max_ms=5, after_max_ms=9)),
    # Before.
    ({OLDER: "0"}, TopicRules(before_max_ms=0, after_max_ms=0)),
    ({"message.timestamp.type": "LogAppendTime", AFTER: "1"}, TopicRules()),
    ({"message.timestamp.type": "CreateTime", AFTER: "1"}, TopicRules(after_max_ms=1)),
])  # fmt: skip
def test_what_settings_ask_of_a_row(settings: dict[str, str], rules: TopicRules) -> None:
    assert topic_rules(settings) == rules


NOW_MS = 10_000
RULES = st.builds(
    TopicRules,
    needs_key=st.booleans(),
    before_max_ms=st.sampled_from([0, 1, 5, 10_000, ANY_MS]),
    after_max_ms=st.sampled_from([0, 1, 5, ANY_MS - 10_000, ANY_MS]),
)
TIMES = st.sampled_from([None, 0, 9_994, 9_995, 9_999, 10_000, 10_001, 10_005, 10_006, ANY_MS])
ROWS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([None, b"", b"k"]), TIMES), max_size=6)


def leader_says(rules: TopicRules, key: bytes | None, timestamp_ms: int) -> Reason | int:
    """LogValidator.validateRecord."""
    if rules.needs_key and key is None:
        return Reason.KeyNull
    difference = NOW_MS - timestamp_ms
    return Reason.TimestampNotAllowed if difference > rules.before_max_ms or -difference > rules.after_max_ms else GOOD


@given(st.tuples(RULES, RULES), ROWS, st.booleans())
def test_keys_and_times_are_judged_as_a_leader_does(
    rules: tuple[TopicRules, TopicRules], rows: list[tuple[int, bytes | None, int | None]], one_topic: bool
) -> None:
    made = TopicLimits(10_000, None)
    made.learn(dict(zip("tu", rules, strict=True)))
    given_columns = {
        "value": pa.array([b"v"] * len(rows), pa.binary()),
        "key": pa.array([key for _, key, _ in rows], pa.binary()),
        "timestamp": pa.array([time for *_, time in rows], pa.timestamp("ms")),
    }
    columns = RecordColumns.from_arrow(pa.record_batch(given_columns), now_ms=NOW_MS)
    index = None if one_topic else int64s([place for place, *_ in rows])
    found = made.refused(columns, ("t", "u"), index, NOW_MS)
    expected = [
        leader_says(rules[0 if one_topic else place], key, NOW_MS if time is None else time)
        for place, key, time in rows
    ]
    assert found.tolist() == expected
    assert made.refuses_any(columns, ("t", "u"), index, NOW_MS) == any(expected)


def test_rows_without_a_column_of_times_or_keys() -> None:
    made = TopicLimits(10_000, None)
    made.learn({"t": TopicRules(before_max_ms=0, after_max_ms=0)})
    assert not made.refuses_any(values(1, 2), ("t",), None, 99)
    made.learn({"u": TopicRules(needs_key=True)})
    assert made.refuses_any(values(1, 2), ("u",), None, 99)
    assert not made.refuses_any(values(1, 2), ("t",), None, 99)


def tally(letters: str | None = None, **limits: float) -> BadRowTally:
    made = BadRowLimits(**limits)  # type: ignore[arg-type]
    return BadRowTally(BadRowPolicy(letters, made, Origin(None, None, 3), lambda topics: {}))


def test_refused_rows_count_and_have_no_number() -> None:
    tallying = tally(max_rows=3)
    add(tallying, (4, Reason.TopicNull))
    tallying.add_refused(2, rows=10)
    assert tallying.receipt().dropped == {"TopicNull": 1, "RefusedByLeader": 2}
    assert tallying.receipt().first_rows == ((3, 4),)
    with pytest.raises(TooManyBadRows, match="4 of 11 rows"):
        tallying.add_refused(1, rows=11)


def add(to: BadRowTally, *bad: tuple[int, Reason]) -> None:
    to.add(np.array([reason for _, reason in bad], np.uint8), np.array([number for number, _ in bad], np.int64))


BAD = ((4, Reason.TopicNull), (9, Reason.RecordTooLarge), (11, Reason.TopicNull))


@pytest.mark.parametrize("letters", [None, "letters"])
def test_counts_by_reason_are_of_what_became_of_them(letters: str | None) -> None:
    made = tally(letters)
    add(made, *BAD)
    add(made, (20, Reason.TopicNull))
    receipt = made.receipt()
    counts = {"TopicNull": 3, "RecordTooLarge": 1}
    assert (receipt.dropped, receipt.dead_lettered) == ((counts, {}) if letters is None else ({}, counts))
    assert (receipt.dropped_count, receipt.dead_lettered_count) == ((4, 0) if letters is None else (0, 4))
    assert receipt.first_rows == ((3, 4), (3, 9), (3, 11), (3, 20))
    assert pickle.loads(pickle.dumps(receipt)) == receipt


def test_the_first_rows_are_few() -> None:
    made = tally()
    for start in range(0, 100, 7):
        add(made, *((number, Reason.TopicNull) for number in range(start, start + 7)))
    assert made.receipt().first_rows == tuple((3, number) for number in range(FIRST_ROWS))


def test_one_more_than_max_rows_is_too_many_at_once() -> None:
    made = tally(max_rows=3)
    add(made, *BAD)
    with pytest.raises(TooManyBadRows) as failure:
        add(made, (20, Reason.HeaderKeyNull))
    assert failure.value.counts == {"TopicNull": 2, "RecordTooLarge": 1, "HeaderKeyNull": 1}
    assert (failure.value.limit, failure.value.allowed, failure.value.rows) == ("maxBadRows", 3, 21)
    assert failure.value.first_rows == ((3, 4), (3, 9), (3, 11), (3, 20))


def test_a_fraction_is_looked_at_in_the_end() -> None:
    made = tally(max_fraction=0.1)
    add(made, (0, Reason.TopicNull))
    check_limits(made.receipt(), 10, rows_are_written=False)
    with pytest.raises(TooManyBadRows) as failure:
        check_limits(made.receipt(), 9, rows_are_written=True)
    assert (failure.value.limit, failure.value.allowed) == ("maxBadRowFraction", 0.1)
    assert "all other rows of the write are in Kafka" in str(failure.value)
    # No bad row is never too many.
    for limits in (BadRowLimits(), BadRowLimits(0, 0.0)):
        check_limits(BadRowCounts(limits=limits), 0, rows_are_written=True)


def test_a_total_is_of_all_tasks_with_the_limits_they_had() -> None:
    limits = BadRowLimits(max_rows=4)
    one = BadRowCounts({"TopicNull": 2}, {}, ((0, 1), (0, 5)), limits)
    other = BadRowCounts({"TopicNull": 1, "HeaderKeyNull": 2}, {}, ((1, 0),), limits)
    nothing = BadRowCounts()
    summed = total([one, nothing, other, nothing])
    assert summed == BadRowCounts({"TopicNull": 3, "HeaderKeyNull": 2}, {}, ((0, 1), (0, 5), (1, 0)), limits)
    with pytest.raises(TooManyBadRows, match="5 of 100 rows"):
        check_limits(summed, 100, rows_are_written=True)
    assert total([]) == nothing

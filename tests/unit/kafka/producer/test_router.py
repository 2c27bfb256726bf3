from __future__ import annotations

import itertools
import random
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from given_rows import converted
from kafka_sink.errors import PartitionOutOfRange, TopicNameInvalid, TopicNull
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.producer.routed_rows import RoutedRows
from kafka_sink.kafka.producer.router import Router, RowTopics
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.columns import RecordColumns
from kafka_sink.text.topic_name import LONGEST


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


def test_the_topic_option_wins_over_the_column() -> None:
    rows = columns(value=pa.array([b"a", b"b"]), topic=pa.array(["x", None]))
    assert router("t").topics_of(rows).names == ("t",)


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


@pytest.mark.parametrize("name", [b"\xfd\xed", b"t\n", b"t\0", "t\u202e".encode(), b"..", b"a b", b"t" * 250])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_a_name_that_no_topic_can_have_is_a_bad_row_and_shown_with_escapes(name: bytes, kind: pa.DataType) -> None:
    rows = columns(value=pa.array([b"v", b"w"]), topic=converted([b"fine", name], kind, pa.string()))
    with pytest.raises(TopicNameInvalid) as failure:
        router().topics_of(rows)
    assert str(failure.value).isprintable()
    assert len(failure.value.topic) <= LONGEST
    assert router("t").topics_of(rows).names == ("t",)


def test_a_long_text_for_a_topic_is_cut_where_a_name_would_end() -> None:
    for name in (b"\xfd" * 1_000_000, "\u00e9".encode() * 1_000_000):
        with pytest.raises(TopicNameInvalid) as failure:
            router().topics_of(columns(value=pa.array([b"v"]), topic=converted([name], pa.string(), pa.string())))
        assert len(str(failure.value)) < 1_500


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
    assert partitions_of(router("t"), KEYED, [0] * 8) != before


def test_a_topic_that_seems_to_have_shrunk_has_not() -> None:
    """The answer of a broker that lags behind, on a cluster where topics only grow."""
    made = router("t")
    before = partitions_of(made, KEYED, [0] * 6)
    assert partitions_of(made, KEYED, [0] * 2) == before
    explicit = columns(value=pa.array([b"a"]), partition=pa.array([5], pa.int32()))
    assert partitions_of(made, explicit, [0] * 2) == {5: 1}


def test_each_topic_has_turns_of_its_own() -> None:
    made = router(partitioner="roundrobin")
    names = ["a", "b"] * 30
    rows = columns(value=pa.array([b"v"] * 60), topic=pa.array(names), key=pa.array([b"k"] * 60))
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


def test_no_row_is_out_of_range_without_the_column() -> None:
    rows = columns(value=pa.array([b"v"] * 3))
    assert not router("t").out_of_range(rows, RowTopics(("t",), None), {"t": state("t", [0])}).any()

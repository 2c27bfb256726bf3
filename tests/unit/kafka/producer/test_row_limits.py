"""Sizes are what a batch of the row alone takes, closed as the Sender closes it; candidates alone are compressed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.row_limits import ANY_MS, TopicLimits, TopicRules, topic_rules, wire_sizes
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.bad_rows import GOOD, Reason
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import Codec, codec_for
from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.records.record_batch import HEADER_BYTES
from record_cases import Case, cases, int64s

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def values(*sizes: int) -> RecordColumns:
    """Rows that compress to little."""
    return RecordColumns.from_arrow(pa.record_batch({"value": pa.array([bytes(size) for size in sizes])}), now_ms=5)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(40))
@given(case=cases(), reverse=st.booleans())
def test_the_wire_size_is_that_of_a_batch_that_is_closed(case: Case, reverse: bool, codec: str) -> None:
    rows = np.arange(len(case.rows))[:: -1 if reverse else 1]
    pool = BufferPool(total_bytes=64 * 1024, buffer_bytes=64 * 1024)
    closed = []
    for row in rows.tolist():
        encoder = RecordEncoder(case.columns, int64s([row]))
        data, _ = encoder.encode(slice(None), int64s([0]), int64s([0]))
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
    of_topic = int64s([0, 0, 0, 0, 1, 1])
    too_large, sizes = limits(t=2_000, u=5_000).too_large(rows, ("t", "u"), of_topic, codec)
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


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, TopicRules()),
        ({"cleanup.policy": "delete", "max.message.bytes": "700"}, TopicRules(700)),
        ({"cleanup.policy": "compact"}, TopicRules(needs_key=True)),
        ({"cleanup.policy": "delete, compact"}, TopicRules(needs_key=True)),
        ({"cleanup.policy": "compaction"}, TopicRules()),
        # 4.x
        (
            {"message.timestamp.before.max.ms": str(ANY_MS), "message.timestamp.after.max.ms": "3600000"},
            TopicRules(after_max_ms=3_600_000),
        ),
        ({"message.timestamp.before.max.ms": "0"}, TopicRules(before_max_ms=0)),
        # 3.6 to 3.9: the older name counts for what is at its default.
        (
            {
                "message.timestamp.before.max.ms": "5", "message.timestamp.after.max.ms": str(ANY_MS),
                "message.timestamp.difference.max.ms": "9",
            },
            TopicRules(before_max_ms=5, after_max_ms=9),
        ),
        # Before.
        ({"message.timestamp.difference.max.ms": "0"}, TopicRules(before_max_ms=0, after_max_ms=0)),
        (
            {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1"},
            TopicRules(),
        ),
        (
            {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "1"},
            TopicRules(after_max_ms=1),
        ),
    ],
)  # fmt: skip
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

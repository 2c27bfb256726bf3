"""Sizes are what a batch of the row alone takes, closed as the Sender closes it; candidates alone are compressed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.judgement import SizeLimits, wire_sizes
from kafka_sink.producer.producer_batch import ProducerBatch
from kafka_sink.producer.receipts import Receipts, TopicPartition
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
@settings(max_examples=20)
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
        batch = ProducerBatch(TopicPartition("t", 0), None, buffer, Receipts(), 0, 0)
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


def limits(**max_message_bytes: int) -> SizeLimits:
    made = SizeLimits(10_000, "letters")
    made.learn(["t", "u", "letters"], max_message_bytes)
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
    made.learn(["v"], {"v": 700})
    assert (made.least, made.unknown({"t", "v"})) == (700, set())
    # max.request.size bounds what a topic allows beyond it.
    made.learn(["w"], {"w": 1_000_000})
    assert (made.least, made.of("w")) == (700, 10_000)

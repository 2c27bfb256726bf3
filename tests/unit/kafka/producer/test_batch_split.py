"""Parts of a refused batch, read by kafka-python: together they are the batch, and each is less than it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from kafka_sink.kafka.producer.batch_split import half_bytes, split
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import BatchState, ProducerBatch
from kafka_sink.kafka.producer.producer_id import ProducerIdAndEpoch
from kafka_sink.records.compression import Codec, codec_for
from producer_core import TOPIC_ID, make_core, routed

PRODUCER = ProducerIdAndEpoch(4_000, 3)
LAST_SEQUENCE = 2**31 - 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = st.lists(
    st.tuples(
        st.one_of(st.binary(max_size=200), st.integers(0, 20_000).map(bytes)), st.integers(0, 253_402_300_799_999)
    ),
    min_size=2,
    max_size=60,
)


@dataclass
class Refused:
    batch: ProducerBatch
    codec: Codec
    pool: BufferPool

    def split(self, batch: ProducerBatch | None = None, part_bytes: int | None = None) -> list[ProducerBatch]:
        batch = batch or self.batch
        return split(
            batch, part_bytes=part_bytes or half_bytes(batch), producer=PRODUCER, codec=self.codec, pool=self.pool
        )


def refused(rows: list[tuple[bytes, int]], base_sequence: int = 0, codec: str = "none") -> Refused:
    values, timestamps = zip(*rows, strict=True)
    core = make_core(compression_type=codec, batch_size=4 * 2**20, buffer_memory=8 * 2**20)
    core.now_ms = 77
    core.append(routed(values, [0] * len(rows), timestamps))
    (batch,) = core.accumulator.queued()
    batch.close(core.codec)
    batch.number(PRODUCER, base_sequence)
    batch.last_error = "MESSAGE_TOO_LARGE (error 10)"
    return Refused(batch, core.codec, core.accumulator.pool)


def read(batch: ProducerBatch) -> Any:
    (decoded,) = MemoryRecords(bytes(batch.wire_bytes))
    assert decoded.validate_crc()
    return decoded


@given(
    rows=ROWS, base_sequence=st.sampled_from([0, 17, LAST_SEQUENCE - 20, LAST_SEQUENCE]), codec=st.sampled_from(CODECS)
)
def test_the_parts_are_the_records_in_order_under_the_same_sequences(
    rows: list[tuple[bytes, int]], base_sequence: int, codec: str
) -> None:
    parts = refused(rows, base_sequence, codec).split()
    assert len(parts) >= 2
    sequence, got = base_sequence, []
    for part in parts:
        decoded = read(part)
        records = list(decoded)
        got += [(record.value, record.timestamp) for record in records]
        assert [record.offset for record in records] == list(range(part.record_count))
        assert (decoded.producer_id, decoded.producer_epoch) == (4_000, 3)
        assert decoded.base_sequence == part.base_sequence == sequence % 2**31
        timestamps = [record.timestamp for record in records]
        assert (decoded.first_timestamp, decoded.max_timestamp) == (timestamps[0], max(timestamps))
        assert not decoded.is_transactional
        sequence += part.record_count
    assert got == rows


@given(rows=ROWS, codec=st.sampled_from(["none", "zstd"]))
def test_parts_split_again_and_again_end_as_single_records(rows: list[tuple[bytes, int]], codec: str) -> None:
    whole = refused(rows, codec=codec)
    waiting, single = [whole.batch], []
    while waiting:
        batch = waiting.pop(0)
        if batch.record_count == 1:
            single.append(batch)
            continue
        parts = whole.split(batch)
        assert all(part.record_count < batch.record_count for part in parts)
        waiting = parts + waiting
    assert [next(iter(read(part))).value for part in single] == [value for value, _ in rows]
    assert [part.base_sequence for part in single] == list(range(len(rows)))
    for part in single:
        whole.pool.deallocate(part.buffer)
    assert whole.pool.available_bytes == whole.pool.total_bytes


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [2, 3, 1_000, 1_001])
def test_rows_of_one_size_make_two_halves(codec: str, count: int) -> None:
    whole = refused([(b"%06d" % n + bytes(94), 1_000 + n) for n in range(count)], codec=codec)
    before = whole.batch.records_bytes
    first, second = whole.split()
    # The records of the first half take fewer bytes: places up to 63 take one, the others two.
    assert second.record_count <= first.record_count <= second.record_count + 1 + count // 500
    assert max(first.records_bytes, second.records_bytes) < before * (0.7 if count == 3 else 0.51)


def test_parts_may_be_told_to_be_smaller_than_halves() -> None:
    whole = refused([(bytes(100), 0)] * 1_000)
    parts = whole.split(part_bytes=5_000)
    assert max(part.records_bytes for part in parts) <= 5_000
    assert sum(part.record_count for part in parts) == 1_000
    assert len(parts) < 25


def test_a_part_has_the_place_of_its_batch_and_is_ready_to_go() -> None:
    whole = refused([(b"a", 5), (b"b", 3)])
    for part in whole.split():
        assert (part.state, part.full, part.attempts, part.created_ms) == (BatchState.CLOSED, True, 0, 77)
        assert part.acknowledgements is whole.batch.acknowledgements
        assert (part.topic_partition, part.topic_id) == (whole.batch.topic_partition, TOPIC_ID)
        assert part.last_error == "MESSAGE_TOO_LARGE (error 10)"


def test_memory_is_what_the_parts_take_when_the_pool_had_none_left() -> None:
    core = make_core(batch_size=1_024, buffer_memory=2_048)
    core.append(routed([b"%02d" % n for n in range(200)], [0] * 200))
    batch, behind = core.accumulator.queued()
    assert core.accumulator.pool.available_bytes == 0
    batch.number(PRODUCER, 0)
    parts = split(
        batch, part_bytes=half_bytes(batch), producer=PRODUCER, codec=codec_for("none"), pool=core.accumulator.pool
    )
    taken = sum(part.buffer.size for part in parts)
    assert core.accumulator.pool.available_bytes == 1_024 - taken < 0
    for held in (*parts, behind):
        core.accumulator.pool.deallocate(held.buffer)
    assert core.accumulator.pool.available_bytes == 2_048

import itertools
import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.producer.acknowledgements import NO_OFFSET, RUN, Acknowledgements, PartitionOffsets, Runs
from kafka_sink.kafka.producer.batch_split import half_bytes, split
from kafka_sink.kafka.producer.buffer_pool import Buffer, BufferPool
from kafka_sink.kafka.producer.producer_batch import (
    NO_PRODUCER,
    TRANSITIONS,
    BatchState,
    ProducerBatch,
    ProducerIdAndEpoch,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.compression import Codec, Lz4, NoCompression, codec_for
from kafka_sink.records.record_batch import HEADER_BYTES
from producer_core import TOPIC_ID, make_core, routed

EVENTS = ("close", "send", "retry", "acknowledge", "split", "fail")


def filled(value: bytes) -> ProducerBatch:
    core = make_core()
    core.append(routed([value] * 3, [0] * 3, [50, 20, 70]))
    (batch,) = core.accumulator.queued()
    return batch


@pytest.mark.parametrize(("state", "event"), list(itertools.product(BatchState, EVENTS)))
def test_every_state_and_event(state: BatchState, event: str) -> None:
    buffer = Buffer(memoryview(bytearray(100)), 0, 100)
    batch = ProducerBatch(TopicPartition("t", 0), TOPIC_ID, buffer, Acknowledgements(), base_timestamp=0, created_ms=0)
    batch.state = state
    if (state, event) in TRANSITIONS:
        batch.step(event)
        assert batch.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(KeyError):
            batch.step(event)
        assert batch.state is state


@pytest.mark.parametrize("codec", [codec_for("none"), codec_for("zstd")], ids=["none", "zstd"])
def test_the_wire_bytes_are_a_record_batch_that_another_client_reads(codec: Codec) -> None:
    batch = filled(b"x" * 400)
    buffer = batch.buffer
    batch.close(codec)
    batch.number(ProducerIdAndEpoch(4_000, 3), 17)
    decoded = read(batch)
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (4_000, 3, 17)
    assert (decoded.first_timestamp, decoded.max_timestamp, decoded.compression_type) == (50, 70, codec.id)
    assert not decoded.is_transactional
    # Compression stays within the buffer from the pool.
    assert np.shares_memory(np.frombuffer(batch.wire_bytes, np.uint8), np.frombuffer(buffer.view, np.uint8))
    rows = [(i, time, b"x" * 400) for i, time in enumerate([50, 20, 70])]
    assert [(each.offset, each.timestamp, each.value) for each in decoded] == rows
    assert batch.size_bytes == len(batch.wire_bytes)


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("value", [b"x" * 400, b""], ids=["compressed", "stored"])
def test_the_records_can_be_had_back(name: str, value: bytes) -> None:
    batch = filled(value)
    batch.settle()
    records = bytes(batch.wire_bytes[61:])
    batch.close(codec_for(name))
    assert batch.records_bytes == len(records)
    assert batch.records() == records


def test_rows_that_compression_makes_larger_stay_as_they_are() -> None:
    """And a batch of no producer keeps its number to itself."""
    batch = filled(b"")
    batch.settle()
    before = batch.size_bytes
    batch.close(codec_for("zstd"))
    batch.number(NO_PRODUCER, 17)
    assert (batch.base_sequence, batch.size_bytes) == (17, before)
    decoded = read(batch)
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (-1, -1, -1)
    assert (decoded.compression_type, [record.value for record in decoded]) == (0, [b""] * 3)


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
    parts = refused([(bytes(100), 0)] * 1_000).split(part_bytes=5_000)
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
    assert core.accumulator.pool.available_bytes == 1_024 - sum(part.buffer.size for part in parts) < 0
    for held in (*parts, behind):
        core.accumulator.pool.deallocate(held.buffer)
    assert core.accumulator.pool.available_bytes == 2_048


RECORDS = b"a few records that can be made smaller, " * 40


def closed(
    acknowledgements: Acknowledgements, codec: Codec, *, partition: int = 0, records_crc: int | None = None
) -> ProducerBatch:
    buffer = BufferPool(total_bytes=16_384, buffer_bytes=8_192).try_allocate(8_192)
    assert buffer is not None
    where = TopicPartition("t", partition)
    batch = ProducerBatch(where, TOPIC_ID, buffer, acknowledgements, 1_700_000, created_ms=0)
    batch.buffer.view[HEADER_BYTES : HEADER_BYTES + len(RECORDS)] = RECORDS
    batch.end, batch.record_count, batch.records_crc = HEADER_BYTES + len(RECORDS), 40, records_crc
    batch.close(codec)
    batch.attempts = 3
    return batch


def keeping() -> tuple[Acknowledgements, Runs]:
    acknowledgements = Acknowledgements()
    acknowledgements.runs = Runs()
    return acknowledgements, acknowledgements.runs


@pytest.mark.parametrize("codec", [NoCompression(), Lz4()])
def test_a_run_has_the_sum_of_the_records_before_compression(codec: Codec) -> None:
    acknowledgements, runs = keeping()
    batch = closed(acknowledgements, codec)
    acknowledgements.acknowledged(batch, 77)
    (run,) = runs.packed().columns
    assert runs.packed().partitions == (TopicPartition("t", 0),)
    assert {name: int(run[name]) for name in RUN.names or ()} == {
        "place": 0, "record_count": 40, "base_offset": 77, "base_timestamp": 1_700_000,
        "batch_bytes": batch.size_bytes, "checksum": crc32c(RECORDS), "retries": 2,
    }  # fmt: skip
    assert (batch.size_bytes < HEADER_BYTES + len(RECORDS)) == (codec.id != 0)
    # What the encoder has summed is not summed again.
    assert closed(acknowledgements, NoCompression(), records_crc=42).checksum == 42


def test_a_batch_without_an_offset_and_one_of_a_partition_seen_before() -> None:
    acknowledgements, kept = keeping()
    for partition, offset in ((3, 0), (1, None), (3, 40)):
        acknowledgements.acknowledged(closed(acknowledgements, NoCompression(), partition=partition), offset)
    runs = pickle.loads(pickle.dumps(kept.packed()))
    assert runs.partitions == (TopicPartition("t", 3), TopicPartition("t", 1))
    assert runs.columns["place"].tolist() == [0, 1, 0]
    assert runs.columns["base_offset"].tolist() == [0, NO_OFFSET, 40]

    # Nothing is summed or kept where nobody asks.
    unasked = Acknowledgements()
    batch = closed(unasked, NoCompression())
    unasked.acknowledged(batch, 0)
    assert (batch.checksum, unasked.runs) == (None, None)


def batch(partition: int, records: int) -> Any:
    return SimpleNamespace(topic_partition=TopicPartition("t", partition), record_count=records, size_bytes=100)


def test_offsets_span_what_was_acknowledged_in_whatever_order_and_counts_add_up() -> None:
    acknowledgements = Acknowledgements()
    for _ in range(4):
        acknowledgements.opened()
    acknowledgements.acknowledged(batch(1, 5), 30)
    acknowledgements.acknowledged(batch(1, 10), 10)
    acknowledgements.acknowledged(batch(1, 2), None)
    assert not acknowledgements.settled
    acknowledgements.acknowledged(batch(0, 1), 0)
    assert acknowledgements.settled
    assert acknowledgements.partitions() == (
        PartitionOffsets("t", 0, 1, 0, 0, 1, 100),
        PartitionOffsets("t", 1, 17, 10, 34, 3, 300),
    )


def test_the_first_failure_is_the_one_that_is_told_and_settles_the_write() -> None:
    acknowledgements, first = Acknowledgements(), ProducerClosed(reason="first")
    acknowledgements.opened()
    acknowledgements.opened()
    for failure in (first, ProducerClosed(reason="second")):
        acknowledgements.failed(failure)
        assert (acknowledgements.settled, acknowledgements.failure) == (True, first)


def test_a_batch_that_was_split_is_settled_when_its_last_part_is() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.opened()
    acknowledgements.split(3)
    for part in range(3):
        assert not acknowledgements.settled
        acknowledgements.acknowledged(batch(0, 10), 10 * part)
    assert acknowledgements.settled
    assert acknowledgements.partitions() == (PartitionOffsets("t", 0, 30, 0, 29, 3, 300),)

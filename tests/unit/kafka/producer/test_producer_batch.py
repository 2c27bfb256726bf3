from __future__ import annotations

import itertools

import numpy as np
import pytest
from kafka.record import MemoryRecords

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import Buffer
from kafka_sink.kafka.producer.producer_batch import TRANSITIONS, BatchState, ProducerBatch
from kafka_sink.kafka.producer.producer_id import NO_PRODUCER, ProducerIdAndEpoch
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.compression import Codec, codec_for
from producer_core import TOPIC_ID, make_core, routed

EVENTS = ("close", "send", "retry", "acknowledge", "split", "fail")


def filled(value: bytes) -> ProducerBatch:
    core = make_core()
    core.append(routed([value] * 3, [0] * 3, [50, 20, 70]))
    (batch,) = core.accumulator.queued()
    return batch


def empty() -> ProducerBatch:
    buffer = Buffer(memoryview(bytearray(100)), 0, 100)
    return ProducerBatch(TopicPartition("t", 0), TOPIC_ID, buffer, Acknowledgements(), base_timestamp=0, created_ms=0)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(BatchState, EVENTS)))
def test_every_state_and_event(state: BatchState, event: str) -> None:
    batch = empty()
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
    (read,) = list(MemoryRecords(bytes(batch.wire_bytes)))
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (4_000, 3, 17)
    assert (read.first_timestamp, read.max_timestamp) == (50, 70)
    assert read.compression_type == codec.id
    assert not read.is_transactional
    # Compression stays within the buffer from the pool.
    assert np.shares_memory(np.frombuffer(batch.wire_bytes, np.uint8), np.frombuffer(buffer.view, np.uint8))
    assert [(r.offset, r.timestamp, r.value) for r in read] == [(i, t, b"x" * 400) for i, t in enumerate([50, 20, 70])]
    assert batch.size_bytes == len(batch.wire_bytes)


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("value", [b"x" * 400, b""], ids=["compressed", "stored"])
def test_the_records_can_be_had_back(name: str, value: bytes) -> None:
    batch = filled(value)
    batch.settle()
    records = bytes(batch.wire_bytes[61:])
    codec = codec_for(name)
    batch.close(codec)
    assert batch.records_bytes == len(records)
    assert batch.records(codec) == records


def test_rows_that_compression_makes_larger_stay_as_they_are() -> None:
    batch = filled(b"")
    batch.settle()
    before = batch.size_bytes
    batch.close(codec_for("zstd"))
    batch.number(ProducerIdAndEpoch(1, 0), 0)
    (read,) = list(MemoryRecords(bytes(batch.wire_bytes)))
    assert read.compression_type == 0
    assert batch.size_bytes == before
    assert [r.value for r in read] == [b""] * 3


def test_a_batch_of_no_producer_keeps_its_number_to_itself() -> None:
    batch = filled(b"x")
    batch.close(codec_for("none"))
    batch.number(NO_PRODUCER, 17)
    assert batch.base_sequence == 17
    (read,) = list(MemoryRecords(bytes(batch.wire_bytes)))
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (-1, -1, -1)

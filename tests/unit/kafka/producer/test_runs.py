"""What a run says of a batch, held against the batch's bytes as another client reads them."""

from __future__ import annotations

import pickle
import uuid

import pytest
from crc32c import crc32c

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.runs import NO_OFFSET, RUN, Runs
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.compression import Codec, Lz4, NoCompression
from kafka_sink.records.record_batch import HEADER_BYTES

RECORDS = b"a few records that can be made smaller, " * 40


def closed(
    acknowledgements: Acknowledgements, codec: Codec, *, partition: int = 0, records_crc: int | None = None
) -> ProducerBatch:
    pool = BufferPool(total_bytes=16_384, buffer_bytes=8_192)
    buffer = pool.try_allocate(8_192)
    assert buffer is not None
    batch = ProducerBatch(
        TopicPartition("t", partition), uuid.uuid4(), buffer, acknowledgements, 1_700_000, created_ms=0
    )
    batch.buffer.view[HEADER_BYTES : HEADER_BYTES + len(RECORDS)] = RECORDS
    batch.end = HEADER_BYTES + len(RECORDS)
    batch.record_count = 40
    batch.records_crc = records_crc
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


def test_what_the_encoder_has_summed_is_not_summed_again() -> None:
    assert closed(keeping()[0], NoCompression(), records_crc=42).checksum == 42


def test_a_batch_without_an_offset_and_one_of_a_partition_seen_before() -> None:
    acknowledgements, kept = keeping()
    for partition, offset in ((3, 0), (1, None), (3, 40)):
        acknowledgements.acknowledged(closed(acknowledgements, NoCompression(), partition=partition), offset)
    runs = pickle.loads(pickle.dumps(kept.packed()))
    assert runs.partitions == (TopicPartition("t", 3), TopicPartition("t", 1))
    assert runs.columns["place"].tolist() == [0, 1, 0]
    assert runs.columns["base_offset"].tolist() == [0, NO_OFFSET, 40]


def test_nothing_is_summed_or_kept_where_nobody_asks() -> None:
    acknowledgements = Acknowledgements()
    batch = closed(acknowledgements, NoCompression())
    assert batch.checksum is None
    acknowledgements.acknowledged(batch, 0)
    assert acknowledgements.runs is None

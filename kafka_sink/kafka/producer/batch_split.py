"""Replaces a batch that its leader refused. A batch that is too large (MESSAGE_TOO_LARGE) is sent in parts. A batch
with refused records (INVALID_TIMESTAMP, INVALID_RECORD) is sent without them.

    refused  [ sequence 40 ............................ 99 ]
    parts    [ 40 ....... 61 ][ 62 ....... 83 ][ 84 .. 99 ]

The parts keep the refused batch's creation time, acknowledgements, and sequences without a gap. So the batches numbered
after it still fit. A part that is refused is split again. Each part has fewer records than its batch, so this ends, at
the latest with single records. (Kafka's producer splits by `batch.size`, and sends a batch that is not larger than that
again and again: KAFKA-8350.)

If the leader had the batch after all, parts of the same rows would duplicate them. Sequences prevent this. A leader
recognises a batch by its first and last sequence, so it refuses the first part with OUT_OF_ORDER_SEQUENCE, which ends
the write.

Cost: the Sender does this under the lock. 1 MiB of 100-byte records takes 8 ms, or 20 ms with gzip
(`records/record_runs.py` says which part of it is Python). The topic's next batches are made smaller, so only batches
already in flight cause this cost.

Without some of its records a batch has fewer sequences; `Sequences.leave_out` says when that is safe.

Source: ProducerBatch.split, KIP-126, KIP-467.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafka_sink.kafka.producer.acknowledgements import RefusedRow
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import ProducerBatch, ProducerIdAndEpoch
from kafka_sink.kafka.producer.sequences import advance
from kafka_sink.records.compression import Codec
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.record_runs import RecordRun, cut_records, records_at, without_records


def half_bytes(batch: ProducerBatch) -> int:
    """Return a size for parts of `batch`: records of one size make two parts, and any records at least two."""
    return batch.records_bytes * (batch.record_count + 1) // (2 * batch.record_count)


def split(
    batch: ProducerBatch, *, part_bytes: int, producer: ProducerIdAndEpoch, codec: Codec, pool: BufferPool
) -> list[ProducerBatch]:
    """Return parts of at most `part_bytes` of records before compression, closed and numbered, in order.

    `codec`: of the parts. Returns the batch's buffer to the pool, and takes the parts' buffers from it.
    """
    runs = cut_records(batch.records(), batch.base_timestamp, part_bytes)
    return _parts(batch, runs, producer, codec, pool)


def rest(
    batch: ProducerBatch, *, places: Collection[int], producer: ProducerIdAndEpoch, codec: Codec, pool: BufferPool
) -> tuple[list[ProducerBatch], list[RefusedRow]]:
    """Return `batch` without the records at `places`, as one closed and numbered batch or none, and those records.
    Buffers as in `split`."""
    records = batch.records()
    refused = [
        RefusedRow(batch.topic_partition, timestamp_ms, body)
        for timestamp_ms, body in records_at(records, batch.base_timestamp, sorted(places))
    ]
    left = without_records(records, batch.base_timestamp, places)
    return _parts(batch, [] if left is None else [left], producer, codec, pool), refused


def _parts(
    batch: ProducerBatch, runs: Iterable[RecordRun], producer: ProducerIdAndEpoch, codec: Codec, pool: BufferPool
) -> list[ProducerBatch]:
    pool.deallocate(batch.buffer)
    parts = []
    sequence = batch.base_sequence
    for run in runs:
        part = ProducerBatch(
            batch.topic_partition,
            batch.topic_id,
            pool.overdraw(HEADER_BYTES + len(run.data)),
            batch.acknowledgements,
            base_timestamp=run.base_timestamp,
            created_ms=batch.created_ms,
        )
        part.buffer.view[HEADER_BYTES:] = run.data
        part.end = part.buffer.size
        part.record_count = run.record_count
        part.max_timestamp = run.max_timestamp
        part.last_error = batch.last_error
        part.may_be_written = batch.may_be_written
        part.throttled_ms = batch.throttled_ms
        part.full = True
        part.close(codec)
        part.number(producer, sequence)
        sequence = advance(sequence, run.record_count)
        parts.append(part)
    return parts

"""A batch that its leader refused: as too large (MESSAGE_TOO_LARGE), in parts that are sent instead; or for some of its
records (INVALID_TIMESTAMP, INVALID_RECORD), without them.

    refused  [ sequence 40 ............................ 99 ]
    parts    [ 40 ....... 61 ][ 62 ....... 83 ][ 84 .. 99 ]

The parts have the refused batch's place: its creation time, its acknowledgements, and its sequences without a gap, so
that the batches numbered after it still fit. A part that is refused is split again; each part has fewer records than
its batch, so it ends, at the latest with records alone. (Kafka's producer splits by `batch.size`, and sends a batch
that is not over it again and again: KAFKA-8350.)

Other pieces of the same rows would double them if the leader had the batch after all. Under sequences they cannot: it
knows a batch again by its first and its last sequence, so it refuses the first part as OUT_OF_ORDER_SEQUENCE, and that
ends the write.

Cost: the Sender does this under the lock; for 1 MiB of records of 100 bytes 8 ms, with gzip 20 ms
(`records/record_runs.py` says what of it is Python). A topic's next batches are made smaller, so it is paid for those
that were under way and no more.

Without some records a batch has fewer sequences than before: `Sequences.leave_out` says when that is safe.

Source: ProducerBatch.split, KIP-126, KIP-467.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafka_sink.kafka.producer.acknowledgements import RefusedRow
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.producer_id import ProducerIdAndEpoch
from kafka_sink.kafka.producer.sequences import advance
from kafka_sink.records.compression import Codec
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.record_runs import RecordRun, cut_records, records_at, without_records


def half_bytes(batch: ProducerBatch) -> int:
    """What a part of `batch` may take so that records of one size make two parts, and any at least two."""
    return batch.records_bytes * (batch.record_count + 1) // (2 * batch.record_count)


def split(
    batch: ProducerBatch, *, part_bytes: int, producer: ProducerIdAndEpoch, codec: Codec, pool: BufferPool
) -> list[ProducerBatch]:
    """Parts of at most `part_bytes` of records each before compression, closed and numbered, in order. `codec`:
    the one that compressed `batch`. The batch's buffer is back in the pool afterwards; the parts' come from there."""
    runs = cut_records(batch.records(codec), batch.base_timestamp, part_bytes)
    return _parts(batch, runs, producer, codec, pool)


def rest(
    batch: ProducerBatch, *, places: Collection[int], producer: ProducerIdAndEpoch, codec: Codec, pool: BufferPool
) -> tuple[list[ProducerBatch], list[RefusedRow]]:
    """What is left of `batch` without the records at `places`: one closed and numbered batch, or none; and those
    records. Buffers as of `split`."""
    records = batch.records(codec)
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

"""Records of the internal topics: what coordinators write down, and read again when they take a partition over.

Key and value are JSON, a format of the model's own: nobody but its coordinators reads these topics.

Source: TransactionLog, GroupCoordinatorRecordHelpers in Kafka, for what is a record of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from model.record_batches import RecordBatch, decode_records

Key = tuple[str | int, ...]


def encode_state(
    records: Mapping[Key, Any], timestamp_ms: int, producer_id: int = -1, producer_epoch: int = -1
) -> bytes:
    """One batch. A value of None is a tombstone. With a producer it is part of that producer's transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=int(producer_id >= 0), producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=-1, batch_size=10**9,
    )  # fmt: skip
    for number, (key, value) in enumerate(records.items()):
        encoded = None if value is None else json.dumps(value).encode()
        builder.append(number, timestamp=timestamp_ms, key=json.dumps(key).encode(), value=encoded, headers=[])
    return bytes(builder.build())


def decode_state(batch: RecordBatch) -> Iterator[tuple[int, Key, Any]]:
    for number, (key, value, _, _) in enumerate(decode_records(batch.data)):
        assert key is not None
        yield batch.base_offset + number, tuple(json.loads(key)), None if value is None else json.loads(value)

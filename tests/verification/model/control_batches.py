"""Control batches: the markers by which a transaction ends on a partition (KIP-98).

One record: its key says abort or commit, its value the epoch of the coordinator that wrote it.

Source: EndTransactionMarker, ControlRecordType, MemoryRecords.withEndTransactionMarker in Kafka.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafka.record.default_records import DefaultRecordBatchBuilder

from model.record_batches import RecordBatch, changed_attributes, decode_records

# Version of the schema, then what it is.
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
_CONTROL_BIT = 0b100000


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """`transaction_version` travels beside the marker and is not in the log. 2: its epoch must be above the producer's;
    below: may equal it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


def encode_marker(marker: EndTransactionMarker, timestamp_ms: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch, base_sequence=-1, batch_size=10**4,
    )  # fmt: skip
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    builder.append(0, timestamp=timestamp_ms, key=key, value=_VALUE.pack(0, marker.coordinator_epoch), headers=[])
    return changed_attributes(bytes(builder.build()), _CONTROL_BIT)


def decode_marker(batch: RecordBatch) -> EndTransactionMarker:
    ((key, value, _, _),) = decode_records(batch.data)
    assert key is not None and value is not None
    _, kind = _KEY.unpack(key)
    _, coordinator_epoch = _VALUE.unpack(value)
    return EndTransactionMarker(batch.producer_id, batch.producer_epoch, kind == _COMMIT, coordinator_epoch)

"""The last receipt of a query, as `pykafka transactions status` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from kafka_sink.command_line import tell
from kafka_sink.commit.open_transactions_json import Document
from kafka_sink.text.redaction import reason_for, redacted
from kafka_sink.verification import receipt_file


@dataclass(frozen=True, slots=True)
class LastReceipt:
    """The last receipt of a query."""

    micro_batch_id: int
    rows: int
    record_batches: int
    bytes: int
    acknowledged: datetime


def last_receipt(receipts_path: str, query_id: str) -> LastReceipt | None:
    """Return the query's last receipt, or None if it has no receipts. Raises OSError, pa.ArrowException."""
    try:
        filesystem, folder = receipt_file.filesystem_of(receipts_path)
        paths = receipt_file.paths_in(filesystem, f"{folder}/{receipt_file.folder_of(query_id)}")
        table = receipt_file.read(filesystem, paths[-1])
    except (FileNotFoundError, IndexError):
        return None
    receipt_file.refuse_nulls(table, "batch_id", "started_at", "duration_ms")
    runs = table.to_pylist()
    if not runs:
        return None
    return LastReceipt(
        micro_batch_id=runs[0]["batch_id"],
        rows=runs[0]["rows"],
        record_batches=sum(run["topic"] is not None for run in runs),
        bytes=sum(run["batch_bytes"] or 0 for run in runs),
        acknowledged=runs[0]["started_at"] + timedelta(milliseconds=runs[0]["duration_ms"]),
    )


def tell_receipt(receipts_path: str, query_id: str) -> None:
    """Print the query's last receipt."""
    try:
        last = last_receipt(receipts_path, query_id)
    except (OSError, pa.ArrowException) as error:
        tell(f"Receipts: {redacted(receipts_path)} cannot be read: {reason_for(receipts_path, error)}")
        return
    if last is None:
        tell(f"Receipts: none of this query in {redacted(receipts_path)}")
        return
    tell(
        f"Receipts: the last is for micro-batch {last.micro_batch_id}, {last.rows:,} rows in {last.record_batches:,} "
        f"record batches of {last.bytes:,} bytes, acknowledged {last.acknowledged:%Y-%m-%d %H:%M:%S} UTC"
    )


def receipt_document(last: LastReceipt) -> Document:
    return {
        "micro_batch_id": last.micro_batch_id,
        "rows": last.rows,
        "record_batches": last.record_batches,
        "bytes": last.bytes,
        "acknowledged_ms": round(last.acknowledged.timestamp() * 1000),
    }

"""The driver writes the receipt file of a micro-batch or batch write from the tasks' messages.

    at-least-once    last: a failed commit would write the rows again, so a missing receipt is only logged
    exactly-once     before the decision: offsets may be lost after it, so a missing file fails the commit

So every visible micro-batch of exactly-once has its file. After a crash between file and decision, the file names
invisible rows until the replay replaces it. A replay must not replace a good file with a worse one: slots that were
visible before bring no runs (`TaskProof`), and keep their rows of the old file (`_table`).

A fenced driver could replace the file of its successor. So the commit checks the generation before it writes
(exactly_once/commit.py). One case remains: a driver that pauses between check and write for as long as its successor
needs for a whole micro-batch.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafka_sink.errors import ReceiptNotWritten, ReceiptsPathUnusable
from kafka_sink.errors.redaction import reason_for
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.producer.acknowledgements import NO_OFFSET, PackedRuns
from kafka_sink.records import receipt_file
from kafka_sink.spark.task_results import TaskCommitMessage, TaskProof

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

log = logging.getLogger(__name__)

# Pause before each retry.
PAUSES_S = (0.1, 1.0)
Sleep = Callable[[float], None]


def make_folder(path: str) -> None:
    """Create the folder when the write is planned, so that an unusable path fails before any row is sent.

    Raises ReceiptsPathUnusable.
    """
    try:
        filesystem, folder = receipt_file.filesystem_of(path, within)
        filesystem.create_dir(folder, recursive=True)
        return
    except (OSError, pa.ArrowException) as error:
        reason = reason_for(path, error)
    # Raised outside `except`, so that the library's message, which may have secrets of the path, is not its context.
    raise ReceiptsPathUnusable(path=path, reason=reason)


def leave_receipt(messages: Sequence[TaskCommitMessage], *, sleep: Sleep = time.sleep) -> None:
    """At-least-once: write the file if the option asks for it. A file that cannot be written is only logged."""
    try:
        write_receipt(messages, sleep=sleep)
    except ReceiptNotWritten as error:
        proof = _proof(messages[0])
        log.warning(
            "micro-batch %d of query %s has no receipt, or an old one, in %s: %s. Its rows are in Kafka, all of them "
            "acknowledged; only the proof is missing.",
            proof.identity.batch_id,
            proof.identity.named,
            error.path,
            error.reason,
        )


def write_receipt(messages: Sequence[TaskCommitMessage], *, sleep: Sleep = time.sleep) -> None:
    """Write the file from all tasks' messages if the option asks for it. Raises ReceiptNotWritten."""
    if not messages or messages[0].proof is None:
        return
    first = messages[0].proof
    relative = receipt_file.relative_path(first.identity.named, first.identity.batch_id)
    pauses_s = iter(PAUSES_S)
    while True:
        try:
            filesystem, folder = receipt_file.filesystem_of(first.receipts_path, within)
            path = f"{folder}/{relative}"
            table = _table(messages, lambda: _read_if_there(filesystem, path))  # noqa: B023 (called before it returns)
            if table is not None:
                _put(filesystem, path, table)
            return
        except (OSError, pa.ArrowException) as error:
            pause_s = None if _is_final(error) else next(pauses_s, None)
            reason = reason_for(first.receipts_path, error)
        if pause_s is None:
            raise ReceiptNotWritten(path=f"{first.receipts_path}/{relative}", reason=reason)
        sleep(pause_s)


def _is_final(error: Exception) -> bool:
    """Return True if a retry one second later would fail in the same way."""
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC)


def _put(filesystem: FileSystem, path: str, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    folder, _, name = path.rpartition("/")
    filesystem.create_dir(folder, recursive=True)
    is_local = filesystem.type_name == "local"
    # Object stores show an object only when it is complete.
    into = f"{folder}/_{name}.{os.getpid()}" if is_local or filesystem.type_name == "py::hdfs-native" else path
    if is_local:
        # Mode 0600, because the file shows how many rows went to which topic. Arrow would use the umask.
        os.close(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    try:
        with filesystem.open_output_stream(into) as stream:
            pq.write_table(table, stream)
        if into != path:
            filesystem.move(into, path)
    except BaseException:
        if into != path:  # Each run has another name, and a full disk would keep the pieces of all of them.
            with contextlib.suppress(OSError):
                filesystem.delete_file(into)
        raise


def _read_if_there(filesystem: FileSystem, path: str) -> pa.Table:
    """Return the file of an earlier run, or an empty table."""
    try:
        return receipt_file.read(filesystem, path)
    except FileNotFoundError:
        return receipt_file.SCHEMA.empty_table()
    except pa.ArrowException as error:
        log.warning("%s is replaced, because it is not a receipt: %s", path, error)
        return receipt_file.SCHEMA.empty_table()


# --- its rows ---------------------------------------------------------------------------------------------------------


def _table(messages: Sequence[TaskCommitMessage], read_old: Callable[[], pa.Table]) -> pa.Table | None:
    """Return the new content of the file, or None if the old file already has it.

    Of slots that were visible before it has the old file's rows if the counts agree, and otherwise one row.
    """
    visible_before = [message for message in messages if _proof(message).runs is None]
    old = read_old() if visible_before else receipt_file.SCHEMA.empty_table()
    kept = {message.spark_partition_id: _rows_of(old, message) for message in visible_before}
    if len(kept) == len(messages) and old.num_rows and all(part is not None for part in kept.values()):
        return None
    parts = []
    for message in messages:
        runs = _proof(message).runs
        if runs is not None:
            parts.append(_of_runs(message, runs))
        else:
            part = kept[message.spark_partition_id]
            parts.append(_without_offsets(message, record_count=message.record_count) if part is None else part)
    table = pa.concat_tables(parts)
    if table.num_rows == 0:
        table = receipt_file.columns_of([{"slot": messages[0].spark_partition_id, "record_count": 0, "dropped": 0}])
    return _with_constants(table, messages)


def _proof(message: TaskCommitMessage) -> TaskProof:
    assert message.proof is not None, "all tasks of a write are asked for one, or none"
    return message.proof


def _rows_of(old: pa.Table, message: TaskCommitMessage) -> pa.Table | None:
    """Return the old file's rows for the message's slot, or None if their count differs from the slot's rows."""
    mask = np.asarray(old["slot"]) == message.spark_partition_id
    found = old.filter(pa.array(mask))
    total = sum(found["record_count"].to_pylist()) + sum(found["dropped"].to_pylist())
    return found if total == message.record_count else None


def _of_runs(message: TaskCommitMessage, runs: PackedRuns) -> pa.Table:
    columns, dropped = runs.columns, message.bad_rows.dropped_count
    if not len(columns):
        return _without_offsets(message, dropped=dropped)
    places = pa.array(columns["place"])
    topics = pa.array([each.topic for each in runs.partitions], pa.string())
    topic_ids = pa.array([message.topic_ids.get(each.topic) for each in runs.partitions], pa.string())
    partitions = pa.array([each.partition for each in runs.partitions], pa.int32())
    offsets = columns["base_offset"]
    return _filled(
        len(columns),
        slot=pa.repeat(pa.scalar(message.spark_partition_id, pa.int32()), len(columns)),
        topic=topics.take(places),
        topic_id=topic_ids.take(places),
        partition=partitions.take(places),
        base_offset=pa.array(offsets, mask=offsets == NO_OFFSET),
        dropped=pa.array(np.where(np.arange(len(columns)) == 0, dropped, 0)),
        **{
            name: pa.array(columns[name]).cast(receipt_file.SCHEMA.field(name).type)
            for name in ("record_count", "batch_bytes", "retries", "checksum", "base_timestamp")
        },
    )


def _without_offsets(message: TaskCommitMessage, *, record_count: int = 0, dropped: int = 0) -> pa.Table:
    """Return one row without topic and offsets, for rows whose offsets are unknown or that were dropped; none if 0."""
    if not record_count + dropped:
        return _filled(0)
    row = {"slot": message.spark_partition_id, "record_count": record_count, "dropped": dropped}
    return receipt_file.columns_of([row])


def _filled(row_count: int, **columns: pa.Array) -> pa.Table:
    """Return a table with these columns, and nulls in the file's other columns."""
    every = [columns.get(field.name, pa.nulls(row_count, field.type)) for field in receipt_file.SCHEMA]
    return pa.Table.from_arrays(every, schema=receipt_file.SCHEMA)


def _with_constants(table: pa.Table, messages: Sequence[TaskCommitMessage]) -> pa.Table:
    """Set the columns that have the same value in all rows of a file."""
    proofs = [_proof(message) for message in messages]
    started_ms = min(proof.started_ms for proof in proofs)
    values = {
        "query_id": proofs[0].identity.named,
        "batch_id": proofs[0].identity.batch_id,
        "kind": proofs[0].identity.kind.name.lower(),
        "guarantee": proofs[0].guarantee,
        "rows": sum(message.record_count for message in messages),
        "started_at": started_ms * 1000,
        "duration_ms": max(proof.ended_ms for proof in proofs) - started_ms,
    }
    for name, value in values.items():
        position = table.schema.get_field_index(name)
        field = receipt_file.SCHEMA.field(name)
        table = table.set_column(position, field, pa.repeat(pa.scalar(value, field.type), table.num_rows))
    return table

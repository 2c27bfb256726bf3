"""The progress of a query in its checkpoint, compared with the sink's decision; and its last receipt. Reads only.

Spark writes offsets/N before micro-batch N runs, and commits/N after its commit. So their last numbers differ by at
most one. offsets/N says up to where micro-batch N reads its sources:

    v1                                         v2 (spark.sql.streaming.offsetLog.formatVersion, Spark 4.1)
    {"batchWatermarkMs":0, ...}                {"batchWatermarkMs":0, ...}
    {"orders":{"0":23}}                        0:{"orders":{"0":23}}
    -                                          (a source that has none is absent)

The checkpoint may be anywhere that pyarrow can read: a path, file:, s3:, gs:, abfs:, hdfs:.

Source: Spark's StreamingQueryCheckpointMetadata, HDFSMetadataLog, OffsetSeqLog.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from kafka_sink.commit.markers import Decision
from kafka_sink.errors.redaction import reason_for
from kafka_sink.verification import receipt_file
from kafka_sink.verification.receipt_file import filesystem_of

# 100,000 partitions take about 2 MB.
MAX_OFFSETS_BYTES = 16 * 1024 * 1024
# In the log of offsets, instead of the offsets of a source that has none.
NO_OFFSETS = "-"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
# What a URI has beside letters, digits and `_.-~`. Anything else, such as a blank, is written as its code.
_OF_URIS = "%/:@?&=+,;$!*'()#[]"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last micro-batch in offsets/ (`planned`) and the last one in commits/ (`recorded`). None: none yet.
    `written_s`: when the newer of both files was written, since 1970; None if it is unknown."""

    query_id: str
    planned: int | None
    recorded: int | None
    written_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """Up to where the micro-batches that are recorded and planned read one source, as Spark's log has it. None: that
    micro-batch is not there, or the log has nothing of the source."""

    recorded: str | None
    planned: str | None


def read_checkpoint(location: str) -> Checkpoint:
    """Return the checkpoint at `location`. Raises OSError if it does not exist or cannot be read."""
    system, folder = _opened(location)
    with system.open_input_stream(posixpath.join(folder, "metadata")) as file:
        text = file.read()
    try:
        query_id = str(json.loads(text)["id"])
    except (ValueError, LookupError, TypeError):
        raise OSError("its file metadata has no query id") from None
    planned, recorded = _last(system, folder, "offsets"), _last(system, folder, "commits")
    times_ns = [each.mtime_ns for each in (planned, recorded) if each is not None and each.mtime_ns is not None]
    written_s = max(times_ns) / 1e9 if times_ns else None
    return Checkpoint(query_id, _number(planned), _number(recorded), written_s)


def read_sources(location: str, checkpoint: Checkpoint) -> dict[str, SourceOffsets]:
    """Return the offsets by the source's number in the query, or by its name if it has one. Raises OSError."""
    system, folder = _opened(location)
    recorded, planned = (
        {} if each is None else _offsets(system, posixpath.join(folder, "offsets", str(each)))
        for each in (checkpoint.recorded, checkpoint.planned)
    )
    return {each: SourceOffsets(recorded.get(each), planned.get(each)) for each in sorted({*recorded, *planned})}


def _opened(location: str) -> tuple[FileSystem, str]:
    """Open a location as Spark spells it: with the scheme or without, and with any character as it is. Raises
    OSError."""
    if _SCHEME.match(location) is None:
        return LocalFileSystem(), os.path.abspath(location)
    if location.startswith("file:"):
        return LocalFileSystem(), os.path.abspath(location[len("file:") :])
    try:
        return filesystem_of(quote(location, safe=_OF_URIS))
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


def _offsets(system: FileSystem, path: str) -> dict[str, str]:
    """Return the offsets of each source in a file of the log. Raises OSError."""
    with system.open_input_stream(path) as file:
        found = file.read(MAX_OFFSETS_BYTES + 1)
    if len(found) > MAX_OFFSETS_BYTES:
        raise OSError(f"{path} has more than {MAX_OFFSETS_BYTES:,} bytes")
    version, *lines = found.decode(errors="replace").rstrip("\n").split("\n")
    of_sources = lines[1:]
    if version == "v1":
        return {str(number): text for number, text in enumerate(of_sources) if text != NO_OFFSETS}
    if version == "v2":
        return {name: text for name, _, text in (line.partition(":") for line in of_sources)}
    raise OSError(f"{path} has another format than v1 and v2")


def _last(system: FileSystem, folder: str, log: str) -> FileInfo | None:
    """Return the file whose name is the highest number. The folder also has checksums and temporary files."""
    found = system.get_file_info(FileSelector(posixpath.join(folder, log), allow_not_found=True))
    numbered = [file for file in found if file.type == FileType.File and file.base_name.isdecimal()]
    return max(numbered, key=lambda file: int(file.base_name), default=None)


def _number(file: FileInfo | None) -> int | None:
    return None if file is None else int(file.base_name)


def compared(checkpoint: Checkpoint, decision: Decision | None) -> str:
    """Compare the checkpoint with the decision, in words, and say what a restart would do."""
    planned, recorded = checkpoint.planned, checkpoint.recorded
    if planned is None:
        return "no micro-batch was planned yet"
    ended = "none" if recorded is None else str(recorded)
    stands = f"micro-batch {planned} planned, {ended} recorded"
    if decision is None or decision.query_id != checkpoint.query_id:
        whose = "nothing was" if decision is None else "another query's micro-batch was"
        return (
            f"{stands}; {whose} decided. Either the query does not write exactly-once with this sink, or micro-batch 0 "
            "is being written, or a start would write the whole source again"
        )
    decided = decision.micro_batch_id
    if decided > planned:
        return (
            f"{stands}; {decided - planned} behind the sink: an older copy of the checkpoint. A start from it stops "
            "with CheckpointBehind"
        )
    if decided == planned == recorded:
        return f"{stands}; in step with the sink"
    if decided == planned:
        return f"{stands}; decided and not recorded yet. A start finds its rows visible, and does not rewrite them"
    if decided == planned - 1:
        return f"{stands}; being written, or the query ended while it was written. A start writes it"
    return (
        f"{stands}; {planned - decided} ahead of the sink: the micro-batches in between had no tasks, or their state "
        "is lost. A start stops with an error if rows may be missing"
    )


@dataclass(frozen=True, slots=True)
class LastReceipt:
    micro_batch_id: int
    rows: int
    record_batches: int
    bytes: int
    acknowledged: datetime


def last_receipt(receipts_path: str, query_id: str) -> LastReceipt | str | None:
    """Return the query's last receipt, None if it has no receipts, or why that is unknown."""
    try:
        filesystem, folder = filesystem_of(receipts_path)
        paths = receipt_file.paths_in(filesystem, f"{folder}/{receipt_file.folder_of(query_id)}")
        table = receipt_file.read(filesystem, paths[-1])
        receipt_file.refuse_nulls(table, "batch_id", "started_at", "duration_ms")
    except (FileNotFoundError, IndexError):
        return None
    except (OSError, pa.ArrowException) as error:
        return reason_for(receipts_path, error)
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

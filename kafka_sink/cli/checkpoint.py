"""The progress of a query in its checkpoint, compared with the sink's decision.

Spark writes offsets/N before micro-batch N runs, and commits/N after its commit. So their last numbers differ by at
most one. The checkpoint may be anywhere that pyarrow can read: a path, file:, s3:, gs:, abfs:, hdfs:.

Source: Spark's StreamingQueryCheckpointMetadata, HDFSMetadataLog.
"""

from __future__ import annotations

import json
import os
import posixpath
from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileSystem, FileType

from kafka_sink.commit.markers import Decision


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last micro-batch in offsets/ (`planned`) and the last one in commits/ (`recorded`). None: none yet."""

    query_id: str
    planned: int | None
    recorded: int | None


def read_checkpoint(location: str) -> Checkpoint:
    """Return the checkpoint at `location`. Raises OSError if it does not exist or cannot be read."""
    # pyarrow does not accept relative paths.
    system, folder = FileSystem.from_uri(location if ":" in location else os.path.abspath(location))
    with system.open_input_stream(posixpath.join(folder, "metadata")) as file:
        query_id = str(json.loads(file.read())["id"])
    return Checkpoint(query_id, _last(system, folder, "offsets"), _last(system, folder, "commits"))


def _last(system: FileSystem, folder: str, log: str) -> int | None:
    """Return the highest file name that is a number. The folder also has checksums and temporary files."""
    found = system.get_file_info(FileSelector(posixpath.join(folder, log), allow_not_found=True))
    numbers = [int(file.base_name) for file in found if file.type == FileType.File and file.base_name.isdecimal()]
    return max(numbers, default=None)


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
            f"{stands}; {whose} decided. Either micro-batch 0 is being written, or a start would write the whole "
            "source again"
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

"""How far a query's checkpoint says that it has come, to be held against what its sink has decided.

Spark writes offsets/N before micro-batch N runs and commits/N after its commit; so those of one query differ by at most
one. Any place that pyarrow's file systems reach: a path, file:, s3:, gs:, abfs:, hdfs:.

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
    """`planned`: the last micro-batch whose offsets are there; `recorded`: the last that ended. None: none yet."""

    query_id: str
    planned: int | None
    recorded: int | None


def read_checkpoint(location: str) -> Checkpoint:
    """Raises OSError where there is no checkpoint, or none that can be read."""
    # A path that is relative is nobody's address.
    system, folder = FileSystem.from_uri(location if ":" in location else os.path.abspath(location))
    with system.open_input_stream(posixpath.join(folder, "metadata")) as file:
        query_id = str(json.loads(file.read())["id"])
    return Checkpoint(query_id, _last(system, folder, "offsets"), _last(system, folder, "commits"))


def _last(system: FileSystem, folder: str, log: str) -> int | None:
    """The highest number of a file; beside them lie checksums and what is being written."""
    found = system.get_file_info(FileSelector(posixpath.join(folder, log), allow_not_found=True))
    numbers = [int(file.base_name) for file in found if file.type == FileType.File and file.base_name.isdecimal()]
    return max(numbers, default=None)


def compared(checkpoint: Checkpoint, decision: Decision | None) -> str:
    """Where both stand, and what a restart would do."""
    planned, recorded = checkpoint.planned, checkpoint.recorded
    if planned is None:
        return "nothing was planned yet"
    ended = "none" if recorded is None else str(recorded)
    stands = f"micro-batch {planned} planned, {ended} recorded"
    if decision is None or decision.query_id != checkpoint.query_id:
        whose = "nothing was" if decision is None else "another query's micro-batch was"
        return (
            f"{stands}; {whose} decided. Micro-batch 0 is being written, or a start would write the whole source again"
        )
    decided = decision.micro_batch_id
    if decided > planned:
        return (
            f"{stands}; behind the sink by {decided - planned}: an older copy. A start from it stops with "
            "CheckpointBehind"
        )
    if decided == planned == recorded:
        return f"{stands}; in step with the sink"
    if decided == planned:
        return f"{stands}; decided and not recorded yet. A start finds its rows visible, and writes none again"
    if decided == planned - 1:
        return f"{stands}; being written, or was when the query ended: a start writes it"
    return (
        f"{stands}; ahead of the sink by {planned - decided}: those in between had no tasks, or their state is gone. A "
        "start stops with an error where rows may be missing"
    )

"""How far a query is: its checkpoint, compared with the sink's decision; its last receipt; its sources. Reads only.

Spark writes offsets/N before micro-batch N runs, and commits/N after its commit. So their last numbers differ by at
most one. offsets/N says up to where micro-batch N reads its sources:

    v1                                         v2 (spark.sql.streaming.offsetLog.formatVersion, Spark 4.1)
    {"batchWatermarkMs":0, ...}                {"batchWatermarkMs":0, ...}
    {"orders":{"0":23}}                        0:{"orders":{"0":23}}
    -                                          1:-

With v2 a query's sources may change (enableSourceEvolution): each micro-batch names those that it reads. Of commits/N,
whose formats are v1 to v3, only the number counts.

The checkpoint may be anywhere that pyarrow can read: a path, file:, s3:, gs:, abfs:, hdfs:.

Source: Spark's StreamingQueryCheckpointMetadata, HDFSMetadataLog, OffsetSeqLog.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from kafka_sink.commit.markers import Decision
from kafka_sink.errors import TopicAuthorizationFailed
from kafka_sink.errors.quoting import several
from kafka_sink.errors.redaction import reason_for
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.apis.offsets import EARLIEST, LATEST
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import Offsets, kafka_offsets
from kafka_sink.records import receipt_file
from kafka_sink.records.receipt_file import filesystem_of

# 100,000 partitions take about 2 MB.
MAX_OFFSETS_BYTES = 16 * 1024 * 1024
# In the log of offsets, instead of the offsets of a source that has none.
NO_OFFSETS = "-"
_PATH = re.compile(r"^([^:/]+:(?://[^/?]*)?)([^?]*)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


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
    """Return the offsets by the source's number in the query, or by its name if it has one, without those that the
    planned micro-batch no longer reads. Raises OSError."""
    system, folder = _opened(location)
    recorded, planned = (
        {} if each is None else _offsets(system, posixpath.join(folder, "offsets", str(each)))
        for each in (checkpoint.recorded, checkpoint.planned)
    )
    return {each: SourceOffsets(recorded.get(each), planned.get(each)) for each in sorted(planned or recorded)}


def _opened(location: str) -> tuple[FileSystem, str]:
    """Open a location as Spark spells it: with the scheme or without, and with any character as it is. Raises
    OSError."""
    if _SCHEME.match(location) is None:
        return LocalFileSystem(), os.path.abspath(location)
    if location.startswith("file:"):
        return LocalFileSystem(), os.path.abspath(location[len("file:") :])
    try:
        # Hadoop takes the `%20` of a path as it is. What follows a question mark is for pyarrow.
        return filesystem_of(_PATH.sub(lambda found: found[1] + found[2].replace("%", "%25"), location), within)
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


def _offsets(system: FileSystem, path: str) -> dict[str, str]:
    """Return the offsets of each source in a file of the log. Raises OSError."""
    with system.open_input_stream(path) as file:
        found = file.read(MAX_OFFSETS_BYTES + 1)
    if len(found) > MAX_OFFSETS_BYTES:
        raise OSError(f"{path} has more than {MAX_OFFSETS_BYTES:,} bytes")
    version, *lines = found.decode(errors="replace").rstrip("\n").split("\n")
    named: Iterable[tuple[str, str]]
    if version == "v1":
        named = ((str(number), text) for number, text in enumerate(lines[1:]))
    elif version == "v2":
        named = ((name, text) for name, _, text in (line.partition(":") for line in lines[1:]))
    else:
        raise OSError(f"{path} has another format than v1 and v2: it needs a version of pykafka that knows this Spark")
    return {name: text for name, text in named if text != NO_OFFSETS}


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
        filesystem, folder = filesystem_of(receipts_path, within)
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


# --- the sources: the positions of the checkpoint beside the logs of a cluster ----------------------------------------
#
#     recorded            planned                            latest
#     ----|-------------------|----------------------------------|
#         |<---- planned ---->|                                  |
#         |<-------------------- behind ------------------------>|
#
# All figures are offsets. Transaction markers and compacted records have some, too.
# Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.metrics.


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's log: its first offset, where readers of committed records end, and its end."""

    earliest: int
    stable: int
    latest: int


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """- `position`: up to where the source has read
    - `behind`: from there to the end of the log
    - `planned`: the part of it that a micro-batch reads which is not recorded yet
    - `unstable`: the part of it that open transactions hide from readers of committed records
    - `deleted`: the part before the first offset that the log still has
    - `ahead`: how far the position is after the end of the log
    """

    partition: int
    position: int
    behind: int
    planned: int
    unstable: int
    deleted: int
    ahead: int


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """`not_looked_at`: partitions of which the cluster tells nothing now. `gone`: partitions that the cluster does not
    have; all of them if it does not have the topic."""

    topic: str
    partitions: tuple[PartitionProgress, ...]
    not_looked_at: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()

    @property
    def behind(self) -> int:
        return sum(each.behind for each in self.partitions)

    @property
    def planned(self) -> int:
        return sum(each.planned for each in self.partitions)

    @property
    def slowest(self) -> PartitionProgress | None:
        """The partition that is furthest behind, or None if none is behind."""
        return max((each for each in self.partitions if each.behind), key=lambda each: each.behind, default=None)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query. `micro_batch_id`: the last one that it has read. `is_recorded`: False if that one is only
    planned, because none is recorded yet. If the source is not Kafka, only its name is known."""

    name: str
    micro_batch_id: int | None = None
    is_recorded: bool = False
    topics: tuple[TopicProgress, ...] | None = None


def progress_of(
    client: AdminClient, checkpoint: Checkpoint, offsets: Mapping[str, SourceOffsets]
) -> list[SourceProgress]:
    """Return the progress of each source of a query. Raises ClusterError."""
    parsed = {name: (_parsed(each.recorded), _parsed(each.planned)) for name, each in offsets.items()}
    topics = sorted({topic for both in parsed.values() for each in both if each is not None for topic in each})
    logs = logs_of(client, topics)
    return [_source(name, recorded, planned, checkpoint, logs) for name, (recorded, planned) in parsed.items()]


def _parsed(text: str | None) -> Offsets | None:
    return None if text is None else kafka_offsets(text)


def _source(
    name: str,
    recorded: Offsets | None,
    planned: Offsets | None,
    checkpoint: Checkpoint,
    logs: Mapping[TopicPartition, Log | None],
) -> SourceProgress:
    is_recorded = recorded is not None
    position = recorded if is_recorded else planned
    if position is None:
        return SourceProgress(name)
    ends = planned or {}
    topics = (
        topic_progress(topic, position.get(topic, {}), ends.get(topic, {}), logs)
        for topic in sorted({*position, *ends})
    )
    micro_batch_id = checkpoint.recorded if is_recorded else checkpoint.planned
    return SourceProgress(name, micro_batch_id, is_recorded, tuple(topics))


def topic_progress(
    topic: str, position: Mapping[int, int], planned: Mapping[int, int], logs: Mapping[TopicPartition, Log | None]
) -> TopicProgress:
    """Return the progress in one topic.

    `position`, `planned`: by partition. `logs`: those of the cluster, None for a partition of which it tells nothing
    now. A partition without a position is new, and is read from its earliest offset, as Spark does.
    """
    here = {each.partition: log for each, log in logs.items() if each.topic == topic}
    return TopicProgress(
        topic,
        tuple(
            _partition(number, position.get(number, log.earliest), planned.get(number), log)
            for number, log in sorted(here.items())
            if log is not None
        ),
        not_looked_at=tuple(sorted(number for number, log in here.items() if log is None)),
        gone=tuple(sorted({*position, *planned} - here.keys())),
    )


def _partition(number: int, position: int, planned: int | None, log: Log) -> PartitionProgress:
    return PartitionProgress(
        number,
        position,
        behind=max(0, log.latest - position),
        planned=max(0, (position if planned is None else planned) - position),
        unstable=max(0, log.latest - max(position, log.stable)),
        deleted=max(0, min(log.earliest, log.latest) - position),
        ahead=max(0, position - log.latest),
    )


def logs_of(client: AdminClient, topics: Sequence[str]) -> dict[TopicPartition, Log | None]:
    """Return the logs of the topics that exist. None: the partition has no leader.

    Raises TopicAuthorizationFailed, FetchRefused, LeaderUnavailable or BrokersUnreachable.
    """
    if not topics:
        return {}
    leaders: dict[TopicPartition, int] = {}
    for name, topic in client.topics(tuple(topics)).items():
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name, operation="DESCRIBE")
        leaders |= {TopicPartition(name, each.partition): each.leader_id for each in topic.partitions}
    led = sorted(each for each, leader_id in leaders.items() if leader_id >= 0)
    earliest, stable, latest = (
        {} if not led else list_offsets(client, dict.fromkeys(led, at), level)
        for at, level in (
            (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
            (LATEST, IsolationLevel.READ_COMMITTED),
            (LATEST, IsolationLevel.READ_UNCOMMITTED),
        )
    )
    found: dict[TopicPartition, Log | None] = dict.fromkeys(leaders)
    return found | {each: Log(*(answer[each].offset for answer in (earliest, stable, latest))) for each in led}


def notes_of(topic: TopicProgress) -> Iterator[str]:
    """Return a line for each thing that an operator has to know."""

    def partitions(numbers: Iterable[int]) -> str:
        return several(f"{topic.topic}-{number}" for number in numbers)

    if topic.gone and not topic.partitions and not topic.not_looked_at:
        yield (
            f"{topic.topic} is not on this cluster. It was deleted, or the source reads another cluster: name that one "
            "with --bootstrap-servers."
        )
    elif topic.gone:
        yield f"{partitions(topic.gone)}: not in the topic. It was deleted and created again with fewer partitions."
    if topic.not_looked_at:
        yield f"Not looked at, because no leader answers for them: {partitions(topic.not_looked_at)}."
    if deleted := {each.partition: each.deleted for each in topic.partitions if each.deleted}:
        yield (
            f"DATA LOSS: {sum(deleted.values()):,} offsets that were not read are deleted, in {partitions(deleted)}. "
            "With failOnDataLoss=true the query stops there, with false it leaves them out."
        )
    if ahead := {each.partition: each.ahead for each in topic.partitions if each.ahead}:
        yield (
            f"DATA LOSS: the log ends before the position, by {sum(ahead.values()):,} offsets in {partitions(ahead)}. "
            "The topic was deleted and created again, or an unclean election truncated it."
        )
    if unstable := {each.partition: each.unstable for each in topic.partitions if each.unstable}:
        yield (
            f"{sum(unstable.values()):,} of the offsets are behind open transactions, in {partitions(unstable)}. A "
            "source with read_committed waits for their end: `pykafka transactions list` names them."
        )

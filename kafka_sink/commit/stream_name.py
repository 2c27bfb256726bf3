"""The name of an exactly-once stream's sink: its transactional ids and consumer groups begin with this name.

    the option transactionalIdPrefix is set      its value
    the checkpoint is in a folder of this host   `pykafka-<query id>`; Spark keeps the id in the checkpoint's `metadata`
    the checkpoint is elsewhere (s3:, hdfs:)     `pykafka-<hash of the option checkpointLocation, spelled plainly>`

In a local folder the name depends on the query id and not on the path. A relative path "checkpoint" in two applications
means two queries. One folder is the same query under any spelling of its path, and after a move. The name never
changes: `pykafka.json` next to `metadata` keeps it, and is valid while `metadata` has the same query id. Earlier builds
named every stream by the hash: such a stream keeps its name (`began_as`).

Elsewhere the text of the option decides. The planning process has no Spark to read the file with. Another library
might read the file at one start and not at the next. Then the name would change, and rows would be written twice.
`plainly` makes one text of the spellings that mean one folder by themselves. Of others only Spark knows it, such as
`/checkpoint` and `hdfs://nn/checkpoint`: `check_first_name` stops such a stream. Earlier builds took the text as it is.
A stream keeps that name while Kafka knows it (`began_as`).

Source: StreamMetadata.scala and StreamExecution.scala (Spark writes the id before it plans anything); Hadoop's
Path.java (what a path's text means).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import NO_OFFSET, Ids
from kafka_sink.commit.requests import (
    Steps,
    check_answer,
    described,
    end_txn,
    init_producer_id,
    read_decision,
    read_text,
    write_offset,
)
from kafka_sink.errors import AnotherName, CheckpointUnusable, MissingOption, TransactionRefused, UnreadableState
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning
from kafka_sink.options.config import GivenOptions

# Prefix of names that pykafka derives. Names that users set need no prefix.
DERIVED = "pykafka-"
FILE_NAME = "pykafka.json"
VERSION = 1
# A text is a scheme only if it is before the first slash.
_LOCAL = re.compile(r"(?:file:(?://)?(?=/))?([^:/]*|[^:/]*/.*)", re.DOTALL)
_URI = re.compile(r"([^:/]+):(?://([^/]*))?(.*)", re.DOTALL)
# Two schemes of one storage.
_SAME = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}
# HdfsClientConfigKeys.DFS_NAMENODE_RPC_PORT_DEFAULT
_HDFS_PORT = ":8020"
# Denied too, but these ACLs do not name a transactional id, group or topic.
_OTHER_ACLS = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True)
class StreamName:
    """`query_id`: the query of the checkpoint that gave the name; None if unknown. `is_derived`: no user set the
    name."""

    sink: str
    query_id: str | None = None
    is_derived: bool = False


def stream_name(given: GivenOptions, location: str | None) -> StreamName | None:
    """Return the name of a stream, or None if only `name_stream` can tell. Raises MissingOption, CheckpointUnusable."""
    if prefix := given.get("transactional_id_prefix"):
        return StreamName(str(prefix))
    if location is None:
        raise MissingOption(
            option="transactionalIdPrefix",
            hint="the stream's checkpointLocation is not an option of the write, so no name can be derived from it.",
        )
    checkpoint = LocalCheckpoint.at(location)
    if checkpoint is None:
        sinks = possible_names(location)
        return StreamName(sinks[0], is_derived=True) if len(sinks) == 1 else None
    sink = checkpoint.name()
    return None if sink is None else StreamName(sink, checkpoint.query_id, is_derived=True)


def name_stream(
    given: GivenOptions, location: str | None, began_under: Callable[[str, str | None], bool]
) -> StreamName:
    """Return the name of a stream, and store it if it is new.

    `began_under(name, query_id)`: True if the query began under this name of earlier builds. The query is None if it is
    unknown: then any query. Raises MissingOption, CheckpointUnusable, and the errors of `began_under`.
    """
    name = stream_name(given, location)
    if name is not None:
        return name if name.is_derived else _recorded(name, location)
    assert location is not None
    checkpoint, earlier = LocalCheckpoint.at(location), spelled_name(location)
    if checkpoint is None:
        return StreamName(earlier if began_under(earlier, None) else plain_name(location), is_derived=True)
    sink = earlier if began_under(earlier, checkpoint.query_id) else query_name(checkpoint.query_id)
    checkpoint.give(sink)
    return StreamName(sink, checkpoint.query_id, is_derived=True)


def _recorded(name: StreamName, location: str | None) -> StreamName:
    """Store a name that the user chose in the checkpoint, where operators look for it. Failures are ignored."""
    with contextlib.suppress(CheckpointUnusable):
        checkpoint = LocalCheckpoint.at(location)
        if checkpoint is not None:
            if checkpoint.name() != name.sink:
                checkpoint.give(name.sink)
            return replace(name, query_id=checkpoint.query_id)
    return name


def is_new(location: str | None) -> bool:
    """Return True if no micro-batch of the stream was committed. False if that cannot be seen from here, as the
    checkpoint is elsewhere."""
    folder = local_folder(location)
    if folder is None or not (folder / "metadata").exists():
        return False
    return not any(entry.name.isdecimal() for entry in (folder / "commits").glob("*"))


def expected_name(given: GivenOptions, location: str | None) -> str:
    """Return the name of a stream, or before its first start the prefix of the name. Raises MissingOption,
    CheckpointUnusable."""
    name = stream_name(given, location)
    is_to_come = local_folder(location) is not None and LocalCheckpoint.at(location) is None
    return DERIVED if name is None or (name.is_derived and is_to_come) else name.sink


def possible_names(location: str) -> list[str]:
    """Return the names that a stream with a checkpoint elsewhere may have: the one of its spelling, which earlier
    builds gave it, and the one of all spellings."""
    return list(dict.fromkeys((spelled_name(location), plain_name(location))))


def began_as(sink: Sink, query_id: str | None, *, otherwise: str | None = None) -> Steps[bool]:
    """Return True if a query without a stored name began under the name `sink`, which earlier builds gave it.

    It did if the last decision is the query's (None: any query's). It may have if the sink exists without a decision.
    If nothing was ever decided under `sink`, and a micro-batch was under the name `otherwise`, an earlier build has
    only tried to go on with the query. Another query may use that name now, so the check fences nothing, and writes a
    barrier only if the sink exists. Raises TransactionRefused, UnreadableState.
    """
    try:
        decision = yield from read_decision(sink)
        if decision is not None and query_id in (None, decision.query_id):
            return not (decision.is_nothing and otherwise is not None and (yield from _has_decided(sink, otherwise)))
        (driver,) = yield from described([sink.names.driver])
        if driver.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        if query_id is None:
            return True
        decision = yield from read_decision(sink, barrier=f"name {query_id}")
    except TransactionRefused as refused:
        if is_never_ours(refused):
            return False
        raise
    return decision is None or decision.is_nothing or decision.query_id == query_id


def _has_decided(sink: Sink, name: str) -> Steps[bool]:
    """Return True if the sink of another name has made a decision that this principal may read."""
    try:
        decision = yield from read_decision(replace(sink, names=replace(sink.names, sink=name)))
    except TransactionRefused as refused:
        if is_never_ours(refused):
            return False
        raise
    return decision is not None and not decision.is_nothing


def is_never_ours(refused: TransactionRefused) -> bool:
    """Return True if the principal may not read there: then it has never written there."""
    return meaning(refused.code).denied and refused.code not in _OTHER_ACLS


# --- the name of the first micro-batch ------------------------------------------------------------------------------

# Spark may reach one checkpoint by two texts, of which two names are derived. From micro-batch 1 on `replay` finds no
# decision under the other name, and stops. Micro-batch 0 needs no decision before it. So its commit looks for a record
# in Kafka first, by the query's id, and writes it if there is none.
#
#     transactional id, consumer group    pykafka-<query id>.name
#
# The group's offset is 0, and its metadata `1|<name of the sink>`. Of two drivers with two names the later Init fences
# the earlier one. So only one of them writes the record, and the other finds it. Brokers forget the record as they
# forget a decision of micro-batch 0.
_FIRST_VERSION = "1"


def check_first_name(sink: Sink, query_id: str) -> Steps[None]:
    """Check that the query writes its first micro-batch under the name `sink`, and record that.

    Call it before the micro-batch is decided. A principal that may not use the record has never written one: nothing
    is checked. Raises AnotherName, AttemptFenced, TransactionRefused or UnreadableState.
    """
    try:
        yield from _check_first(sink, query_id, f"{query_name(query_id)}.name")
    except TransactionRefused as refused:
        if not is_never_ours(refused):
            raise


def _check_first(sink: Sink, query_id: str, name: str) -> Steps[None]:
    (begun,) = yield [init_producer_id(sink, name)]
    check_answer(begun.error_code, "InitProducerId", name)
    ids = Ids.of(begun)
    offset, text = yield from read_text(sink, name, barrier=f"name {ids}")
    if offset == NO_OFFSET:
        yield from write_offset(sink, name, ids, name, 0, f"{_FIRST_VERSION}|{sink.names.sink}")
        (ended,) = yield [end_txn(sink, name, ids, committed=True)]
        # After a lost answer a fence may mean success: the micro-batch runs again, and finds the record.
        check_answer(ended.error_code, "EndTxn", name)
        return
    version, _, found = text.partition("|")
    if version != _FIRST_VERSION or not found:
        raise UnreadableState(group=name, found=text)
    if found != sink.names.sink:
        raise AnotherName(sink=sink.names.sink, query_id=query_id, found_sink=found)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def query_name(query_id: str) -> str:
    """Return the name for a query id. Never change this format, nor `spelled_name`: streams would lose their state."""
    return f"{DERIVED}{query_id}"


def spelled_name(location: str) -> str:
    """Return the name for a text. `location`: the option checkpointLocation as the user wrote it."""
    return DERIVED + hashlib.sha256(location.encode()).hexdigest()[:16]


def plain_name(location: str) -> str:
    """Return the name for a checkpoint elsewhere, which all spellings of a location have that `plainly` knows."""
    return spelled_name(plainly(location))


def plainly(location: str) -> str:
    """Return the one spelling of a location elsewhere. Never change it, because streams are named by it.

    Hadoop's Path ignores repeated and last slashes and resolves `.` and `..`. It takes `%20` and `+` as they are. Two
    schemes may name one storage, and HDFS has a default port.
    """
    found = _URI.fullmatch(location)
    scheme, authority, path = ("", None, location) if found is None else found.groups()
    path = posixpath.normpath(re.sub("/+", "/", path or "/"))
    if scheme == "hdfs" and authority is not None:
        authority = authority.lower().removesuffix(_HDFS_PORT)
    scheme = _SAME.get(scheme, scheme)
    return (f"{scheme}:" if scheme else "") + (f"//{authority}" if authority else "") + path


def local_folder(location: str | None) -> Path | None:
    """Return the folder on this host that `location` means, or None if it is elsewhere or unknown.

    Assumes that Spark's default file system is this host's disk.
    """
    path = None if location is None else _LOCAL.fullmatch(location)
    return None if path is None else Path(path[1])


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """A query's checkpoint in a folder on this host."""

    folder: Path
    query_id: str

    @classmethod
    def at(cls, location: str | None) -> LocalCheckpoint | None:
        """Return the checkpoint, or None if there is none on this host. Raises CheckpointUnusable."""
        folder = local_folder(location)
        if folder is None:
            return None
        try:
            text = (folder / "metadata").read_text(encoding="utf-8")
            return cls(folder, str(json.loads(text)["id"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointUnusable(file=str(folder / "metadata"), reason=_reason(error)) from error

    def name(self) -> str | None:
        """Return the stored name of the query, or None if there is none yet. Raises CheckpointUnusable."""
        file = self.folder / FILE_NAME
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            version, query_id, sink = stored["version"], stored["queryId"], stored["transactionalIdPrefix"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointUnusable(file=str(file), reason=_reason(error)) from error
        if version != VERSION:
            reason = f"its version is {version}, and this release knows {VERSION}"
            raise CheckpointUnusable(file=str(file), reason=reason)
        # A different query id means that somebody deleted only some of the folder's files.
        return str(sink) if query_id == self.query_id else None

    def give(self, sink: str) -> None:
        """Store the name on disk (fsync) before any row is written under it. Raises CheckpointUnusable."""
        file = self.folder / FILE_NAME
        stored = {"version": VERSION, "queryId": self.query_id, "transactionalIdPrefix": sink}
        new = file.with_name(f".{FILE_NAME}.{os.getpid()}.tmp")
        try:
            with new.open("w", encoding="utf-8") as to_write:
                to_write.write(json.dumps(stored) + "\n")
                to_write.flush()
                os.fsync(to_write.fileno())
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise CheckpointUnusable(file=str(file), reason=_reason(error)) from error


def _reason(error: Exception) -> str:
    """Return the reason without any text of the file."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not what was written there"

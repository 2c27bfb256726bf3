"""What the sink of an exactly-once stream is called: its transactional ids and consumer groups begin with that.

    the option transactionalIdPrefix is set      its value
    the checkpoint is in a folder of this host   `pykafka-<query id>`; Spark keeps the id in the checkpoint's `metadata`
    the checkpoint is elsewhere (s3:, hdfs:)     `pykafka-<hash of the option checkpointLocation, as it is spelled>`

So in a folder the name belongs to the query, and not to the words that lead there: "checkpoint" in two applications'
folders is two queries, and one folder is the same query however its path is spelled, and wherever it is moved. Once
given, the name stays: it is written beside `metadata`, in `pykafka.json`, and holds for as long as that has the same
id. A stream that an earlier build began, whose name was the hash in any case, keeps it (`spark/stream_naming.py`).

Elsewhere the spelling decides. Where planning runs there is no Spark to read a file with, and whether another library
can read it may change from one start to the next, and the name with it: rows would be written twice.

Source: StreamMetadata.scala and StreamExecution.scala (the id is there before anything is planned).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from kafka_sink.errors import CheckpointUnusable

# What users' names need not begin with.
DERIVED = "pykafka-"
FILE_NAME = "pykafka.json"
VERSION = 1
_LOCAL = re.compile(r"(?:file:(?://)?(?=/))?([^:]+)")


@dataclass(frozen=True, slots=True)
class StreamName:
    """`query_id`: the query's whose checkpoint the name is from; None: not known. `is_derived`: the user set none."""

    sink: str
    query_id: str | None = None
    is_derived: bool = False


def query_name(query_id: str) -> str:
    """Kept for ever, as `spelled_name`: another name loses the state of every stream."""
    return f"{DERIVED}{query_id}"


def spelled_name(location: str) -> str:
    """`location`: the option checkpointLocation, as the user wrote it."""
    return DERIVED + hashlib.sha256(location.encode()).hexdigest()[:16]


def local_folder(location: str) -> Path | None:
    """The folder of this host that `location` means, unless Spark's default file system is another. None: elsewhere."""
    path = _LOCAL.fullmatch(location)
    return None if path is None else Path(path[1])


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """A query's checkpoint in a folder of this host."""

    folder: Path
    query_id: str

    @classmethod
    def at(cls, location: str) -> LocalCheckpoint | None:
        """None where there is none, or none of this host. Raises CheckpointUnusable."""
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
        """That the query was given; None: none yet. Raises CheckpointUnusable."""
        file = self.folder / FILE_NAME
        try:
            said = json.loads(file.read_text(encoding="utf-8"))
            version, query_id, sink = said["version"], said["queryId"], said["transactionalIdPrefix"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointUnusable(file=str(file), reason=_reason(error)) from error
        if version != VERSION:
            reason = f"its version is {version}, and this release knows {VERSION}"
            raise CheckpointUnusable(file=str(file), reason=reason)
        # Of another query, the folder was emptied by halves.
        return str(sink) if query_id == self.query_id else None

    def give(self, sink: str) -> None:
        """On disk when this returns, as rows will be written under that name. Raises CheckpointUnusable."""
        file = self.folder / FILE_NAME
        said = {"version": VERSION, "queryId": self.query_id, "transactionalIdPrefix": sink}
        new = file.with_name(f".{FILE_NAME}.{os.getpid()}.tmp")
        try:
            with new.open("w", encoding="utf-8") as to_write:
                to_write.write(json.dumps(said) + "\n")
                to_write.flush()
                os.fsync(to_write.fileno())
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise CheckpointUnusable(file=str(file), reason=_reason(error)) from error


def _reason(error: Exception) -> str:
    """Not the text of a file that is no JSON."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not what was written there"

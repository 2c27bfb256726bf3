"""What a stream's processes pass on through files: the name of its sink, and the generation of its last run."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kafka_sink.commit.markers import Ids
from kafka_sink.commit.stream_name import DERIVED, LocalCheckpoint, StreamName, local_folder, query_name, spelled_name
from kafka_sink.errors import CheckpointUnusable, MissingOption
from kafka_sink.kept import blocks_folder
from kafka_sink.options.config import GivenOptions


def stream_name(given: GivenOptions, location: str | None) -> StreamName | None:
    """Return the name of a stream, or None if it has none yet. Raises MissingOption, CheckpointUnusable."""
    if prefix := given.get("transactional_id_prefix"):
        return StreamName(str(prefix))
    if location is None:
        raise MissingOption(
            option="transactionalIdPrefix",
            hint="the stream's checkpointLocation is not an option of the write, so no name can be derived from it.",
        )
    checkpoint = LocalCheckpoint.at(location)
    if checkpoint is None:
        return StreamName(spelled_name(location), is_derived=True)
    sink = checkpoint.name()
    return None if sink is None else StreamName(sink, checkpoint.query_id, is_derived=True)


def name_stream(given: GivenOptions, location: str | None, began_as: Callable[[str, str], bool]) -> StreamName:
    """Return the name of a stream, and store it if it is new.

    `began_as(name, query_id)`: True if the query began under this earlier name. Raises MissingOption,
    CheckpointUnusable, and the errors of `began_as`.
    """
    name = stream_name(given, location)
    if name is not None:
        return name if name.is_derived else _recorded(name, location)
    assert location is not None
    checkpoint = LocalCheckpoint.at(location)
    assert checkpoint is not None, "elsewhere a stream has its name without being given it"
    earlier = spelled_name(location)
    sink = earlier if began_as(earlier, checkpoint.query_id) else query_name(checkpoint.query_id)
    checkpoint.give(sink)
    return StreamName(sink, checkpoint.query_id, is_derived=True)


def _recorded(name: StreamName, location: str | None) -> StreamName:
    """Store a name that the user chose in the checkpoint, where operators look for it. Failures are ignored."""
    with contextlib.suppress(CheckpointUnusable):
        checkpoint = None if location is None else LocalCheckpoint.at(location)
        if checkpoint is not None:
            if checkpoint.name() != name.sink:
                checkpoint.give(name.sink)
            return replace(name, query_id=checkpoint.query_id)
    return name


def is_new(location: str | None) -> bool:
    """Return True if no micro-batch of the stream was committed. False if that cannot be seen from here, as the
    checkpoint is elsewhere."""
    folder = None if location is None else local_folder(location)
    if folder is None or not (folder / "metadata").exists():
        return False
    return not any(entry.name.isdecimal() for entry in (folder / "commits").glob("*"))


def expected_name(given: GivenOptions, location: str | None) -> str:
    """Return the name of a stream, or before its first start the prefix of the name. Raises MissingOption,
    CheckpointUnusable."""
    name = stream_name(given, location)
    is_to_come = location is not None and local_folder(location) is not None and LocalCheckpoint.at(location) is None
    if name is None or (name.is_derived and is_to_come):
        return DERIVED
    return name.sink


# --- the last run -----------------------------------------------------------------------------------------------------
# Spark tells `abort` nothing of a stream's micro-batch that was stopped. So the planning process stores the generation
# of its run. The file is a hint: without it the next plan, or the brokers' timeout, ends the transactions.


def remember(prefix: str, generation: Ids, checkpoint: str | None = None) -> None:
    """Store the generation of the last run that began on this driver, for the sink `prefix` and a checkpoint.

    Two queries of one driver may use the same prefix by mistake. An abort of one must not end the other's transactions.
    """
    file = _file(prefix, checkpoint)
    if file is None:
        return
    # A full disk must not fail the plan.
    with contextlib.suppress(OSError):
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(str(generation), encoding="ascii")
        new.replace(file)


def recall(prefix: str, checkpoint: str | None = None) -> Ids | None:
    """Return the stored generation, or None if unknown."""
    file = _file(prefix, checkpoint)
    try:
        return None if file is None else Ids.read(file.read_text(encoding="ascii"))
    except OSError:
        return None


def _file(prefix: str, checkpoint: str | None) -> Path | None:
    folder = blocks_folder()
    if not folder:
        return None
    # A newline separates the parts: no prefix has one, because it is part of transactional ids.
    name = f"{prefix}\n{checkpoint or ''}"
    return Path(folder) / f"pykafka-run-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

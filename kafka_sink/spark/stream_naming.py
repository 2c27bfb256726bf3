"""Gives a stream's sink its name where its first micro-batch is planned, and finds it everywhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from kafka_sink.commit.stream_name import DERIVED, LocalCheckpoint, StreamName, local_folder, query_name, spelled_name
from kafka_sink.errors import CheckpointUnusable, MissingOption
from kafka_sink.options.config import GivenOptions


def stream_name(given: GivenOptions, location: str | None) -> StreamName | None:
    """Of a stream that is running; None where it was given none yet. Raises MissingOption, CheckpointUnusable."""
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
    """Its name from now on. `began_as`: whether the query of an id has begun under an earlier name. Raises
    MissingOption, CheckpointUnusable, and what `began_as` does."""
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
    """A name that the user chose, told to operators, who look for it in the checkpoint."""
    with contextlib.suppress(CheckpointUnusable):
        checkpoint = None if location is None else LocalCheckpoint.at(location)
        if checkpoint is not None:
            if checkpoint.name() != name.sink:
                checkpoint.give(name.sink)
            return replace(name, query_id=checkpoint.query_id)
    return name


def expected_name(given: GivenOptions, location: str | None) -> str:
    """The one that a stream has or, before its start, what it will begin with. Raises MissingOption,
    CheckpointUnusable."""
    name = stream_name(given, location)
    is_to_come = location is not None and local_folder(location) is not None and LocalCheckpoint.at(location) is None
    if name is None or (name.is_derived and is_to_come):
        return DERIVED
    return name.sink

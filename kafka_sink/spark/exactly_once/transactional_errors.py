"""Errors about rows that nobody sees unless they are committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.commit.handover import Sink, command
from kafka_sink.errors import KafkaSinkError, WriteKind
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.spark.exactly_once.batch_write import BatchWrite


@contextmanager
def told_of_a_transaction(batch: BatchWrite | None, *, committing: Sink | None = None) -> Iterator[None]:
    """What errors say of the rows is made true of rows that nobody sees unless they are committed, and of who runs the
    write again. `committing`: where they may have been."""
    try:
        with exhaustion_named():
            yield
    except KafkaSinkError as error:
        raise error.in_transaction(
            committing=committing is not None,
            write_kind=WriteKind.STREAM if batch is None else batch.kind,
            repair="" if committing is None else command(committing, "repair"),
        ) from error.__cause__

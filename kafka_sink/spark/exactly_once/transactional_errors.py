"""Adapts errors to transactional writes, whose rows are invisible until they are committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.commit.handover import Sink, command
from kafka_sink.errors import KafkaSinkError, WriteKind
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.spark.exactly_once.batch_write import BatchWrite


@contextmanager
def told_of_a_transaction(batch: BatchWrite | None, *, committing: Sink | None = None) -> Iterator[None]:
    """Make errors describe the rows of a transactional write, and the way to run the write again.

    `committing`: the sink if some rows may be visible, otherwise None.
    """
    try:
        with exhaustion_named():
            yield
    except KafkaSinkError as error:
        raise error.in_transaction(
            committing=committing is not None,
            write_kind=WriteKind.STREAM if batch is None else batch.kind,
            repair="" if committing is None else command(committing, "repair"),
        ) from error.__cause__

"""Gives a batch write a query id and a micro-batch id, because markers and decisions need both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_sink.commit.handover import Sink, command
from kafka_sink.errors import KafkaSinkError, WriteKind
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark.task_results import ONLY_MICRO_BATCH, Identity


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """The query id and micro-batch id of a batch write, for markers and decisions.

    `is_versioned`: the ids come from the user's `txnAppId` and `txnVersion`.
    """

    query_id: str
    micro_batch_id: int
    is_versioned: bool = False
    receipt_name: str | None = None

    @property
    def kind(self) -> WriteKind:
        return WriteKind.VERSION if self.is_versioned else WriteKind.BATCH

    @property
    def identity(self) -> Identity:
        return Identity(self.query_id, self.micro_batch_id, self.kind, self.receipt_name)


def batch_identity(given: GivenOptions) -> tuple[str, BatchWrite]:
    """Return the prefix of a batch write's transactional ids, and its ids.

    With `txnAppId` and `txnVersion` a rerun has the same ones. Otherwise they are unique, so that no other write uses
    the same transactions.
    """
    if (app_id := given.get("txn_app_id")) is not None:
        return app_id, BatchWrite(f"txnAppId:{app_id}", given["txn_version"], is_versioned=True)
    write_id = uuid.uuid4().hex
    prefix = given.get("transactional_id_prefix") or "pykafka-batch"
    write = BatchWrite(write_id, ONLY_MICRO_BATCH, receipt_name=given.get("receipt_name"))
    return f"{prefix}.{write_id}", write


# --- errors of transactional writes -----------------------------------------------------------------------------------
# Adapts errors to transactional writes, whose rows are invisible until they are committed.


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

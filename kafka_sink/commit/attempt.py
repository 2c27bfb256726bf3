"""A task's part: Init the slot before its rows, and put the marker into the transaction after them.

`kafka_sink.commit` has the protocol.
"""

from __future__ import annotations

from kafka_sink.commit.ending import beyond, commit_each, init, next_after, pinned_in
from kafka_sink.commit.handover import Facts, Sink, SlotBegun
from kafka_sink.commit.markers import Decision, Ids, Marker
from kafka_sink.commit.requests import Steps, at_once, check_generation, read_markers, write_offset
from kafka_sink.errors import CheckpointBehind, StateExpired


def begin(
    sink: Sink, facts: Facts, *, slot: int, micro_batch_id: int, query_id: str, allow_lost_state: bool = False
) -> Steps[SlotBegun]:
    """Init the slot's transactional id, which fences every earlier attempt.

    Raises DriverFenced, CheckpointBehind, StateExpired, TransactionRefused or AttemptFenced, and then writes no row.
    """
    transactional_id = sink.names.slot(slot)
    yield from check_generation(sink, facts.generation)
    ids = yield from init(sink, transactional_id)
    is_first_since = _is_first_since(facts.decision, slot, ids)
    if facts.decision is not None and (pinned := pinned_in(facts.decision, slot)) is not None:
        ids = yield from beyond(sink, transactional_id, ids, pinned, facts.decision)
    marker = facts.markers.get(slot) if is_first_since else (yield from _marker_now(sink, facts, slot, ids))
    is_pinned = facts.decision is not None and slot < len(facts.decision.pinned)
    if marker is None and sink.comes_again and not is_pinned:
        if facts.is_forgotten and not allow_lost_state:
            raise StateExpired(sink=sink.names.sink, micro_batch_id=micro_batch_id, query_id=query_id)
        # After this write, a missing marker is a lost marker.
        nothing = Marker.nothing(ids, sink.transaction_version)
        yield from write_offset(sink, transactional_id, ids, transactional_id, nothing.micro_batch_id, nothing.text)
        yield from commit_each(sink, [(transactional_id, ids)], sink.transaction_version)
        ended, ids = ids, (yield from init(sink, transactional_id))
        if ids != Ids(ended.producer_id, ended.producer_epoch + sink.transaction_version):
            # Another process has Inited the slot in between.
            marker = yield from _marker_now(sink, facts, slot, ids)
    visible = None
    if marker is not None and marker.query_id == query_id:
        if marker.micro_batch_id > micro_batch_id:
            raise CheckpointBehind(
                sink=sink.names.sink, micro_batch_id=micro_batch_id, committed_micro_batch_id=marker.micro_batch_id
            )
        if marker.micro_batch_id == micro_batch_id:
            visible = marker
    return SlotBegun(slot, ids, visible)


def _marker_now(sink: Sink, facts: Facts, slot: int, ids: Ids) -> Steps[Marker | None]:
    """Check the generation and read the marker again, because the facts of `plan` may be old. Raises DriverFenced.

    Another run may have committed rows since, and a leader may have missed that commit (KAFKA-20734). Rows of this
    attempt would join them in one transaction there, and an abort would remove both.
    """
    _, markers = yield from at_once(
        check_generation(sink, facts.generation), read_markers(sink, [slot], barrier=f"begin {ids}")
    )
    # If there is no marker now, somebody deleted it after `plan` read it.
    marker: Marker | None = markers.get(slot, facts.markers.get(slot))
    return marker


def _is_first_since(decision: Decision | None, slot: int, ids: Ids) -> bool:
    """Return True if nobody can have committed rows of the slot after the decision that pins its ids."""
    pinned = None if decision is None else pinned_in(decision, slot)
    return decision is not None and pinned is not None and ids == next_after(pinned, decision)


def prepare(sink: Sink, begun: SlotBegun, marker: Marker) -> Steps[None]:
    """Put the marker into the transaction of the rows, after all rows are acknowledged.

    Raises AttemptFenced or TransactionRefused: then the attempt has failed.
    """
    transactional_id = sink.names.slot(begun.slot)
    # The group has the same name as the transactional id.
    yield from write_offset(sink, transactional_id, begun.ids, transactional_id, marker.micro_batch_id, marker.text)

"""Checks that these rows may follow the sink's last decision, as it is found, without any request.

The micro-batch ids of a stream have no gaps; versions may have gaps. A replay with the same rows may write decided
slots that are not visible. A replay with other rows is refused as soon as a part of the micro-batch is visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.commit.handover import Facts, Sink, SlotPrepared
from kafka_sink.errors import (
    CheckpointBehind,
    CommittedDataMissing,
    FingerprintsLost,
    MarkersLost,
    NonDeterministicReplay,
    StateExpired,
    TornBatch,
    WrittenOtherwise,
)


def check_decision(
    sink: Sink, facts: Facts, prepared: Sequence[SlotPrepared], *, micro_batch_id: int, allow_lost_state: bool
) -> None:
    """Check that these rows may follow the sink's last decision, as `plan` found it.

    Raises StateExpired, MarkersLost, FingerprintsLost, TornBatch, NonDeterministicReplay, CommittedDataMissing,
    WrittenOtherwise or CheckpointBehind.
    """
    query_id, decision = prepared[0].query_id, facts.decision
    check_may_follow(sink, facts, query_id=query_id, micro_batch_id=micro_batch_id, allow_lost_state=allow_lost_state)
    if decision is None or (decision.micro_batch_id, decision.query_id) != (micro_batch_id, query_id):
        return
    if facts.incomparable and not allow_lost_state:
        raise FingerprintsLost(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=facts.incomparable)
    # If no slot is visible, the replay replaces the micro-batch, with any rows and any number of slots.
    visible, missing = facts.visible, facts.missing
    again = {each.slot: each.fingerprint for each in prepared}
    changed = sorted(slot for slot, marker in visible.items() if slot not in again or not marker.may_be_of(again[slot]))
    if changed and missing:
        raise TornBatch(sink=sink.names.sink, micro_batch_id=micro_batch_id, visible=sorted(visible), missing=missing)
    if not missing:
        # All rows of the micro-batch are visible, so rows of an additional slot are new rows.
        changed += [each.slot for each in prepared if each.slot >= len(decision.pinned) and each.partitions]
    if changed:
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=changed)


def check_may_follow(sink: Sink, facts: Facts, *, query_id: str, micro_batch_id: int, allow_lost_state: bool) -> None:
    """Check that this micro-batch may follow the sink's last decision, without looking at its rows.

    Raises StateExpired, MarkersLost, CommittedDataMissing, WrittenOtherwise or CheckpointBehind.
    """
    sink_name, decision, versioned = sink.names.sink, facts.decision, sink.is_versioned
    if decision is None or decision.query_id != query_id:
        # A stream with a new checkpoint starts again under its old name. The query id of versions never changes, so a
        # decision with a different query id belongs to another writer.
        is_new = micro_batch_id == 0 and not (versioned and decision is not None)
        if not is_new and not allow_lost_state:
            raise StateExpired(
                sink=sink_name,
                micro_batch_id=micro_batch_id,
                query_id=query_id,
                decided_query_id=None if decision is None else decision.query_id,
                is_derived=sink.is_derived,
            )
        return
    if decision.micro_batch_id > micro_batch_id:
        raise CheckpointBehind(
            sink=sink_name, micro_batch_id=micro_batch_id, committed_micro_batch_id=decision.micro_batch_id
        )
    missing = facts.missing
    if facts.unproved and not allow_lost_state:
        raise MarkersLost(
            sink=sink_name,
            micro_batch_id=micro_batch_id,
            decided_micro_batch_id=decision.micro_batch_id,
            slots=facts.unproved,
        )
    if decision.micro_batch_id == micro_batch_id:
        return
    if missing and not allow_lost_state:
        raise CommittedDataMissing(
            sink=sink_name,
            micro_batch_id=decision.micro_batch_id,
            visible=sorted(facts.visible),
            missing=missing,
            next_micro_batch_id=micro_batch_id,
        )
    is_next = versioned or decision.micro_batch_id == micro_batch_id - 1
    if not is_next and not allow_lost_state:
        raise WrittenOtherwise(
            sink=sink_name, micro_batch_id=decision.micro_batch_id, next_micro_batch_id=micro_batch_id
        )


def check_replay(sink: Sink, prepared: Sequence[SlotPrepared], *, micro_batch_id: int) -> None:
    """Raise NonDeterministicReplay unless slots that were visible before have the same rows again.

    `check_decision` checks more, but needs the decision. This check also works if the decision is gone.
    """
    changed = [each.slot for each in prepared if each.visible and not each.visible.may_be_of(each.fingerprint)]
    if changed:
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=changed)

"""May these rows follow upon what the sink decided last? Decisions without any request.

A stream's micro-batches have ids without gaps; versions leave some out. The same rows may come again, and fill in what
was decided and is not visible; others may not, once a part is visible.
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


def check_replay(sink: Sink, prepared: Sequence[SlotPrepared], *, micro_batch_id: int) -> None:
    """Raises NonDeterministicReplay unless slots that were visible before have the same rows again.

    Of a micro-batch that was decided `check_decision` knows more; this is for one whose decision is gone.
    """
    changed = [each.slot for each in prepared if each.visible and not each.visible.may_be_of(each.fingerprint)]
    if changed:
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=changed)


def check_decision(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
    allow_lost_state: bool,
) -> None:
    """Whether these rows may follow upon the sink's last decision, as `plan` found it.

    Raises StateExpired, MarkersLost, FingerprintsLost, TornBatch, NonDeterministicReplay, CommittedDataMissing,
    WrittenOtherwise or CheckpointBehind.
    """
    query_id, decision = prepared[0].query_id, facts.decision
    check_lineage(sink, facts, query_id=query_id, micro_batch_id=micro_batch_id, allow_lost_state=allow_lost_state)
    if decision is None or (decision.micro_batch_id, decision.query_id) != (micro_batch_id, query_id):
        return
    if facts.incomparable and not allow_lost_state:
        raise FingerprintsLost(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=facts.incomparable)
    # Nothing visible: it never began, and the replay replaces it, with whatever rows and slots it has.
    visible, missing = facts.visible, facts.missing
    again = {each.slot: each.fingerprint for each in prepared}
    changed = sorted(slot for slot, marker in visible.items() if slot not in again or not marker.may_be_of(again[slot]))
    if changed and missing:
        raise TornBatch(
            sink=sink.names.sink,
            micro_batch_id=micro_batch_id,
            visible=sorted(visible),
            missing=missing,
        )
    if not missing:
        # All of its rows are visible, so that those of a further slot are others.
        changed += [each.slot for each in prepared if each.slot >= len(decision.pinned) and each.partitions]
    if changed:
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=changed)


def check_lineage(sink: Sink, facts: Facts, *, query_id: str, micro_batch_id: int, allow_lost_state: bool) -> None:
    """Whether this micro-batch may follow upon the sink's last decision, whatever its rows are.

    Raises StateExpired, MarkersLost, CommittedDataMissing, WrittenOtherwise or CheckpointBehind.
    """
    sink_name, decision, versioned = sink.names.sink, facts.decision, sink.is_versioned
    if decision is None or decision.query_id != query_id:
        # A stream with a new checkpoint begins anew under its old name; versions have one query for ever, so that a
        # decision of another is somebody else's.
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
            sink=sink_name,
            micro_batch_id=micro_batch_id,
            committed_micro_batch_id=decision.micro_batch_id,
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

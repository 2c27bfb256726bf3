"""Deletes the groups of a batch write that is visible whole, where nobody writes under its name again.

    decision stable, and this run's ─> its first group ─> its other groups, and the markers'

A decision without its markers would tell of rows that are missing, so the first part of the decision goes first. The
transactional ids stay until brokers expire them, and tell what became of the write.

Non-obvious: brokers also drop offsets of open transactions with a group. The read of the decision waits for the end of
its own, so that none comes back.

Source: KIP-229 (DeleteGroups); OffsetMetadataManager.deleteAllOffsets, GroupMetadata.removeAllOffsets in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.commit.effects import Steps, ToCoordinator
from kafka_sink.commit.exchanges import check_answer, read_decision
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import Ids
from kafka_sink.kafka.protocol.apis.delete_groups import (
    DeleteGroupsRequest,
)
from kafka_sink.kafka.protocol.apis.find_coordinator import (
    CoordinatorKind,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode


def forget(sink: Sink, generation: Ids) -> Steps[None]:
    """After the commit of `generation` has found all of its rows visible. Raises TransactionRefused, mostly for want of
    the ACL GROUP DELETE; groups are left then."""
    decision = yield from read_decision(sink)
    if decision is None or decision.generation != generation:
        return
    first, *others = (sink.names.decision(part) for part, _ in enumerate(decision.texts(sink.metadata_max_characters)))
    yield from _delete([first])
    yield from _delete([*others, *(sink.names.slot(slot) for slot, _ in enumerate(decision.pinned))])


def _delete(group_ids: Sequence[str]) -> Steps[None]:
    answers = yield [
        ToCoordinator(CoordinatorKind.GROUP, group_id, DeleteGroupsRequest((group_id,))) for group_id in group_ids
    ]
    for group_id, answer in zip(group_ids, answers, strict=True):
        (deleted,) = answer.groups
        # Not there any more: by a request before, whose answer was lost.
        if deleted.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check_answer(deleted.error_code, "DeleteGroups", group_id)

"""Deletes the consumer groups of a batch write that is visible whole and whose name is never used again.

    decision stable, and this run's ─> its first group ─> its other groups, and the markers'

A decision without its markers would look like missing rows. So the first group of the decision is deleted first. The
transactional ids stay until the brokers expire them, and still show the outcome of the write.

Non-obvious: brokers that delete a group also drop its offsets in open transactions. The read of the decision waits for
the end of its transaction, so that no offset comes back later.

Source: KIP-229 (DeleteGroups); OffsetMetadataManager.deleteAllOffsets, GroupMetadata.removeAllOffsets in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.commit.effects import Steps, ToCoordinator
from kafka_sink.commit.exchanges import check_answer, read_decision
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import Ids
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind, DeleteGroupsRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode


def forget(sink: Sink, generation: Ids) -> Steps[None]:
    """Delete the groups, after the commit of `generation` has found all rows visible.

    Raises TransactionRefused and leaves groups behind; the usual cause is a missing ACL GROUP DELETE.
    """
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
        # GROUP_ID_NOT_FOUND: an earlier request deleted the group, and its answer was lost.
        if deleted.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check_answer(deleted.error_code, "DeleteGroups", group_id)

"""Where a read begins that follows a consumer group: at its committed offsets, if the logs still go on there.

    committed offsets ─> without one: the strategy ─> does the log go on at it? (KIP-320) ─> failOnDataLoss

A committed offset may have the leader epoch of the record before it. It tells a log that was truncated, or whose topic
was deleted and created again, although it is longer than the offset by now. An answer that breaks a log counts only if
another one confirms it that was asked for ABSENT_PATIENCE_MS later: a broker may lag.

Source: org.apache.kafka.clients.consumer.internals.OffsetsRequestManager, SubscriptionState.maybeCompleteValidation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from kafka_sink.errors import CommittedOffsetGone, NoCommittedOffset
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.group_offsets import committed_offsets
from kafka_sink.kafka.admin.offsets import Logs, epoch_ends, list_offsets
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.apis.groups import CommittedOffset
from kafka_sink.kafka.protocol.apis.offsets import EARLIEST, LATEST, ListedOffset
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import AtGroup
from kafka_sink.spark.reading.continuity import Break, LogEnd, Losses, breaks, with_newer_leaders
from kafka_sink.spark.reading.positions import named
from kafka_sink.spark.reading.topics import unavailable

log = logging.getLogger("kafka_sink")

Committed = Mapping[TopicPartition, CommittedOffset]


def group_starts(
    client: AdminClient,
    start: AtGroup,
    partitions: Sequence[TopicPartition],
    ends: Mapping[int, Mapping[TopicPartition, ListedOffset]],
    losses: Losses,
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Return where each partition begins, and which of them begin at an offset that the group has committed.

    `ends`: where partitions begin (EARLIEST) and end (LATEST). Raises NoCommittedOffset, CommittedOffsetGone,
    GroupNotReadable, BrokerUnsupported, TopicToReadMissing, LeaderUnavailable, CoordinatorUnavailable.
    """
    if not partitions:
        return {}, set()
    committed = committed_offsets(client, start.group_id, partitions)
    if committed.has_members:
        log.warning(
            "startingGroup: consumer group %r has members. They go on from the same offsets, so this read has the "
            "records that they read from now on, too. To read nothing twice, stop them, and start the read again",
            start.group_id,
        )
    begins = {each: found.offset for each, found in committed.found.items()}
    missing = [each for each in partitions if each not in begins]
    if missing:
        begins |= _without(start, missing, len(partitions), ends)
    broken = _confirmed_breaks(client, committed.found)
    for each, found in broken.items():
        goes_on_at = max(found.goes_on_at or 0, ends[EARLIEST][each].offset)
        begins[each] = goes_on_at
        facts = {**each._asdict(), "offset": found.position, "cause": found.cause, "goes_on_at": goes_on_at}
        losses.take(CommittedOffsetGone(group_id=start.group_id, **facts))
    return begins, committed.found.keys() - broken.keys()


def _without(
    start: AtGroup,
    missing: Sequence[TopicPartition],
    count: int,
    ends: Mapping[int, Mapping[TopicPartition, ListedOffset]],
) -> dict[TopicPartition, int]:
    """Return where partitions begin of which the group has committed no offset. If it has committed none at all, its
    name may be wrong, whatever the strategy says."""
    if start.strategy is None or len(missing) == count:
        first = missing[0]._asdict()
        raise NoCommittedOffset(group_id=start.group_id, **first, missing_count=len(missing), partition_count=count)
    log.warning(
        "startingGroup: consumer group %r has committed no offset of %s. The read begins at the %s offset there "
        "(startingGroupStrategy)",
        start.group_id,
        named(missing),
        {EARLIEST: "earliest", LATEST: "latest"}[start.strategy],
    )
    return {each: ends[start.strategy][each].offset for each in missing}


def _confirmed_breaks(client: AdminClient, committed: Committed) -> Mapping[TopicPartition, Break]:
    """Return the partitions whose log does not go on at the committed offset. Raises TopicToReadMissing,
    LeaderUnavailable."""
    deadline_ms = client.caller.deadline_ms() + ABSENT_PATIENCE_MS
    doubted_since_ms = None
    while True:
        sent_ms = monotonic_ms()
        unanswered, broken = _breaks(client, committed)
        if not unanswered:
            if not broken or (doubted_since_ms is not None and sent_ms - doubted_since_ms >= ABSENT_PATIENCE_MS):
                return broken
            doubted_since_ms = monotonic_ms() if doubted_since_ms is None else doubted_since_ms
        if not client.caller.pause(1, deadline_ms):
            raise unavailable(client, min({*unanswered, *broken}), "no second answer says where its log goes on")
        for topic in {each.topic for each in committed}:
            client.caller.forget(topic)


def _breaks(
    client: AdminClient, committed: Committed
) -> tuple[Iterable[TopicPartition], Mapping[TopicPartition, Break]]:
    """Return the partitions whose leader did not answer, and those whose log breaks before the committed offset."""
    # The last stable offset may be before it: another consumer reads open transactions, too.
    ends = list_offsets(client, dict.fromkeys(committed, LATEST), IsolationLevel.READ_UNCOMMITTED)
    topics = client.topics(tuple(dict.fromkeys(each.topic for each in committed))) if committed else {}
    positions = {each: found.offset for each, found in committed.items()}
    known = {each: LogEnd(None, found.offset, found.leader_epoch) for each, found in committed.items()}
    now = {each: LogEnd(None, end.offset, end.leader_epoch) for each, end in ends.items()}
    asked = {each: known[each].leader_epoch for each in with_newer_leaders(positions, known, now)}
    found = epoch_ends(client, Logs(topics, ends), asked)
    # A log that does not know the epoch any more says nothing.
    parting = {
        each: None if answer is None or answer.end_offset < 0 else answer.end_offset for each, answer in found.items()
    }
    return asked.keys() - found.keys(), breaks(positions, known, now, parting)

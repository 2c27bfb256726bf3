"""Finds offsets of partitions by time, where partitions and leader epochs end, the batch at an offset, and what the
batches there weigh.

A stream asks for log ends before each micro-batch (`log_ends`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from kafka_sink.errors import FetchRefused, TopicAuthorizationFailed, TopicToReadMissing
from kafka_sink.kafka.admin.calls import Call, Partitions, by_leader, leaders_of, of_partitions
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.consumer.fetch_policy import Action, on_read_error
from kafka_sink.kafka.metadata import NO_LEADER
from kafka_sink.kafka.protocol.api import Response
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.apis.offsets import (
    LATEST,
    NO_OFFSET,
    AskedOffset,
    ListedOffset,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.record_batch import HEADER_BYTES, MAGIC, headers


def list_offsets_request(
    timestamps_ms: Mapping[TopicPartition, int], isolation_level: IsolationLevel, timeout_ms: int
) -> ListOffsetsRequest:
    asked = tuple(AskedOffset(*each, timestamp_ms) for each, timestamp_ms in timestamps_ms.items())
    return ListOffsetsRequest(asked, isolation_level, timeout_ms)


def list_offsets(
    client: AdminClient, timestamps_ms: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """Return for each partition the first offset that is not older than its time, or its end or start for LATEST and
    EARLIEST. Raises TopicToReadMissing, TopicAuthorizationFailed, FetchRefused, LeaderUnavailable, BrokersUnreachable.
    """
    found = offsets_there(client, timestamps_ms, isolation_level)
    for each in timestamps_ms.keys() - found.keys():
        raise TopicToReadMissing(topic=each.topic)
    return found


def offsets_there(
    client: AdminClient, timestamps_ms: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """As `list_offsets`, without the partitions that have gone meanwhile."""

    def request_of(partitions: Partitions) -> ListOffsetsRequest:
        of_leader = {each: timestamps_ms[each] for each in partitions}
        return list_offsets_request(of_leader, isolation_level, client.config.request_timeout_ms)

    found = client.ask_leaders(timestamps_ms, request_of, is_final, may_be_absent=True)
    raise_if_refused(found.values())
    return found


def raise_if_refused(found: Iterable[ListedOffset]) -> None:
    """Raise TopicAuthorizationFailed if an ACL is missing, FetchRefused for another error. Its offset would be -1."""
    for listed in found:
        code = listed.error_code
        match on_read_error(code):
            case Action.TAKE:
                continue
            case Action.DENIED:
                raise TopicAuthorizationFailed(topic=listed.topic, operation="READ")
        raise FetchRefused(
            topic=listed.topic, partition=listed.partition, offset=NO_OFFSET, code=code, name=error_name(code)
        )


def is_final(code: int) -> bool:
    """Return whether an answer with this error code is not asked for again."""
    return on_read_error(code) not in (Action.RETRY, Action.REFRESH_AND_RETRY)


# --- of a stream ------------------------------------------------------------------------------------------------------

Topics = Mapping[str, TopicMetadata]
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Logs:
    """`topics`: by name, also those with an error. `ends`: of the partitions that are there."""

    topics: Topics = field(default_factory=dict)
    ends: Mapping[TopicPartition, ListedOffset] = field(default_factory=dict)


def log_ends(
    client: AdminClient,
    names: tuple[str, ...] | None,
    partitions_of: Callable[[Topics], Iterable[TopicPartition]],
    isolation_level: IsolationLevel,
    earlier: Logs,
    expected: Collection[str] = (),
) -> Logs:
    """Return the topics of these names (None: all that the principal may describe), and where `partitions_of` them end.

    The leaders of the `earlier` answer are asked at once, beside the request for the metadata of the topics. Only
    partitions that are new, or whose leader has moved, take a second round trip.

    `earlier`: the last answer. `expected`: topics that are asked for by name if the list of all lacks them. A list
    leaves out a topic that the principal may not describe, an answer by name tells it from one that is gone.
    What goes while it is asked for has no end. Raises TopicAuthorizationFailed, FetchRefused, LeaderUnavailable,
    BrokersUnreachable.
    """
    caller = client.caller
    deadline_ms = caller.deadline_ms()
    led, _ = by_leader(partitions_of(earlier.topics), earlier.topics.values())
    timeout_ms = client.config.request_timeout_ms
    calls = [
        Call(leader, list_offsets_request(dict.fromkeys(of_leader, LATEST), isolation_level, timeout_ms))
        for leader, of_leader in led.items()
    ]
    answer = caller.metadata(names, deadline_ms, beside=calls)
    topics = {topic.name: topic for topic in answer.topics}
    if unlisted := tuple(sorted(set(expected) - topics.keys())):
        topics |= {topic.name: topic for topic in caller.metadata(unlisted, deadline_ms).topics}
    partitions = list(partitions_of(topics))
    ends = {
        TopicPartition(end.topic, end.partition): end
        for call in calls
        for end in of_partitions(call.response)
        if isinstance(end, ListedOffset) and is_final(end.error_code)
    }
    found = {each: ends[each] for each in partitions if each in ends and _is_same(each.topic, earlier.topics, topics)}
    raise_if_refused(found.values())
    rest = dict.fromkeys((each for each in partitions if each not in found), LATEST)
    return Logs(topics, found | offsets_there(client, rest, isolation_level))


def _is_same(name: str, earlier: Topics, now: Topics) -> bool:
    return earlier[name].topic_id == now[name].topic_id


def epoch_ends(
    client: AdminClient, logs: Logs, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetForLeaderEpochResponse | None]:
    """Return where a leader epoch ends in the log of the current leader, None if brokers lack the request: for the
    partitions whose leader answers. Raises BrokersUnreachable."""
    deadline_ms = client.caller.deadline_ms()
    if epochs and not client.caller.takes(OffsetForLeaderEpochRequest("", 0, -1, -1), deadline_ms):
        return dict.fromkeys(epochs)

    requests = {
        each: OffsetForLeaderEpochRequest(*each, logs.ends[each].leader_epoch, epoch) for each, epoch in epochs.items()
    }
    return {
        each: answer
        for each, answer in _ask_once(client, logs, requests, deadline_ms).items()
        if isinstance(answer, OffsetForLeaderEpochResponse) and answer.error_code == ErrorCode.NONE
    }


def _ask_once(
    client: AdminClient,
    logs: Logs,
    requests: Mapping[K, OffsetForLeaderEpochRequest] | Mapping[K, FetchRequest],
    deadline_ms: int,
) -> dict[K, Response | None]:
    """Send the requests about partitions that have a leader. Return the answers, None where the leader is down."""
    leaders = leaders_of(logs.topics.values())
    calls = {
        each: Call(leader, request)
        for each, request in requests.items()
        if (leader := leaders.get(TopicPartition(request.topic, request.partition), NO_LEADER)) >= 0
    }
    client.caller.run(tuple(calls.values()), deadline_ms)
    return {each: call.response for each, call in calls.items()}


# --- the batch at an offset -------------------------------------------------------------------------------------------

# crc, attributes, last offset delta, base timestamp, max timestamp, producer id, epoch, sequence, count
_FIELDS = struct.Struct(">IhiqqqhiI")
_FIELDS_AT = 17
_MAGIC_AT = 16
_DELETE_HORIZON_BIT = 0x40


class StoredBatch(NamedTuple):
    """The header of a batch in a log (DefaultRecordBatch)."""

    base_offset: int
    last_offset: int
    crc: int
    attributes: int
    max_timestamp: int
    producer: tuple[int, int, int]
    record_count: int

    def may_become(self, other: StoredBatch) -> bool:
        """Return whether `other` may be the same batch, later. Compaction removes records, and keeps offsets and
        producers. A replica compacts on its own, so a new leader may have more records."""
        if self.crc == other.crc and self.base_offset == other.base_offset:
            return True
        if (self.base_offset, self.last_offset, self.producer) != (
            other.base_offset, other.last_offset, other.producer,
        ):  # fmt: skip
            return False
        is_cleaned = other.record_count != self.record_count
        return is_cleaned or bool((self.attributes | other.attributes) & _DELETE_HORIZON_BIT)


def stored_batches(
    client: AdminClient, logs: Logs, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, StoredBatch]:
    """Return the first batch that ends at the offset or later, for those partitions whose leader answers at once: to
    see if it is the batch that was there before. Raises BrokersUnreachable."""

    # The first batch comes whole (KIP-74).
    requests = {each: _fetch(logs, each, offset, max_bytes=1) for each, offset in offsets.items()}
    answers = _ask_once(client, logs, requests, client.caller.deadline_ms())
    return {
        each: batch
        for each, answer in answers.items()
        if isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.NONE
        if (batch := _stored_batch(answer.records)) is not None
    }


def _fetch(logs: Logs, partition: TopicPartition, offset: int, max_bytes: int) -> FetchRequest:
    return FetchRequest(
        topic=partition.topic,
        topic_id=logs.topics[partition.topic].topic_id,
        partition=partition.partition,
        offset=offset,
        leader_epoch=logs.ends[partition].leader_epoch,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        max_bytes=max_bytes,
        min_bytes=1,
        max_wait_ms=0,
    )


def _stored_batch(records: memoryview) -> StoredBatch | None:
    if len(records) < HEADER_BYTES or records[_MAGIC_AT] != MAGIC:
        return None
    base_offset = int.from_bytes(records[:8], "big", signed=True)
    crc, attributes, delta, _, max_timestamp, *producer, count = _FIELDS.unpack_from(records, _FIELDS_AT)
    first, second, third = producer
    return StoredBatch(base_offset, base_offset + delta, crc, attributes, max_timestamp, (first, second, third), count)


# --- what batches weigh -----------------------------------------------------------------------------------------------

# A partition and an offset.
Place: TypeAlias = tuple[TopicPartition, int]

# Some batches of the usual batch.size. A batch of this size and every larger one is weighed alone.
SAMPLE_BYTES = 64 * 1024
# Answers in memory at once, of which each has one batch of any size.
_SAMPLES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """Whole batches of a log, as brokers have them: `size_bytes` for the offsets from `first` to before `end`, with
    those between them that no batch has. `batch_end`: after the first batch. `begins_in_gap`: whether they are this one
    batch, behind a part of a gap."""

    first: int
    end: int
    batch_end: int
    size_bytes: int
    begins_in_gap: bool = False


def samples(client: AdminClient, logs: Logs, places: Sequence[Place]) -> dict[Place, Sample]:
    """Return what is there at an offset and behind it: at least one batch, and up to SAMPLE_BYTES. For those offsets
    whose leader answers at once. Raises BrokersUnreachable."""
    found = {}
    for at in range(0, len(places), _SAMPLES_AT_ONCE):
        some = places[at : at + _SAMPLES_AT_ONCE]
        requests = {(each, offset): _fetch(logs, each, offset, SAMPLE_BYTES) for each, offset in some}
        for place, answer in _ask_once(client, logs, requests, client.caller.deadline_ms()).items():
            if isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.NONE:
                sample = sample_of(answer.records, place[1])
                if sample is not None:
                    found[place] = sample
    return found


def sample_of(records: memoryview, offset: int) -> Sample | None:
    """Return what the whole batches weigh, the first of which has `offset` or begins behind it. None: there is none."""
    base = batch_end = size_bytes = 0
    end = offset
    for header in headers(records):
        if size_bytes and not header.is_whole:
            # Of a batch that is cut off it is known where it begins.
            end = max(end, header.base_offset)
        if not header.is_whole or header.next_offset <= end or (size_bytes and header.base_offset < end):
            break
        if not size_bytes:
            base, batch_end = max(header.base_offset, 0), header.next_offset
        end = header.next_offset
        size_bytes += header.size
    if not size_bytes:
        return None
    begins_in_gap = end == batch_end and base > offset
    return Sample(offset if begins_in_gap else base, end, batch_end, size_bytes, begins_in_gap)

"""What readers ask of a log: Fetch, and where it begins and ends by ListOffsets and OffsetForLeaderEpoch;
DeleteRecords, which moves the beginning. First what one replica answers, as functions of it alone; then the requests.

Non-obvious: sizes decide, not batches. What fits is cut off inside of a batch, only the first one is always whole
(KIP-74), and which aborted transactions are told depends on the entries of the log's index: they may be more than the
records need. Between the last stable offset and a batch below it that compaction removed there is nothing to read: the
answer is empty.

A Fetch waits until it has `min_bytes` or its `max_wait` is over; an error, or the hint to read elsewhere, is answered
at once. The sessions of KIP-227 are never begun: a broker whose cache is full answers so, too. Not modelled: the
offsets of tiered storage (timestamps below -3), which are answered with UNSUPPORTED_VERSION.

Source: KafkaApis, ReplicaManager, Partition (readRecords, fetchOffsetForTimestamp, lastOffsetForLeaderEpoch),
UnifiedLog and LocalLog.read, LogSegment.read, OffsetIndex.fetchUpperBoundOffset, DelayedFetch, RackAwareReplicaSelector
in Kafka; KIP-74 (limits), KIP-79, KIP-98, KIP-107, KIP-207, KIP-320, KIP-392 (reads from followers), KIP-516 (topic
ids), KIP-595 (diverging epochs), KIP-734 (the largest timestamp), KIP-951 (the new leader in the answer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from model.broker import Broker, Connection, Handlers, Operation
from model.controller import NO_LEADER, TopicIdPartition
from model.internal_topics import INTERNAL_TOPICS
from model.partition import Partition
from model.partition_log import CompletedTransaction, EpochAndOffset, PartitionLog
from model.read_journal import Isolation
from model.record_batches import RecordBatch, Refused, decode_stored_records
from model.replica_manager import ReplicaManager
from model.settings import DELETE_RECORDS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, ClusterSettings
from model.wire import Request, by_topic

LATEST, EARLIEST, LARGEST_TIMESTAMP = -1, -2, -3
NO_EPOCH = NO_TIMESTAMP = -1


class Read(NamedTuple):
    """`current_leader_epoch`, `last_fetched_epoch`: NO_EPOCH for none. `is_of_leader`: no other replica may answer.
    `first_is_whole`: a batch is answered even if it is too large."""

    offset: int
    isolation: Isolation
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    is_of_leader: bool = False
    first_is_whole: bool = True


class Records(NamedTuple):
    """`aborted`: None where the answer has none to tell. `diverging`: where the reader's log leaves this one; then
    there are no records."""

    data: bytes
    aborted: tuple[CompletedTransaction, ...] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging: EpochAndOffset | None = None


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


NOT_FOUND = FoundOffset(NO_TIMESTAMP, -1, NO_EPOCH)


def read_records(replica: Partition, read: Read) -> Records:
    """Raises Refused."""
    _check_part(replica, read.current_leader_epoch, read.is_of_leader)
    log = replica.log
    offsets = (replica.high_watermark, replica.last_stable_offset, log.start_offset)
    if (diverging := _diverging(log, read)) is not None:
        return Records(b"", None, *offsets, diverging)
    if not log.start_offset <= read.offset <= log.end_offset:
        raise Refused(ErrorCode.offset_out_of_range, f"{read.offset} of {log.start_offset} to {log.end_offset}")
    data, aborted = _slice(log, read, replica.fetchable_offset(read.isolation))
    return Records(data, aborted if read.isolation is Isolation.READ_COMMITTED else None, *offsets)


def fetchable_bytes(replica: Partition, read: Read) -> int | None:
    """How much `read` would get, its first batch not rounded up; None: there is something else to tell."""
    try:
        _check_part(replica, read.current_leader_epoch, read.is_of_leader)
        if _diverging(replica.log, read) is not None:
            return None
    except Refused:
        return None
    stored = replica.log.stored(read.offset, replica.fetchable_offset(read.isolation))
    return min(read.max_bytes, sum(len(batch.data) for batch in stored))


def _check_part(replica: Partition, current_leader_epoch: int, is_of_leader: bool) -> None:
    if current_leader_epoch != NO_EPOCH and current_leader_epoch != replica.leader_epoch:
        is_fenced = current_leader_epoch < replica.leader_epoch
        code = ErrorCode.fenced_leader_epoch if is_fenced else ErrorCode.unknown_leader_epoch
        raise Refused(code, f"epoch {current_leader_epoch}, not {replica.leader_epoch}")
    if is_of_leader and not replica.is_leader:
        raise Refused(ErrorCode.not_leader_or_follower, f"{replica.state.leader} leads")


def _diverging(log: PartitionLog, read: Read) -> EpochAndOffset | None:
    if read.last_fetched_epoch == NO_EPOCH:
        return None
    shared = log.stored_end_offset_of(read.last_fetched_epoch)
    if shared is None or read.offset < log.start_offset:
        raise Refused(ErrorCode.offset_out_of_range, f"{read.offset} in epoch {read.last_fetched_epoch}")
    return shared if shared.epoch < read.last_fetched_epoch or shared.offset < read.offset else None


def _slice(log: PartitionLog, read: Read, end_offset: int) -> tuple[bytes, tuple[CompletedTransaction, ...] | None]:
    if read.offset >= end_offset:
        return b"", ()
    data, first = bytearray(), next(log.stored(read.offset), None)
    limit = read.max_bytes
    if first is not None and read.first_is_whole:
        limit = max(limit, len(first.data))
    for batch in log.stored(read.offset, end_offset):
        if len(data) >= limit:
            break
        data += log.harmed.get(batch.base_offset, batch.data)
    sliced = bytes(data[:limit])
    if first is not None and 0 < limit < len(first.data):
        # A reader could do nothing with a piece, so brokers answer none since Fetch 3.
        return b"", None
    return sliced, log.transactions.aborted(read.offset, _index_bound(log, first, len(sliced)))


def _index_bound(log: PartitionLog, first: RecordBatch | None, size_bytes: int) -> int:
    """The last offset of a batch behind what was read, or the log's end: of the first one that the index has."""
    if first is None:
        return log.end_offset
    indexed, start = _index(log, first)
    # The binary search takes the very first entry for smaller even if it is just behind.
    behind = [
        offset
        for number, (position, offset) in enumerate(indexed)
        if position > start + size_bytes or (position == start + size_bytes and number)
    ]
    return behind[0] if behind else log.end_offset


def _index(log: PartitionLog, first: RecordBatch) -> tuple[list[tuple[int, int]], int]:
    """Position and last offset of each batch that the index has, and the position of `first`: in the only segment."""
    indexed: list[tuple[int, int]] = []
    start = position = unindexed_bytes = 0
    for batch in log.stored():
        if batch.base_offset == first.base_offset:
            start = position
        if unindexed_bytes > log.index_interval_bytes:
            indexed.append((position, batch.next_offset - 1))
            unindexed_bytes = 0
        position += len(batch.data)
        unindexed_bytes += len(batch.data)
    return indexed, start


def offset_for_timestamp(
    replica: Partition, timestamp: int, isolation: Isolation, current_leader_epoch: int
) -> FoundOffset:
    """LATEST, EARLIEST, LARGEST_TIMESTAMP, or the first record of `timestamp` or later. Raises Refused."""
    _check_part(replica, current_leader_epoch, is_of_leader=True)
    end_offset = replica.fetchable_offset(isolation)
    # A new leader may not know yet how far its predecessor had committed (KIP-207).
    is_behind = replica.epoch_start_offset > replica.high_watermark
    if timestamp == EARLIEST:
        return _earliest(replica.log)
    if timestamp == LATEST:
        found: FoundOffset | None = FoundOffset(NO_TIMESTAMP, end_offset, replica.leader_epoch)
    else:
        largest = timestamp == LARGEST_TIMESTAMP
        found = _largest_timestamp(replica.log) if largest else _first_since(replica.log, timestamp)
        if found is not None and (found.offset < end_offset or found.offset == 0):
            return found
        found = None
    if is_behind:
        raise Refused(ErrorCode.offset_not_available, f"{replica.high_watermark} < {replica.epoch_start_offset}")
    return found or NOT_FOUND


def _earliest(log: PartitionLog) -> FoundOffset:
    first = next(iter(log.stored_epoch_starts), None)
    epoch = first.epoch if first is not None and first.offset <= log.start_offset else NO_EPOCH
    return FoundOffset(NO_TIMESTAMP, log.start_offset, epoch)


def _largest_timestamp(log: PartitionLog) -> FoundOffset | None:
    """The first record of the largest timestamp. Brokers do not ask whether the log starts behind it."""
    batch = max(log.stored(), key=lambda each: each.max_timestamp, default=None)
    return _first_record_since(batch, batch.max_timestamp, 0) if batch is not None else None


def _first_since(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    found = (
        _first_record_since(batch, timestamp, log.start_offset)
        for batch in log.stored(log.start_offset)
        if batch.max_timestamp >= timestamp
    )
    return next((each for each in found if each is not None), None)


def _first_record_since(batch: RecordBatch, timestamp: int, start_offset: int) -> FoundOffset | None:
    for record in decode_stored_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return FoundOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def end_offset_for_epoch(replica: Partition, epoch: int, current_leader_epoch: int) -> EpochAndOffset | None:
    """The largest epoch up to `epoch` and where it ends; None for one that is not known. Raises Refused."""
    _check_part(replica, current_leader_epoch, is_of_leader=True)
    return replica.log.stored_end_offset_of(epoch) if epoch != NO_EPOCH else None


MAX_BYTES = 55 * 1024 * 1024
# The first versions of Fetch with every codec, that followers answer, and whose errors name the new leader.
_HAS_ZSTD, _READS_FOLLOWERS, _NAMES_LEADERS = 10, 11, 16
# Those of ListOffsets with a name for a new leader's lag, and for the largest timestamp.
_SAYS_NOT_AVAILABLE, _HAS_LARGEST_TIMESTAMP = 5, 7
_OF_ANOTHER_LEADER = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
_PLACES = {ErrorCode.none: 0, ErrorCode.unknown_topic_id: 1}
_OF_SESSIONS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)  # fmt: skip
# In DeleteRecords, the high watermark.
HIGH_WATERMARK = -1
_NOTHING = Records(b"", None, -1, -1, -1)


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a request. `topic`: its name or its id, whichever the request used. `read`: with the
    partition's own limit."""

    topic: Any
    partition: int
    key: TopicIdPartition | None
    code: ErrorCode
    read: Read


@dataclass(frozen=True, slots=True)
class Fetched:
    code: ErrorCode
    records: Records | None = None
    preferred_read_replica: int = NO_LEADER

    @property
    def is_to_be_told(self) -> bool:
        """At once, without waiting for more bytes."""
        has_diverged = self.records is not None and self.records.diverging is not None
        return self.code is not ErrorCode.none or self.preferred_read_replica != NO_LEADER or has_diverged

    @property
    def withheld(self) -> Fetched:
        return self if self.records is None else replace(self, records=self.records._replace(data=b"", aborted=None))


@dataclass(frozen=True, slots=True, eq=False)
class ReadApis:
    _broker: Broker
    _replicas: ReplicaManager
    _settings: ClusterSettings

    @property
    def handlers(self) -> Handlers:
        return {
            FETCH: self._fetch, LIST_OFFSETS: self._list_offsets, DELETE_RECORDS: self._delete_records,
            OFFSET_FOR_LEADER_EPOCH: self._offsets_for_leader_epochs,
        }  # fmt: skip

    # --- Fetch --------------------------------------------------------------------------------------------------------

    def _fetch(self, connection: Connection, request: Request) -> None:
        refusal = self._broker.next_refusal(FETCH)
        message = request.message
        if getattr(message, "session_epoch", -1) > 0:
            refusal = ErrorCode.fetch_session_id_not_found
        if refusal in _OF_SESSIONS:
            self._broker.answer(connection, request, error_code=refusal, responses=())
            return
        asked = [self._asked(request, topic, data, refusal) for topic in message.topics for data in topic.partitions]
        # What is known not to be there comes last in the answer, unknown ids first.
        asked.sort(key=lambda each: _PLACES.get(each.code, len(_PLACES)))
        max_bytes = min(message.max_bytes, MAX_BYTES)
        rack = getattr(message, "rack_id", "")
        max_wait_ms = round(message.max_wait.total_seconds() * 1_000)

        is_withheld = self._broker.next_withheld()

        def answer() -> None:
            fetched = self._read(asked, max_bytes, rack)
            self._answer(connection, request, asked, [each.withheld for each in fetched] if is_withheld else fetched)

        fetched = self._read(asked, max_bytes, rack)
        readable = sum(len(each.records.data) for each in fetched if each.records is not None)
        min_bytes = min(message.min_bytes, max_bytes)
        keys = [each.key for each in asked if each.code is ErrorCode.none and each.key is not None]
        is_to_be_told = any(
            each.is_to_be_told for each, of in zip(fetched, asked, strict=True) if of.code is ErrorCode.none
        )
        if max_wait_ms <= 0 or not keys or readable >= min_bytes or is_to_be_told:
            answer()
        else:
            self._replicas.delayed_fetches.add(keys, max_wait_ms, lambda: self._is_ready(asked, min_bytes), answer)

    def _asked(self, request: Request, topic_data: Any, data: Any, refusal: ErrorCode) -> Asked:
        image = self._replicas.image
        by_id = hasattr(topic_data, "topic_id")
        reference = topic_data.topic_id if by_id else topic_data.topic
        topic = image.topic_of(reference) if by_id else image.topics.get(reference)
        code, key = refusal, None
        if topic is None:
            code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        elif not 0 <= data.partition < len(topic.partitions):
            code = ErrorCode.unknown_topic_or_partition
        else:
            key = TopicIdPartition(topic.topic_id, data.partition)
        name = topic.name if topic is not None else None if by_id else reference
        if (forbidden := self._broker.refusal_of(name, Operation.READ)) is not ErrorCode.none:
            code = forbidden
        if key is None and request.version < _HAS_ZSTD and self._replicas.generation.fetches_absent_as_zstd:
            code = ErrorCode.unsupported_compression_type
        read = Read(
            data.fetch_offset, Isolation(request.message.isolation_level), data.partition_max_bytes,
            getattr(data, "current_leader_epoch", NO_EPOCH), getattr(data, "last_fetched_epoch", NO_EPOCH),
            is_of_leader=request.version < _READS_FOLLOWERS,
        )  # fmt: skip
        return Asked(reference, data.partition, key, code, read)

    def _read(self, asked: Iterable[Asked], max_bytes: int, rack: str) -> list[Fetched]:
        """In order, each partition with what the ones before left of `max_bytes`. The first batch of all is whole."""
        fetched = []
        left, is_first = max_bytes, True
        for each in asked:
            limit = min(each.read.max_bytes, left)
            found = self._read_one(each, each.read._replace(max_bytes=limit, first_is_whole=is_first), rack)
            fetched.append(found)
            if found.records is not None and found.records.data:
                is_first = False
                left = max(0, left - len(found.records.data))
        return fetched

    def _read_one(self, asked: Asked, read: Read, rack: str) -> Fetched:
        if asked.code is not ErrorCode.none or asked.key is None:
            return Fetched(asked.code)
        try:
            replica = self._replicas.replica(asked.key)
            preferred = self._preferred_read_replica(replica, read.offset, rack)
            if preferred != NO_LEADER:
                offsets = replica.high_watermark, replica.last_stable_offset, replica.log.start_offset
                return Fetched(ErrorCode.none, Records(b"", None, *offsets), preferred)
            return Fetched(ErrorCode.none, read_records(replica, read))
        except Refused as refused:
            return Fetched(refused.code)

    def _preferred_read_replica(self, replica: Partition, offset: int, rack: str) -> int:
        """Another replica in the reader's rack that has the offset, the one with the longest log; NO_LEADER: none."""
        racks, image = self._settings.racks, self._replicas.image
        if not rack or not replica.is_leader or racks.get(replica.node_id) == rack:
            return NO_LEADER
        ends = {
            node_id: follower.end_offset
            for node_id, follower in replica.followers.items()
            if racks.get(node_id) == rack and node_id in replica.isr and node_id in image.alive
            and follower.log_start_offset <= offset <= follower.end_offset
        }  # fmt: skip
        return max(ends, key=lambda node_id: ends[node_id], default=NO_LEADER)

    def _is_ready(self, asked: Iterable[Asked], min_bytes: int) -> bool:
        readable = 0
        for each in asked:
            if each.key is None or each.code is not ErrorCode.none:
                continue
            replica = self._replicas.partitions.get(each.key)
            size = fetchable_bytes(replica, each.read) if replica is not None else None
            if size is None:
                return True
            readable += size
        return readable >= min_bytes

    def _answer(
        self, connection: Connection, request: Request, asked: Sequence[Asked], fetched: Sequence[Fetched]
    ) -> None:
        names_leaders = request.version >= _NAMES_LEADERS
        told = [
            (each.topic, self._told(each, found, names_leaders)) for each, found in zip(asked, fetched, strict=True)
        ]
        leaders = {data["current_leader"]["leader_id"] for _, data in told if "current_leader" in data}
        self._broker.answer(
            connection, request, error_code=ErrorCode.none,
            # Neighbours of one topic are put together, so a topic may come twice.
            responses=[
                {"topic": topic, "topic_id": topic, "partitions": [data for _, data in found]}
                for topic, found in groupby(told, itemgetter(0))
            ],
            node_endpoints=[self._broker.described(node) for node in sorted(leaders & {*self._replicas.image.alive})],
        )  # fmt: skip

    def _told(self, asked: Asked, found: Fetched, names_leaders: bool) -> dict[str, Any]:
        records, fields = found.records or _NOTHING, dict[str, Any]()
        if names_leaders and found.code in _OF_ANOTHER_LEADER and asked.key is not None:
            leader_id, leader_epoch = self._replicas.leader_of(asked.key)
            fields["current_leader"] = {"leader_id": leader_id, "leader_epoch": leader_epoch}
        if records.diverging is not None:
            epoch, offset = records.diverging
            fields["diverging_epoch"] = {"epoch": epoch, "end_offset": offset}
        aborted = None if records.aborted is None else [each._asdict() for each in records.aborted]
        if asked.code is not ErrorCode.none and self._replicas.generation.tells_absent_aborted:
            aborted = []
        return {
            "partition_index": asked.partition, "error_code": found.code, "high_watermark": records.high_watermark,
            "last_stable_offset": records.last_stable_offset, "log_start_offset": records.log_start_offset,
            "aborted_transactions": aborted, "preferred_read_replica": found.preferred_read_replica,
            "records": records.data, **fields,
        }  # fmt: skip

    # --- where a log begins and ends ----------------------------------------------------------------------------------

    def _described(self, topic: str, partition: int, refusal: ErrorCode = ErrorCode.none) -> Partition:
        """Raises Refused."""
        forbidden = self._broker.refusal_of(topic, Operation.DESCRIBE)
        for code in (forbidden, refusal):
            if code is not ErrorCode.none:
                raise Refused(code, "as asked for")
        return self._replicas.replica(self._key(topic, partition))

    def _key(self, topic: str, partition: int) -> TopicIdPartition:
        key = self._replicas.image.key_of(topic, partition)
        if key is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, f"{topic}-{partition}")
        return key

    def _list_offsets(self, connection: Connection, request: Request) -> None:
        refusal = self._broker.next_refusal(LIST_OFFSETS)
        topics = by_topic(
            (topic.name, self._listed(request, topic.name, asked, refusal))
            for topic in request.message.topics
            for asked in topic.partitions
        )
        self._broker.answer(connection, request, topics=topics)

    def _listed(self, request: Request, topic: str, asked: Any, refusal: ErrorCode) -> dict[str, Any]:
        code, found = ErrorCode.none, NOT_FOUND
        try:
            lowest = LARGEST_TIMESTAMP if request.version >= _HAS_LARGEST_TIMESTAMP else LARGEST_TIMESTAMP + 1
            if asked.timestamp < lowest:
                raise Refused(ErrorCode.unsupported_version, f"timestamp {asked.timestamp}")
            found = offset_for_timestamp(
                self._described(topic, asked.partition_index, refusal), asked.timestamp,
                Isolation(request.message.isolation_level), asked.current_leader_epoch,
            )  # fmt: skip
        except Refused as refused:
            code = refused.code
        if code is ErrorCode.offset_not_available and request.version < _SAYS_NOT_AVAILABLE:
            code = ErrorCode.leader_not_available
        if not self._replicas.generation.tells_offset_epochs:
            found = found._replace(leader_epoch=NO_EPOCH)
        return {"partition_index": asked.partition_index, "error_code": code, **found._asdict()}

    def _offsets_for_leader_epochs(self, connection: Connection, request: Request) -> None:
        topics = by_topic(
            ((topic.topic, self._end_of_epoch(topic.topic, asked))
             for topic in request.message.topics for asked in topic.partitions),
            topic="topic",
        )  # fmt: skip
        self._broker.answer(connection, request, topics=topics)

    def _end_of_epoch(self, topic: str, asked: Any) -> dict[str, Any]:
        code, found = ErrorCode.none, None
        try:
            replica = self._described(topic, asked.partition)
            found = end_offset_for_epoch(replica, asked.leader_epoch, asked.current_leader_epoch)
        except Refused as refused:
            code = refused.code
        epoch, offset = found or EpochAndOffset(NO_EPOCH, -1)
        return {"partition": asked.partition, "error_code": code, "leader_epoch": epoch, "end_offset": offset}

    def _delete_records(self, connection: Connection, request: Request) -> None:
        wanted = [(topic.name, asked) for topic in request.message.topics for asked in topic.partitions]
        outcomes: list[dict[str, Any]] = [{} for _ in wanted]
        timeout_ms = round(request.message.timeout.total_seconds() * 1_000)

        def settle(place: int, code: ErrorCode, low_watermark: int = -1) -> None:
            partition = wanted[place][1].partition_index
            outcomes[place] = {"partition_index": partition, "error_code": code, "low_watermark": low_watermark}
            if all(outcomes):
                told = zip((topic for topic, _ in wanted), outcomes, strict=True)
                self._broker.answer(connection, request, topics=by_topic(told))

        def deleted(place: int, key: TopicIdPartition, code: ErrorCode) -> None:
            settle(place, code, self._replicas.low_watermark(key) if code is ErrorCode.none else -1)

        for place, (topic, asked) in enumerate(wanted):
            try:
                if topic in INTERNAL_TOPICS:
                    raise Refused(ErrorCode.invalid_topic_exception, topic)
                key = self._key(topic, asked.partition_index)
                replica = self._replicas.replica(key)
                offset = replica.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
                self._replicas.delete_before(key, offset, timeout_ms, partial(deleted, place, key))
            except Refused as refused:
                settle(place, refused.code)

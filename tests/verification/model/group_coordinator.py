"""The group coordinator on one broker, for groups that nobody joins: it keeps their offsets, and does nothing else.

Its state comes from the log. Most readers see the log below the high watermark. Readers that require stable offsets see
the whole log, and their answer waits until that part is committed. So their answer is never older than an acknowledged
offset, whichever broker leads. An offset of a transaction is pending until its producer's marker, in the order of the
log: of two transactions the one whose offset was WRITTEN last wins, whichever is committed last.

Not modelled: members, generations, offsets that expire, OffsetDelete. Kafka 3.0 refuses a TxnOffsetCommit that names a
member and no generation (UNKNOWN_MEMBER_ID). Kafka 3.9 and the model take it.

Source: GroupCoordinatorService, OffsetMetadataManager, ClassicGroup.validateOffsetCommit in Kafka; KIP-447.
"""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from model.internal_topics import CONSUMER_OFFSETS, Shard, Shards
from model.producer_state import Verification
from model.record_batches import Key, RecordBatch, Refused, decode_marker, decode_state, encode_state
from model.replica_manager import ReplicaManager
from model.timeline import Timeline
from model.transaction_coordinator import COORDINATOR_CODES, TopicPartition, TransactionalWrite, TransactionCoordinator

_METADATA_MAX_BYTES = 4_096
_COMMIT_TIMEOUT_MS = 5_000


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """`record_offset`: where in the log of the internal topic."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    record_offset: int


@dataclass(slots=True)
class CommittedOffsets:
    """`next_offset`: of the log, up to which it has been read."""

    next_offset: int = 0
    _stable: dict[OffsetKey, CommittedOffset] = field(default_factory=dict)
    _pending: dict[int, dict[OffsetKey, CommittedOffset]] = field(default_factory=dict)
    _heard_of_ms: dict[str, int] = field(default_factory=dict)

    def read(self, batches: Iterable[RecordBatch]) -> None:
        for batch in batches:
            if batch.is_control:
                self._end(batch)
            else:
                self._commit(batch)
            self.next_offset = batch.next_offset

    def _commit(self, batch: RecordBatch) -> None:
        for record_offset, name, value in decode_state(batch):
            group, topic, partition = name
            key = OffsetKey(str(group), str(topic), int(partition))
            if value is None:
                for offsets in (self._stable, *self._pending.values()):
                    offsets.pop(key, None)
            else:
                offsets = self._pending.setdefault(batch.producer_id, {}) if batch.is_transactional else self._stable
                offset, leader_epoch, metadata, committed_ms = value
                self.hear_of(key.group, committed_ms)
                offsets[key] = CommittedOffset(offset, leader_epoch, metadata, committed_ms, record_offset)

    def _end(self, batch: RecordBatch) -> None:
        pending = self._pending.pop(batch.producer_id, {})
        if decode_marker(batch).is_commit:
            for key, committed in pending.items():
                known = self._stable.get(key)
                if known is None or committed.record_offset > known.record_offset:
                    self._stable[key] = committed

    def is_pending(self, key: OffsetKey) -> bool:
        return any(key in offsets for offsets in self._pending.values())

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self._stable.get(key)

    def of_group(self, group: str) -> list[TopicPartition]:
        return sorted((key.topic, key.partition) for key in self._stable if key.group == group)

    def hear_of(self, group: str, now_ms: int) -> None:
        """Somebody commits for it, whatever comes of that."""
        self._heard_of_ms[group] = max(now_ms, self._heard_of_ms.get(group, now_ms))

    def has_group(self, group: str, heard_of_since_ms: int) -> bool:
        """A group is there as long as anything is committed for it, or about to be, and if it was heard of since groups
        were last looked through."""
        return self._heard_of_ms.get(group, -1) >= heard_of_since_ms or any(key.group == group for key in self._keys())

    def groups_of_transactions(self) -> set[str]:
        return {key.group for offsets in self._pending.values() for key in offsets}

    def of_topics(self, topics: Iterable[str]) -> list[OffsetKey]:
        wanted = set(topics)
        return sorted({key for key in self._keys() if key.topic in wanted})

    def _keys(self) -> Iterator[OffsetKey]:
        for offsets in (self._stable, *self._pending.values()):
            yield from offsets


class OffsetToCommit(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(frozen=True, slots=True)
class Member:
    """Who a client says it is; by default nobody, as it must be here."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None


Codes = dict[TopicPartition, ErrorCode]
OnCodes = Callable[[Codes], None]
# Of each partition that was asked for: its code, and its offset if it has one.
Fetched = dict[TopicPartition, tuple[ErrorCode, CommittedOffset | None]]


class GroupCoordinator:
    def __init__(
        self, replicas: ReplicaManager, transactions: TransactionCoordinator, timeline: Timeline, rng: random.Random
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._timeline = timeline
        self._shards = Shards(CONSUMER_OFFSETS, replicas, timeline, rng, CommittedOffsets)
        self._topic_names: dict[uuid.UUID, str] = {}
        # When the old coordinator last looked for groups without offsets out of turn, as it does for a deleted topic.
        self._looked_through_ms = 0
        replicas.listeners.append(self._follow_image)

    def commit(
        self, group: str, member: Member, offsets: Mapping[TopicPartition, OffsetToCommit],
        knows_group_id_not_found: bool, on_done: OnCodes,
    ) -> None:  # fmt: skip
        unknown_group = ErrorCode.illegal_generation
        if self._replicas.generation.new_group_coordinator and knows_group_id_not_found:
            unknown_group = ErrorCode.group_id_not_found
        try:
            shard, _ = self._shards.get(group)
            self._check_member(shard, group, member, unknown_group)
        except Refused as refused:
            on_done(dict.fromkeys(offsets, refused.code))
            return
        codes, records = self._records(group, offsets)
        self._write(shard, codes, encode_state(records, self._timeline.now_ms) if records else b"", on_done)

    def commit_in_transaction(
        self, group: str, member: Member, offsets: Mapping[TopicPartition, OffsetToCommit], write: TransactionalWrite,
        on_done: OnCodes,
    ) -> None:  # fmt: skip
        """The transaction must have the group's partition; one of version 2 gets it now, whatever becomes of the
        offsets. The old coordinator makes the group first of all, so that it never is an unknown one."""
        try:
            if not group:
                raise Refused(ErrorCode.invalid_group_id, "an empty group")
            shard, known = self._shards.get(group)
            if not self._replicas.generation.new_group_coordinator:
                known.hear_of(group, self._timeline.now_ms)
            verification = self._begin_verification(shard, write)
        except Refused as refused:
            on_done(dict.fromkeys(offsets, COORDINATOR_CODES.get(refused.code, refused.code)))
            return

        def append() -> None:
            try:
                self._check_member(shard, group, member, ErrorCode.illegal_generation)
            except Refused as refused:
                on_done(dict.fromkeys(offsets, refused.code))
                return
            codes, records = self._records(group, offsets)
            data = encode_state(records, self._timeline.now_ms, write.producer_id, write.producer_epoch)
            self._write(shard, codes, data if records else b"", on_done, verification)

        def verified(answers: Mapping[TopicPartition, ErrorCode]) -> None:
            (code,) = answers.values()
            if code is not ErrorCode.none:
                on_done(dict.fromkeys(offsets, COORDINATOR_CODES.get(code, code)))
            elif not self._shards.is_current(shard):
                on_done(dict.fromkeys(offsets, ErrorCode.not_coordinator))
            else:
                append()

        if verification is None:
            append()
        else:
            self._transactions.add_or_verify(write, [(CONSUMER_OFFSETS, shard.key.partition)], verified)

    def _begin_verification(self, shard: Shard[CommittedOffsets], write: TransactionalWrite) -> Verification | None:
        """Return None if no coordinator must be asked. Raises Refused."""
        partition = self._replicas.replica(shard.key)
        if not self._replicas.generation.verifies_transactions:
            return None
        return partition.verify(write.producer_id, write.producer_epoch, -1, False)

    def _check_member(
        self, shard: Shard[CommittedOffsets], group: str, member: Member, unknown_group: ErrorCode
    ) -> None:
        """Raises Refused."""
        assert shard.state is not None
        # Without a generation anybody may commit for a group that has no members.
        if member.generation < 0:
            shard.state.hear_of(group, self._timeline.now_ms)
            return
        if self._all_of(shard).has_group(group, self._looked_through_ms):
            raise Refused(ErrorCode.unknown_member_id, f"{group} has no members")
        raise Refused(unknown_group, f"no group {group}")

    def _records(self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> tuple[Codes, dict[Key, object]]:
        codes: Codes = {}
        records: dict[Key, object] = {}
        for partition, (offset, leader_epoch, metadata) in offsets.items():
            metadata = metadata or ""
            # String.length: in units of UTF-16.
            if len(metadata.encode("utf-16-be", "surrogatepass")) // 2 > _METADATA_MAX_BYTES:
                codes[partition] = ErrorCode.offset_metadata_too_large
            else:
                codes[partition] = ErrorCode.none
                records[(group, *partition)] = (offset, leader_epoch, metadata, self._timeline.now_ms)
        return codes, records

    def _write(
        self, shard: Shard[CommittedOffsets], codes: Codes, data: bytes, on_done: OnCodes,
        verification: Verification | None = None,
    ) -> None:  # fmt: skip
        def written(code: ErrorCode) -> None:
            code = COORDINATOR_CODES.get(code, code)
            if code is ErrorCode.none:
                on_done(codes)
            else:
                on_done(dict.fromkeys(codes, code))

        if data:
            self._replicas.append_as_coordinator(shard.key, data, _COMMIT_TIMEOUT_MS, written, verification)
        else:
            on_done(codes)

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None, require_stable: bool,
        on_done: Callable[[ErrorCode, Fetched], None],
    ) -> None:  # fmt: skip
        """`partitions`: None for all that the group has."""
        try:
            shard, committed = self._shards.get(group)
            partition = self._replicas.replica(shard.key)
        except Refused as refused:
            on_done(COORDINATOR_CODES.get(refused.code, refused.code), {})
            return
        committed.read(partition.log.read(committed.next_offset, partition.high_watermark))
        if not require_stable:
            on_done(ErrorCode.none, self._fetched(committed, group, partitions, False))
            return
        fetched = self._fetched(self._all_of(shard), group, partitions, True)

        def read(code: ErrorCode) -> None:
            code = COORDINATOR_CODES.get(code, code)
            on_done(code, fetched if code is ErrorCode.none else {})

        self._replicas.when_committed(shard.key, partition.log.end_offset, _COMMIT_TIMEOUT_MS, read)

    def _fetched(
        self, offsets: CommittedOffsets, group: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> Fetched:
        fetched: Fetched = {}
        for partition in offsets.of_group(group) if partitions is None else partitions:
            key = OffsetKey(group, *partition)
            if require_stable and offsets.is_pending(key):
                fetched[partition] = ErrorCode.unstable_offset_commit, None
                continue
            committed = offsets.get(key)
            if committed is not None or partitions is not None:
                fetched[partition] = ErrorCode.none, committed
        return fetched

    def _all_of(self, shard: Shard[CommittedOffsets]) -> CommittedOffsets:
        """Include offsets that are not committed yet."""
        assert shard.state is not None
        offsets = copy.deepcopy(shard.state)
        offsets.read(self._replicas.partitions[shard.key].log.read(offsets.next_offset))
        return offsets

    def _follow_image(self) -> None:
        """A deleted topic takes its offsets with it, from every partition that is coordinated here by then."""
        self._shards.follow_image()
        names = {topic.topic_id: topic.name for topic in self._replicas.image.topics.values()}
        deleted = [name for topic_id, name in self._topic_names.items() if topic_id not in names]
        self._topic_names = names
        if not deleted:
            return
        looks_through = not self._replicas.generation.new_group_coordinator
        if looks_through:
            self._looked_through_ms = self._timeline.now_ms
        for shard, known in self._shards.known():
            offsets = self._all_of(shard)
            # An open transaction keeps its groups, even without what it commits (GroupMetadata.hasOffsets).
            for group in offsets.groups_of_transactions() if looks_through else ():
                known.hear_of(group, self._timeline.now_ms)
            tombstones: dict[Key, object] = {tuple(key): None for key in offsets.of_topics(deleted)}
            if tombstones:
                data = encode_state(tombstones, self._timeline.now_ms)
                self._replicas.append_as_coordinator(shard.key, data, _COMMIT_TIMEOUT_MS, lambda _: None)

"""One replica of a partition, on one broker: as leader it appends, counts its followers' offsets and moves the high
watermark; as follower it holds what it fetched.

Scope: state and rules, without a clock and without messages. The caller reports a smaller or larger ISR to the
controller (`lagging`, `catches_up`), completes waiting requests and lets followers fetch.

Source: Partition, Replica, AbstractFetcherThread.getOffsetTruncationState in Kafka; KIP-101, KIP-279, KIP-966.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from model.controller import NO_LEADER, PartitionState, TopicIdPartition
from model.partition_log import EpochAndOffset, PartitionLog
from model.producer_state import ProducerEntry, ProducerState, Verification
from model.read_journal import Isolation, ReadJournal
from model.record_batches import EndTransactionMarker, RecordBatch, Refused, check_batch, encode_marker, parse_batch
from model.settings import ClusterSettings, TopicSettings

UNKNOWN_OFFSET = -1
# Before any time there is, however long a replica may lag.
NEVER_MS = -(10**15)


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower. `long_polling`: its fetch waits at the leader for news, so it is caught up
    until there are any."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    leader_end_offset_at_last_fetch: int = UNKNOWN_OFFSET
    long_polling: bool = False

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms


class Appended(NamedTuple):
    """`next_offset` - 1 is the last offset. Of a duplicate: as the first time."""

    base_offset: int
    next_offset: int


class Fetched(NamedTuple):
    """A leader's answer to a follower: batches, or where the follower's log leaves the leader's."""

    batches: list[RecordBatch]
    high_watermark: int
    log_start_offset: int
    diverging: EpochAndOffset | None


class Partition:
    """A replica of no part yet, until `apply` gives it one."""

    def __init__(
        self, node_id: int, name: str, key: TopicIdPartition, topic: TopicSettings, settings: ClusterSettings,
        journal: ReadJournal,
    ) -> None:  # fmt: skip
        self.node_id = node_id
        self.name = name
        self.key = key
        self._topic = topic
        self.settings = settings
        self._journal = journal
        self.log = PartitionLog(topic.index_interval_bytes)
        self._producers = ProducerState()
        self._verifications: dict[int, Verification] = {}
        self.high_watermark = 0
        self._high_watermark_moved_ms = 0
        self._high_watermark_checkpoint = 0
        self.state = PartitionState(replicas=(), isr=(), leader=NO_LEADER, leader_epoch=-1, partition_epoch=-1)
        # Of a leader: where its log ended when it became leader.
        self.epoch_start_offset = 0
        self.followers: dict[int, Follower] = {}
        self._alive: tuple[int, ...] = ()

    # --- the part it plays --------------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr

    @property
    def is_leader(self) -> bool:
        return self.state.leader == self.node_id

    def apply(self, state: PartitionState, alive: tuple[int, ...], now_ms: int) -> None:
        """The controller's word, possibly one this leader has heard already (its own change of the ISR)."""
        self._alive = alive
        before = self.state
        if state.partition_epoch > before.partition_epoch:
            self.state = state
            if state.leader_epoch > before.leader_epoch:
                self.followers = {}
                if self.is_leader:
                    self._lead(now_ms)
        if self.is_leader:
            self.maybe_increment_high_watermark(now_ms)

    def _lead(self, now_ms: int) -> None:
        # Followers of an epoch that this log does not know must learn where it would have begun.
        self.epoch_start_offset = self.log.end_offset
        self.log.assign_epoch(self.leader_epoch, self.log.end_offset)
        self.followers = {
            node_id: Follower(caught_up_ms=now_ms if node_id in self.isr else NEVER_MS)
            for node_id in self.state.replicas
            if node_id != self.node_id
        }

    def restart(self, now_ms: int) -> None:
        """Restart after a crash: the log is left, and the high watermark as last written to disk."""
        interval_ms = self.settings.high_watermark_checkpoint_interval_ms
        if now_ms // interval_ms > self._high_watermark_moved_ms // interval_ms:
            self._high_watermark_checkpoint = self.high_watermark
        self.high_watermark = max(min(self._high_watermark_checkpoint, self.log.end_offset), self.log.start_offset)
        self.state = PartitionState(replicas=(), isr=(), leader=NO_LEADER, leader_epoch=-1, partition_epoch=-1)
        self.followers = {}
        self._verifications = {}
        self._producers.rebuild(self.log.batches)

    # --- as leader ----------------------------------------------------------------------------------------------------

    @property
    def _min_insync_replicas(self) -> int:
        wanted = self._topic.min_insync_replicas
        return min(wanted, len(self.state.replicas)) if self.settings.generation.strict_min_isr else wanted

    def append_as_leader(
        self, batch: RecordBatch, acks: int, now_ms: int, verification: Verification | None = None
    ) -> Appended:
        """A client's batch. `verification`: begun by `verify`, if it was to be. Raises Refused, and then has appended
        nothing."""
        self._check_leads(acks)
        check_batch(batch, self._topic.max_message_bytes)
        if 0 <= batch.producer_id < self.settings.taken_producer_ids:
            return Appended(0, 0)
        if batch.producer_id >= 0:
            duplicate = self._producers.find_duplicate(batch)
            if duplicate is not None:
                return Appended(duplicate.base_offset, duplicate.next_offset)
            self._check_verified(batch, verification)
            self._producers.check(
                batch, self._verifications.get(batch.producer_id),
                takes_unknown=self.settings.generation.takes_unknown_producers,
            )  # fmt: skip
        return self._place(batch, now_ms)

    def append_as_coordinator(self, records: bytes, now_ms: int, verification: Verification | None = None) -> Appended:
        """A batch of a coordinator that lives on this broker, with acks=all. Raises Refused."""
        self._check_leads(-1)
        batch = parse_batch(records)
        if batch.producer_id >= 0:
            self._check_verified(batch, verification)
            self._producers.check_epoch(batch.producer_id, batch.producer_epoch)
        return self._place(batch, now_ms)

    def append_marker(self, marker: EndTransactionMarker, now_ms: int) -> Appended:
        self._check_leads(-1)
        self._producers.check_marker(marker)
        return self._place(parse_batch(encode_marker(marker, now_ms)), now_ms)

    def _check_leads(self, acks: int) -> None:
        if not self.is_leader:
            raise Refused(ErrorCode.not_leader_or_follower, f"{self.state.leader} leads")
        if acks == -1 and len(self.isr) < self._min_insync_replicas:
            raise Refused(ErrorCode.not_enough_replicas, f"ISR {self.isr}")

    def _place(self, batch: RecordBatch, now_ms: int) -> Appended:
        for follower in self.followers.values():
            if follower.long_polling:
                follower.caught_up_ms = follower.last_fetch_ms = now_ms
        placed = batch.placed(self.log.end_offset, self.leader_epoch)
        self._append(placed)
        return Appended(placed.base_offset, placed.next_offset)

    def _append(self, batch: RecordBatch) -> None:
        self.log.append(batch)
        if batch.producer_id >= 0:
            self._producers.update(batch)
        if batch.is_transactional:
            begun = self._verifications.get(batch.producer_id)
            # Version 2 ends a transaction with a later epoch than its own: such a marker is of another one.
            is_of_another = begun is not None and begun.starts_at_0 and begun.producer_epoch == batch.producer_epoch
            if not (batch.is_control and is_of_another):
                self._verifications.pop(batch.producer_id, None)

    def delete_before(self, offset: int) -> None:
        """Delete the records before `offset`, as retention and DeleteRecords do. Raises Refused."""
        self._check_leads(0)
        if not 0 <= offset <= self.high_watermark:
            raise Refused(ErrorCode.offset_out_of_range, f"{offset} of {self.high_watermark}")
        self.log.delete_before(offset)

    # --- producers ----------------------------------------------------------------------------------------------------

    def verify(
        self, producer_id: int, producer_epoch: int, base_sequence: int, starts_at_0: bool
    ) -> Verification | None:
        """Begin a verification, which keeps the coordinator's answer until the batch is appended. None: the transaction
        is known to be open here, so no coordinator is asked. Raises Refused for an epoch that is known to be over:
        since Kafka 4.0 the leader does not ask the coordinator in this case."""
        if self._knows_epochs:
            self._producers.check_epoch(producer_id, producer_epoch)
        if self._has_open_transaction(producer_id, producer_epoch):
            return None
        begun = self._verifications.setdefault(producer_id, Verification(producer_epoch, base_sequence, starts_at_0))
        if producer_epoch > begun.producer_epoch:
            begun.producer_epoch, begun.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == begun.producer_epoch:
            begun.lowest_sequence = min(begun.lowest_sequence, base_sequence)
        return begun

    def _check_verified(self, batch: RecordBatch, verification: Verification | None) -> None:
        if not batch.is_transactional or not self.settings.generation.verifies_transactions:
            return
        if self._has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        if verification is None or self._verifications.get(batch.producer_id) is not verification:
            raise Refused(ErrorCode.invalid_txn_state, "not part of an open transaction")

    @property
    def _knows_epochs(self) -> bool:
        """Before Kafka 4.0 a transaction of any epoch of the producer counted as open."""
        return self.settings.generation.transaction_version is not None

    def _has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        epoch = producer_epoch if self._knows_epochs else None
        return self._producers.has_open_transaction(producer_id, epoch)

    def active_producers(self) -> dict[int, ProducerEntry]:
        return self._producers.active()

    def check_enough_replicas(self, required_offset: int) -> ErrorCode | None:
        """What a request with acks=all gets for its batch that ends before `required_offset`; None: it must wait."""
        if not self.is_leader:
            return ErrorCode.not_leader_or_follower
        if self.high_watermark < required_offset:
            return None
        if len(self.isr) < self._min_insync_replicas:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    def fetched_by(
        self, node_id: int, offset: int, last_epoch: int | None, log_start_offset: int, now_ms: int
    ) -> Fetched:
        """A follower asks for what follows `offset`, its log's end, which lies in `last_epoch`."""
        follower = self.followers[node_id]
        follower.log_start_offset = log_start_offset
        end_offset = self.log.end_offset
        if last_epoch is not None:
            shared = self._end_offset_shared_with(last_epoch)
            if shared.epoch < last_epoch or shared.offset < offset:
                return Fetched([], self.high_watermark, self.log.start_offset, shared)
        # The answer has the high watermark as it was before this fetch moves it.
        answer = Fetched(self.log.read(offset), self.high_watermark, self.log.start_offset, None)
        if offset >= end_offset:
            follower.caught_up_ms = now_ms
        elif offset >= follower.leader_end_offset_at_last_fetch:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.last_fetch_ms)
        follower.end_offset = offset
        follower.last_fetch_ms = now_ms
        follower.leader_end_offset_at_last_fetch = max(end_offset, follower.leader_end_offset_at_last_fetch)
        return answer

    def _end_offset_shared_with(self, last_epoch: int) -> EpochAndOffset:
        shared = self.log.end_offset_of(last_epoch)
        # A leader has an entry for its own epoch, and nobody follows it from a later one.
        assert shared is not None
        return shared

    def follower_stops(self, node_id: int, now_ms: int) -> None:
        """End a waiting fetch of the follower. From now on the follower may fall behind."""
        follower = self.followers.get(node_id)
        if follower is not None and follower.long_polling:
            follower.caught_up_ms = follower.last_fetch_ms = now_ms
            follower.long_polling = False

    def catches_up(self, node_id: int) -> bool:
        end_offset = self.followers[node_id].end_offset
        return (
            node_id not in self.isr
            and node_id in self._alive
            and end_offset >= max(self.high_watermark, self.epoch_start_offset)
        )

    def lagging(self, now_ms: int) -> list[int]:
        lag_max_ms = self.settings.replica_lag_time_max_ms
        return [
            node_id
            for node_id, follower in self.followers.items()
            if node_id in self.isr and not follower.is_caught_up(self.log.end_offset, now_ms, lag_max_ms)
        ]

    def lag_deadline_ms(self) -> int | None:
        """When the next follower is to leave the ISR unless it fetches; None if none is behind."""
        end_offset, isr = self.log.end_offset, self.state.isr
        behind = [
            follower.caught_up_ms
            for node_id, follower in self.followers.items()
            if follower.end_offset != end_offset and node_id in isr
        ]
        return min(behind) + self.settings.replica_lag_time_max_ms + 1 if behind else None

    def maybe_increment_high_watermark(self, now_ms: int) -> bool:
        """To the smallest end offset of the ISR and of those about to join it."""
        if self.settings.generation.strict_min_isr and len(self.isr) < self._min_insync_replicas:
            return False
        isr, end_offset = self.state.isr, self.log.end_offset
        committed = end_offset
        for node_id, follower in self.followers.items():
            if follower.end_offset < committed and (node_id in isr or self._is_about_to_join(node_id, now_ms)):
                committed = follower.end_offset
        return self._move_high_watermark(committed, now_ms)

    def _is_about_to_join(self, node_id: int, now_ms: int) -> bool:
        lag_max_ms = self.settings.replica_lag_time_max_ms
        follower = self.followers[node_id]
        return node_id in self._alive and follower.is_caught_up(self.log.end_offset, now_ms, lag_max_ms)

    # --- as follower --------------------------------------------------------------------------------------------------

    def take(self, fetched: Fetched, now_ms: int) -> None:
        """A leader's answer. After `diverging` the follower has to ask again."""
        if fetched.diverging is not None:
            self.truncate(self._end_offset_before(fetched.diverging))
            return
        for batch in fetched.batches:
            self._append(batch)
        self._move_high_watermark(min(fetched.high_watermark, self.log.end_offset), now_ms)
        self.log.delete_before(min(fetched.log_start_offset, self.high_watermark))

    def _end_offset_before(self, diverging: EpochAndOffset) -> int:
        ours = self.log.end_offset_of(diverging.epoch)
        # The leader answers with an epoch up to the last one here.
        assert ours is not None
        return min(ours.offset, diverging.offset) if ours.epoch == diverging.epoch else ours.offset

    def truncate(self, offset: int) -> None:
        if self.log.truncate_to(offset):
            self._producers.rebuild(self.log.batches)
        if self.high_watermark > self.log.end_offset:
            self.high_watermark = self.log.end_offset

    # --- the high watermark -------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """No transaction is undecided before it."""
        first_unstable = self.log.transactions.first_unstable_offset(self.high_watermark)
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        offset = max(first_unstable, self.log.start_offset)
        if not self.settings.generation.stable_offset_is_of_batch:
            return offset
        return next((batch.base_offset for batch in self.log.stored(offset)), offset)

    def _move_high_watermark(self, offset: int, now_ms: int) -> bool:
        if offset <= self.high_watermark:
            return False
        interval_ms = self.settings.high_watermark_checkpoint_interval_ms
        if now_ms // interval_ms > self._high_watermark_moved_ms // interval_ms:
            self._high_watermark_checkpoint = self.high_watermark
        before, stable_before = self.high_watermark, self.last_stable_offset
        self.high_watermark = offset
        self._high_watermark_moved_ms = now_ms
        self._journal.note(self.key, Isolation.READ_UNCOMMITTED, self.readable(Isolation.READ_UNCOMMITTED, before))
        self._journal.note(self.key, Isolation.READ_COMMITTED, self.readable(Isolation.READ_COMMITTED, stable_before))
        return True

    # --- as readers see it --------------------------------------------------------------------------------------------

    def fetchable_offset(self, isolation: Isolation) -> int:
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def readable(self, isolation: Isolation, offset: int = 0) -> list[RecordBatch]:
        """The batches with rows that end beyond `offset`, as they were appended, whatever was deleted since."""
        end_offset = self.fetchable_offset(isolation)
        batches = [batch for batch in self.log.appended(offset, end_offset) if not batch.is_control]
        if isolation is Isolation.READ_UNCOMMITTED:
            return batches
        return [batch for batch in batches if not self.log.transactions.is_aborted(batch)]

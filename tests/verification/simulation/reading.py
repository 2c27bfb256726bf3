"""The reads of a seed: the shipped fetcher and decoder over the model cluster and a faulty network, before an oracle.

    Traffic ──> Cluster (model) <── Network ──> NetworkClient ──> Fetcher ──> RecordSetDecoder ──> what was delivered
    ReadFaults ──┘                                                                                       │
    readable_records: what must be delivered, and what became of the rest <──────────────────────────────┘

A reader reads one range after another, as micro-batches would: each begins where the last one ended, and ends where the
log ended when it was planned. When the faults are over it reads what is left. Then each record that was kept must have
been delivered once, in order, or be among the losses that the fetcher told; and nothing else may have been delivered.
"""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from kafka_sink.errors import OffsetsLost, ReadStalled, RecordsCorrupt, TopicAuthorizationFailed
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings
from kafka_sink.kafka.metadata import MAX_IDLE_MS, Metadata
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.records.batch_table import Undecodable
from model.partition import Partition
from model.read_journal import Fate
from model.timeline import Timer
from simulation import read_world as world
from simulation.network import SimulatedTransport
from simulation.producer import SOFTWARE_VERSION
from simulation.read_world import ReadResult, ReadWorld, Row, Trace

# The last range is planned after HEALED_MS; a reader that is not done by then hangs.
GIVE_UP_MS = world.HEALED_MS + 200_000
# Of a batch header: base offset, length, leader epoch, format, and the CRC itself.
UNCHECKED_BYTES = 21
# Faults that leave gaps, or make another batch the first or the last.
_TAKING = (
    "retention", "delete_records", "compaction", "unclean_election", "truncation", "topic_again", "crash", "restart",
    "lag",
)  # fmt: skip
# Turns before the clock moves.
MAX_IDLE_TURNS = 100


class ReadingWorld(ReadWorld):
    # Of the seeds: those in which bits of batch headers are flipped on a broker's disk, and nothing else takes records.
    share_of_harm = 0.1

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        # Of its own: a seed without this fault is as it would be without this kind.
        self._harm_rng = random.Random(f"{seed}/reading/damage")
        self._is_harmed = self._harm_rng.random() < self.share_of_harm
        self._has_harm = False
        super().__init__(seed, "read", trace)
        rng = self._rng
        self._topic_id = self._cluster.topic_id(world.TOPIC)
        # Of the reader, after each record set: a truncation hits what a slow one has not read yet.
        self._pauses_ms = rng.choice([(0, 0, 5, 300), (0, 300, 1_000, 3_000)])
        self._transport = SimulatedTransport(self._network, "reader", lambda: self._plan_turn(0))
        given = {"kafka.bootstrap.servers": self._servers, "subscribe": world.TOPIC}
        config = read_config(given_options(given, table=READING)).consumer
        self._client = NetworkClient(
            self._transport, clock_ms=self._scheduler.clock_ms, rng=rng,
            settings=replace(
                network_settings(config), client_software_version=SOFTWARE_VERSION, request_timeout_ms=2_000
            ),
            resolve=self._network.resolve,
        )  # fmt: skip
        self._metadata_max_age_ms = rng.choice([1_000, 300_000])
        self._isolation_level = rng.choice(list(IsolationLevel))
        config = replace(
            config, isolation_level=self._isolation_level, fetch_max_bytes=rng.choice([1, 300, 2_000, 10**6]),
            max_partition_fetch_bytes=10**6, fetch_min_bytes=1, fetch_max_wait_ms=rng.choice([0, 50, 500]),
            client_rack=rng.choice(["", "a", "b"]), request_timeout_ms=2_000,
            metadata_max_age_ms=rng.choice([500, 300_000]), retry_backoff_ms=100, retry_backoff_max_ms=1_000,
        )  # fmt: skip
        self._settings = FetchSettings(
            config=config, fail_on_data_loss=rng.random() < 0.3, reads_replacements=True, poll_timeout_ms=120_000
        )  # fmt: skip
        # Without ids a topic of the same name cannot be told from this one.
        self._knows_ids = bool(self._faults.weights["topic_again"]) or rng.random() < 0.7
        self.first = self._next = rng.choice([0, 0, 3, 7])
        self.delivered: list[Row] = []
        self.losses: list[Loss] = []
        # What the log had when a range was planned, and rows of it that were neither delivered nor told to be lost.
        self._promised: set[Row] = set()
        self._untold: list[Row] = []
        # Offsets that have had a record without a row: a marker, or a row of an aborted transaction.
        self._without_row: set[int] = set()
        self.topic_gone = False
        # The leader epoch of each batch of the log, as it was when the last range was planned.
        self._epochs: dict[int, int] = {}
        self._range: FetchRange | None = None
        self._fetcher: Fetcher | None = None
        self._rows: list[Row] = []
        self._busy_until_ms = 0
        self._timer: Timer | None = None
        self._turned_at = (-1, 0)
        self._is_last = False

    def _weights(self) -> dict[str, int]:
        weights = super()._weights()
        return {**weights, **dict.fromkeys(_TAKING, 0)} if self._is_harmed else weights

    def _harm(self) -> None:
        if self._scheduler.now_ms >= world.FAULTS_END_MS:
            return
        self._cluster.advance(self._scheduler.now_ms)
        leader = self._cluster.leader(world.TOPIC, world.PARTITION)
        bit = self._harm_rng.randrange(8 * UNCHECKED_BYTES)
        offset = None if leader is None else self._cluster.harm(world.TOPIC, world.PARTITION, leader, bit)
        if offset is not None:
            self._has_harm = True
            self.counts["read: fault harm"] += 1
            self._say(f"FAULT bit {bit} of the batch at {offset} on {leader}")
        self._scheduler.after(self._harm_rng.choice([300, 1_000, 3_000]), self._harm)

    def _end_by_harm(self, error: Exception) -> None:
        """The damage is told. The task's rows are lost with it, and it runs again once a whole copy leads."""
        self._say(f"the damage is told: {error}")
        self.counts["read: told harm"] += 1
        self._fetcher, self._is_last, self._has_harm = None, False, False
        self._cluster.repair(world.TOPIC, world.PARTITION)

    def run(self) -> None:
        self._begin()
        if self._is_harmed:
            self._scheduler.after(1_000, self._harm)
        self._plan_turn(0)
        while not self._is_over:
            assert self._scheduler.now_ms < GIVE_UP_MS, f"the reader hangs at {self._range}, position {self._next}"
            self._step()

    @property
    def _is_over(self) -> bool:
        return self._is_last and self._fetcher is None

    def _plan_turn(self, wait_ms: int) -> None:
        at_ms = max(self._scheduler.now_ms + wait_ms, self._busy_until_ms)
        if self._timer is not None and not self._timer.cancelled and self._timer.at_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.at(at_ms, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now_ms = self._scheduler.now_ms
        self._turned_at = (now_ms, self._turned_at[1] + 1) if self._turned_at[0] == now_ms else (now_ms, 0)
        assert self._turned_at[1] < MAX_IDLE_TURNS, "the fetcher turns without waiting"
        if self._fetcher is None and not self._begin_range():
            self._plan_turn(200)
            return
        fetcher = self._fetcher
        assert fetcher is not None
        record_set = fetcher.take(now_ms)
        if record_set is not None:
            self._take(record_set)
            if self._fetcher is None:
                self._plan_turn(100)
                return
            # The caller takes its time.
            if now_ms < world.FAULTS_END_MS:
                self._busy_until_ms = now_ms + self._rng.choice(self._pauses_ms)
        if fetcher.is_done:
            self._end_range(fetcher)
            self._plan_turn(self._rng.choice([0, 100, 1_000]))
            return
        wait_ms = fetcher.run_once(now_ms)
        answers = self._client.poll(wait_ms)
        assert self._client.failure is None, self._client.failure
        fetcher.handle(answers, now_ms)
        has_more = bool(answers) or fetcher.is_done or self._transport.told_something
        self._plan_turn(0 if has_more else min(wait_ms, self._transport.asked_wait_ms))

    def _begin_range(self) -> bool:
        """Plan as a driver does, from the leader's answer to ListOffsets."""
        leader = self._cluster.leader(world.TOPIC, world.PARTITION)
        if leader is None or not self._cluster.is_alive(leader) or self._is_last:
            return False
        is_same = self._cluster.topic_id(world.TOPIC) == self._topic_id
        if self._scheduler.now_ms < world.HEALED_MS and (not is_same or self._rng.random() < 0.2):
            return False
        end = self._end_of_log(leader)
        if self._scheduler.now_ms >= world.HEALED_MS:
            self._is_last = True
            self.topic_gone = not is_same
        if not is_same:
            return False
        self._look_back(leader)
        if end <= self._next:
            return False
        record_epoch = self._epochs[max(offset for offset in self._epochs if offset < end)]
        leader_epoch = self._cluster.state(world.TOPIC, world.PARTITION).leader_epoch
        self._range = FetchRange(
            world.TOPIC, self._topic_id if self._knows_ids else None, world.PARTITION, self._next, end,
            leader_epoch, record_epoch=record_epoch,
            record_start=min(offset for offset, epoch in self._epochs.items() if epoch == record_epoch),
        )  # fmt: skip
        self._say(f"reads {self._range}")
        self.counts["read: ranges"] += 1
        self._rows = []
        self._without_row |= world.offsets_without_row(self._replica(leader), self._isolation)
        self._promised = {
            world.key_of(each)
            for each in self._cluster.readable_records(world.TOPIC, world.PARTITION, self._isolation, self._next, end)
            if each.fate is Fate.KEPT
        }
        # New for each range, as in `kafka_sink.kafka.reader`.
        metadata = Metadata(
            max_age_ms=self._metadata_max_age_ms, max_idle_ms=MAX_IDLE_MS, backoff_initial_ms=100,
            backoff_max_ms=1_000, rng=self._rng, creates_topics=False,
        )  # fmt: skip
        self._fetcher = Fetcher(
            self._range, settings=self._settings, network=self._client, metadata=metadata, rng=self._rng,
            now_ms=self._scheduler.now_ms,
        )  # fmt: skip
        return True

    def _replica(self, leader: int) -> Partition:
        replica = self._cluster.replica(world.TOPIC, world.PARTITION, leader)
        assert replica is not None
        return replica

    def _look_back(self, leader: int) -> None:
        """Note a truncation between two ranges. No fetcher sees it: who plans the ranges must."""
        epochs = {batch.base_offset: batch.leader_epoch for batch in self._replica(leader).log.batches}
        parted = [
            offset for offset, epoch in self._epochs.items() if offset < self._next and epochs.get(offset) != epoch
        ]
        if parted and self._next > self.first:
            self.losses.append(Loss(min(parted), self._next, LossCause.TRUNCATED))
            self.counts["read: truncations between ranges"] += 1
        self._epochs = epochs

    def _end_of_log(self, leader: int) -> int:
        replica = self._replica(leader)
        first = replica.log.transactions.first_unstable_offset(replica.high_watermark)
        if first is None or self._isolation_level is IsolationLevel.READ_UNCOMMITTED:
            return replica.high_watermark
        return min(first, replica.high_watermark)

    def _take(self, record_set: RecordSet) -> None:
        assert self._range is not None
        try:
            self._rows += world.rows_of(record_set)
        except Undecodable as error:
            if not self._has_harm:
                raise
            self._end_by_harm(error)
        self.counts["read: record sets"] += 1

    def _end_range(self, fetcher: Fetcher) -> None:
        assert self._range is not None
        failure, range_ = fetcher.failure, self._range
        self._say(f"has read {range_.first} to {range_.end}: {failure or fetcher.losses or 'all'}")
        self.counts[f"read: {'ok' if failure is None else type(failure).__name__}"] += 1
        self._fetcher = None
        if failure is None:
            self._next = range_.end
            self.delivered += self._rows
            self.losses += fetcher.losses
            self._untold += [
                row
                for row in self._promised.difference(self._rows)
                if not any(loss.first <= row[0] < loss.end for loss in fetcher.losses)
            ]
        elif isinstance(failure, OffsetsLost):
            # The task's rows are lost with it. Its user begins again, behind the loss.
            self._is_last = False
            self.losses.append(Loss(range_.first, failure.end, failure.cause))  # type: ignore[arg-type]
            self._next = failure.end
        elif isinstance(failure, RecordsCorrupt | ReadStalled) and self._has_harm:
            self._end_by_harm(failure)
        elif isinstance(failure, TopicAuthorizationFailed) and self._loses_acls:
            # Nobody has seen the rows of the task, which runs again.
            self._is_last = False
        else:
            raise AssertionError(f"{range_}: {failure}") from failure
        self.counts["read: losses"] += len(fetcher.losses)

    def mistakes(self) -> list[str]:
        records = self._cluster.readable_records(
            world.TOPIC, world.PARTITION, self._isolation, self.first, topic_id=self._topic_id
        )
        readable = {world.key_of(each): each.fate for each in records}
        delivered = Counter(self.delivered)
        offsets = [row[0] for row in self.delivered]
        found = [f"{row} was never readable there" for row in delivered if row not in readable]
        found += [f"{row} was delivered {count} times" for row, count in delivered.items() if count > 1]
        found += [f"{after} came behind {before}" for before, after in pairwise(offsets) if after <= before]
        found += [
            f"{row} was left out"
            for row, fate in readable.items()
            if fate is Fate.KEPT and row[0] < self._next and row not in delivered and not self._is_told(row[0])
        ]
        # What compaction took in the meantime need not be there.
        found += [f"{row} was lost in silence" for row in self._untold if readable.get(row) is not Fate.COMPACTED]
        if not self.topic_gone and not found:
            left = [row for row, fate in readable.items() if fate is Fate.KEPT and row[0] >= self._next]
            found += [f"{row} was not read at the end" for row in left]
        self.counts["read: records"] += len(self.delivered)
        return found

    def _is_told(self, offset: int) -> bool:
        """Lost, or below a truncation that was told, where another record had been before. The end of an older epoch
        may be behind the offset where the logs part (KIP-279): a reader has no epochs of its own to compare."""
        if any(loss.first <= offset < loss.end for loss in self.losses):
            return True
        has_another = offset in {row[0] for row in self.delivered} | self._without_row
        return has_another and any(loss.cause is LossCause.TRUNCATED and offset < loss.end for loss in self.losses)


def run_reads(seed: int, trace: Trace | None = None) -> ReadResult:
    return ReadingWorld(seed, trace).result()

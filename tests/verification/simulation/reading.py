"""The reads of a seed: the shipped fetcher and decoder over the model cluster and a faulty network, before an oracle.

    Traffic ──> Cluster (model) <── Network ──> NetworkClient ──> Fetcher ──> RecordSetDecoder ──> what was delivered
    ReadFaults ──┘                                                                                       │
    readable_records: what must be delivered, and what became of the rest <──────────────────────────────┘

A reader reads one range after another, as micro-batches would: each begins where the last one ended, and ends where the
log ended when it was planned. When the faults are over it reads what is left. Then each record that was kept must have
been delivered once, in order, or be among the losses that the fetcher told; and nothing else may have been delivered.
"""

from __future__ import annotations

import datetime
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kafka_sink.errors import OffsetsLost
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.metadata import MAX_IDLE_MS, Metadata
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.records.decoder import RecordSetDecoder
from model.byte_client import ByteClient
from model.cluster import Cluster
from model.read_faults import WEIGHTS, ReadFaults
from model.read_journal import Isolation
from model.read_traffic import ReadTraffic
from model.readable_records import Fate, ReadableRecord
from model.settings import KAFKA_3_3, ClusterSettings
from simulation.faults import address_of
from simulation.network import Network
from simulation.producer import SOFTWARE_VERSION
from simulation.scheduler import Scheduler, Timer

NODES = (0, 1, 2)
RACKS = {0: "a", 1: "b", 2: "a"}
TOPIC, PARTITION = "t", 0
FAULTS_END_MS = 20_000
HEALED_MS = FAULTS_END_MS + 8_000
# The last range is planned after HEALED_MS; a reader that is not done by then hangs.
GIVE_UP_MS = HEALED_MS + 200_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# Turns before the clock moves.
MAX_IDLE_TURNS = 100

# Followers that lag become leaders, again and again.
_TRUNCATING = {"lag": 40, "unclean_election": 40, "restart": 40}

Trace = Callable[[str], None]
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True, slots=True)
class ReadResult:
    problem: str | None
    digest: str
    counts: Counter[str]


class _UnheardClient(ByteClient):
    """Nobody reads its answers: the network takes what the cluster says, and drops what is for none of its wires."""

    def collect(self) -> None:
        pass


class ReadingWorld:
    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._trace = trace
        self._rng = rng = random.Random(f"{seed}/reading")
        self._scheduler = Scheduler()
        settings = ClusterSettings(
            generation=KAFKA_3_3, replica_lag_time_max_ms=100, failure_detection_ms=(10, 100),
            racks=rng.choice([{}, RACKS]), metadata_lag_ms=(1, 30), high_watermark_checkpoint_interval_ms=500,
        )  # fmt: skip
        self._cluster = Cluster(node_ids=NODES, rng=random.Random(f"{seed}/cluster"), settings=settings)
        self._cluster.create_topic(TOPIC, 1, 3, 1)
        self._cluster.advance(2_000)
        self._scheduler.now_ms = 2_000
        self._topic_id = self._cluster.topic_id(TOPIC)
        addresses = {address_of(node_id): node_id for node_id in NODES}
        self._network = Network(self._cluster, self._scheduler, random.Random(f"{seed}/network"), addresses, self._say)
        if trace is None:
            self._network.trace = None
        self._traffic = ReadTraffic(_UnheardClient(self._cluster, _next_connection=10**6), rng)
        weights = {**WEIGHTS, "topic_again": rng.choice([0, 0, 0, 2]), **rng.choice([{}, _TRUNCATING])}
        self._faults = ReadFaults(self._cluster, TOPIC, rng, weights)
        # Of the reader, after each record set: a truncation hits what a slow one has not read yet.
        self._pauses_ms = rng.choice([(0, 0, 5, 300), (0, 300, 1_000, 3_000)])
        self._transport = self._network.transport("reader", self._wake_up)
        config = read_config(
            given_options(
                {"kafka.bootstrap.servers": ",".join(f"{host}:{port}" for host, port in addresses), "subscribe": TOPIC},
                table=READING,
            )
        ).consumer
        self._client = NetworkClient(
            self._transport,
            clock_ms=self._scheduler.clock_ms,
            rng=rng,
            metrics=Metrics(),
            settings=replace(
                network_settings(config), client_software_version=SOFTWARE_VERSION, request_timeout_ms=2_000
            ),
            resolve=self._network.resolve,
        )
        self._metadata_max_age_ms = rng.choice([1_000, 300_000])
        self._settings = FetchSettings(
            isolation_level=rng.choice(list(IsolationLevel)),
            max_bytes=rng.choice([1, 300, 2_000, 10**6]),
            min_bytes=1,
            max_wait_ms=rng.choice([0, 50, 500]),
            client_rack=rng.choice(["", "a", "b"]),
            request_timeout_ms=2_000,
            metadata_max_age_ms=rng.choice([500, 300_000]),
            retry_backoff_ms=100,
            retry_backoff_max_ms=1_000,
            no_progress_ms=120_000,
            fail_on_data_loss=rng.random() < 0.3,
            goes_on=True,
        )
        # Without ids a topic of the same name cannot be told from this one.
        self._knows_ids = bool(self._faults.weights["topic_again"]) or rng.random() < 0.7
        self.first = self._next = rng.choice([0, 0, 3, 7])
        self.delivered: list[Row] = []
        self.losses: list[Loss] = []
        # What the log had when a range was planned, and rows of it that were neither delivered nor told to be lost.
        self._promised: set[Row] = set()
        self._untold: list[Row] = []
        self.topic_gone = False
        # The leader epoch under which all before `_next` was seen.
        self._read_epoch = 0
        self._range: FetchRange | None = None
        self._fetcher: Fetcher | None = None
        self._rows: list[Row] = []
        self._busy_until_ms = 0
        self._timer: Timer | None = None
        self._turned_at = (-1, 0)
        self._is_last = False

    # --- the world ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises AssertionError for what must not be."""
        scheduler = self._scheduler
        scheduler.after(0, self._write)
        scheduler.after(0, self._strike)
        scheduler.at(FAULTS_END_MS, self._heal)
        self._plan_turn(0)
        while not self._is_over:
            assert scheduler.now_ms < GIVE_UP_MS, f"the reader hangs at {self._range}, position {self._next}"
            ours_ms, theirs_ms = scheduler.next_ms(), self._cluster.next_event_ms()
            if theirs_ms is not None and (ours_ms is None or theirs_ms <= ours_ms):
                scheduler.now_ms = max(scheduler.now_ms, theirs_ms)
                self._cluster.advance(theirs_ms)
                self._network.deliver_answers()
            else:
                scheduler.step()

    @property
    def _is_over(self) -> bool:
        return self._is_last and self._fetcher is None

    def _say(self, text: str) -> None:
        if self._trace:
            self._trace(f"{self._scheduler.now_ms:>7} ms  {text}")

    def _write(self) -> None:
        if self._scheduler.now_ms < FAULTS_END_MS:
            self._cluster.advance(self._scheduler.now_ms)
            self._traffic.step()
            self._network.deliver_answers()
            self._scheduler.after(self._rng.choice([1, 10, 50, 200]), self._write)

    def _strike(self) -> None:
        if self._scheduler.now_ms >= FAULTS_END_MS:
            return
        self._cluster.advance(self._scheduler.now_ms)
        done = self._faults.strike() if self._rng.random() < 0.6 else self._strike_network()
        if done is not None:
            self.counts[f"read: fault {done.split()[0]}"] += 1
            self._say(f"FAULT {done}")
        self._network.deliver_answers()
        self._scheduler.after(self._rng.choice([10, 100, 500, 2_000]), self._strike)

    def _strike_network(self) -> str | None:
        wires = self._network.wires()
        if not wires:
            return None
        wire = self._rng.choice(wires)
        kind = self._rng.choice(["cut", "cut", "mute", "deafen"])
        getattr(self._network, kind)(wire)
        return kind

    def _heal(self) -> None:
        self._say("the faults stop")
        self._faults.heal()
        self._network.reset_impaired()
        self._scheduler.after(3_000, self._elect)

    def _elect(self) -> None:
        for partition in range(self._cluster.partition_count(TOPIC)):
            if self._cluster.leader(TOPIC, partition) is None:
                self._cluster.elect(TOPIC, partition, unclean=True)
        self._scheduler.after(3_000, self._end_transactions)

    def _end_transactions(self) -> None:
        self._traffic.finish()

    # --- the reader ---------------------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        self._plan_turn(0)

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
            # The caller takes its time.
            if now_ms < FAULTS_END_MS:
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
        leader = self._cluster.leader(TOPIC, PARTITION)
        if leader is None or not self._cluster.is_alive(leader) or self._is_last:
            return False
        is_same = self._cluster.topic_id(TOPIC) == self._topic_id
        if self._scheduler.now_ms < HEALED_MS and (not is_same or self._rng.random() < 0.2):
            return False
        end = self._end_of_log(leader)
        if self._scheduler.now_ms >= HEALED_MS:
            self._is_last = True
            self.topic_gone = not is_same
        if not is_same:
            return False
        self._look_back(leader)
        if end <= self._next:
            return False
        self._range = FetchRange(
            TOPIC, self._topic_id if self._knows_ids else None, PARTITION, self._next, end, self._epoch_of()
        )
        self._say(f"reads {self._range}")
        self.counts["read: ranges"] += 1
        self._rows = []
        self._promised = {
            _key(each)
            for each in self._cluster.readable_records(TOPIC, PARTITION, self._isolation, self._next, end)
            if each.fate is Fate.KEPT
        }
        self._fetcher = Fetcher(
            self._range, settings=self._settings, network=self._client, metadata=self._new_metadata(), rng=self._rng,
            now_ms=self._scheduler.now_ms,
        )  # fmt: skip
        return True

    def _new_metadata(self) -> Metadata:
        """For each range, as `kafka_sink.kafka.reader` does."""
        return Metadata(
            max_age_ms=self._metadata_max_age_ms, max_idle_ms=MAX_IDLE_MS, backoff_initial_ms=100,
            backoff_max_ms=1_000, rng=self._rng, creates_topics=False,
        )  # fmt: skip

    def _look_back(self, leader: int) -> None:
        """Note a truncation between two ranges. No fetcher sees it: who plans the ranges must."""
        replica = self._cluster.replica(TOPIC, PARTITION, leader)
        assert replica is not None
        found = replica.log.end_offset_of(self._read_epoch)
        if self._next > self.first and (found is None or found.offset < self._next):
            self.losses.append(Loss(0 if found is None else found.offset, self._next, LossCause.TRUNCATED))
            self.counts["read: truncations between ranges"] += 1
        self._read_epoch = self._epoch_of()

    def _end_of_log(self, leader: int) -> int:
        if self._settings.isolation_level is IsolationLevel.READ_COMMITTED:
            return self._cluster.last_stable_offset(TOPIC, PARTITION)
        return self._cluster.high_watermark(TOPIC, PARTITION, leader)

    def _epoch_of(self) -> int:
        return self._cluster.state(TOPIC, PARTITION).leader_epoch

    def _take(self, record_set: RecordSet) -> None:
        assert self._range is not None
        decoder = RecordSetDecoder(
            record_set.records, first_offset=record_set.offset, end_offset=self._range.end, columns=COLUMNS,
            aborted=record_set.aborted_transactions,
        )  # fmt: skip
        for batch in decoder:
            self._rows += [_row(each) for each in batch.to_pylist()]
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
            self.losses.append(Loss(range_.first, failure.end, failure.cause))  # type: ignore[arg-type]
            self._next = failure.end
        else:
            raise AssertionError(f"{range_}: {failure}") from failure
        self.counts["read: losses"] += len(fetcher.losses)

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def mistakes(self) -> list[str]:
        """What is wrong with what was delivered."""
        records = self._cluster.readable_records(TOPIC, PARTITION, self._isolation, self.first, topic_id=self._topic_id)
        readable = {_key(each): each.fate for each in records}
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

    @property
    def _isolation(self) -> Isolation:
        is_committed = self._settings.isolation_level is IsolationLevel.READ_COMMITTED
        return Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED

    def _is_told(self, offset: int) -> bool:
        """Lost, or below a truncation that was told, where another record had been before. The end of an older epoch
        may be behind the offset where the logs part (KIP-279): a reader has no epochs of its own to compare."""
        if any(loss.first <= offset < loss.end for loss in self.losses):
            return True
        has_another = offset in {row[0] for row in self.delivered}
        return has_another and any(loss.cause is LossCause.TRUNCATED and offset < loss.end for loss in self.losses)

    @property
    def digest(self) -> str:
        return self._network.digest


def run_reads(seed: int, trace: Trace | None = None) -> ReadResult:
    world = ReadingWorld(seed, trace)
    try:
        world.run()
        mistakes = world.mistakes()
    except Exception:
        mistakes = [f"a defect:\n{traceback.format_exc()}"]
    problem = f"reading: {'; '.join(mistakes[:5])}" if mistakes else None
    return ReadResult(problem, world.digest, world.counts)


def _key(record: ReadableRecord) -> Row:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def _row(record: dict[str, Any]) -> Row:
    milliseconds = (record["timestamp"] - _EPOCH) // datetime.timedelta(milliseconds=1)
    headers = tuple((each["key"], each["value"]) for each in record["headers"] or ())
    return record["offset"], milliseconds, record["key"], record["value"], headers

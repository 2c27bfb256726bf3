"""The stream of a seed: the shipped planner, admin client, reader and decoder over the model, driven as Spark does it.

    ReadWorld ──> Network ──> AdminClient ──> StreamPlan ──> ranges ──> Reader ──> what a micro-batch delivers
                                                  ^                                     │
    driver: offset log ── commit log ─────────────┴── a crash at any moment <───────────┘

Each process of the driver has a planner and clients of its own, and of the processes before only what the two logs
have: a micro-batch that is in the offset log and not in the commit log runs again, and replaces the failed attempt.

At the end each record that was kept must have been delivered once, in order, unless its loss was told; and nothing else
may have been delivered. What a reader cannot know is no mistake:

* A new process has only positions. What became readable below them since the last recorded look of the process before
  is behind the stream: the log was truncated or made again and has grown past the position. Nor does a stream read it
  that ends with the error that says so.
* A leader that was replaced before it was asked where its records begin: which leader wrote the last record before the
  position is not known then, and the next leader may have no record of the known epoch.
* Logs may part before the end of the known epoch (KIP-279), so a record of an earlier leader may hide below a
  truncation that was told, where another one had been.
* Where logs part is forgotten with the records there, once they are deleted: what was below the offset at which a
  truncated log was told to go on, and is deleted, nobody can tell.
* What was told to be truncated may come back with an earlier leader.
"""

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple
from unittest import mock

from kafka_sink import errors
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka import reader as reader_module
from kafka_sink.kafka.admin import client as admin_module
from kafka_sink.kafka.admin import driver
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.fetcher import FetchSettings
from kafka_sink.kafka.metadata import NO_EPOCH
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.net.transport import Event
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.reader import Reader
from kafka_sink.options.bounds import LATEST, AtOffset, moves
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.reading import group_starts, stream_logs, stream_plan
from kafka_sink.spark.reading.continuity import LogEnds
from kafka_sink.spark.reading.divide import packed
from kafka_sink.spark.reading.positions import Positions, checkpointed, positions_of
from kafka_sink.spark.reading.stream_plan import StreamPlan
from model.partition import Partition
from model.read_journal import Fate, Isolation, ReadableRecord
from model.record_batches import RecordBatch
from simulation import read_world as world
from simulation.network import Network, SimulatedTransport
from simulation.producer import SOFTWARE_VERSION
from simulation.read_world import ReadResult, ReadTraffic, ReadWorld, Row, Trace

GIVE_UP_MS = world.HEALED_MS + 300_000
MAX_IDLE_POLLS = 200
# What takes records from readers.
_LOSING = ("retention", "delete_records", "unclean_election", "truncation", "topic_again")
_OF_TOPICS = (LossCause.TOPIC_DELETED, LossCause.TOPIC_RECREATED)
_CLOCKS = (driver, admin_module, group_starts, reader_module, stream_logs, stream_plan)


class _Crash(BaseException):
    """The driver's process ends here."""


class Log(NamedTuple):
    """Of one topic: a topic that is made again has others."""

    topic_id: uuid.UUID | None
    partition: int


class Place(NamedTuple):
    """Where a record is. No leader epoch has two leaders."""

    log: Log
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Told:
    """A loss. `epoch`: the leader epoch that was known; records of newer leaders are no part of a truncation."""

    partition: int
    first: int
    end: int
    cause: str
    epoch: int


class _BlockingTransport(SimulatedTransport):
    """Its poll lets the world go on until there is something."""

    def __init__(self, network: Network, name: str, wait: Callable[[int, Callable[[], bool]], None]) -> None:
        super().__init__(network, name, self._note)
        self._wait = wait
        self._has_news = False

    def _note(self) -> None:
        self._has_news = True

    def poll(self, timeout_ms: int) -> list[Event]:
        self._wait(timeout_ms, lambda: self._has_news)
        self._has_news = False
        return super().poll(timeout_ms)


class StreamingWorld(ReadWorld):
    faults_apart_ms = (10, 50, 100, 500)
    share_of_network = 0.1

    # Errors with which a query ends that is started again.
    passing: tuple[type[errors.KafkaSinkError], ...] = (
        errors.LeaderUnavailable, errors.BrokersUnreachable, errors.ReadStalled, errors.TopicAuthorizationFailed,
    )  # fmt: skip
    # Of the seeds: those in which a task reads all partitions at once, and those whose start moves.
    share_of_packed = 0.3
    share_of_moving = 0.15
    # And those with a limit of bytes.
    share_of_byte_limits = 0.2
    # Those in which each process of the driver has other options, and those in which micro-batches are planned, and
    # tasks run, several times, as by Spark's retries and speculation.
    share_of_changes = 0.2
    share_of_repeats = 0.2

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        super().__init__(seed, "stream", trace, partitions=2)
        rng = self._rng
        given = {"kafka.bootstrap.servers": self._servers, **self._options()}
        if _drawn_apart(seed, "packed", self.share_of_packed) and "minPartitions" not in given:
            given = {**given, "maxPartitions": "1"}
        if _drawn_apart(seed, "moves", self.share_of_moving):
            given = {**given, "startingOffsets": "latest-7"}
        if _drawn_apart(seed, "bytes", self.share_of_byte_limits):
            given = {**given, "maxBytesPerTrigger": "2k"}
        self._given = given
        self._config = _configured(given)
        self._changes = _drawn_apart(seed, "changes", self.share_of_changes)
        self._repeats = _drawn_apart(seed, "repeats", self.share_of_repeats)
        self._isolation_level = self._config.consumer.isolation_level
        # As a job that is started again and again, with a trigger that ends.
        self._ends_now = rng.random() < 0.15
        self._pauses_ms = rng.choice([(0, 0, 5, 100), (0, 100, 1_000)])
        self._crash_at_ms: int | None = None
        self._idle_polls = (0, 0)
        self._clients: list[AdminClient | Reader] = []
        # Spark's checkpoint.
        self._offset_log: list[str] = []
        self._committed = 0
        # What was readable before the last look whose outcome is recorded, and what a new process could not see.
        self._seen: dict[Log, set[Place]] = {}
        self._unseen: set[Place] = set()
        # Offsets that have had a record without a row: a marker, or a row of an aborted transaction.
        self._without_row: set[tuple[Log, int]] = set()
        # Where the stream began, as the process saw that planned the first micro-batch.
        self._began: Positions = {}
        # The same in logs that were there; in others it begins at 0.
        self._first: dict[Log, int] = {}
        self.delivered: Counter[tuple[Log, Row]] = Counter()
        self._undone: set[tuple[Log, Row]] = set()
        self._behind: dict[Log, int] = {}
        self.told: list[Told] = []
        self._mistakes: list[str] = []
        self.failure: errors.ReadError | None = None
        self._is_over = False

    def _options(self) -> dict[str, str]:
        rng = self._rng
        return {
            **rng.choice([{"subscribe": world.TOPIC}, {"subscribePattern": f"^{world.TOPIC}$"}]),
            "startingOffsets": rng.choice(["earliest", "earliest", "latest"]),
            "failOnDataLoss": rng.choice(["true", "false", "false", "false"]),
            "kafka.isolation.level": rng.choice(["read_committed", "read_uncommitted"]),
            "kafka.max.partition.fetch.bytes": rng.choice(["1024", "1048576"]),
            "kafka.request.timeout.ms": "2000",
            "kafka.metadata.max.age.ms": rng.choice(["500", "300000"]),
            **rng.choice([{}, {}, {"maxOffsetsPerTrigger": "5"}, {"maxOffsetsPerTrigger": "40"}]),
            **rng.choice([{}, {}, {"minPartitions": "3"}]),
        }

    def _changed(self, rng: random.Random) -> dict[str, str]:
        """Return the options of a query that is started again: none of them may lose or double a row. Where it begins
        counts until the first micro-batch is done."""
        limits = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minPartitions", "maxPartitions")
        kept = {name: value for name, value in self._given.items() if name not in limits and "subscribe" not in name}
        if self._committed:
            kept = {name: value for name, value in kept.items() if not name.startswith("starting")}
            kept["startingOffsets"] = rng.choice(["earliest", "latest", "latest-3"])
        return {
            **kept,
            **rng.choice([{"subscribe": world.TOPIC}, {"subscribePattern": f"^{world.TOPIC}$"}]),
            **rng.choice([{}, {"maxOffsetsPerTrigger": "9"}, {"maxOffsetsPerPartitionPerTrigger": "5"}]),
            **rng.choice([{}, {"maxBytesPerTrigger": "1k"}]),
            **rng.choice([{}, {"minPartitions": "3"}, {"maxPartitions": "1"}, {"maxRecordsPerPartition": "20"}]),
        }

    def _weights(self) -> dict[str, int]:
        is_gentle = self._rng.random() < 0.2
        drawn = self._rng.choice([{}, {"truncation": 30}, {"truncation": 60, "topic_again": 4}])
        weights = {**super()._weights(), **drawn}
        return {**weights, **dict.fromkeys(_LOSING, 0)} if is_gentle else weights

    def _next_traffic(self) -> ReadTraffic:
        for number in range(len(self._traffic), self._cluster.partition_count(world.TOPIC)):
            self._traffic.append(ReadTraffic(self._unheard, self._rng, number))
        return self._rng.choice(self._traffic)

    # --- time, and clients ------------------------------------------------------------------------------------------

    def wait(self, wait_ms: int, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Let the world go on. Raises _Crash."""
        scheduler = self._scheduler
        assert scheduler.now_ms < GIVE_UP_MS, f"the stream hangs at {self._offset_log[-1:]}"
        at_ms, polls = self._idle_polls
        self._idle_polls = (at_ms, polls + 1) if at_ms == scheduler.now_ms else (scheduler.now_ms, 0)
        assert self._idle_polls[1] < MAX_IDLE_POLLS, "a client turns without waiting"
        until_ms = scheduler.now_ms + wait_ms
        while scheduler.now_ms < until_ms and not is_enough():
            if self._crash_at_ms is not None and scheduler.now_ms >= self._crash_at_ms:
                raise _Crash
            due_ms = [at for at in (scheduler.next_ms(), self._cluster.next_event_ms()) if at is not None]
            if min(due_ms, default=until_ms + 1) > until_ms:
                scheduler.now_ms = until_ms
                self._cluster.advance(until_ms)
                self._network.deliver_answers()
            else:
                self._step()

    def connect(
        self, config: ClientConfig, *, rng: random.Random, cluster_id: str | None = None,
        max_in_flight: int | None = None,
    ) -> NetworkClient:  # fmt: skip
        """As `kafka_sink.kafka.connections.connect`."""
        rng.seed(self._rng.random())
        settings = replace(network_settings(config), client_software_version=SOFTWARE_VERSION)
        if max_in_flight is not None:
            settings = replace(settings, max_in_flight=max_in_flight)
        return NetworkClient(
            _BlockingTransport(self._network, "stream", self.wait), clock_ms=self._scheduler.clock_ms, rng=rng,
            settings=settings, resolve=self._network.resolve, cluster_id=cluster_id,
        )  # fmt: skip

    @contextmanager
    def _shipped_clients(self) -> Iterator[None]:
        """Let clients that are made now live in this world."""
        with ExitStack() as patches:
            for module in (driver, reader_module):
                patches.enter_context(mock.patch.object(module, "connect", self.connect))
            for clock in _CLOCKS:
                patches.enter_context(mock.patch.object(clock, "monotonic_ms", self._scheduler.clock_ms))
            yield

    # --- the driver -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._begin()
        with self._shipped_clients():
            while not self._is_over:
                self._run_process()
        if self.failure is not None:
            # The oracle asks a cluster that has healed.
            self.wait(world.HEALED_MS - self._scheduler.now_ms)
            self._unseen |= self._not_seen_before(self._positions)

    @property
    def _positions(self) -> Positions:
        """Where the stream is, as Spark has committed it."""
        return positions_of(json.loads(self._offset_log[self._committed - 1])) if self._committed else {}

    def _run_process(self) -> None:
        now_ms = self._scheduler.now_ms
        lives_ms = self._rng.choice([None, None, 100, 1_000, 3_000, 9_000])
        has_faults = now_ms < world.FAULTS_END_MS
        self._crash_at_ms = now_ms + lives_ms if lives_ms is not None and has_faults else None
        try:
            if not self._committed:
                self._before_start()
            self._say(f"a process begins at {self._offset_log[-1:]}, {self._committed} committed")
            self._process()
        except _Crash:
            self.counts["stream: crashes"] += 1
        except self.passing as error:
            self._say(f"the query fails: {error}")
            self.counts[f"stream: {type(error).__name__}"] += 1
        except (errors.LogBroken, errors.OffsetsLost) as error:
            assert self._config.fail_on_data_loss, error
            self._say(f"the stream ends: {error}")
            self.counts[f"stream: {type(error).__name__}"] += 1
            self.failure, self._is_over = error, True
        self._crash_at_ms = None
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.wait(self._rng.choice([1, 100, 2_000]))

    def _before_start(self) -> None:
        """What others do before a process that has no checkpoint."""

    def _process(self) -> None:
        """As MicroBatchExecution does."""
        if self._changes is not None:
            given = self._changed(self._changes)
            self._say(f"its options are {given}")
            self._config = _configured(given)
        config = self._config
        plan = self._plan = StreamPlan(config, self._tell)
        client, reader = AdminClient(config.consumer), Reader(config.consumer)
        self._clients += [client, reader]
        if self._ends_now:
            plan.end_now()
        looks, is_last = 0, False
        while True:
            start = self._positions if self._committed else None
            if len(self._offset_log) == self._committed:
                if not (looks and self._ends_now):
                    # Otherwise it goes by what it saw at its first look.
                    is_last = self._scheduler.now_ms >= world.HEALED_MS
                end = self._end(plan, client, start, looks)
                looks += 1
                if end == start:
                    self._is_over = is_last
                    if is_last or self._ends_now:
                        return
                    self.wait(200)
                    continue
                self._offset_log.append(json.dumps(checkpointed(end)))
                self.wait(self._rng.choice(self._pauses_ms))
            self._micro_batch(plan, client, reader, start)
            plan.is_begun = True
            self._committed += 1
            self.counts["stream: micro-batches"] += 1
            self.wait(self._rng.choice([0, 100, 1_000]))

    def _end(self, plan: StreamPlan, client: AdminClient, start: Positions | None, looks: int) -> Positions:
        """Return where the next micro-batch ends."""
        begins = plan.initial(client) if start is None else start
        if start is None:
            self._began = begins
            self.wait(self._rng.choice(self._pauses_ms))
        seen = self._readable()
        self._note_without_row()
        known = dict(plan._logs.known)
        strange = self._logs_without_epoch(known)
        end = plan.end(client, begins, is_limited=self._config.limits_micro_batches)
        self._say(f"plans {dict(begins)} to {dict(end)}")
        strange |= self._logs_without_epoch(known)
        # No such log has what the known leader appended since the last look. So no record that a task lost is excused.
        self._unseen |= {place for place in self._not_seen_before(begins) if place.log in strange}
        if not looks and start is not None:
            self._unseen |= self._not_seen_before(start)
        self._seen.update(seen)
        return end

    def _micro_batch(self, plan: StreamPlan, client: AdminClient, reader: Reader, start: Positions | None) -> None:
        config = self._config
        end = positions_of(json.loads(self._offset_log[self._committed]))
        begins = plan.initial(client) if start is None else start
        ranges = plan.ranges(client, begins, end)
        if self._is_repeated():
            ranges = plan.ranges(client, begins, end)
        rows: list[tuple[Log, Row]] = []
        losses: list[Told] = []
        for task in packed(ranges, config.max_partitions):
            while self._is_repeated():
                self._say(f"reads {task} in vain")
                self._task(reader, task, [])
                self.counts["stream: tasks in vain"] += 1
            self._say(f"reads {task}")
            rows += self._task(reader, task, losses)
        if start is None:
            # Without the checkpoint of a first micro-batch, the earliest offset is where it is by now.
            is_recorded = self._config.starting == AtOffset(LATEST) or moves(self._config.starting)
            first = self._began if is_recorded else begins
            for each, stop in end.items():
                known = plan._logs.known.get(each)
                if known is not None and each in first:
                    self._first[Log(known.topic_id, each.partition)] = min(first[each], stop)
        self.told += losses
        self._deliver(rows)

    def _is_repeated(self) -> bool:
        has_faults = self._scheduler.now_ms < world.FAULTS_END_MS
        return self._repeats is not None and has_faults and self._repeats.random() < 0.3

    def _task(self, reader: Reader, ranges: Sequence[FetchRange], losses: list[Told]) -> list[tuple[Log, Row]]:
        rows = []
        config = self._config
        settings = FetchSettings(
            config=config.consumer, fail_on_data_loss=config.fail_on_data_loss, reads_replacements=False,
            poll_timeout_ms=config.poll_timeout_ms,
        )  # fmt: skip
        if len(ranges) > 1:
            self.counts["stream: shared reads"] += 1
            shared = reader.fetch_all(ranges, settings)
            found = iter(shared)
        else:
            alone = reader.fetch(ranges[0], settings)
            found = ((ranges[0], each) for each in alone)
        for range_, record_set in found:
            log = Log(range_.topic_id, range_.partition)
            rows += [(log, row) for row in world.rows_of(record_set)]
            self.wait(self._rng.choice(self._pauses_ms))
        self._note_without_row()
        for range_, loss in shared.losses if len(ranges) > 1 else [(ranges[0], each) for each in alone.losses]:
            self._say(f"lost: {loss}")
            losses.append(Told(range_.partition, loss.first, loss.end, loss.cause, range_.leader_epoch))
        return rows

    # --- what happened ----------------------------------------------------------------------------------------------

    def _tell(self, error: errors.ReadError) -> None:
        self._say(f"told: {error.parts().happened}")
        self.counts[f"stream: told {type(error).__name__} {getattr(error, 'cause', '')}"] += 1
        match error:
            case errors.OffsetsLost(partition=number, first=first, end=end, cause=cause):
                seen = self._seen.get(Log(self._cluster.topic_id(world.TOPIC), number), ())
                epoch = max((place.leader_epoch for place in seen), default=-1)
                self.told.append(Told(number, first, end, cause, epoch))
            case errors.LogBroken(partition=number, position=position, goes_on_at=goes_on_at, cause=cause):
                known = self._plan._logs.known.get(TopicPartition(world.TOPIC, number))
                epoch = -1 if known is None else known.leader_epoch
                self.told.append(Told(number, max(goes_on_at, 0), position, cause, epoch))
                if cause == LossCause.TRUNCATED:
                    self._undo(number, goes_on_at)

    def _undo(self, partition: int, goes_on_at: int) -> None:
        """What was delivered from there on is lost; it may come back with an earlier leader."""
        gone = {key for key in self.delivered if key[0].partition == partition and key[1][0] >= goes_on_at}
        there = {(log, row) for log, _ in self._logs() if log.partition == partition for row in self._there(log)}
        self._mistakes += [f"{key} was told to be lost, and is there" for key in gone & there]
        self._undone |= gone
        for key in gone:
            del self.delivered[key]
        for log in self._behind:
            if log.partition == partition:
                self._behind[log] = min(self._behind[log], goes_on_at - 1)

    def _deliver(self, rows: list[tuple[Log, Row]]) -> None:
        for log, row in rows:
            if row[0] <= self._behind.get(log, -1):
                self._mistakes.append(f"{row} of {log} came behind offset {self._behind[log]}")
            self._behind[log] = row[0]
            self.delivered[log, row] += 1
        self.counts["stream: records"] += len(rows)

    def _leader(self, partition: int) -> Partition | None:
        return self._cluster.leading_replica(world.TOPIC, partition)

    def _logs(self) -> Iterator[tuple[Log, Partition]]:
        for number in range(self._cluster.partition_count(world.TOPIC)):
            leader = self._leader(number)
            if leader is not None:
                yield Log(self._cluster.topic_id(world.TOPIC), number), leader

    def _readable(self) -> dict[Log, set[Place]]:
        return {log: set(_places(log, leader.readable(self._isolation))) for log, leader in self._logs()}

    def _note_without_row(self) -> None:
        for log, leader in self._logs():
            self._without_row |= {(log, offset) for offset in world.offsets_without_row(leader, self._isolation)}

    def _logs_without_epoch(self, known: LogEnds) -> set[Log]:
        """Return the logs without a record of their known leader epoch, where nobody knows which leader wrote the last
        record. Deleted records do not count."""
        return {
            log
            for log, leader in self._logs()
            if (end := known.get(TopicPartition(world.TOPIC, log.partition))) is not None
            and end.record_epoch == NO_EPOCH
            and end.leader_epoch not in _epochs(leader)
        }

    def _not_seen_before(self, positions: Positions) -> set[Place]:
        """Return the records before these positions that the last recorded look did not see."""
        found = set()
        for log, leader in self._logs():
            position = positions.get(TopicPartition(world.TOPIC, log.partition), 0)
            there = {place for place in _places(log, leader.log.batches) if place.offset < position}
            found |= there - self._seen.get(log, set())
        return found

    # --- the oracle -------------------------------------------------------------------------------------------------

    def mistakes(self) -> list[str]:
        found = list(self._mistakes)
        found += [f"{key} was delivered {count} times" for key, count in self.delivered.items() if count > 1]
        logs = {log for log, _ in self.delivered} | {log for log, _ in self._logs()}
        for log in sorted(logs, key=repr):
            position = self._positions.get(TopicPartition(world.TOPIC, log.partition), 0)
            found += self._mistakes_of(log, position)
        if not any(self._faults.weights.get(each) for each in _LOSING):
            assert self.failure is None, f"a false alarm: {self.failure}"
            found += [f"a false alarm: {told}" for told in self.told]
        if not self._faults.weights.get("topic_again"):
            told = [*self.told, *([self.failure] if self.failure is not None else ())]
            found += [f"the topic was there all the time: {each}" for each in told if each.cause in _OF_TOPICS]
        return found

    def _mistakes_of(self, log: Log, position: int) -> list[str]:
        records = {world.key_of(each): each for each in self._records(log)}
        delivered = {row for of, row in self.delivered if of == log}
        found = [f"{row} was never readable in {log}" for row in delivered if row not in records]
        if log.topic_id != self._cluster.topic_id(world.TOPIC):
            return found
        first = self._first.get(log, 0)
        taken = {row[0] for row in delivered} | {row[0] for of, row in self._undone if of == log}
        taken |= {offset for of, offset in self._without_row if of == log}
        for row, record in records.items():
            is_due = row[0] < position or (self.failure is None and record.fate is Fate.KEPT)
            if row in delivered or record.fate not in (Fate.KEPT, Fate.DELETED) or row[0] < first or not is_due:
                continue
            if not self._is_excused(log, row, record, taken):
                found.append(f"{row} of {log} was left out ({record.fate.name})")
        return found

    def _is_excused(self, log: Log, row: Row, record: ReadableRecord, taken: set[int]) -> bool:
        offset = row[0]
        if Place(log, record.leader_epoch, offset) in self._unseen:
            self.counts["stream: records that nothing showed"] += 1
            return True
        if (log, row) in self._undone:
            self.counts["stream: records that came back"] += 1
            return True
        told = [each for each in self.told if each.partition == log.partition]
        behind = [each for each in told if each.cause == LossCause.TRUNCATED and offset < each.end]
        if record.fate is Fate.DELETED and any(offset < each.first for each in behind):
            return True
        covering = (each for each in told if each.first <= offset < each.end or (each in behind and offset in taken))
        return any(_covers(each, record) for each in covering)

    def _there(self, log: Log) -> list[Row]:
        records = self._cluster.readable_records(world.TOPIC, log.partition, Isolation.READ_UNCOMMITTED)
        return [world.key_of(each) for each in records if each.fate is Fate.KEPT]

    def _records(self, log: Log) -> list[ReadableRecord]:
        return self._cluster.readable_records(world.TOPIC, log.partition, self._isolation, topic_id=log.topic_id)


def _drawn_apart(seed: int, kind: str, share: float) -> random.Random | None:
    """Return what draws for this kind, if the seed is of it. Other seeds are as they would be without this kind."""
    rng = random.Random(f"{seed}/streaming/{kind}")
    return rng if rng.random() < share else None


def _configured(given: Mapping[str, str]) -> ReadConfig:
    return read_config(given_options(given, table=READING), is_stream=True)


def _epochs(leader: Partition) -> set[int]:
    log = leader.log
    return {batch.leader_epoch for batch in log.batches if batch.next_offset > log.start_offset}


def _places(log: Log, batches: Iterable[RecordBatch]) -> Iterator[Place]:
    return (Place(log, *place) for place in world.offsets_of(batches))


def _covers(told: Told, record: ReadableRecord) -> bool:
    """Of a truncated log only what was there before is lost: what followed is for a later micro-batch."""
    return told.cause != LossCause.TRUNCATED or record.leader_epoch <= told.epoch


def run_stream(seed: int, trace: Trace | None = None, kind: type[StreamingWorld] = StreamingWorld) -> ReadResult:
    return kind(seed, trace).result()

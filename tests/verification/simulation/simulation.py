"""One run of a plan: the model cluster, a network and writers, until every write has ended.

    plan ─> Cluster (model) <─ Network ─> SimulatedProducer <─ VirtualTask
              │                                                    │
              └── committed logs ─────> Outcome <── WriteOutcomes ─┘ ─> oracles

The cluster has events of its own (replication, elections, timeouts); the loop takes whatever is next, here or there.
"""

import random
import traceback
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client import RESTED_MS
from kafka_sink.kafka.producer.checks import Probe
from kafka_sink.options.kinds import INT32_MAX
from model.cluster import Cluster
from model.settings import RELEASES, ClusterSettings
from model.timeline import Timeline
from simulation.faults import BALANCER, CODES, Fault, Plan, WritePlan, address_of
from simulation.injector import Injector
from simulation.network import BufferChanged, Network
from simulation.oracles import PROGRESS_MS, judge
from simulation.outcome import Outcome, WriteOutcome, make_rows
from simulation.producer import SimulatedProducer, Violation, VirtualTask, VirtualWrite, Waits

# After which nothing is waited for any more: the last writes begin PROGRESS_MS after the last fault.
GIVE_UP_MS = 2 * PROGRESS_MS


@dataclass(frozen=True, slots=True)
class Result:
    """`problems`: empty for a run as it should be. `digest`: of all bytes sent and received, with their times."""

    plan: Plan
    problems: tuple[str, ...]
    digest: str
    virtual_ms: int
    counts: Counter[str]


class Simulation:
    def __init__(self, plan: Plan, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self._trace = trace
        self._scheduler = Timeline()
        settings = ClusterSettings(
            generation=RELEASES[plan.release], replica_lag_time_max_ms=plan.replica_lag_time_max_ms,
            replica_fetch_ms=plan.replica_fetch_ms, metadata_lag_ms=plan.metadata_lag_ms,
            failure_detection_ms=plan.failure_detection_ms,
        )  # fmt: skip
        cluster = self._new_cluster("cluster", settings)
        self._network = Network(
            cluster, self._scheduler, self._rng("network"), {address_of(node_id): node_id for node_id in plan.nodes},
            trace=self._say if trace else None, balancer=BALANCER,
        )  # fmt: skip
        self._writes: list[WriteOutcome] = []
        self._producers: list[SimulatedProducer] = []
        self._tasks: list[VirtualTask] = []
        self._injector = Injector(
            plan, scheduler=self._scheduler, cluster=cluster, network=self._network, tasks=self._tasks,
            new_cluster=self._new_cluster, rng=self._rng("injector"),
        )  # fmt: skip
        self.counts: Counter[str] = Counter()

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.plan.seed}/{purpose}")

    def _new_cluster(self, name: str, settings: ClusterSettings) -> Cluster:
        """`name`: clusters of one name give their topics the same ids."""
        cluster = Cluster(node_ids=self.plan.nodes, rng=self._rng(name), settings=settings)
        cluster.advance(self._scheduler.now_ms)
        return cluster

    def _say(self, text: str) -> None:
        if self._trace:
            self._trace(f"{self._scheduler.now_ms:>7} ms  {text}")

    def run(self) -> Result:
        problems: list[str] = []
        try:
            self._begin()
            self._loop()
            problems += judge(self.outcome())
        except (Violation, BufferChanged) as violation:
            problems.append(f"{type(violation).__name__}: {violation}")
        except Exception:
            problems.append(f"a defect:\n{traceback.format_exc()}")
        self._count()
        return Result(self.plan, tuple(problems), self._network.digest, self._scheduler.now_ms, self.counts)

    def _begin(self) -> None:
        self._injector.prepare()
        for fault in self.plan.faults:
            self._scheduler.at(fault.at_ms, self._begin_fault, fault)
        self._scheduler.at(self.plan.faults_end_ms, self._stop_faults)
        for number in range(len(self.plan.writers)):
            self._tasks.append(VirtualTask(self._scheduler, partial(self._life, number)))

    def _loop(self) -> None:
        end_ms = self.plan.faults_end_ms + GIVE_UP_MS
        while not all(task.done for task in self._tasks) or any(not producer.ended for producer in self._producers):
            cluster = self._injector.cluster
            ours_ms, theirs_ms = self._scheduler.next_ms(), cluster.next_event_ms()
            next_ms = min((time for time in (ours_ms, theirs_ms) if time is not None), default=end_ms)
            if next_ms >= end_ms:
                return
            if theirs_ms == next_ms:
                self._scheduler.now_ms = max(self._scheduler.now_ms, next_ms)
                cluster.advance(next_ms)
                self._network.deliver_answers()
            else:
                self._scheduler.step()

    def _life(self, writer: int, task: VirtualTask) -> Waits:
        """Writes until the faults end, and once more when everything must be well again."""
        plan = self.plan.writers[writer]
        for write in plan.writes:
            if self._scheduler.now_ms < self.plan.faults_end_ms:
                yield from self._write(task, writer, write)
        yield from self._sleep(self.plan.faults_end_ms + PROGRESS_MS - self._scheduler.now_ms)
        outcome = yield from self._write(task, writer, plan.last_write)
        if outcome.error is not None:
            yield from self._write(task, writer, plan.last_write)
        if task.producer is not None:
            task.producer.close()

    def _sleep(self, pause_ms: int) -> Waits:
        until_ms = self._scheduler.now_ms + pause_ms
        while self._scheduler.now_ms < until_ms:
            yield until_ms

    def _write(self, task: VirtualTask, writer: int, plan: WritePlan) -> Generator[int | None, None, WriteOutcome]:
        """As `spark.writer.write_task` does with `client.lease`."""
        if task.producer is not None and not (yield from self._may_go_on(task.producer)):
            task.producer.close()
            task.producer = None
        if task.producer is None:
            task.producer = self._new_producer(task, writer)
        producer = task.producer
        task.is_writing = True
        outcome = WriteOutcome(
            writer=writer, write=sum(write.writer == writer for write in self._writes), acks=producer.config.acks,
            idempotent=producer.config.enable_idempotence,
            max_in_flight=producer.config.max_in_flight_requests_per_connection, partitioner=plan.partitioner,
            producer=producer.name, started_ms=self._scheduler.now_ms,
            delivery_timeout_ms=producer.config.delivery_timeout_ms, max_block_ms=producer.config.max_block_ms,
        )  # fmt: skip
        self._writes.append(outcome)
        rng = self._rng(f"writer/{writer}/{outcome.write}")
        producer.sender.begin_write(self._scheduler.now_ms)
        write = VirtualWrite(producer, self._scheduler, rng, outcome)
        self._say(f"{outcome} begins")
        try:
            for pause_ms, count in plan.batches:
                yield from self._sleep(pause_ms)
                yield from write.append(make_rows(rng, plan.shape, writer, outcome.write, len(outcome.rows), count))
            outcome.flushed_ms = self._scheduler.now_ms
            outcome.throttled_ms = -producer.network.throttled_ms(self._scheduler.now_ms)
            yield from write.finish()
        except KafkaSinkError as error:
            outcome.error = error
            producer.close()
            task.producer = None
        else:
            producer.rest()
        task.is_writing = False
        outcome.ended_ms = self._scheduler.now_ms
        if outcome.flushed_ms is not None:
            outcome.throttled_ms += producer.network.throttled_ms(self._scheduler.now_ms)
        self._say(f"{outcome}{f': {outcome.error}' if outcome.error else ''}")
        return outcome

    def _may_go_on(self, producer: SimulatedProducer) -> Generator[int | None, None, bool]:
        """As `client.Producer.may_go_on`."""
        network, connects = producer.network, producer.network.connects
        has_rested = self._scheduler.now_ms - producer.used_at_ms > RESTED_MS
        if producer.usable and connects and not network.interruptions and has_rested:
            probe = producer.sender.probe = Probe()
            deadline_ms = self._scheduler.now_ms + RESTED_MS
            producer.wakeup()
            while not probe.is_settled and producer.usable and self._scheduler.now_ms < deadline_ms:
                yield deadline_ms
            producer.sender.probe = None
            if not probe.is_answered:
                return False
        return producer.usable and not network.interruptions and network.connects == connects

    def _new_producer(self, task: VirtualTask, writer: int) -> SimulatedProducer:
        name = f"w{writer}.{len(self._producers)}"
        producer = SimulatedProducer(
            name, self.plan.writers[writer].config, scheduler=self._scheduler, network=self._network,
            rng=self._rng(f"producer/{name}"), notify=task.notified, turn_rate=self.plan.writers[writer].turn_rate,
            first_sequence=self.plan.writers[writer].first_sequence,
        )  # fmt: skip
        producer.lock.others["sender"] = task.take_turn
        self._producers.append(producer)
        return producer

    def _begin_fault(self, fault: Fault) -> None:
        self._say(f"FAULT {fault}")
        self.counts[f"fault {fault.kind}"] += 1
        self._injector.begin(fault)

    def _stop_faults(self) -> None:
        self._say("the faults stop")
        self._injector.stop()

    def _only_quotas(self) -> bool:
        """And no writer that gives up after some attempts, as one does where a new topic is not known everywhere."""
        gives_up = any(writer.config.retries < INT32_MAX for writer in self.plan.writers)
        return not gives_up and {fault.kind for fault in self.plan.faults} == {"quota"}

    def outcome(self) -> Outcome:
        return Outcome(
            writes=self._writes, logs=self._injector.committed_logs(),
            pools=[producer.pool_state() for producer in self._producers],
            pauses_ms=sum(fault.lasts_ms for fault in self.plan.faults if fault.kind == "pause"),
            faults_end_ms=self.plan.faults_end_ms, topic_ids=self.plan.topic_ids,
            names_topics_only=not RELEASES[self.plan.release].has_topic_ids, recreated=self._injector.recreated,
            partition_counts=self._injector.partition_counts(), only_quotas=self._only_quotas(),
            replaced=self._injector.replaced, exposed=frozenset(self._injector.exposed),
            refusals=frozenset(int(fault.number) for fault in self.plan.faults if fault.kind in CODES),
        )  # fmt: skip

    def _count(self) -> None:
        counts = self.counts
        counts["events"] = self._scheduler.events
        counts["requests"] = self._network.requests
        counts["requests executed after the client gave up"] = self._network.executed_late
        for write in self._writes:
            counts["rows"] += len(write.rows)
            counts[f"write {'ok' if write.error is None else type(write.error).__name__}"] += 1
        for producer in self._producers:
            counts["producers"] += 1
            counts["seconds throttled"] += producer.network.throttled_ms(self._scheduler.now_ms) // 1_000
            counts["waits for room"] += producer.waits_for_room
            counts["batches"] += len(producer.network.sent_batches)
            counts["batches sent again"] += producer.network.resent
            counts["appends without memory"] += producer.pool.refusals
            counts["parts of split batches"] += producer.pool.overdrafts
            counts["turns taken at a lock"] += producer.lock.turns

"""`make bench-slots`: how plan, tasks and commit of an exactly-once micro-batch grow with its slots (Spark partitions).

Plan, tasks and commit run one after the other in this process, without Spark, by the code that Spark runs. The writer
is pickled for the tasks, and each task's message for the commit. Brokers are local, one or three. Their transactions
are of version 2, then of version 1 (Kafka's feature `transaction.version`). A slot writes ROWS rows to PARTITIONS
partitions. The first micro-batch of a sink has other requests: it is the warm-up.

Times are wall time and CPU time of this process. A slot's time is the mean of its round. `EndTxn` is the part of the
commit from the first slot's EndTxn to the last answer. A broker answers the requests of a connection one after the
other, so most of it is brokers' work. `brokers' CPU` is that of all brokers in the commit. Each round's counts are
compared with `slot_model`. A count that differs fails the benchmark.
"""

import contextlib
import pickle
import statistics
import sys
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import slot_model as model
from exactly_once_runs import in_task, own_workers
from frame import arguments, markdown, write_report
from kafka_sink.broker import LocalKafka
from kafka_sink.commit.markers import Decision
from kafka_sink.commit.requests import read_decision
from kafka_sink.commit.runner import run
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.coordinators import Next, next_after
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.producer.error_policy import Action, on_produce_error
from kafka_sink.kafka.protocol.api import ClientResponse, PartitionsResponse, Request, Response
from kafka_sink.kafka.protocol.apis.groups import OffsetFetchRequest, OffsetFetchResponse
from kafka_sink.kafka.protocol.apis.offsets import LATEST
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest, ProduceResponse
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka_sink.options.config import EXACTLY_ONCE, complete, given_options
from kafka_sink.spark.exactly_once.plan import sink_of
from kafka_sink.spark.writer import KafkaStreamWriter
from model.internal_topics import java_hash
from process_tree import TICKS_PER_S, parse_stat

SLOT_COUNTS, BROKER_COUNTS = (8, 64, 256, 1_024, 4_096), (1, 3)
# In this order: the cluster is downgraded in between.
VERSIONS = (2, 1)
PARTITIONS, ROWS, VALUE_BYTES = 4, 8, 100
# The brokers' default; a local cluster has fewer.
COORDINATORS = {"offsets.topic.num.partitions": 50, "transaction.state.log.num.partitions": 50}
GOAL_SLOTS, GOAL_BROKERS, PLAN_GOAL_MS, COMMIT_GOAL_MS = 1_024, 3, 300, 1_000
# A coordinator writes a transaction's last record a moment after the markers.
LOG_TIMEOUT_S, POLL_S = 30.0, 0.05
_PRODUCED_AGAIN = (Action.RETRY, Action.REFRESH_AND_RETRY)


@dataclass(frozen=True, slots=True)
class Case:
    brokers: int
    transaction_version: int
    slots: int

    def __str__(self) -> str:
        return f"{self.slots:,} slots, {self.brokers} broker(s), transactions of version {self.transaction_version}"


@dataclass(frozen=True, slots=True)
class Figure:
    """`rounds`: the times of each in ms, by the names of columns; `KiB to a task`: the pickled writer."""

    case: Case
    rounds: Sequence[Mapping[str, float]]

    def cells(self) -> list[str]:
        case = self.case
        has_goals = (case.slots, case.brokers) == (GOAL_SLOTS, GOAL_BROKERS)
        goals = {model.PLAN: f"<= {PLAN_GOAL_MS:,}", model.COMMIT: f"<= {COMMIT_GOAL_MS:,}"}
        found = [f"{case.slots:,}", str(case.brokers), str(case.transaction_version)]
        for name in self.rounds[0]:
            median = statistics.median(times[name] for times in self.rounds)
            found.append(f"{median:.1f}" if "slot" in name else f"{median:,.0f}")
            found += [goals[name] if has_goals else ""] if name in goals else []
        return found


def table(figures: Sequence[Figure]) -> str:
    head = (
        "slots | brokers | version | plan ms | goal | slot ms | commit ms | goal | EndTxn ms | CPU ms: plan | slot | "
        "commit | brokers' CPU ms | KiB to a task"
    )
    return markdown(head, (" | ".join(each.cells()) for each in figures))


@dataclass(slots=True)
class Traffic:
    """The requests that this process sends, seen where clients hand them to the network, and the answers.

    `events`: in order, with seconds of `time.perf_counter`. `pauses`: how often a step of the commit waited. Counting
    comes later, as it takes time."""

    events: list[tuple[float, Request | ClientResponse]] = field(default_factory=list)
    pauses: int = 0

    def span_ms(self, api: str, *, after: int) -> float:
        """Return the ms from the request of `api` that follows the first `after` ones, to the last answer."""
        answered_s = [at_s for at_s, each in self.events if isinstance(each, ClientResponse) and _name(each) == api]
        sent_s = [at_s for at_s, each in self.events if not isinstance(each, ClientResponse) and _name(each) == api]
        return (answered_s[-1] - sent_s[after]) * 1e3

    def count_in(self, measured: model.Measured, stage: str) -> None:
        """Add the requests by API: those that are sent for the first time, and those that repeat only what an answer
        refused for now."""
        owed: set[Hashable] = set()
        for _, event in self.events:
            if isinstance(event, ClientResponse):
                owed |= set(_refused_for_now(event.request, event.response))
            else:
                keys = set(_keys(event))
                (measured.again if keys and keys <= owed else measured.first)[stage, _name(event)] += 1
                owed -= keys
        measured.pauses += self.pauses


@contextlib.contextmanager
def recorded() -> Iterator[Traffic]:
    """Record what the clients of this process send and receive. Requests of a new connection's own do not count."""
    traffic = Traffic()
    send, poll, sleep = NetworkClient.send, NetworkClient.poll, time.sleep

    def recorded_send(network: NetworkClient, node_id: int, request: Request, *args: Any, **kwargs: Any) -> None:
        traffic.events.append((time.perf_counter(), request))
        send(network, node_id, request, *args, **kwargs)

    def recorded_poll(network: NetworkClient, timeout_ms: int) -> list[ClientResponse]:
        answers = poll(network, timeout_ms)
        now_s = time.perf_counter()
        traffic.events.extend((now_s, answer) for answer in answers)
        return answers

    def counted_sleep(seconds: float) -> None:
        traffic.pauses += 1
        sleep(seconds)

    with (
        patch.object(NetworkClient, "send", recorded_send),
        patch.object(NetworkClient, "poll", recorded_poll),
        # In this process only the steps of the commit sleep.
        patch.object(time, "sleep", counted_sleep),
    ):
        yield traffic


def _name(event: Request | ClientResponse) -> str:
    return (event.request if isinstance(event, ClientResponse) else event).api.name


def _keys(request: Request) -> Iterable[Hashable]:
    """Return what a request asks for, so that a later request is recognised that asks for it again."""
    match request:
        case OffsetFetchRequest(group_ids=keys) | DescribeTransactionsRequest(transactional_ids=keys):
            return [(type(request), key) for key in keys]
        case ProduceRequest(partitions=batches):
            # All batches are for one topic.
            return [(request.transactional_id, each.partition) for each in batches]
    return (request,)


def _refused_for_now(request: Request, response: Response | None) -> Iterable[Hashable]:
    """Return the keys of `request` that the client asks for again."""
    match response:
        case None:
            return _keys(request)
        case OffsetFetchResponse(groups=groups):
            return [(type(request), each.group_id) for each in groups if _is_refused(each.error_code)]
        case DescribeTransactionsResponse(transactions=found):
            return [(type(request), each.transactional_id) for each in found if _is_refused(each.error_code)]
        case ProduceResponse(partitions=results):
            assert isinstance(request, ProduceRequest)
            refused = [each.partition for each in results if on_produce_error(each.error_code) in _PRODUCED_AGAIN]
            return [(request.transactional_id, partition) for partition in refused]
        case PartitionsResponse(results=results):
            return (request,) if any(_is_refused(each.error_code) for each in results) else ()
    return (request,) if _is_refused(getattr(response, "error_code", 0)) else ()


def _is_refused(code: int) -> bool:
    return next_after(code) is not Next.DONE


class Stream:
    """Micro-batches of `case.slots` slots, to a topic and under a name of their own."""

    def __init__(self, kafka: LocalKafka, case: Case, traffic: Traffic) -> None:
        self.name = f"slots-{case.slots}-version-{case.transaction_version}"
        self._given = given_options({
            "kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": self.name, "deliveryGuarantee": EXACTLY_ONCE,
            "transactionalIdPrefix": self.name,
            # No periodic request during a round.
            "kafka.metadata.max.age.ms": "86400000",
        })  # fmt: skip
        self.config = complete(self._given)
        self._kafka, self._case, self._traffic = kafka, case, traffic
        self._micro_batch_id = 0
        numbers = pa.array([row % PARTITIONS for row in range(ROWS)], pa.int32())
        values = pa.array([b"v" * VALUE_BYTES] * ROWS, pa.binary())
        self._rows = pa.record_batch({"value": values, "partition": numbers})
        kafka.create_topic(self.name, PARTITIONS, replication_factor=case.brokers)

    def micro_batch(self) -> tuple[dict[str, float], model.Measured]:
        """Plan, write and commit the next micro-batch."""
        measured, wall_ms, cpu_ms = model.Measured(), dict[str, float](), dict[str, float]()

        @contextlib.contextmanager
        def stage(name: str) -> Iterator[None]:
            self._traffic.events.clear()
            self._traffic.pauses = 0
            began_s = time.perf_counter(), time.process_time()
            yield
            took_s = time.perf_counter() - began_s[0], time.process_time() - began_s[1]
            wall_ms[name], cpu_ms[name] = (1e3 * each for each in took_s)
            self._traffic.count_in(measured, name)

        with stage(model.PLAN):
            writer = pickle.dumps(KafkaStreamWriter(self._given))
        with stage(model.SLOTS):
            messages = [self._task(writer, slot) for slot in range(self._case.slots)]
        committing, before_ms = KafkaStreamWriter(self._given), self._brokers_cpu_ms()
        with stage(model.COMMIT):
            committing.commit([pickle.loads(message) for message in messages], self._micro_batch_id)
        self._micro_batch_id += 1
        slots = self._case.slots
        times = {
            model.PLAN: wall_ms[model.PLAN], "slot": wall_ms[model.SLOTS] / slots, model.COMMIT: wall_ms[model.COMMIT],
            "EndTxn": self._traffic.span_ms("EndTxn", after=1), "CPU of the plan": cpu_ms[model.PLAN],
            "CPU of a slot": cpu_ms[model.SLOTS] / slots, "CPU of the commit": cpu_ms[model.COMMIT],
            "brokers' CPU": self._brokers_cpu_ms() - before_ms, "KiB to a task": len(writer) / 1024,
        }  # fmt: skip
        return times, measured

    def _task(self, writer: bytes, slot: int) -> bytes:
        """Do what a Python worker does for a task."""
        with in_task(slot, self._micro_batch_id):
            return pickle.dumps(pickle.loads(writer).write(iter([self._rows])))

    def _brokers_cpu_ms(self) -> float:
        stats = (Path(f"/proc/{self._kafka.pid(node)}/stat") for node in self._kafka.node_ids)
        return sum(parse_stat(each.read_text(errors="replace")).cpu_ticks for each in stats) / TICKS_PER_S * 1e3


class Watch:
    """Compares one micro-batch of a stream after the other with the model. The leaders stay where they are.

    A transactional id or a group belongs to a partition of an internal topic, by the hash of its name. The leader of
    that partition is its coordinator. Source: Kafka's TransactionStateManager.partitionFor and
    GroupCoordinatorService.partitionFor."""

    def __init__(self, client: AdminClient, stream: Stream, brokers: int) -> None:
        """Begins after a micro-batch of the stream."""
        self._client, self._brokers = client, brokers
        self._sink = sink_of(stream.config, stream.name, client)
        self._topics = {
            model.TOPIC: stream.name,
            model.CONSUMER_OFFSETS: model.CONSUMER_OFFSETS,
            model.TRANSACTION_STATE: model.TRANSACTION_STATE,
        }
        self._leaders = {log: self._leaders_of(topic) for log, topic in self._topics.items()}
        self._decision = self._last_decision()
        self._most_parts = len(self._decision.texts())
        self._ends = self._log_ends()

    def compare(self, measured: model.Measured) -> list[model.Compared]:
        """Compare the micro-batch that just ended with the model. Adds the records of the logs to `measured`."""
        before, decision, ends = self._decision, self._last_decision(), self._ends
        layout = self._layout(before, decision, measured.pauses)
        self._decision, self._most_parts = decision, max(self._most_parts, layout.parts)
        deadline_s = time.monotonic() + LOG_TIMEOUT_S
        while True:
            self._ends = self._log_ends()
            for log, end in self._ends.items():
                measured.first[model.LOGS, log] = end - ends[log]
            lines = model.compare(layout, measured)
            if all(each.is_right for each in lines if each.stage == model.LOGS) or time.monotonic() > deadline_s:
                return lines
            # The coordinator says nothing when it has written that record.
            time.sleep(POLL_S)

    def _layout(self, before: Decision, decision: Decision, pauses: int) -> model.Layout:
        """Return the layout of a micro-batch whose slots write to all partitions of the topic."""
        names, leaders = self._sink.names, self._leaders[model.TOPIC]
        slots = [names.slot(slot) for slot in range(len(decision.pinned))]
        parts_before, parts = len(before.texts()), len(decision.texts())
        groups = [names.decision(part) for part in range(max(parts, parts_before))]
        return model.Layout(
            transaction_version=decision.transaction_version, slots=len(slots), rows=ROWS, partitions=len(leaders),
            brokers=self._brokers, leaders=len(set(leaders)), parts_before=parts_before, parts=parts, pauses=pauses,
            transactions_at=self._spread(slots, model.TRANSACTION_STATE),
            groups_at=self._spread(slots, model.CONSUMER_OFFSETS),
            later_parts_at=self._spread(groups[1:parts_before], model.CONSUMER_OFFSETS),
            new_parts=max(0, parts - self._most_parts),
            parts_logs=len({self._partition_of(group, model.CONSUMER_OFFSETS) for group in groups[:parts]}),
        )  # fmt: skip

    def _partition_of(self, name: str, log: str) -> int:
        return java_hash(name) % len(self._leaders[log])

    def _spread(self, names: Iterable[str], log: str) -> list[int]:
        """Return the number of `names` of each coordinator."""
        return list(Counter(self._leaders[log][self._partition_of(name, log)] for name in names).values())

    def _last_decision(self) -> Decision:
        decision = run(self._client, read_decision(self._sink))
        assert decision is not None, "a micro-batch was committed"
        return decision

    def _leaders_of(self, topic: str) -> list[int]:
        """The node id of each partition's leader."""
        partitions = self._client.topics((topic,))[topic].partitions
        return [each.leader_id for each in sorted(partitions, key=lambda each: each.partition)]

    def _log_ends(self) -> dict[str, int]:
        """Return the sum of the end offsets of each log."""
        ends = {}
        for log, topic in self._topics.items():
            led, _ = self._client.partitions((topic,))
            found = list_offsets(self._client, dict.fromkeys(led, LATEST), IsolationLevel.READ_UNCOMMITTED)
            ends[log] = sum(end.offset for end in found.values())
        return ends


def measure(kafka: LocalKafka, case: Case, rounds: int, traffic: Traffic) -> tuple[Figure, list[list[model.Compared]]]:
    """Return the times, and the counts of each round beside the model."""
    times, counts = [], []
    with own_workers():
        stream = Stream(kafka, case, traffic)
        stream.micro_batch()
        with contextlib.closing(AdminClient(stream.config.producer)) as client:
            watch = Watch(client, stream, case.brokers)
            for _ in range(rounds):
                of_round, measured = stream.micro_batch()
                times.append(of_round)
                counts.append(watch.compare(measured))
    return Figure(case, times), counts


def downgrade(kafka: LocalKafka) -> None:
    """Give the cluster transactions of version 1. Only new connections notice it."""
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    kafka.run_tool("org.apache.kafka.tools.FeatureCommand", *servers, "downgrade", "--feature", "transaction.version=1")


def main() -> None:
    parser = arguments(__doc__, 3, each="each case", output="slots.json")
    parser.add_argument("--slots", type=int, nargs="+", default=SLOT_COUNTS)
    parser.add_argument("--brokers", type=int, nargs="+", default=BROKER_COUNTS, choices=BROKER_COUNTS)
    parser.add_argument("--versions", type=int, nargs="+", default=VERSIONS, choices=VERSIONS, help="of transactions")
    options = parser.parse_args()
    figures, has_failed = [], False
    with recorded() as traffic:
        for brokers in options.brokers:
            with LocalKafka(nodes=brokers, config=COORDINATORS) as kafka:
                for version in sorted(options.versions, reverse=True):
                    if version == 1:
                        downgrade(kafka)
                    for slots in options.slots:
                        case = Case(brokers, version, slots)
                        found, counts = measure(kafka, case, options.rounds, traffic)
                        wrong = [lines for lines in counts if not all(each.is_right for each in lines)]
                        has_failed |= bool(wrong)
                        print(f"{case}:\n{model.comparison((wrong or counts)[-1])}\n{table([found])}", file=sys.stderr)
                        figures.append(found)
    print(table(figures))
    write_report(options.output / "slots.json", {"figures": figures})
    if has_failed:
        sys.exit("a count differs from the model")


if __name__ == "__main__":
    main()

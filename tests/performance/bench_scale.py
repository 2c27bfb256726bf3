"""`make bench-scale`: what many Python workers need of brokers and hosts, beside Spark's JVM sink in the same run.

    this process ─┬─> a local Kafka cluster of one or three brokers
                  ├─> an application with the JVM sink        on one master: local[N] or
                  ├─> an application with pykafka             local-cluster[executors,cores,MiB]; one of them works
                  └─> ... (scale_model.SINKS)                 at a time

A round starts a streaming query in each of them: a few micro-batches to begin, then small ones (a Spark partition of
100 rows for each task slot), then large ones. After the small and after the large ones the query is active and idle,
and is looked at:

    sockets         established connections at each broker's listener, by executor
    producer ids    that the leaders of the topic know (DescribeProducers)
    memory          of an executor: private memory of its Python processes and what they share, once; its JVM's
    markers         the topic's end offsets beyond its rows
    rows/s          of large micro-batches; CPU of the application's whole process tree, without brokers
    latency         of small micro-batches: `triggerExecution` of the query's progress

The first round is not timed. Meanwhile brokers log their requests: connections opened, and requests of a small
micro-batch. Beside the figures stands what `scale_model` says.
"""

import contextlib
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

import frame as shared
from frame import Application, Bench, arguments, bench, chosen, in_turns, jars
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeProducersRequest
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import sink_config
from peers import JVM, PYKAFKA, SAME, Peer, Servers, kafka_options
from process_tree import MB
from scale_model import BASELINE, SINKS, Layout, Model
from spark_application import Sample, sample
from spark_sessions import A_PARTITION_A_FILE, COUNTED, UNIX_CONF, local_session, make_rows, timed

MASTERS = ("local[2]", "local[16]", "local-cluster[2,4,512]", "local-cluster[4,4,512]")
BROKERS = (1, 3)
PARTITIONS, VALUE_BYTES, SMALL_ROWS_A_TASK = 6, 100, 100
FIRST, SMALL, LARGE = 2, 8, 1
# Kafka's client id of every sink, by which the brokers' log tells its requests. All workers of a busy machine may start
# at once: the default of 60 s is too short for them there.
CLIENT_ID, MAX_BLOCK_MS = "bench-scale", 600_000


class MicroBatches(NamedTuple):
    """`cpu_s`: of the application, for all of them."""

    cpu_s: float
    times_ms: list[int]
    rows: list[int]


class Stream:
    """An application with one streaming query at a time, which gets its rows when it is told to.

    Rows are files of parquet, made once, one for each Spark partition of a micro-batch. To run micro-batches is to link
    the files into a folder that the query watches, all of them in one moment; the query takes as many files a
    micro-batch as there are task slots. Between two requests the query is active and has nothing to do."""

    def __init__(self, layout: Layout, jars: str, rows: int, files: Path, folder: Path) -> None:
        """`rows`: of a large micro-batch. `files`: of the rows, shared by applications of one layout. The query has no
        state. An executor runs no planning and no query, so a driver beside executors needs little."""
        memory = {"driver_memory": "1g"}
        if layout.executor_mib is not None:
            memory = {"driver_memory": "700m", "executor_memory": f"{layout.executor_mib}m"}
        confs = {"jars": jars, "sql_files_minPartitionNum": layout.slots, "sql_shuffle_partitions": 1, UNIX_CONF: True}
        given = {**A_PARTITION_A_FILE, **COUNTED, **confs, **memory}
        self._spark = local_session("scale", layout.master, folder, **given)
        self._slots, self._files, self._root = layout.slots, files, folder
        for name, count in (("small", SMALL_ROWS_A_TASK * layout.slots), ("large", rows)):
            if not (files / name).exists():
                make_rows(self._spark, files / name, count, VALUE_BYTES, files=layout.slots)

    def start(self, format_name: str, options: Mapping[str, str]) -> None:
        self._folder = self._root / f"query-{options['topic']}"
        (self._folder / "incoming").mkdir(parents=True)
        self._linked, self._last_batch_id = 0, -1
        reader = self._spark.readStream.schema("key BINARY, value BINARY").option("maxFilesPerTrigger", self._slots)
        writer = reader.parquet(f"{self._folder}/incoming/*").writeStream.format(format_name).options(**options)
        self._query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def run(self, rows: str, micro_batches: int) -> MicroBatches:
        """Wait until the query has written the files of `rows` so many times."""
        parts = sorted((self._files / rows).glob("*.parquet"))
        if len(parts) != self._slots:
            raise AssertionError(f"{len(parts)} files instead of {self._slots}")

        def write() -> None:
            # Complete before the query can see it: a folder of another name, then renamed.
            self._linked += 1
            made = shared.link_files(parts, self._folder / f"made-{self._linked}", micro_batches)
            made.rename(self._folder / "incoming" / made.name)
            self._query.processAllAvailable()

        cost, last = timed(write), self._last_batch_id
        progress = [each for each in self._query.recentProgress if each.numInputRows and each.batchId > last]
        self._last_batch_id = progress[-1].batchId
        if len(progress) != micro_batches:
            raise AssertionError(f"{len(progress)} micro-batches instead of {micro_batches}")
        times_ms = [each.durationMs["triggerExecution"] for each in progress]
        return MicroBatches(cost.cpu_s, times_ms, [each.numInputRows for each in progress])

    def end(self) -> None:
        self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class RequestLog:
    """Which requests a client sends: counted in the brokers' own log of requests, from one look to the next.

    Brokers log every request that they have completed when `kafka.request.logger` is at DEBUG (RequestChannel.scala),
    and its level can be changed while they run (KIP-412). It costs the brokers CPU, so nothing is timed meanwhile."""

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka
        self._read = {kafka.dir / f"node-{node}" / "broker.log": 0 for node in kafka.node_ids}

    def since_last(self) -> Counter[str]:
        """API -> requests that brokers have completed since the last call. The brokers write a line after they have
        answered, so a last one may come late: it counts the next time."""
        found: Counter[str] = Counter()
        for log, read in self._read.items():
            with log.open("rb") as lines:
                lines.seek(read)
                text = lines.read()
            whole = text[: text.rfind(b"\n") + 1].decode(errors="replace")
            self._read[log] = read + text.rfind(b"\n") + 1
            found.update(re.findall(rf'"clientId":"{CLIENT_ID}","requestApiKeyName":"(\w+)"', whole))
        return found

    def set_level(self, level: str) -> None:
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self._kafka.bootstrap_servers)) as admin:
            resources = [
                ConfigResource(ConfigResourceType.BROKER_LOGGER, str(node), configs={"kafka.request.logger": level})
                for node in self._kafka.node_ids
            ]
            admin.alter_configs(resources, raise_on_unknown=False)


@dataclass(frozen=True, slots=True)
class Round:
    """One query. `small`, `large`: looks at the application after small and large micro-batches. `markers`: offsets
    that a micro-batch took in the topic beyond its rows. `producer_ids`: that the topic's leaders know."""

    rows_per_s: float
    cpu_s_a_million_rows: float
    latency_ms: float
    small: Sample
    large: Sample
    producer_ids: int
    markers: float


@dataclass(frozen=True, slots=True)
class Measured:
    """`opened`: connections that the query's first micro-batches opened in the round that is not timed, to all brokers.
    `requests`: of one small micro-batch after those, by API."""

    model: Model
    rounds: Sequence[Round]
    opened: int
    requests: Mapping[str, float]

    def beside(self, figure: str, by_model: float) -> str:
        return beside(statistics.median(map(attrgetter(figure), self.rounds)), by_model)


class Query:
    """One sink's application, on one cluster."""

    def __init__(self, model: Model, on: Bench, application: Application) -> None:
        self.model, self._on, self._application = model, on, application
        addresses = on.kafka.bootstrap_servers.split(",")
        ports = (int(address.rpartition(":")[2]) for address in addresses)
        self._listeners = dict(zip(ports, on.kafka.node_ids, strict=True))

    def count(self, log: RequestLog) -> tuple[int, dict[str, float]]:
        """A round that is not timed."""
        log.since_last()
        self._start()
        # A connection begins with this request, before which a broker takes no other of these clients.
        opened = log.since_last()["API_VERSIONS"]
        self._run("small", SMALL)
        requests = log.since_last()
        self._run("large", LARGE)
        self._end()
        return opened, {api: number / SMALL for api, number in sorted(requests.items())}

    def round(self) -> Round:
        self._start()
        small = self._run("small", SMALL)
        after_small, producer_ids = sample(self._application.pid, self._listeners), self._producer_ids()
        large = self._run("large", LARGE)
        after_large = sample(self._application.pid, self._listeners)
        rates = (rows / ms * 1_000 for rows, ms in zip(large.rows, large.times_ms, strict=True))
        cpu_s, latency_ms = large.cpu_s / sum(large.rows) * 1e6, statistics.median(small.times_ms)
        markers = self._end() / (FIRST + SMALL + LARGE)
        return Round(statistics.median(rates), cpu_s, latency_ms, after_small, after_large, producer_ids, markers)

    def _producer_ids(self) -> int:
        config = sink_config({"kafka.bootstrap.servers": self._on.kafka.bootstrap_servers}).producer
        partitions = [TopicPartition(self._topic, partition) for partition in range(PARTITIONS)]
        with contextlib.closing(AdminClient(config)) as admin:
            found = admin.ask_leaders(partitions, DescribeProducersRequest)
        return len({each.producer_id for partition in found.values() for each in partition.producers})

    def _start(self) -> None:
        """A query that has written its first micro-batches to a topic of its own."""
        (self._topic,) = self._on.topics.create(PARTITIONS)
        self._rows, sink = 0, self.model.sink
        peer = Peer(PYKAFKA if sink.has_workers else JVM, "none", SAME)
        options = dict(kafka_options(peer, Servers(self._on.kafka.bootstrap_servers)), topic=self._topic)
        options |= {"kafka.client.id": CLIENT_ID, "kafka.max.block.ms": str(MAX_BLOCK_MS)}
        options |= {"deliveryGuarantee": sink.name} if sink.is_transactional else {}
        self._application.ask("start", "pykafka" if sink.has_workers else "kafka", options)
        self._run("small", FIRST)

    def _run(self, rows: str, micro_batches: int) -> MicroBatches:
        found: MicroBatches = self._application.ask("run", rows, micro_batches)
        self._rows += sum(found.rows)
        return found

    def _end(self) -> int:
        """Stop the query and delete its topic. Return how many offsets it took beyond its rows."""
        self._application.ask("end")
        found = self._on.topics.row_count([self._topic], PARTITIONS) - self._rows
        if found < 0 or (found and not self.model.sink.is_transactional):
            raise SystemExit(f"{self.model}: {self._rows} rows, and the topic has {self._rows + found}")
        self._on.topics.delete([self._topic])
        return found


def connections_table(measured: Sequence[Measured]) -> str:
    """Measured / by the model, as in all tables."""

    def row(each: Measured) -> str:
        names = ("workers", "sockets_a_broker", "planning_sockets_a_broker")
        workers, sockets, planning = (each.beside(f"small.{name}", getattr(each.model, name)) for name in names)
        ids = each.beside("producer_ids", each.model.producer_ids)
        return f"{workers} | {sockets} | {planning} | {number(each.opened)} | {ids}"

    return _table("Python workers | sockets a broker | planning's | connections opened | producer ids", row, measured)


def requests_table(measured: Sequence[Measured]) -> str:
    """Of a small micro-batch."""

    def row(each: Measured) -> str:
        produce, metadata = each.requests.get("PRODUCE", 0.0), each.requests.get("METADATA", 0.0)
        others = beside(sum(each.requests.values()) - produce - metadata, each.model.other_requests)
        markers = each.beside("markers", each.model.markers)
        return f"{beside(produce, each.model.produce_requests)} | {number(metadata)} | {others} | {markers}"

    return _table("Produce | Metadata | other requests | markers", row, measured)


def memory_table(measured: Sequence[Measured]) -> str:
    """MB of an executor."""

    def row(each: Measured) -> str:
        after_small, after_large = ([getattr(found, name) for found in each.rounds] for name in ("small", "large"))
        python = beside(shared.median(after_small, "python_mb"), each.model.python_bytes / MB, digits=0)
        others = (
            shared.median(after_large, "python_mb"),
            shared.median(after_small, "worker_mb"),
            shared.median(after_large, "jvm_mb"),
        )
        return " | ".join([python, *(number(megabytes, digits=0) for megabytes in others)])

    return _table("Python MB | Python MB after large | private MB a worker | JVM MB", row, measured)


def speed_table(measured: Sequence[Measured]) -> str:
    """Ratios are medians of the rounds' own, to the JVM sink's in the same round."""
    baselines = {(each.model.layout, each.model.brokers): each for each in measured if each.model.sink == BASELINE}
    times = "x JVM sink's"
    head = f"M rows/s | (range) | {times} | CPU s a million rows | {times} | ms a small micro-batch | {times}"

    def row(each: Measured) -> str:
        to = baselines.get((each.model.layout, each.model.brokers))
        rates = [found.rows_per_s / 1e6 for found in each.rounds]
        fields = ("rows_per_s", "cpu_s_a_million_rows", "latency_ms")
        faster, more_cpu, later = (
            "" if to in (None, each) else f"{shared.median_ratio(each.rounds, to.rounds, field):.2f}"
            for field in fields
        )
        rate, cpu, ms = (shared.median(each.rounds, field) for field in fields)
        spread = f"{min(rates):.2f} - {max(rates):.2f}"
        return f"{rate / 1e6:.2f} | {spread} | {faster} | {cpu:.2f} | {more_cpu} | {ms:.0f} | {later}"

    return _table(head, row, measured)


def _table(head: str, row: Callable[[Measured], str], measured: Sequence[Measured]) -> str:
    rows = (
        f"{each.model.layout.master} | {each.model.brokers} | {each.model.sink} | {row(each)}" for each in measured
    )  # fmt: skip
    return shared.markdown(f"master | brokers | sink | {head}", rows)


def beside(measured: float, by_model: float, digits: int = 1) -> str:
    return f"{number(measured, digits)} / {number(by_model, digits)}"


def number(value: float, digits: int = 1) -> str:
    """Without a fraction where there is none."""
    return f"{value:,.{digits}f}".removesuffix(".0")


@contextlib.contextmanager
def queries(models: Sequence[Model], on: Bench, rows: int, output: Path) -> Iterator[dict[Model, Query]]:
    """The applications of one master; only one of them works at a time."""
    with contextlib.ExitStack() as stack:
        found: dict[Model, Query] = {}
        for model in models:
            # A folder not of the master's name, whose brackets would be a pattern.
            folder, files = Path(tempfile.mkdtemp(dir=on.folder)), on.folder / f"rows-of-{model.layout.slots}"
            log = output / f"scale-{len(found)}.log"
            application = Application(log, Stream, model.layout, jars(), rows, files, folder)
            stack.callback(application.stop)
            found[model] = Query(model, on, application)
        yield found


def measure(of: Mapping[Model, Query], on: Bench, rounds: int) -> list[Measured]:
    log = RequestLog(on.kafka)
    log.set_level("DEBUG")
    counted = {model: query.count(log) for model, query in of.items()}
    log.set_level("WARN")
    found = in_turns([*of], rounds, lambda model: of[model].round(), warms_up=False)
    return [Measured(model, found[model], *counted[model]) for model in of]


def main() -> None:
    parser = arguments(__doc__, 3, each="every sink", output="scale.json", only="sinks")
    parser.add_argument("--masters", nargs="*", default=MASTERS, help="local[N], local-cluster[executors,cores,MiB]")
    parser.add_argument("--brokers", nargs="*", type=int, choices=BROKERS, default=BROKERS)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a large micro-batch")
    options = parser.parse_args()
    layouts = [Layout.of(master) for master in options.masters]
    measured: list[Measured] = []
    for brokers in options.brokers:
        with bench(LocalKafka(brokers)) as on:
            for layout in layouts:
                started_s = time.monotonic()
                models = [Model(sink, layout, brokers, PARTITIONS) for sink in chosen(SINKS, options.only)]
                with queries(models, on, options.rows, options.output) as of:
                    found = measure(of, on, options.rounds)
                said = f"{layout.master}, {brokers} brokers: {time.monotonic() - started_s:.0f} s"
                print(said, connections_table(found), speed_table(found), sep="\n", file=sys.stderr)
                measured += found
                report = {"rows": options.rows, "partitions": PARTITIONS, "cases": [asdict(each) for each in measured]}
                shared.write_report(options.output / "scale.json", report, on.kafka)
    tables = (connections_table, requests_table, memory_table, speed_table)
    print(*(table(measured) for table in tables), sep="\n\n")


if __name__ == "__main__":
    main()

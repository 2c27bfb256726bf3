"""`make bench-scale`: what many Python workers need of brokers and hosts, beside Spark's JVM sink in the same run.

    this process ─┬─> a local Kafka cluster of one or three brokers
                  ├─> scale_driver.py for the JVM sink        on one master: local[N] or
                  ├─> scale_driver.py for pykafka             local-cluster[executors,cores,MiB]; one of them works
                  └─> ... (scale_sinks.SINKS)                 at a time

On each master and number of brokers every sink has a Spark application. A round starts a streaming query in each of
them, in turned order: a few micro-batches to begin, then small ones (a Spark partition of 100 rows for each task slot),
then large ones. The query is active and idle when it is looked at, after the small and after the large ones:

    sockets         established connections at each broker's listener, by executor (`tcp_sockets`)
    producer ids    that the leaders of the topic know (DescribeProducers)
    memory          of an executor: private memory of its Python processes and what they share, once; its JVM's
    markers         the topic's end offsets beyond its rows
    rows/s          of large micro-batches; CPU of the application's whole process tree, without brokers
    latency         of small micro-batches: `triggerExecution` of the query's progress

The first round warms up and is not timed. Meanwhile brokers log their requests: connections opened, and requests of a
small micro-batch. Figures are medians of the other rounds. Beside them stands what `scale_model` says. Nothing asserts
figures, machines differ; that the topic has all rows is asserted.

Prints four tables; all figures go to scale.json in build/bench.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frame import arguments, as_json, jars, machine, same_settings, turned, write_report
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis.describe_producers import DescribeProducersRequest
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import sink_config
from request_log import FIRST_OF_A_CONNECTION, RequestLog, logged_requests
from scale_model import Layout, Model
from scale_report import Measured, Requests, Round, connections_table, memory_table, requests_table, speed_table
from scale_sinks import CLIENT_ID, SINKS, Sink, options_of
from spark_application import Sample, sample
from spark_environment import HERE
from spark_process import SparkProcess, Topics

MASTERS = ("local[2]", "local[16]", "local-cluster[2,4,512]", "local-cluster[4,4,512]")
BROKERS = (1, 3)
PARTITIONS = 6
FIRST, SMALL, LARGE = 2, 8, 1


@dataclass(frozen=True, slots=True)
class Cluster:
    """`listeners`: port -> node."""

    kafka: LocalKafka
    topics: Topics
    admin: AdminClient
    listeners: Mapping[int, int]

    def producer_ids(self, topic: str) -> int:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        found = self.admin.ask_leaders(partitions, DescribeProducersRequest)
        return len({each.producer_id for partition in found.values() for each in partition.producers})


@contextlib.contextmanager
def cluster(brokers: int) -> Iterator[Cluster]:
    with LocalKafka(brokers) as kafka, contextlib.ExitStack() as stack:
        topics = stack.enter_context(contextlib.closing(Topics(kafka)))
        config = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer
        admin = stack.enter_context(contextlib.closing(AdminClient(config)))
        ports = (int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(","))
        yield Cluster(kafka, topics, admin, dict(zip(ports, kafka.node_ids, strict=True)))


class Application:
    """One sink's scale_driver.py, on one cluster."""

    def __init__(self, model: Model, on: Cluster, given: str, log: Path) -> None:
        self._model = model
        self._on = on
        self._options = options_of(model.sink, same_settings(), on.kafka.bootstrap_servers)
        self._process = SparkProcess([HERE / "scale_driver.py", given], log)
        self.stop = self._process.stop

    def count(self, log: RequestLog) -> Requests:
        """A round that is not timed."""
        log.since_last()
        topic = self._start()
        opened = log.since_last()[FIRST_OF_A_CONNECTION]
        self._run("small", SMALL)
        requests = log.since_last()
        self._run("large", LARGE)
        self._end(topic)
        return Requests(opened, {api: number / SMALL for api, number in sorted(requests.items())})

    def round(self) -> Round:
        topic = self._start()
        small = self._run("small", SMALL)
        after_small, producer_ids = self._look(), self._on.producer_ids(topic)
        large = self._run("large", LARGE)
        after_large = self._look()
        return Round(
            small_ms=small["micro_batches_ms"],
            large_ms=large["micro_batches_ms"],
            large_rows=large["rows"],
            cpu_s=large["cpu_s"],
            small=after_small,
            large=after_large,
            producer_ids=producer_ids,
            markers=self._end(topic) / (FIRST + SMALL + LARGE),
        )

    def _start(self) -> str:
        """The topic of a query that has written its first micro-batches."""
        (topic,) = self._on.topics.create(PARTITIONS)
        self._rows = 0
        self._process.ask(
            {"do": "start", "format": self._model.sink.format_name, "options": self._options, "topic": topic}
        )
        self._run("small", FIRST)
        return topic

    def _run(self, rows: str, micro_batches: int) -> dict[str, Any]:
        found: dict[str, Any] = self._process.ask({"do": "run", "rows": rows, "micro_batches": micro_batches})
        if len(found["rows"]) != micro_batches:
            raise AssertionError(f"{self._model}: {len(found['rows'])} micro-batches instead of {micro_batches}")
        self._rows += sum(found["rows"])
        return found

    def _look(self) -> Sample:
        return sample(self._process.pid, self._on.listeners)

    def _end(self, topic: str) -> int:
        """Stop the query and delete its topic. Return how many offsets it took beyond its rows."""
        self._process.ask({"do": "stop"})
        found = self._on.topics.row_count([topic], PARTITIONS) - self._rows
        if found < 0 or (found and not self._model.sink.is_transactional):
            raise SystemExit(f"{self._model}: {self._rows} rows, and the topic has {self._rows + found}")
        self._on.topics.delete([topic])
        return found


def measure(applications: Mapping[Model, Application], on: Cluster, rounds: int) -> list[Measured]:
    with logged_requests(on.kafka, CLIENT_ID) as log:
        requests = {model: application.count(log) for model, application in applications.items()}
    found: dict[Model, list[Round]] = {model: [] for model in applications}
    for number in range(rounds):
        for model in turned(tuple(applications), number):
            found[model].append(applications[model].round())
    return [Measured(model, found[model], requests[model]) for model in applications]


def main() -> None:
    parser = arguments(__doc__, 3, each="every sink", output="scale.json")
    parser.add_argument("--masters", nargs="*", default=MASTERS, help="local[N], local-cluster[executors,cores,MiB]")
    parser.add_argument("--brokers", nargs="*", type=int, choices=BROKERS, default=BROKERS)
    parser.add_argument("--only", nargs="*", help="sinks with one of these in their name")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a large micro-batch")
    options = parser.parse_args()
    layouts = [Layout.of(master) for master in options.masters]
    options.output.mkdir(parents=True, exist_ok=True)
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="pykafka-bench-") as folder:
        for brokers in options.brokers:
            with cluster(brokers) as on:
                for layout in layouts:
                    started_s = time.monotonic()
                    models = [Model(sink, layout, brokers, PARTITIONS) for sink in chosen(options.only)]
                    found = side_by_side(models, on, options.rounds, options.rows, Path(folder), options.output)
                    said = f"{layout.master}, {brokers} brokers: {time.monotonic() - started_s:.0f} s"
                    print(said, connections_table(found), speed_table(found), sep="\n", file=sys.stderr)
                    measured += found
                    write_report(options.output / "scale.json", report(measured, options.rows))
    tables = (connections_table, requests_table, memory_table, speed_table)
    print(*(table(measured) for table in tables), sep="\n\n")


def chosen(words: Sequence[str] | None) -> list[Sink]:
    return [sink for sink in SINKS if words is None or any(word in sink.name for word in words)]


def side_by_side(
    models: Sequence[Model], on: Cluster, rounds: int, rows: int, scratch: Path, output: Path
) -> list[Measured]:
    """The applications of one master; only one of them works at a time."""
    applications: dict[Model, Application] = {}
    with contextlib.ExitStack() as stack:
        for number, model in enumerate(models):
            # A folder not of the master's name, whose brackets would be a pattern.
            given = {
                "master": model.layout.master,
                "jars": jars(),
                "rows": rows,
                "folder": tempfile.mkdtemp(dir=scratch),
            }
            given["files"] = str(scratch / f"rows-of-{model.layout.slots}")
            applications[model] = Application(model, on, as_json(given), output / f"scale-{number}.log")
            stack.callback(applications[model].stop)
        return measure(applications, on, rounds)


def report(measured: Sequence[Measured], rows: int) -> dict[str, object]:
    cases = [
        {
            "master": each.model.layout.master,
            "brokers": each.model.brokers,
            "sink": each.model.sink.name,
            "requests": each.requests,
            "rounds": each.rounds,
        }
        for each in measured
    ]
    return machine() | {"rows": rows, "partitions": PARTITIONS, "cases": cases}


if __name__ == "__main__":
    main()

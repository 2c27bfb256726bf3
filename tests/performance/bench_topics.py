"""`make bench-tasks`, its second part: from topic to topic, exactly-once, beside Spark's own source and sink.

The topic that is read has 200 partitions, the topic that is written 8. A query reads rows in micro-batches, each of so
many rows of every partition, and writes them. A round has a query of each case on a checkpoint of its own. Its first
micro-batch does not count. `ms`: Spark's own time of a micro-batch, the median. `CPU s`: of the whole application in a
query, divided by its micro-batches. `transactions`: that the last decision names, and its own. `connections`: of all
Python processes and the JVM at the broker, while the last micro-batch commits.

The writer's rows are counted by reading what is committed. Ratios are those of the rounds' own figures.
"""

import contextlib
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

import frame as shared
from frame import Bench, arguments, bench, chosen, in_turns
from kafka_sink.commit.requests import read_decision
from kafka_sink.commit.runner import run
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.options.config import EXACTLY_ONCE, sink_config
from kafka_sink.spark.exactly_once.plan import sink_of
from open_connections import connections_of
from process_tree import cpu_s, running, tree_of
from spark_sessions import KEY, UNIX_CONF, local_session, value

READ_PARTITIONS, WRITTEN_PARTITIONS, VALUE_BYTES, AT_A_TIME = 200, 8, 100, 2
JVM, PYKAFKA = "kafka", "pykafka"


@dataclass(frozen=True, slots=True)
class Size:
    """`rows`: of each partition in a micro-batch."""

    rows: int
    micro_batches: int

    def __str__(self) -> str:
        return f"{self.rows * READ_PARTITIONS:,} rows"


@dataclass(frozen=True, slots=True)
class Query:
    """`format`: of source and sink. `most_partitions`: maxPartitions of the read, 0 without it."""

    format: str
    most_partitions: int = 0

    def __str__(self) -> str:
        packed = f", maxPartitions={self.most_partitions}" if self.most_partitions else ""
        return 'format("kafka"), at-least-once' if self.format == JVM else f"pykafka, exactly-once{packed}"


@dataclass(frozen=True, slots=True)
class Figure:
    ms: float
    cpu_s: float
    transactions: int
    connections: int


SIZES = (Size(1, micro_batches=6), Size(2_000, micro_batches=2))
QUERIES = (Query(JVM), Query(PYKAFKA), Query(PYKAFKA, most_partitions=8))
HEAD = "a micro-batch of | query | ms | to format(kafka) | CPU s | to format(kafka) | transactions | connections"


def fill(spark: SparkSession, on: Bench, size: Size) -> str:
    """Return a topic with the rows of all micro-batches, and of one before them."""
    (topic,) = on.topics.create(READ_PARTITIONS)
    rows = size.rows * READ_PARTITIONS * (1 + size.micro_batches)
    frame = spark.range(0, rows, 1, AT_A_TIME).selectExpr(
        KEY, value(VALUE_BYTES), f"int(id % {READ_PARTITIONS}) AS partition"
    )
    to_topic = {"kafka.bootstrap.servers": on.kafka.bootstrap_servers, "topic": topic}
    frame.write.format(PYKAFKA).mode("append").options(**to_topic).save()
    if on.topics.row_count([topic], READ_PARTITIONS) != rows:
        raise SystemExit(f"{topic} has not {rows} rows")
    return topic


def measure(spark: SparkSession, on: Bench, size: Size, source: str, query: Query) -> Figure:
    (topic,) = on.topics.create(WRITTEN_PARTITIONS)
    servers = {"kafka.bootstrap.servers": on.kafka.bootstrap_servers}
    options = {**servers, "subscribe": source, "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = str(size.rows * READ_PARTITIONS)
    if query.most_partitions:
        options["maxPartitions"] = str(query.most_partitions)
    to_topic = {**servers, "topic": topic}
    if query.format == PYKAFKA:
        to_topic |= {"deliveryGuarantee": EXACTLY_ONCE, "transactionalIdPrefix": topic}
    stream = spark.readStream.format(query.format).options(**options).load().select("key", "value")
    writer = stream.writeStream.format(query.format).options(**to_topic).trigger(availableNow=True)
    before_s, most = _cpu_s(on), 0
    running_query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=on.folder)).start()
    while not running_query.awaitTermination(1):
        most = max(most, _connections(on))
    progress = [each for each in running_query.recentProgress if each.numInputRows]
    if len(progress) != 1 + size.micro_batches:
        raise AssertionError(f"{len(progress)} micro-batches instead of {1 + size.micro_batches}")
    used_s = (_cpu_s(on) - before_s) / len(progress)
    found = spark.read.format(PYKAFKA).options(**servers, subscribe=topic, maxPartitions="2").load().count()
    if found != size.rows * READ_PARTITIONS * len(progress):
        raise SystemExit(f"{query}: {found} rows are committed")
    ms = statistics.median(each.durationMs["triggerExecution"] for each in progress[1:])
    return Figure(ms, used_s, _transactions(to_topic) if query.format == PYKAFKA else 0, most)


def _cpu_s(on: Bench) -> float:
    """Of this process and all below it, without the broker."""
    broker = on.kafka.pid(1)
    is_below = any(each.pid == broker for each in tree_of(os.getpid(), running()))
    return cpu_s(os.getpid()) - (cpu_s(broker) if is_below else 0)


def _connections(on: Bench) -> int:
    pids = {each.pid for each in tree_of(os.getpid(), running())}
    listener = int(on.kafka.bootstrap_servers.rpartition(":")[2])
    return sum(connections_of(pids, {listener: 1}).values())


def _transactions(options: Mapping[str, str]) -> int:
    config = sink_config(dict(options))
    with contextlib.closing(AdminClient(config.producer)) as client:
        decision = run(client, read_decision(sink_of(config, options["transactionalIdPrefix"], client)))
    assert decision is not None, "the query has committed"
    return len(decision.pinned) - len(decision.resting) + 1


def lines(size: Size, found: Mapping[Query, list[Figure]]) -> list[str]:
    base = found[QUERIES[0]]
    return [
        f"{size} | {query} | {shared.median(figures, 'ms'):,.0f} | {shared.median_ratio(figures, base, 'ms'):.2f} | "
        f"{shared.median(figures, 'cpu_s'):.2f} | {shared.median_ratio(figures, base, 'cpu_s'):.2f} | "
        f"{figures[-1].transactions or ''} | {max(each.connections for each in figures)}"
        for query, figures in found.items()
    ]


def main() -> None:
    parser = arguments(__doc__, 3, each="all queries", output="topics.json", only="micro-batches")
    options = parser.parse_args()
    with bench() as on:
        confs: dict[str, object] = {UNIX_CONF: True, "jars": shared.jars()}
        with shared.stopped(local_session("topics", f"local[{AT_A_TIME}]", on.folder, **confs)) as spark:
            table = []
            for size in chosen(SIZES, options.only):
                measured = partial(measure, spark, on, size, fill(spark, on, size))
                table.append(lines(size, in_turns(QUERIES, options.rounds, measured, f"{size}: ")))
                print(shared.markdown(HEAD, table[-1]), file=sys.stderr)
        text = shared.markdown(HEAD, itertools.chain(*table))
        shared.write_report(options.output / "topics.json", {"table": text.splitlines()}, on.kafka)
    print(text)


if __name__ == "__main__":
    main()

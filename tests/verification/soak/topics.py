"""`make soak-topics`: a query reads a topic, transforms it, and writes another topic exactly-once. Meanwhile its
processes and brokers are killed; at the end every record is compared.

    PYTHONPATH=tests/verification:tests/support:jobs python -m soak.topics --minutes 5 --seed 1
    PYTHONPATH=tests/verification:tests/support:jobs python -m soak.topics --minutes 60 --apart 45 75 --results FILE

The query is jobs/transform_kafka.py, over three brokers. A producer that is not ours writes transactions into the topic
that the query reads, and aborts some of them. Half-way this topic gets another partition. kill -9 goes, by the seed, to
the driver (its workers live on for a moment), to all of its processes at once, to one worker, to the planner of the
source, to a broker, or to the broker that coordinates the query's transactions or groups. The application is started
again when it has ended, a broker at once; nothing else is done.

At the end the application is killed once more, and a last run reads what is there (trigger availableNow). Exit status 1
unless a reader that is not ours sees in the written topic what it computes from the topic that is read, each record
once and in order, with nothing left open, no more transactional ids than slots, and nothing that grows (soak.usage).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from committed_rows import held_back, open_transactions, transactions
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from reliability.campaign import Campaign, Figure
from soak import topic_comparison, usage
from soak.chart import svg
from soak.topic_supervisor import PARTITIONS, SLOTS, TopicSupervisor
from soak.topic_writer import TopicWriter

SOURCE, SINK = "soak-source", "soak-sink"
READ_TIMEOUT_S = 300
# Five minutes: what each task needs is loaded only as kills allow.
FEWEST_SAMPLES = 150
# The commit topic is made by the sink, with what brokers have by default.
CLUSTER = {"default.replication.factor": 3, "min.insync.replicas": 2}


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as scratch,
        LocalKafka(nodes=3, kafka_version=arguments.kafka_version, config=CLUSTER) as kafka,
    ):
        for topic in (SOURCE, SINK):
            kafka.create_topic(topic, PARTITIONS, replication_factor=3)
        writer = TopicWriter(kafka.bootstrap_servers, SOURCE, arguments.seed)
        apart = (arguments.apart[0], arguments.apart[1])
        supervisor = TopicSupervisor(kafka, SOURCE, SINK, Path(scratch), apart=apart, seed=arguments.seed)
        with closing(supervisor):
            supervisor.run(60 * arguments.minutes)
            writer.stop()
            supervisor.finish()
        told, passed = _compared(kafka, writer, supervisor)
    told = {"Kafka, 3 brokers": arguments.kafka_version, "seed": arguments.seed} | told
    told["minutes"] = round(supervisor.application.elapsed_s / 60)
    for name, figure in told.items():
        print(f"{name:<44}{figure}", flush=True)
    if arguments.results:
        _campaign(arguments, told, passed=passed).write(arguments.results)
        chart = svg(supervisor.application.samples, supervisor.kills.at_s)
        arguments.results.with_suffix(".svg").write_text(chart, encoding="utf-8")
    return 0 if passed else 1


def _campaign(arguments: argparse.Namespace, told: Mapping[str, Figure], *, passed: bool) -> Campaign:
    apart = "{:g} {:g}".format(*arguments.apart)
    stem = arguments.results.stem
    return Campaign(
        name="soak_topics",
        title="Soak, from topic to topic",
        command=f"make soak-topics MINUTES={arguments.minutes:g} SEED={arguments.seed} ARGS='--apart {apart}'",
        about="A query reads a topic, transforms its records and writes them into another topic, exactly-once, over "
        "three brokers. Another client writes transactions into the first topic, and aborts some. Processes of the "
        "query and brokers are killed (kill -9). Then that client reads both topics, and every record is compared. The "
        f"chart [{stem}.svg](reliability/{stem}.svg) shows the memory, descriptors and threads of the processes, with "
        "the kills as dashes. The figures `a -> b` below are medians of the second and of the last quarter of the "
        "application's longest life.",
        figures=told,
        passed=passed,
    )


def _compared(kafka: LocalKafka, writer: TopicWriter, supervisor: TopicSupervisor) -> tuple[dict[str, Figure], bool]:
    expected = topic_comparison.transformed(read_topic(kafka.bootstrap_servers, SOURCE, READ_TIMEOUT_S))
    found = topic_comparison.compared(expected, read_topic(kafka.bootstrap_servers, SINK, READ_TIMEOUT_S))
    aborted = (
        sum(1 for _ in read_topic(kafka.bootstrap_servers, SINK, READ_TIMEOUT_S, isolation_level="read_uncommitted"))
        - found.found
    )
    ids = transactions(kafka, SINK)
    expected_ids = {f"{SINK}.{slot}" for slot in range(SLOTS)} | {f"{SINK}.driver"}
    left_open = open_transactions(kafka, SINK)
    behind = held_back(kafka, SINK)
    application, kills = supervisor.application, supervisor.kills.counts
    growths = usage.growths(application.samples, fewest=FEWEST_SAMPLES)
    told: dict[str, Figure] = dict([
        ("transactions committed into the source", writer.committed), ("transactions aborted there", writer.aborted),
        ("transactions that failed there", writer.failed), ("micro-batches", application.committed()),
        *((f"kill -9 of {kind}", count) for kind, count in sorted(kills.items())), ("kills", kills.total()),
        ("starts of the application", application.starts),
        *((f"ended by {name}", count) for name, count in sorted(application.endings.items())),
        ("records expected", found.expected), ("records read (read_committed)", found.found),
        ("records aborted", aborted), ("lost", found.lost), ("doubled", found.doubled), ("wrong", found.wrong),
        ("out of order", found.out_of_order), ("open transactions", len(left_open)), ("offsets held back", behind),
        ("transactional ids: slots + driver", f"{len(ids)} ({SLOTS} + 1)"),
        *((f"{growth.role}: {growth.resource}", str(growth)) for growth in growths),
    ])  # fmt: skip
    nothing_left = not left_open and not behind and ids.keys() == expected_ids
    return told, bool(found.expected) and found.none and nothing_left and all(growth.flat for growth in growths)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="for how long processes are killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka-version", default="4.3.1")
    parser.add_argument("--apart", type=float, nargs=2, default=(20, 40), help="seconds from one kill to the next")
    parser.add_argument("--results", type=Path, help="where figures go as JSON, and the chart beside them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

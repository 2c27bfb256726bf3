"""`make soak`: an exactly-once stream into three brokers, with many micro-batches. In about every fifth a process is
killed; at the end every row is counted. `make soak-topics`: the same from topic to topic.

    PYTHONPATH=tests/verification:tests/support:jobs python -m soak --batches 900 --seed 1 --apart 10 20 --results FILE
    PYTHONPATH=tests/verification:tests/support:jobs python -m soak --minutes 60 --seed 1 --apart 45 75 --results FILE

kill -9 goes, by the seed, to the driver (its workers live on for a moment), to all of its processes at once, to one
worker, or to a broker, at any moment of a micro-batch. The application is started again when it has ended, a broker at
once; nothing else is done. The seed decides what is killed and when; what that meets, the machine.

From topic to topic, the query is jobs/transform_kafka.py. A producer that is not ours writes transactions into the
topic that the query reads, and aborts some. Half-way this topic gets another partition. kill -9 also goes to the
planner of the source, and to the broker that coordinates the query's transactions or groups. At the end the application
is killed once more, and a last run reads what is there (trigger availableNow).

Exit status 1 unless a reader that is not ours sees every row, or what it computes from the topic that is read, once and
in order, with nothing left open, no more transactional ids than slots, and nothing that grows (soak.usage).
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from broker_admin import held_back, open_transactions, read, transactions
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from reliability.campaign import Campaign, Figure
from soak import usage
from soak.supervisor import PARTITIONS, FileSupervisor, Supervisor, TopicSupervisor
from soak.topics import TopicWriter, compared, transformed

# FileStreamSource writes its own log before the offset log: killed in between, Spark takes the next files along.
BATCHES_HELP = "about how many: Spark makes one of two where it was killed between its logs"
ROWS_A_FILE = 50
SOURCE, TOPIC, SINK = "soak-source", "soak", "soak-sink"
READ_TIMEOUT_S = 300
# Five minutes: what each task needs is loaded only as kills allow.
FEWEST_SAMPLES = 150
# The commit topic is made by the sink, with what brokers have by default.
CLUSTER = {"default.replication.factor": 3, "min.insync.replicas": 2}
ABOUT_FILES = (
    "An exactly-once stream writes to three brokers, and about every minute a process is killed (kill -9). Then a "
    "client that is not ours counts every row."
)
ABOUT_TOPICS = (
    "A query reads a topic, transforms its records and writes them into another topic, exactly-once, over three "
    "brokers. Another client writes transactions into the first topic, and aborts some. Processes of the query and "
    "brokers are killed (kill -9). Then that client reads both topics, and every record is compared."
)


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as scratch,
        LocalKafka(nodes=3, kafka_version=arguments.kafka_version, config=CLUSTER) as kafka,
    ):
        supervisor, told, passed = (_files if arguments.minutes is None else _topics)(kafka, Path(scratch), arguments)
    told = {"Kafka, 3 brokers": arguments.kafka_version, "seed": arguments.seed, **told}
    told["minutes"] = round(supervisor.application.elapsed_s / 60)
    for name, figure in told.items():
        print(f"{name:<44}{figure}", flush=True)
    if arguments.results:
        _campaign(arguments, told, passed=passed).write(arguments.results)
        chart = usage.svg(supervisor.application.samples, supervisor.killed_at_s)
        arguments.results.with_suffix(".svg").write_text(chart, encoding="utf-8")
    return 0 if passed else 1


Judged = tuple[Supervisor, Mapping[str, Figure], bool]


def _files(kafka: LocalKafka, folder: Path, arguments: argparse.Namespace) -> Judged:
    kafka.create_topic(TOPIC, PARTITIONS + 1, replication_factor=3)
    (folder / "incoming").mkdir()
    for file in range(arguments.batches * FileSupervisor.slots):
        arrived = folder / "incoming" / f"{file:06}.json"
        numbers = range(file * ROWS_A_FILE, (file + 1) * ROWS_A_FILE)
        arrived.write_text("".join(f'{{"value": "{row}"}}\n' for row in numbers))
        # Oldest first, as Spark takes them.
        os.utime(arrived, (file, file))
    least, most = arguments.apart or (3, 7)
    with closing(FileSupervisor(kafka, TOPIC, folder, arguments.seed)) as supervisor:
        supervisor.run(folder, arguments.batches, (int(least), int(most)))
    rows = arguments.batches * FileSupervisor.slots * ROWS_A_FILE
    committed, written = read(kafka, TOPIC, "read_committed"), read(kafka, TOPIC, "read_uncommitted")
    lost, doubled = sum(row not in committed for row in range(rows)), sum(count - 1 for count in committed.values())
    told: dict[str, Figure] = {
        "rows of the source": rows, "rows read (read_committed)": committed.total(),
        "rows aborted": written.total() - committed.total(), "lost": lost, "doubled": doubled,
    }  # fmt: skip
    return _judged(kafka, supervisor, TOPIC, told, committed.total() == rows and not lost and not doubled, fewest=40)


def _topics(kafka: LocalKafka, folder: Path, arguments: argparse.Namespace) -> Judged:
    for topic in (SOURCE, SINK):
        kafka.create_topic(topic, PARTITIONS, replication_factor=3)
    writer, (least, most) = TopicWriter(kafka.bootstrap_servers, SOURCE, arguments.seed), arguments.apart or (20, 40)
    conf = str(Path(__file__).resolve().parents[3] / "conf")  # for its log4j2.properties
    with closing(TopicSupervisor(kafka, SOURCE, SINK, folder, arguments.seed, SPARK_CONF_DIR=conf)) as supervisor:
        supervisor.run(60 * arguments.minutes, (least, most))
        writer.stop()
        supervisor.finish()
    expected = transformed(read_topic(kafka.bootstrap_servers, SOURCE, READ_TIMEOUT_S))
    found = compared(expected, read_topic(kafka.bootstrap_servers, SINK, READ_TIMEOUT_S))
    written = read_topic(kafka.bootstrap_servers, SINK, READ_TIMEOUT_S, isolation_level="read_uncommitted")
    told: dict[str, Figure] = {
        "transactions committed into the source": writer.committed, "transactions aborted there": writer.aborted,
        "transactions that failed there": writer.failed, "records expected": found.expected,
        "records read (read_committed)": found.found, "records aborted": sum(1 for _ in written) - found.found,
        "lost": found.lost, "doubled": found.doubled, "wrong": found.wrong, "out of order": found.out_of_order,
    }  # fmt: skip
    passed = bool(found.expected) and found.none
    return _judged(kafka, supervisor, SINK, told, passed, fewest=FEWEST_SAMPLES)


def _judged(
    kafka: LocalKafka, supervisor: FileSupervisor | TopicSupervisor, topic: str, told: Mapping[str, Figure],
    passed: bool, fewest: int,
) -> Judged:  # fmt: skip
    """Add what both soaks tell, and look for what is left open and what grows."""
    ids, left_open, behind = transactions(kafka, topic), open_transactions(kafka, topic), held_back(kafka, topic)
    expected_ids = {f"{topic}.{slot}" for slot in range(supervisor.slots)} | {f"{topic}.driver"}
    application, growths = supervisor.application, usage.growths(supervisor.application.samples, fewest=fewest)
    told = {
        "micro-batches": application.committed(),
        **{f"kill -9 of {kind}": count for kind, count in sorted(supervisor.kills.items())},
        "kills": supervisor.kills.total(), "starts of the application": application.starts,
        **{f"ended by {name}": count for name, count in sorted(application.endings.items())}, **told,
        "open transactions": len(left_open), "offsets held back": behind,
        "transactional ids: slots + driver": f"{len(ids)} ({supervisor.slots} + 1)",
        **{f"{growth.role}: {growth.resource}": str(growth) for growth in growths},
    }  # fmt: skip
    nothing_left = not left_open and not behind and ids.keys() == expected_ids
    return supervisor, told, passed and nothing_left and all(growth.flat for growth in growths)


def _campaign(arguments: argparse.Namespace, told: Mapping[str, Figure], *, passed: bool) -> Campaign:
    stem, is_files = arguments.results.stem, arguments.minutes is None
    budget = f" BATCHES={arguments.batches}" if is_files else f"-topics MINUTES={arguments.minutes:g}"
    options = " ARGS='--apart {:g} {:g}'".format(*arguments.apart) if arguments.apart else ""
    return Campaign(
        name="soak" if is_files else "soak_topics", title="Soak" if is_files else "Soak, from topic to topic",
        command=f"make soak{budget} SEED={arguments.seed}{options}",
        about=f"{ABOUT_FILES if is_files else ABOUT_TOPICS} The chart [{stem}.svg](reliability/{stem}.svg) shows the "
        "memory, descriptors and threads of the processes, with the kills as dashes. The figures `a -> b` below are "
        "medians of the second and of the last quarter of the application's longest life.",
        figures=told, passed=passed,
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=210, help=BATCHES_HELP)
    parser.add_argument("--minutes", type=float, help="from topic to topic: for how long processes are killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka-version", default="4.3.1")
    parser.add_argument("--apart", type=float, nargs=2, help="micro-batches, or seconds, from one kill to the next")
    parser.add_argument("--results", type=Path, help="where figures go as JSON, and the chart beside them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

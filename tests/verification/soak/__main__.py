"""`make soak`: an exactly-once stream into three brokers, with many micro-batches. In about every fifth a process is
killed; at the end every row is counted.

    PYTHONPATH=tests/verification:tests/support python -m soak --batches 200 --seed 1
    PYTHONPATH=tests/verification:tests/support python -m soak --batches 900 --apart 10 20 --results FILE

kill -9 goes, by the seed, to the driver (its workers live on for a moment), to all of its processes at once, to one
worker, or to a broker, at any moment of a micro-batch. The application is started again when it has ended, a broker at
once; nothing else is done. The seed decides what is killed and when; what that meets, the machine.

Exit status 1 unless every row was read once, by a reader of its own, with nothing left open, no more transactional ids
than slots, and nothing that grows while the application lives (soak.usage).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from committed_rows import held_back, open_transactions, read, transactions
from kafka_sink.broker import LocalKafka
from reliability.campaign import Campaign, Figure
from soak import usage
from soak.chart import svg
from soak.supervisor import Supervisor

# FileStreamSource writes its own log before the offset log: killed in between, Spark takes the next files along.
BATCHES_HELP = "about how many: Spark makes one of two where it was killed between its logs"
SLOTS = 3
ROWS_A_FILE = 50
PARTITIONS = 4
TOPIC = "soak"
# The commit topic is made by the sink, with what brokers have by default.
CLUSTER = {"default.replication.factor": 3, "min.insync.replicas": 2}


def main() -> int:
    arguments = _arguments()
    started_s = time.monotonic()
    apart = (arguments.apart[0], arguments.apart[1])
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as scratch,
        LocalKafka(nodes=3, kafka_version=arguments.kafka_version, config=CLUSTER) as kafka,
    ):
        folder = Path(scratch)
        kafka.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        _write_files(folder / "incoming", arguments.batches * SLOTS)
        supervisor = Supervisor(
            kafka, TOPIC, folder, batches=arguments.batches, slots=SLOTS, apart=apart, seed=arguments.seed
        )
        with closing(supervisor):
            supervisor.run()
        told, passed = _counted(kafka, supervisor, batches=arguments.batches)
    told = {"Kafka, 3 brokers": arguments.kafka_version, "seed": arguments.seed} | told
    told["minutes"] = round((time.monotonic() - started_s) / 60)
    for name, figure in told.items():
        print(f"{name:<44}{figure}", flush=True)
    if arguments.results:
        _campaign(arguments, told, passed=passed).write(arguments.results)
        chart = svg(supervisor.application.samples, supervisor.kills.at_s)
        arguments.results.with_suffix(".svg").write_text(chart, encoding="utf-8")
    return 0 if passed else 1


def _campaign(arguments: argparse.Namespace, told: Mapping[str, Figure], *, passed: bool) -> Campaign:
    apart = "{} {}".format(*arguments.apart)
    return Campaign(
        name="soak",
        title="Soak",
        command=f"make soak BATCHES={arguments.batches} SEED={arguments.seed} ARGS='--apart {apart}'",
        about="An exactly-once stream writes to three brokers, and about every minute a process is killed (kill -9). "
        "Then a client that is not ours counts every row. The chart "
        f"[{arguments.results.stem}.svg](reliability/{arguments.results.stem}.svg) shows the memory, descriptors and "
        "threads of the processes, with the kills as dashes. The figures `a -> b` below are medians of the second and "
        "of the last quarter of the application's longest life.",
        figures=told,
        passed=passed,
    )


def _write_files(folder: Path, files: int) -> None:
    """Oldest first, as Spark takes them."""
    folder.mkdir()
    for file in range(files):
        arrived = folder / f"{file:06}.json"
        rows = range(file * ROWS_A_FILE, (file + 1) * ROWS_A_FILE)
        arrived.write_text("".join(f'{{"value": "{row}"}}\n' for row in rows))
        os.utime(arrived, (file, file))


def _counted(kafka: LocalKafka, supervisor: Supervisor, *, batches: int) -> tuple[dict[str, Figure], bool]:
    rows = batches * SLOTS * ROWS_A_FILE
    committed, written = read(kafka, TOPIC, "read_committed"), read(kafka, TOPIC, "read_uncommitted")
    ids = transactions(kafka, TOPIC)
    lost = sum(row not in committed for row in range(rows))
    doubled = sum(count - 1 for count in committed.values())
    left_open = open_transactions(kafka, TOPIC)
    expected_ids = {f"{TOPIC}.{slot}" for slot in range(SLOTS)} | {f"{TOPIC}.driver"}
    behind = held_back(kafka, TOPIC)
    application, kills = supervisor.application, supervisor.kills.counts
    growths = usage.growths(application.samples)
    told: dict[str, Figure] = dict([
        ("micro-batches", application.committed()),
        *((f"kill -9 of {kind}", count) for kind, count in sorted(kills.items())), ("kills", kills.total()),
        ("starts of the application", application.starts),
        *((f"ended by {name}", count) for name, count in sorted(application.endings.items())),
        ("rows of the source", rows), ("rows read (read_committed)", committed.total()),
        ("rows aborted", written.total() - committed.total()), ("lost", lost), ("doubled", doubled),
        ("open transactions", len(left_open)), ("offsets held back", behind),
        ("transactional ids: slots + driver", f"{len(ids)} ({SLOTS} + 1)"),
        *((f"{growth.role}: {growth.resource}", str(growth)) for growth in growths),
    ])  # fmt: skip
    every_row_once = committed.total() == rows and not lost and not doubled
    nothing_left = not left_open and not behind and ids.keys() == expected_ids
    return told, every_row_once and nothing_left and all(growth.flat for growth in growths)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=210, help=BATCHES_HELP)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka-version", default="4.3.1")
    parser.add_argument("--apart", type=int, nargs=2, default=(3, 7), help="micro-batches from one kill to the next")
    parser.add_argument("--results", type=Path, help="where figures go as JSON, and the chart beside them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""`make soak`: a stream into three brokers, exactly once, for many micro-batches, of which about every fifth has
something killed in it; then everything is counted.

    PYTHONPATH=tests:tests/support python -m soak --batches 200 --seed 1

kill -9 goes, by the seed, to the driver (its workers live on for a moment), to all of its processes at once, to one
worker, or to a broker, at any moment of a micro-batch. The application is started again when it has ended, a broker at
once; nothing else is done. The seed decides what is killed and when; what that meets, the machine.

Exit status 1 unless every row was read once, by a reader of its own, with nothing left open, and no more transactional
ids than slots.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from committed_rows import held_back, open_transactions, read, transactions
from kafka_sink.broker import LocalKafka
from soak.supervisor import Figures, Supervisor

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
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as scratch,
        LocalKafka(nodes=3, kafka_version=arguments.kafka_version, config=CLUSTER) as kafka,
    ):
        folder = Path(scratch)
        kafka.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        _write_files(folder / "incoming", arguments.batches * SLOTS)
        supervisor = Supervisor(kafka, TOPIC, folder, batches=arguments.batches, slots=SLOTS, seed=arguments.seed)
        with closing(supervisor):
            figures = supervisor.run()
        print(f"Kafka {arguments.kafka_version}, 3 brokers, seed {arguments.seed}")
        passed = _report(kafka, figures, batches=arguments.batches)
    print(f"{'duration':<36}{time.monotonic() - started_s:.0f} s")
    return 0 if passed else 1


def _write_files(folder: Path, files: int) -> None:
    """Oldest first, as Spark takes them."""
    folder.mkdir()
    for file in range(files):
        arrived = folder / f"{file:06}.json"
        rows = range(file * ROWS_A_FILE, (file + 1) * ROWS_A_FILE)
        arrived.write_text("".join(f'{{"value": "{row}"}}\n' for row in rows))
        os.utime(arrived, (file, file))


def _report(kafka: LocalKafka, figures: Figures, *, batches: int) -> bool:
    rows = batches * SLOTS * ROWS_A_FILE
    committed, written = read(kafka, TOPIC, "read_committed"), read(kafka, TOPIC, "read_uncommitted")
    ids = transactions(kafka, TOPIC)
    lost = sum(row not in committed for row in range(rows))
    doubled = sum(count - 1 for count in committed.values())
    left_open = open_transactions(kafka, TOPIC)
    expected_ids = {f"{TOPIC}.{slot}" for slot in range(SLOTS)} | {f"{TOPIC}.driver"}
    behind = held_back(kafka, TOPIC)
    told: list[tuple[str, object]] = [
        ("micro-batches", figures.batches),
        *((f"kill -9 of {kind}", count) for kind, count in sorted(figures.kills.items())),
        ("kills", figures.kills.total()),
        ("starts of the application", figures.starts),
        *((f"ended by {name}", count) for name, count in sorted(figures.endings.items())),
        ("rows of the source", rows),
        ("rows read (read_committed)", committed.total()),
        ("rows aborted", written.total() - committed.total()),
        ("lost", lost),
        ("doubled", doubled),
        ("open transactions", len(left_open)),
        ("offsets held back", behind),
        ("transactional ids: slots + driver", f"{len(ids)} ({SLOTS} + 1)"),
    ]
    for name, figure in told:
        print(f"{name:<36}{figure}", flush=True)
    every_row_once = committed.total() == rows and not lost and not doubled
    return every_row_once and not left_open and not behind and ids.keys() == expected_ids


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=210, help=BATCHES_HELP)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka-version", default="4.3.1")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

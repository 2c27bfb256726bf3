"""`make bench-confs`: settings of Spark that any Python sink may go by, each beside Spark's defaults.

    this process ─┬─> a local Kafka broker
                  └─> a spark_driver.py for each setting     one of them works at a time

A round has a writer that discards and pykafka write the same rows under every setting, as bench_spark.py does; the
order turns. What a setting does to the writer that discards it does to every Python sink, as far as that is Spark's
part. Ratios are medians of the rounds' own. Results: a table, and confs.json in build/bench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench_spark import Driver, once
from kafka_sink.broker import LocalKafka
from kafka_sink.options.config import sink_config
from spark_driver import Cost
from spark_peers import DISCARD, PYKAFKA, SAME, TCP, Peer, SameSettings, Servers
from spark_process import Topics
from spark_report import markdown

DEFAULTS = ""
CONFS = (
    DEFAULTS,
    "spark.python.unix.domain.socket.enabled=true",
    "spark.sql.execution.arrow.maxRecordsPerBatch=1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch=50000",
    "spark.buffer.size=1048576",
)
# Of those that spark_driver.py knows; that the sockets are TCP is Spark's default.
NOBODY, OURS = Peer(DISCARD, sockets=TCP), Peer(PYKAFKA, "none", SAME, sockets=TCP)


@dataclass(frozen=True, slots=True)
class Effect:
    """Of a setting on a sink: multiples of what it does under Spark's defaults."""

    conf: str
    sink: str
    rows_per_s: float
    cpu_per_row: float


def effects(costs: Mapping[tuple[str, Peer], Sequence[Cost]]) -> list[Effect]:
    """From the rounds of each setting and sink, in their order."""
    return [
        Effect(
            conf or "Spark's defaults",
            peer.sink,
            statistics.median(
                base.wall_s / cost.wall_s for base, cost in zip(costs[DEFAULTS, peer], of_conf, strict=True)
            ),
            statistics.median(
                cost.cpu_s / base.cpu_s for base, cost in zip(costs[DEFAULTS, peer], of_conf, strict=True)
            ),
        )
        for (conf, peer), of_conf in costs.items()
    ]


def table(found: Sequence[Effect]) -> str:
    cells = [(each.conf, each.sink, f"{each.rows_per_s:.2f} x", f"{each.cpu_per_row:.2f} x") for each in found]
    return markdown(("setting", "sink", "rows/s", "CPU a row"), cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="of every setting, after one to warm up")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where confs.json goes")
    options = parser.parse_args()
    defaults = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    same = SameSettings(defaults.linger_ms, defaults.batch_size, defaults.buffer_memory)
    options.output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-bench-"))
        kafka = stack.enter_context(LocalKafka())
        topics = stack.enter_context(contextlib.closing(Topics(kafka)))
        arguments = [
            "--jars=",
            f"--servers={json.dumps(asdict(Servers(kafka.bootstrap_servers, '', '')))}",
            f"--same={json.dumps(asdict(same))}",
            f"--rows={options.rows}",
            "--value-bytes=100",
            f"--folder={folder}",
        ]
        # By an application of its own: one that has done something else is compiled for that, too.
        Driver(TCP, [*arguments, "--make-rows"], options.output / "spark-rows.log").stop()
        drivers: dict[str, Driver] = {}
        for conf in CONFS:
            more = [f"--conf={conf}"] if conf else []
            drivers[conf] = Driver(TCP, [*arguments, *more], options.output / f"spark-conf-{len(drivers)}.log")
            stack.callback(drivers[conf].stop)
        costs = measure(drivers, kafka.pid(1), topics, options.rounds, options.rows)
    found = effects(costs)
    print(table(found))
    report = {"cores": os.cpu_count(), "rows": options.rows, "effects": [asdict(each) for each in found]}
    (options.output / "confs.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def measure(
    drivers: Mapping[str, Driver], broker_pid: int, topics: Topics, rounds: int, rows: int
) -> dict[tuple[str, Peer], list[Cost]]:
    costs: dict[tuple[str, Peer], list[Cost]] = {(conf, peer): [] for conf in drivers for peer in (NOBODY, OURS)}
    every = list(costs)
    for number in range(rounds + 1):
        start = number % len(every)
        for conf, peer in [*every[start:], *every[:start]]:
            once(drivers[conf], broker_pid, topics, peer, small=True)
            cost = once(drivers[conf], broker_pid, topics, peer, small=False, expected_rows=rows)
            if number > 0:  # the first warms up
                costs[conf, peer].append(cost)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return costs


if __name__ == "__main__":
    main()

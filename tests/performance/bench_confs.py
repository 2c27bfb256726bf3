"""`make bench-confs`: settings of Spark that any Python sink may go by, each beside Spark's defaults.

    this process ─┬─> a local Kafka broker
                  └─> a spark_driver.py for each setting     one of them works at a time

A round has a writer that discards and pykafka write the same rows under every setting, as bench_spark.py does; the
order turns. What a setting does to the writer that discards it does to every Python sink, as far as that is Spark's
part. Ratios are medians of the rounds' own. Results: a table, and confs.json in build/bench.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_spark import Driver, once
from frame import arguments, bench, in_turns, same_settings, write_report
from spark_driver import Cost
from spark_peers import DISCARD, PYKAFKA, SAME, TCP, Peer, Servers
from spark_report import markdown, median_ratio

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
    found = []
    for (conf, peer), of_conf in costs.items():
        base = costs[DEFAULTS, peer]
        faster, cpu = median_ratio(base, of_conf, "wall_s"), median_ratio(of_conf, base, "cpu_s")
        found.append(Effect(conf or "Spark's defaults", peer.sink, faster, cpu))
    return found


def table(found: Sequence[Effect]) -> str:
    rows = (f"{each.conf} | {each.sink} | {each.rows_per_s:.2f} x | {each.cpu_per_row:.2f} x" for each in found)
    return markdown("setting | sink | rows/s | CPU a row", rows)


def main() -> None:
    parser = arguments(__doc__, 7, each="every setting", output="confs.json")
    parser.add_argument("--rows", type=int, default=2_000_000)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with bench() as (folder, kafka, topics, stack):
        servers, same = Servers(kafka.bootstrap_servers, "", ""), same_settings()
        given = {"jars": "", "servers": servers, "same": same, "rows": options.rows, "value_bytes": 100}
        given |= {"folder": str(folder), "sockets": TCP}
        # By an application of its own: one that has done something else is compiled for that, too.
        Driver(given | {"makes_rows": True}, options.output / "spark-rows.log").stop()
        drivers: dict[str, Driver] = {}
        for conf in CONFS:
            confs = {"makes_rows": False, "confs": [conf] if conf else []}
            drivers[conf] = Driver(given | confs, options.output / f"spark-conf-{len(drivers)}.log")
            stack.callback(drivers[conf].stop)

        def write(case: tuple[str, Peer]) -> Cost:
            conf, peer = case
            once(drivers[conf], kafka.pid(1), topics, peer, small=True)
            return once(drivers[conf], kafka.pid(1), topics, peer, small=False, expected_rows=options.rows)

        costs = in_turns([(conf, peer) for conf in CONFS for peer in (NOBODY, OURS)], options.rounds, write)
    found = effects(costs)
    print(table(found))
    report = {"cores": os.cpu_count(), "rows": options.rows, "effects": found}
    write_report(options.output / "confs.json", report)


if __name__ == "__main__":
    main()

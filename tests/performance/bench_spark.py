"""`make bench`: sinks of Spark side by side, parquet to the leaders' acknowledgements, in one run.

    this process ─┬─> a local Kafka broker
                  ├─> spark_driver.py, Unix sockets to its Python workers     one of them works at a time
                  └─> spark_driver.py, TCP

A round has every peer write the same rows once, each to a topic made for it and deleted after its end offsets were
compared with the rows; the order turns by one a round. The first round warms up. Before each timed write the peer
writes a few rows, untimed: Spark ends Python workers that were idle for a minute, which other peers' turns are.

Wall time is that of `save()`: planning, tasks, commit. CPU time is all that the Spark application used in it: the
Python driver, the JVM, the Python daemon and workers. The broker is another process's child and counted apart; it takes
its share of the same cores. Figures are medians; ratios are medians of the rounds' ratios. Goals stand beside the
figures; nothing asserts them, machines differ. Results: a table, and spark.json and spark.svg in build/bench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from bar_chart import Bar, Panel, svg
from bench_core import processor
from certificates import Authority
from kafka_sink.broker import LocalKafka, resolve
from kafka_sink.broker.java import find_java
from kafka_sink.options.config import sink_config
from kafka_sink.records.kernel import KERNEL
from process_tree import cpu_s
from spark_driver import Cost
from spark_environment import HERE
from spark_jars import MODULES, resolve_spark_jars
from spark_peers import PEERS, PYKAFKA, SAME, TCP, UNIX, Peer, SameSettings, Servers
from spark_process import SparkProcess, Topics
from spark_report import Figure, figure, own_cost, ratio_table, ratios, table, tls_cost

PARTITIONS = 4
TLS = "ENCRYPTED"

T = TypeVar("T")


class Driver:
    """One spark_driver.py."""

    def __init__(self, sockets: str, arguments: Sequence[str], log: Path) -> None:
        self._process = SparkProcess([HERE / "spark_driver.py", f"--sockets={sockets}", *arguments], log)
        self.stop = self._process.stop

    def write(self, peer: Peer, topic: str, *, small: bool) -> Cost:
        return Cost(**self._process.ask({"peer": PEERS.index(peer), "topic": topic, "small": small}))


def broker(authority: Authority) -> LocalKafka:
    """With an encrypted listener beside the plaintext one."""
    identity = authority.issue("broker")
    keys = {"type": "PEM", "certificate.chain": identity.chain, "key": identity.key}
    settings = {f"listener.name.{TLS.lower()}.ssl.keystore.{name}": value for name, value in keys.items()}
    return LocalKafka(listeners={TLS: "SSL"}, config=settings)


def measure(
    drivers: Mapping[str, Driver], broker_pid: int, topics: Topics, peers: Sequence[Peer], rounds: int, rows: int
) -> dict[Peer, list[Cost]]:
    costs: dict[Peer, list[Cost]] = {peer: [] for peer in peers}
    for number in range(rounds + 1):
        started_s = time.monotonic()
        for peer in turned(peers, number):
            driver = drivers[peer.sockets]
            once(driver, broker_pid, topics, peer, small=True)
            cost = once(driver, broker_pid, topics, peer, small=False, expected_rows=rows)
            if number > 0:  # the first warms up
                costs[peer].append(cost)
        print(f"round {number} of {rounds}: {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    return costs


def turned(peers: Sequence[T], number: int) -> list[T]:
    start = number % len(peers)
    return [*peers[start:], *peers[:start]]


def once(
    driver: Driver, broker_pid: int, topics: Topics, peer: Peer, *, small: bool, expected_rows: int | None = None
) -> Cost:
    if not peer.writes_to_kafka:
        return driver.write(peer, "", small=small)
    (topic,) = topics.create(PARTITIONS)
    before_s = cpu_s(broker_pid)
    cost = driver.write(peer, topic, small=small)
    cost = replace(cost, broker_cpu_s=cpu_s(broker_pid) - before_s, log_bytes=topics.log_bytes([topic]))
    found = topics.row_count([topic], PARTITIONS)
    if expected_rows is not None and found != expected_rows:
        raise SystemExit(f"{peer} wrote {expected_rows} rows, and the topic has {found}")
    topics.delete([topic])
    return cost


def chart(figures: Sequence[Figure]) -> str:
    """With the same settings, over Unix sockets, in the clear."""

    def bars(compression: str, *, cpu: bool) -> tuple[Bar, ...]:
        shown = [
            each
            for each in figures
            if each.peer.compression in (None, compression)
            and each.peer.settings in (None, SAME)
            and each.peer.sockets == UNIX
            and not each.peer.tls
        ]
        return tuple(
            Bar(
                each.peer.sink,
                each.cpu_s_per_million_rows if cpu else each.rows_per_s,
                f"{each.cpu_s_per_million_rows:.2f} s" if cpu else f"{each.rows_per_s / 1e6:.2f} M",
                each.peer.sink == PYKAFKA,
            )
            for each in shown
        )

    return svg(
        [
            Panel(f"{title}, {words}", bars(compression, cpu=cpu))
            for compression, words in (("none", "uncompressed"), ("zstd", "zstd"))
            for title, cpu in (("Rows per second", False), ("CPU seconds per million rows", True))
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of every peer, after one to warm up")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--only", nargs="*", help="peers with one of these words in their description", default=[""])
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where spark.json and spark.svg go")
    options = parser.parse_args()
    defaults = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    same = SameSettings(defaults.linger_ms, defaults.batch_size, defaults.buffer_memory)
    peers = [peer for peer in PEERS if any(word in str(peer) for word in options.only)]
    java = find_java(os.environ)
    jars = resolve_spark_jars(
        resolve.default_cache_dir(os.environ), lambda: [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())]
    )
    options.output.mkdir(parents=True, exist_ok=True)
    authority = Authority()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-bench-"))
        kafka = stack.enter_context(broker(authority))
        topics = stack.enter_context(contextlib.closing(Topics(kafka)))
        ca_file = Path(folder, "ca.pem")
        ca_file.write_text(authority.certificate, encoding="ascii")
        servers = Servers(kafka.bootstrap_servers, kafka.addresses_of(TLS), str(ca_file))
        arguments = [
            f"--jars={','.join(map(str, jars))}",
            f"--servers={json.dumps(asdict(servers))}",
            f"--same={json.dumps(asdict(same))}",
            f"--rows={options.rows}",
            f"--value-bytes={options.value_bytes}",
            f"--folder={folder}",
        ]
        drivers: dict[str, Driver] = {}
        for sockets in (UNIX, TCP):
            if any(peer.sockets == sockets for peer in peers):
                log = options.output / f"spark-{sockets.replace(' ', '-').lower()}.log"
                drivers[sockets] = Driver(sockets, arguments if drivers else [*arguments, "--make-rows"], log)
                stack.callback(drivers[sockets].stop)
        costs = measure(drivers, kafka.pid(1), topics, peers, options.rounds, options.rows)
    figures = [figure(peer, costs[peer], options.rows) for peer in peers]
    found = ratios(costs)
    own, tls = own_cost(costs, options.rows), tls_cost(costs)
    print(*filter(None, (table(figures), ratio_table(found), own and str(own), tls and str(tls))), sep="\n\n")
    report = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("pyspark", "pyarrow", "numpy", "confluent-kafka", "zstandard")},
            "kafka broker": kafka.kafka_version,
            **{module.name: module.revision for module in MODULES},
        },
        "kernel": KERNEL.name,
        "rows": options.rows,
        "value_bytes": options.value_bytes,
        "partitions": PARTITIONS,
        "same_settings": asdict(same),
        "figures": [asdict(each) for each in figures],
        "ratios": [asdict(each) for each in found],
        "own_cost": own and asdict(own),
        "tls": tls and asdict(tls),
    }
    (options.output / "spark.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (options.output / "spark.svg").write_text(chart(figures), encoding="utf-8")


if __name__ == "__main__":
    main()

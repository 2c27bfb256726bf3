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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bar_chart import Bar, Panel, svg
from certificates import Authority
from frame import arguments, as_json, bench, chosen, in_turns, jars, machine, same_settings, turned, write_report
from kafka_sink.broker import LocalKafka
from kafka_sink.records.kernel import KERNEL
from process_tree import cpu_s
from spark_driver import Cost
from spark_environment import HERE
from spark_peers import PEERS, PYKAFKA, SAME, TCP, UNIX, Peer, Servers
from spark_process import SparkProcess, Topics
from spark_report import Figure, figure, own_cost, ratio_table, ratios, table, tls_cost

__all__ = ["Driver", "chart", "once", "turned"]
PARTITIONS = 4
TLS = "ENCRYPTED"


class Driver:
    """One spark_driver.py."""

    def __init__(self, given: Mapping[str, object], log: Path) -> None:
        self._process = SparkProcess([HERE / "spark_driver.py", as_json({"confs": [], **given})], log)
        self.stop = self._process.stop

    def write(self, peer: Peer, topic: str, *, small: bool) -> Cost:
        return Cost(**self._process.ask({"peer": PEERS.index(peer), "topic": topic, "small": small}))


def broker(authority: Authority) -> LocalKafka:
    """With an encrypted listener beside the plaintext one."""
    identity = authority.issue("broker")
    keys = {"type": "PEM", "certificate.chain": identity.chain, "key": identity.key}
    settings = {f"listener.name.{TLS.lower()}.ssl.keystore.{name}": value for name, value in keys.items()}
    return LocalKafka(listeners={TLS: "SSL"}, config=settings)


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
            (each, each.cpu_s_per_million_rows if cpu else each.rows_per_s)
            for each in figures
            if each.peer.compression in (None, compression) and each.peer.settings in (None, SAME)
            if each.peer.sockets == UNIX and not each.peer.tls
        ]
        return tuple(
            Bar(each.peer.sink, value, f"{value:.2f} s" if cpu else f"{value / 1e6:.2f} M", each.peer.sink == PYKAFKA)
            for each, value in shown
        )

    return svg(
        [
            Panel(f"{title}, {words}", bars(compression, cpu=cpu))
            for compression, words in (("none", "uncompressed"), ("zstd", "zstd"))
            for title, cpu in (("Rows per second", False), ("CPU seconds per million rows", True))
        ]
    )


def main() -> None:
    parser = arguments(__doc__, 5, each="every peer", output="spark.json and spark.svg")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--only", nargs="*", help="peers with one of these words in their description", default=[""])
    options = parser.parse_args()
    same, peers, authority = same_settings(), chosen(PEERS, options.only), Authority()
    options.output.mkdir(parents=True, exist_ok=True)
    with bench(broker(authority)) as (folder, kafka, topics, stack):
        ca_file = folder / "ca.pem"
        ca_file.write_text(authority.certificate, encoding="ascii")
        servers = Servers(kafka.bootstrap_servers, kafka.addresses_of(TLS), str(ca_file))
        given = {
            "jars": jars(),
            "servers": servers,
            "same": same,
            "rows": options.rows,
            "value_bytes": options.value_bytes,
            "folder": str(folder),
        }
        drivers: dict[str, Driver] = {}
        for sockets in (UNIX, TCP):
            if any(peer.sockets == sockets for peer in peers):
                log = options.output / f"spark-{sockets.replace(' ', '-').lower()}.log"
                drivers[sockets] = Driver(given | {"sockets": sockets, "makes_rows": not drivers}, log)
                stack.callback(drivers[sockets].stop)

        def write(peer: Peer) -> Cost:
            once(drivers[peer.sockets], kafka.pid(1), topics, peer, small=True)
            return once(drivers[peer.sockets], kafka.pid(1), topics, peer, small=False, expected_rows=options.rows)

        costs = in_turns(peers, options.rounds, write)
    figures = [figure(peer, costs[peer], options.rows) for peer in peers]
    found, own, tls = ratios(costs), own_cost(costs, options.rows), tls_cost(costs)
    print(*filter(None, (table(figures), ratio_table(found), own and str(own), tls and str(tls))), sep="\n\n")
    packages = {"kafka broker": kafka.kafka_version}
    report = machine("confluent-kafka", "zstandard", **packages) | {
        "kernel": KERNEL.name, "rows": options.rows, "value_bytes": options.value_bytes, "partitions": PARTITIONS,
        "same_settings": same, "figures": figures, "ratios": found, "own_cost": own, "tls": tls,
    }  # fmt: skip
    write_report(options.output / "spark.json", report)
    (options.output / "spark.svg").write_text(chart(figures), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`make bench`: sinks of Spark side by side, parquet to the leaders' acknowledgements, in one run.

    this process ─┬─> a local Kafka broker
                  ├─> an application of Spark, Unix sockets to its Python workers     one of them works at a time
                  └─> another one, TCP

A round has every peer write the same rows once, each to a topic made for it. Before each timed write the peer writes a
few rows, untimed: Spark ends Python workers that were idle for a minute, which other peers' turns are. Wall time is
that of `save()`: planning, tasks, commit. Beside spark.json, spark.svg has the figures as bars.

`make bench-confs` (`--confs`): settings of Spark that any Python sink may go by, each beside Spark's defaults, for
pykafka and the writer that discards.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from pyspark.sql import DataFrame

import frame as shared
from certificates import Authority
from frame import Application, Bench, arguments, bench, chosen, in_turns, jars
from kafka_sink.broker import LocalKafka
from kafka_sink.records.kernel import KERNEL
from peers import CONFLUENT, DEFAULTS, DISCARD, JVM, NOOP, PYKAFKA, SAME, TCP, UNIX, Peer, Servers, write
from spark_sessions import COUNTED, UNIX_CONF, Cost, local_session, make_rows, timed

PARTITIONS, TASKS, SMALL_ROWS = 4, 2, 40_000
TLS = "ENCRYPTED"
PEERS = (
    Peer(NOOP),
    Peer(DISCARD),
    *(Peer(sink, compression, SAME) for compression in ("none", "zstd") for sink in (JVM, CONFLUENT, PYKAFKA)),
    Peer(PYKAFKA, "none", SAME, tls=True),
    *(Peer(sink, compression, DEFAULTS) for sink, compression in ((JVM, "none"), (JVM, "zstd"), (CONFLUENT, "none"))),
    Peer(DISCARD, session=TCP),
    *(Peer(sink, codec, SAME, TCP) for sink, codec in ((CONFLUENT, "none"), (PYKAFKA, "none"), (PYKAFKA, "zstd"))),
)
CONFS = (
    TCP, f"spark.{UNIX_CONF.replace('_', '.')}=true", "spark.sql.execution.arrow.maxRecordsPerBatch=1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch=50000", "spark.buffer.size=1048576",
)  # fmt: skip
CONF_PEERS = tuple(
    peer for conf in CONFS for peer in (Peer(DISCARD, session=conf), Peer(PYKAFKA, "none", SAME, session=conf))
)


@dataclass(frozen=True, slots=True)
class Pair:
    """`more`: CPU s per million rows beyond `theirs`, where the broker takes its share of the same cores."""

    ours: Peer
    theirs: Peer
    rows_per_s_goal: str = ""
    cpu_goal: str = ""
    more_goal: str = ""


OURS = {compression: Peer(PYKAFKA, compression, SAME) for compression in ("none", "zstd")}
PAIRS = (
    Pair(OURS["none"], Peer(JVM, "none", SAME), ">= 1.5 x", "<= 0.7 x"),
    Pair(OURS["zstd"], Peer(JVM, "zstd", SAME), ">= 2.5 x", "<= 0.5 x"),
    Pair(OURS["none"], Peer(CONFLUENT, "none", SAME), ">= 2 x", "<= 0.4 x"),
    Pair(OURS["zstd"], Peer(CONFLUENT, "zstd", SAME), ">= 2 x", "<= 0.4 x"),
    Pair(OURS["none"], Peer(DISCARD), ">= 0.8 x at 1 KB", "", "<= 0.15 at 100 bytes"),
    Pair(Peer(PYKAFKA, "none", SAME, tls=True), OURS["none"]),
    *(Pair(peer, Peer(peer.sink, peer.compression, peer.settings, TCP)) for peer in CONF_PEERS if peer.session != TCP),
)


def make_files(folder: Path, rows: int, value_bytes: int) -> None:
    spark = local_session("rows", f"local[{TASKS}]", folder)
    for name, count in (("small", SMALL_ROWS), ("all", rows)):
        make_rows(spark, folder / name, count, value_bytes, TASKS)


class Writer:
    """An application. What differs from Spark's defaults is a heap of 2 GB, no UI, a daemon whose workers can be
    counted, and what makes the two files two tasks."""

    def __init__(self, session: str, jars: str, servers: Servers, folder: Path, rows: int) -> None:
        confs: dict[str, object] = {"jars": jars, "sql_files_maxPartitionBytes": "16g", UNIX_CONF: session == UNIX}
        if "=" in session:
            name, _, value = session.removeprefix("spark.").partition("=")
            confs[name.replace(".", "_")] = value
        self._spark = local_session("sinks", f"local[{TASKS}]", folder, **confs, **COUNTED)
        self._servers, self._folder, self._rows = servers, folder, {"small": SMALL_ROWS, "all": rows}

    def write(self, peer: Peer, which: str, topic: str) -> Cost:
        frame = self._frame(which)
        return timed(lambda: write(frame, peer, self._servers, self._rows[which], topic))

    def _frame(self, which: str) -> DataFrame:
        frame = self._spark.read.parquet(str(self._folder / which))
        if frame.rdd.getNumPartitions() != TASKS:
            raise AssertionError(f"{frame.rdd.getNumPartitions()} tasks instead of {TASKS}")
        return frame


def measure(on: Bench, writer: Application, peer: Peer, rows: int) -> Cost:
    for which, count in (("small", SMALL_ROWS), ("all", rows)):
        if peer.writes_to_kafka:
            ask = partial(lambda which, names: writer.ask("write", peer, which, names[0]), which)
            cost: Cost = on.topics.written(ask, count, PARTITIONS)
        else:
            cost = writer.ask("write", peer, which, "")
    return cost


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians over the rounds; the extremes tell how quiet the machine was. Rates are rows/s, CPU is seconds per
    million rows: of Spark and all its processes, and of the broker."""

    peer: Peer
    rows_per_s: float
    slowest_rows_per_s: float
    fastest_rows_per_s: float
    cpu_s_per_million_rows: float
    broker_cpu_s_per_million_rows: float
    log_bytes_per_row: float
    rounds: tuple[Cost, ...]


def figure(peer: Peer, costs: Sequence[Cost], rows: int) -> Figure:
    rates = [rows / cost.wall_s for cost in costs]
    cpu_s, broker_cpu_s, log_bytes = (
        shared.median(costs, field) / rows for field in ("cpu_s", "broker_cpu_s", "log_bytes")
    )
    spread = min(rates), max(rates)
    return Figure(peer, statistics.median(rates), *spread, cpu_s * 1e6, broker_cpu_s * 1e6, log_bytes, tuple(costs))


def ratio_table(costs: Mapping[Peer, Sequence[Cost]], rows: int) -> str:
    """Where both sides were measured: medians of the rounds' own ratios and differences."""
    found = []
    for pair in PAIRS:
        ours, theirs = costs.get(pair.ours), costs.get(pair.theirs)
        if ours and theirs:
            more = statistics.median(our.cpu_s - their.cpu_s for our, their in zip(ours, theirs, strict=True))
            rates = f"{shared.median_ratio(theirs, ours, 'wall_s'):.2f} x | {pair.rows_per_s_goal}"
            cpu = f"{shared.median_ratio(ours, theirs, 'cpu_s'):.2f} x | {pair.cpu_goal}"
            found.append(f"{pair.ours} | {pair.theirs} | {rates} | {cpu} | {more / rows * 1e6:.2f} | {pair.more_goal}")
    return shared.markdown("sink | to | rows/s | goal | CPU a row | goal | CPU s per M rows more | goal", found)


def table(figures: Sequence[Figure]) -> str:
    def row(each: Figure) -> str:
        peer, settings = each.peer, filter(None, (each.peer.settings, "TLS" if each.peer.tls else None))
        session = peer.session if peer.has_workers else ""
        of_peer = f"{peer.sink} | {peer.compression or ''} | {', '.join(settings)} | {session}"
        spread = f"{each.slowest_rows_per_s / 1e6:.2f} - {each.fastest_rows_per_s / 1e6:.2f}"
        of_broker = f"{each.broker_cpu_s_per_million_rows:.2f} | {each.log_bytes_per_row:.1f}"
        of_spark = f"{each.rows_per_s / 1e6:.2f} | {spread} | {each.cpu_s_per_million_rows:.2f}"
        return f"{of_peer} | {of_spark} | {of_broker if peer.writes_to_kafka else ' | '}"

    head = "sink | compression | settings | workers by | M rows/s | (range) | CPU s per M rows | broker's | bytes a row"
    return shared.markdown(head, map(row, figures))


WIDTH, LABEL_WIDTH, VALUE_WIDTH, BAR_HEIGHT, ROW_HEIGHT, TITLE_HEIGHT = 860, 300, 90, 18, 26, 40


def chart(figures: Sequence[Figure]) -> str:
    """Horizontal bars as an SVG text, for light and dark pages: the same settings, over Unix sockets, in the clear."""
    parts: list[str] = []
    top = 0
    for compression, words in (("none", "uncompressed"), ("zstd", "zstd")):
        shown = [
            each for each in figures
            if each.peer.compression in (None, compression) and each.peer.settings in (None, SAME)
            if each.peer.session == UNIX and not each.peer.tls
        ]  # fmt: skip
        for title, values in (
            ("Rows per second", [(each.rows_per_s, f"{each.rows_per_s / 1e6:.2f} M") for each in shown]),
            ("CPU seconds per million rows", [(each.cpu_s_per_million_rows, f"{each.cpu_s_per_million_rows:.2f} s")
                                              for each in shown]),
        ):  # fmt: skip
            parts.append(f'<text class="title" x="8" y="{top + 26}">{escape(f"{title}, {words}")}</text>')
            top += TITLE_HEIGHT
            longest = max((value for value, _ in values), default=0.0) or 1.0
            for each, (value, text) in zip(shown, values, strict=True):
                length = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * value / longest
                kind, baseline = "ours" if each.peer.sink == PYKAFKA else "theirs", top + BAR_HEIGHT - 4
                label, after = escape(each.peer.sink), LABEL_WIDTH + length + 6
                parts += [
                    f'<text x="{LABEL_WIDTH - 8}" y="{baseline}" text-anchor="end">{label}</text>',
                    f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}"/>',
                    f'<text x="{after:.1f}" y="{baseline}">{escape(text)}</text>',
                ]
                top += ROW_HEIGHT
    body = "\n".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 8}" width="{WIDTH}" height="{top + 8}" role="img">
<style>
text {{ font: 13px sans-serif; fill: #24292f }} .title {{ font-weight: bold }}
.theirs {{ fill: #9aa4af }} .ours {{ fill: #d1571e }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .theirs {{ fill: #6e7681 }} .ours {{ fill: #f0883e }} }}
</style>
{body}
</svg>
"""


def broker(authority: Authority) -> LocalKafka:
    """With an encrypted listener beside the plaintext one."""
    identity = authority.issue("broker")
    keys = {"type": "PEM", "certificate.chain": identity.chain, "key": identity.key}
    settings = {f"listener.name.{TLS.lower()}.ssl.keystore.{name}": value for name, value in keys.items()}
    return LocalKafka(listeners={TLS: "SSL"}, config=settings)


def main() -> None:
    parser = arguments(__doc__, 5, each="every peer", output="spark.json and spark.svg", only="peers")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--confs", action="store_true", help="settings of Spark, which go to confs.json")
    options = parser.parse_args()
    peers, authority = chosen(CONF_PEERS if options.confs else PEERS, options.only), Authority()
    name = "confs" if options.confs else "spark"
    with bench(broker(authority)) as on:
        ca_file = on.folder / "ca.pem"
        ca_file.write_text(authority.certificate, encoding="ascii")
        servers = Servers(on.kafka.bootstrap_servers, on.kafka.addresses_of(TLS), str(ca_file))
        # By an application of its own: one that has done something else is compiled for that, too.
        rows = on.folder, options.rows, options.value_bytes
        Application(options.output / f"{name}-rows.log", make_files, *rows).stop()
        sessions = dict.fromkeys(peer.session if peer.has_workers else UNIX for peer in peers)
        writers = {
            session: on.application(
                options.output / f"{name}-{number}.log", Writer, session, jars(), servers, on.folder, options.rows
            )
            for number, session in enumerate(sessions)
        }
        costs = in_turns(peers, options.rounds, lambda peer: measure(on, writers[peer.session], peer, options.rows))
    figures, found = [figure(peer, costs[peer], options.rows) for peer in peers], ratio_table(costs, options.rows)
    print(table(figures), found, sep="\n\n")
    report = {"kernel": KERNEL.name, "rows": options.rows, "value_bytes": options.value_bytes, "figures": figures}
    shared.write_report(
        options.output / f"{name}.json", report | {"partitions": PARTITIONS, "ratios": found.splitlines()}, on.kafka
    )
    if not options.confs:
        (options.output / "spark.svg").write_text(chart(figures), encoding="utf-8")


if __name__ == "__main__":
    main()

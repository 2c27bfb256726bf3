"""What benchmarks share: arguments, a broker with topics, applications of Spark, rounds in turns, medians, tables.

In a round every case is measured once; the order turns by one a round, and the first round warms up. Figures are
medians of the rounds, ratios medians of the rounds' own ratios, as neighbours in a round had the same machine. CPU
time is all that an application used: the Python driver, the JVM, the Python daemon and workers. Brokers are another
process's children and counted apart; they take their share of the same cores. Rows in topics are counted. Goals stand
beside the figures; nothing asserts them, machines differ. All figures go to a file of JSON in build/bench, too.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from kafka_sink.broker import LocalKafka
from process_tree import cpu_s
from spark_jars import MODULES, spark_jars
from spark_sessions import Cost
from waiting import wait_until

HERE = Path(__file__).resolve().parent
BUILD = Path("build/bench")
QUERY_TIMEOUT_S, ANSWER_TIMEOUT_S, ADMIN_TIMEOUT_S = 300, 900.0, 60.0
# For brokers: how long after a topic's end its files go.
DELETE_SOON = {"log.segment.delete.delay.ms": 1_000}
K = TypeVar("K")
T = TypeVar("T")


def arguments(doc: str | None, rounds: int, *, each: str, output: str = "", only: str = "") -> argparse.ArgumentParser:
    """`each`: what a round has. `output`: the files that the benchmark writes. `only`: what cases are called."""
    # A benchmark that is ended ends the processes that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds, help=f"of {each}, after one to warm up")
    parser.add_argument("--output", type=Path, default=BUILD, help=f"the folder where {output or 'figures'} go")
    if only:
        parser.add_argument("--only", nargs="*", help=f"{only} with one of these words in their description")
    return parser


def chosen(cases: Sequence[T], words: Sequence[str] | None) -> list[T]:
    """Return the cases with one of these words in their description; None: all."""
    return [case for case in cases if words is None or any(word in str(case) for word in words)]


def turned(cases: Sequence[T], number: int) -> list[T]:
    start = number % len(cases)
    return [*cases[start:], *cases[:start]]


def in_turns(
    cases: Sequence[K], rounds: int, measure: Callable[[K], T], said: str = "", *, warms_up: bool = True
) -> dict[K, list[T]]:
    """Return what was measured of each case in each round but the first, which warms up; the order turns by one."""
    found: dict[K, list[T]] = {case: [] for case in cases}
    for number in range(0 if warms_up else 1, rounds + 1):
        started_s = time.monotonic()
        for case in turned(cases, number):
            measured = measure(case)
            if number:
                found[case].append(measured)
        print(f"{said}round {number} of {rounds}: {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    return found


def fresh_process(script: str, *arguments: str) -> float:
    """Return the number that a new process of this Python prints."""
    command = [sys.executable, "-c", script, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def spark_environment() -> dict[str, str]:
    """Without another Spark and another Python of the machine's owner, which would be measured otherwise."""
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
        # Spark starts its workers with `python -m`, which would put the working directory first.
        "PYTHONSAFEPATH": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(HERE.parent.parent / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Application:
    """What `make(*given)` returns, in a process of its own, so that what it uses can be counted. Says all to `log`.

    Raises SystemExit, with the log's path, when the process has ended or does not answer within 15 min."""

    def __init__(self, log: Path, make: Callable[..., object], *given: object, **environment: str) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # A daemon ends with this process, however that ends.
        self._process = context.Process(target=_serve, args=(theirs, log, make, given), daemon=True)
        with patch.dict(os.environ, environment):
            self._process.start()
        theirs.close()
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def ask(self, method: str, *given: object) -> Any:
        with contextlib.suppress(BrokenPipeError):  # it has ended, as its missing answer will say
            self._connection.send((method, given))
        return self._answer()

    def _answer(self) -> Any:
        if not self._connection.poll(ANSWER_TIMEOUT_S):
            raise SystemExit(f"no answer within {ANSWER_TIMEOUT_S:g} s; the log is {self._log}")
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise SystemExit(f"ended with status {self._process.exitcode}; the log is {self._log}") from None

    def stop(self) -> None:
        """The end of its requests ends it."""
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, log: Path, make: Callable[..., object], given: Sequence[object]) -> None:
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    served = make(*given)
    connection.send(None)
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            method, arguments = connection.recv()
            connection.send(getattr(served, method)(*arguments))
    if spark := SparkSession.getActiveSession():
        spark.stop()


class Topics:
    """Topics for one write at a time, which are deleted when their rows have been counted."""

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka
        self._numbers = itertools.count(1)
        # Silent when the broker ends before them.
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2}
        self._admin = AdminClient(servers)
        self._consumer = Consumer(servers | {"group.id": "bench"})
        self.close = self._consumer.close

    def create(self, partitions: int, topics: int = 1) -> list[str]:
        """Their names: one that no other has, with -0, -1, ... behind it if there are several. Returns when every
        leader has made its log: it is known to lead before, and 2,000 logs take many seconds."""
        name = f"bench-{next(self._numbers)}"
        names = [name] if topics == 1 else [f"{name}-{number}" for number in range(topics)]
        for each in names:
            # Deleted at once and not after a minute: before the system writes to the disk what nobody will read.
            self._kafka.create_topic(each, partitions, config={"file.delete.delay.ms": 0})
        wait_until(partial(self._has_logs, names, partitions), ADMIN_TIMEOUT_S, f"logs of {name}")
        return names

    def _has_logs(self, names: Sequence[str], partitions: int) -> bool:
        try:
            return self.row_count(names, partitions) == 0
        except KafkaException:  # not the leader yet
            return False

    def row_count(self, names: Sequence[str], partitions: int) -> int:
        places = (TopicPartition(name, partition) for name in names for partition in range(partitions))
        return sum(self._consumer.get_watermark_offsets(place, timeout=ADMIN_TIMEOUT_S)[1] for place in places)

    def written(
        self, write: Callable[[Sequence[str]], Cost], rows: int, partitions: int, topics: int = 1, awaits: bool = False
    ) -> Cost:
        """A write of so many rows to topics made for it: counted, and deleted. `awaits`: until no file of them is left.
        The broker removes files afterwards, and 2,000 logs are work that the next write would share cores with."""
        names, before_s = self.create(partitions, topics), cpu_s(self._kafka.pid(1))
        cost = replace(write(names), broker_cpu_s=-before_s + cpu_s(self._kafka.pid(1)))
        found = self.row_count(names, partitions)
        if found != rows:
            raise SystemExit(f"{rows} rows were written, and there are {found}")
        # Not by looking through all folders: those of deleted topics vanish meanwhile.
        logs = (log for name in names for log in self._kafka.dir.glob(f"*/data/{name}-*[0-9]/*.log"))
        cost = replace(cost, log_bytes=sum(segment.stat().st_size for segment in logs))
        self.delete(names)
        if awaits:
            wait_until(partial(self._has_no_files, names), ADMIN_TIMEOUT_S, f"no files of {names[0]}")
        return cost

    def _has_no_files(self, names: Sequence[str]) -> bool:
        beginnings = tuple(f"{name}-" for name in names)
        return not any(log.name.startswith(beginnings) for log in self._kafka.dir.glob("*/*"))

    def delete(self, names: Sequence[str]) -> None:
        for deleted in self._admin.delete_topics(list(names), operation_timeout=ADMIN_TIMEOUT_S).values():
            deleted.result(ADMIN_TIMEOUT_S)


class Bench(NamedTuple):
    folder: Path
    kafka: LocalKafka
    topics: Topics
    stack: contextlib.ExitStack

    def application(self, log: Path, make: Callable[..., object], *given: object) -> Application:
        application = Application(log, make, *given)
        self.stack.callback(application.stop)
        return application


@contextlib.contextmanager
def bench(kafka: LocalKafka | None = None) -> Iterator[Bench]:
    """A cluster with its topics, and a folder, which go at the end with what is put on the stack."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, spark_environment(), clear=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-bench-")))
        running = stack.enter_context(LocalKafka() if kafka is None else kafka)
        yield Bench(folder, running, stack.enter_context(contextlib.closing(Topics(running))), stack)


@contextlib.contextmanager
def stopped(spark: SparkSession) -> Iterator[SparkSession]:
    try:
        yield spark
    finally:
        spark.stop()


def link_files(parts: Sequence[Path], folder: Path, micro_batches: int) -> Path:
    """Return `folder` with so many links to each of the files: what its micro-batches find."""
    folder.mkdir(parents=True)
    for micro_batch in range(micro_batches):
        for part in parts:
            os.link(part, folder / f"{micro_batch:03}-{part.name}")
    return folder


def jars() -> str:
    """Return the jars of Spark's own Kafka source and sink, by commas, fetched if need be."""
    return ",".join(map(str, spark_jars()))


def median(measured: Iterable[object], field: str) -> float:
    return float(statistics.median(getattr(each, field) for each in measured))


def median_ratio(ours: Sequence[object], theirs: Sequence[object], field: str) -> float:
    """The median of the rounds' own ratios, as neighbours in a round had the same machine."""
    pairs = zip(ours, theirs, strict=True)
    return float(statistics.median(getattr(our, field) / getattr(their, field) for our, their in pairs))


def markdown(head: str, rows: Iterable[str]) -> str:
    """A table, aligned for a terminal. ` | ` is between the cells of a row."""
    cells = [row.split(" | ") for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_report(file: Path, report: Mapping[str, object], kafka: LocalKafka | None = None) -> None:
    """With what ran the benchmark. `report`: anything that JSON has, and dataclasses."""
    of = {name: version(name) for name in ("pyspark", "pyarrow", "numpy", "confluent-kafka", "zstandard")}
    of |= {"python": platform.python_version(), **{module.name: module.revision for module in MODULES}}
    of |= {} if kafka is None else {"kafka broker": kafka.kafka_version}
    machine = {"processor": processor(), "cores": os.cpu_count(), "versions": of}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**machine, **report}, default=asdict, indent=2) + "\n", encoding="utf-8")

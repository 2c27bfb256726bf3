"""Spark on YARN: the lines of docs/deploying.md."""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from code_blocks import run_bash
from fetched_jars import pyspark_jars
from hadoop import Hadoop, yarn
from kafka_sink.broker import LocalKafka
from shipment import ROOT, Shipment
from spark_writes import numbers_in
from standalone_spark import bare_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SUPPORT = ROOT / "tests" / "support"
DEADLINE_S = 240
FILES = 12
CONF = {
    "spark.yarn.jars": f"local:{pyspark_jars()}/*", "spark.ui.enabled": "false", "spark.executor.instances": "1",
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

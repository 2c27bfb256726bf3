"""Spark on YARN: the lines of docs/deploying.md, and exactly-once streams whose processes and nodes end."""

import contextlib
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker_admin import read
from code_blocks import run_bash
from exactly_once_runs import ALL_ONCE, HOOKS, MICRO_BATCHES, incoming
from fetched_jars import pyspark_jars
from hadoop import Hadoop, yarn
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.process import LeashedProcess
from kafka_sink.cli.verification.receipts import Receipts
from kafka_sink.kafka.clock import within
from kafka_sink.records.receipt_file import filesystem_of
from kerberized_kafka import KerberizedKafka, kerberized_kafka, of_keytab
from shipment import ROOT, Shipment
from spark_writes import numbers_in
from standalone_spark import SPARK_HOME, bare_environment
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]

SUPPORT = ROOT / "tests" / "support"
# A busy machine takes minutes for the start of an application.
DEADLINE_S = 700
ENVIRONMENTS = "spark.yarn.appMasterEnv", "spark.executorEnv"
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


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberizedKafka]:
    with kerberized_kafka(tmp_path_factory.mktemp("realm")) as running:
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
def submitted(
    at: At, shipment: Shipment, arguments: Sequence[str], environment: Mapping[str, str], *options: str
) -> Iterator[LeashedProcess]:
    """exactly_once_app.py in cluster mode. `environment`: variables for its master and its executors. Its output is in
    `submitted.out`."""
    confs = {f"{of}.{name}": value for name, value in environment.items() for of in ENVIRONMENTS}
    confs |= {f"{ENVIRONMENTS[0]}.PYSPARK_PYTHON": str(shipment.installed), "spark.yarn.maxAppAttempts": "2"}
    given = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", "cluster", *given]
    with (at.folder / "submitted.out").open("wb") as said:
        process = LeashedProcess(
            [*command, *options, SUPPORT / "exactly_once_app.py", *arguments], grace_seconds=0, stdout=said,
            stderr=subprocess.STDOUT, cwd=at.folder,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.end()


def end_well(at: At, process: LeashedProcess) -> None:
    """And each row is there once, with its receipt."""
    wait_for(at, process, lambda: process.returncode is not None, "the application ends")
    said = (at.folder / "submitted.out").read_text(errors="replace")
    assert process.returncode == 0, said[-4_000:] + at.cluster.output_of_containers("stderr")[-8_000:]
    assert read(at.kafka, at.topic) == ALL_ONCE
    receipts = Receipts(*filesystem_of(f"{at.cluster.name_node}/receipts/{at.topic}", within))
    assert (receipts.files, receipts.row_count) == (MICRO_BATCHES, ALL_ONCE.total())
    assert not receipts.unreadable


def wait_for(at: At, process: LeashedProcess, condition: Callable[[], object], what: str) -> None:
    wait_until(lambda: process.returncode is not None or condition(), DEADLINE_S, what)
    assert condition(), (at.folder / "submitted.out").read_text(errors="replace")[-4_000:]


def stream(at: At, servers: str = "", **options: str) -> list[str]:
    """Arguments of exactly_once_app.py: files that are here, checkpoint and receipts in HDFS."""
    files, of_hdfs = incoming(at.folder / "incoming").as_uri(), at.cluster.name_node
    options["receiptsPath"] = f"{of_hdfs}/receipts/{at.topic}"
    given = [f"{name}={value}" for name, value in options.items()]
    places = servers or at.kafka.bootstrap_servers, at.topic, files, f"{of_hdfs}/streams/{at.topic}"
    return [*places, *given, "--submitted"]


def hook(at: At, *holds: str, step: str = "", kill: str = "") -> dict[str, str]:
    """The variables of `hooks/sitecustomize.py`. The pipes of `holds` are in the folder, `held-0` first."""
    gates = {each: str(at.folder / f"held-{number}") for number, each in enumerate(holds)}
    for gate in gates.values():
        os.mkfifo(gate)
    files = {"once": str(at.folder / "happened"), "log": str(at.folder / "requests")}
    # YARN puts values into a script between double quotes, Spark gives those of executors to Python as they are.
    told = at.folder / "hook.json"
    told.write_text(json.dumps({"holds": gates, "step": step, "kill": kill, **files}))
    return {"PYKAFKA_HOOK": str(told), "PYTHONPATH": str(HOOKS)}


def go_on(at: At) -> None:
    """All that wait at a pipe, as many as live."""
    for gate in at.folder.glob("held-?"):
        with contextlib.suppress(OSError):  # nobody reads it
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))


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
    hooked = hook(at, step=f"after EndTxn {at.topic}.driver commit", kill="application")
    with submitted(at, shipment, stream(at), hooked) as application:
        end_well(at, application)
    assert (at.folder / "happened").exists()
    assert at.cluster.attempts() == [1, 2]


def test_a_node_manager_of_executors_is_killed(at: At, shipment: Shipment) -> None:
    """Each of two executors has a task whose rows are sent. No more containers fit beside the application master, so
    one of them or both are on the other node."""
    hooked = hook(at, *(f"before TxnOffsetCommit {at.topic}.{slot}" for slot in range(2)))
    both = "--num-executors", "2", "--conf", f"spark.scheduler.maxRegisteredResourcesWaitingTime={DEADLINE_S}s"
    with submitted(at, shipment, stream(at), hooked, *both) as application:
        wait_for(at, application, lambda: len(list(at.folder.glob("held-?.reached"))) == 2, "both tasks wait")
        containers = at.cluster.containers()
        (other,) = {"node-manager-0", "node-manager-1"} - {containers[1, 1]}
        with at.cluster.without(other):
            lost = "Lost executor"
            wait_for(at, application, lambda: lost in at.cluster.output_of_containers("stderr"), "an executor is lost")
            go_on(at)
            end_well(at, application)
    assert at.cluster.attempts() == [1]


def test_the_node_manager_of_an_application_master_is_killed(at: At, shipment: Shipment) -> None:
    """The next attempt begins beside it, in the middle of a micro-batch that it has not decided. It goes on later."""
    hooked = hook(at, f"before EndTxn {at.topic}.driver commit")
    with submitted(at, shipment, stream(at), hooked) as application:
        wait_for(at, application, (at.folder / "held-0.reached").exists, "the commit waits")
        with at.cluster.without(at.cluster.containers()[1, 1]):
            plans, requests = f"InitProducerId {at.topic}.driver", at.folder / "requests"
            before = requests.read_text().count(plans)
            wait_for(at, application, lambda: requests.read_text().count(plans) > before, "the next attempt plans")
            go_on(at)
            end_well(at, application)
    assert at.cluster.attempts() == [1, 2]


def test_a_keytab_that_is_shipped_by_files(at: At, shipment: Shipment, kerberized: KerberizedKafka) -> None:
    """Driver and executors find it in their working folders."""
    kerberized.kafka.create_topic(at.topic, 2)
    at = replace(at, kafka=kerberized.kafka)
    options = kerberized.options(of_keytab("app.keytab", "alice"))
    servers = options.pop("kafka.bootstrap.servers")
    arguments, realm = stream(at, servers, **options), {"KRB5_CONFIG": str(kerberized.realm.krb5_conf)}
    before = kerberized.realm.tickets_issued("alice")
    with submitted(at, shipment, arguments, realm, "--files", f"{kerberized.keytab}#app.keytab") as application:
        end_well(at, application)
    # In a process of the driver and in one of an executor at least.
    assert kerberized.realm.tickets_issued("alice") >= before + 2

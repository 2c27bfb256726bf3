"""conf/Containerfile: its steps run in an empty Debian, and the lines of docs/deploying.md run in what they make.

pip's Spark stands for Spark's image, and a standalone cluster for Kubernetes. Each process has its own address.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from code_blocks import words_of
from containers import Image, built, lacking
from hadoop import free_ports
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.process import LeashedProcess
from kafka_sink.doctor.interpreter import strip_archive
from shipment import ROOT, built_wheel
from spark_writes import numbers_in
from standalone_spark import SPARK_HOME
from waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

DEADLINE_S = 120
PYTHON = "/opt/venv/bin/python"
MASTER, DRIVER, EXECUTOR, SERVICE = "127.0.0.1", "127.0.0.2", "127.0.0.3", "orders-driver.jobs.svc"
NOT_PYSPARK = {"bin", "data", "examples", "jars", "licenses", "python", "sbin", "__pycache__"}
# Spark's own starts drivers and executors, and passes any other command through.
ENTRYPOINT = """#!/bin/sh
exec /usr/bin/tini -s -- "$@"
"""


def spark_image(folder: Path) -> Path:
    """What the Containerfile copies of Spark's image. Nobody has compiled its archives."""
    spark = folder / "opt" / "spark"
    for name in ("python/pyspark", "work-dir"):
        (spark / name).mkdir(parents=True)
    for name in ("bin", "sbin", "jars", "data"):
        (spark / name).symlink_to(SPARK_HOME / name)
    for each in SPARK_HOME.iterdir():
        if each.name not in NOT_PYSPARK:
            (spark / "python" / "pyspark" / each.name).symlink_to(each)
    shutil.copytree(SPARK_HOME / "python" / "lib", spark / "python" / "lib")
    for archive in (spark / "python" / "lib").iterdir():
        strip_archive(archive)
    for name in ("entrypoint.sh", "decom.sh"):
        (spark.parent / name).write_text(ENTRYPOINT)
        (spark.parent / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if reason := lacking():
        pytest.skip(reason)
    context = tmp_path_factory.mktemp("context")
    built_wheel(context)
    shutil.copy(ROOT / "tests" / "support" / "deploying_app.py", context / "app.py")
    stages = {"spark": spark_image(tmp_path_factory.mktemp("spark-image"))}
    root = tmp_path_factory.mktemp("images") / "root"
    root.mkdir()
    yield built(ROOT / "conf" / "Containerfile", context, stages, root, [f"{DRIVER} {SERVICE}"])
    shutil.rmtree(root)


def output_of(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stdout[-4_000:]
    return ended.stdout


def test_the_image_has_one_spark_and_the_compiled_package(image: Image) -> None:
    assert output_of(image.run(*image.entrypoint, "id", "--user")) == "185\n"
    said = output_of(image.run(*image.entrypoint, "/opt/venv/bin/pykafka", "version"))
    assert re.search(r"^kernel +compiled$", said, re.MULTILINE)
    of_spark = re.escape(f"{pyspark.__version__}, the cluster's (SPARK_HOME=/opt/spark)")
    assert re.search(rf"^pyspark +{of_spark}$", said, re.MULTILINE)
    installed = json.loads(output_of(image.run(PYTHON, "-m", "pip", "list", "--format=json", "--no-index")))
    assert not {each["name"] for each in installed} & {"pyspark", "py4j", "pandas"}
    output_of(image.run("/bin/sh", "-c", "touch x && rm x && ! touch /opt/venv/x && ! ls /tmp/*.whl"))
    archives = output_of(image.run("/opt/venv/bin/pykafka", "warm")).splitlines()
    assert [each.partition(": ")[2] for each in archives] == ["compiled already"] * 2


@pytest.fixture(scope="module")
def master(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster: its master, and a worker at the address of an executor. Both are containers."""
    folder = tmp_path_factory.mktemp("standalone")
    with ExitStack() as running:

        def start(name: str, host: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            main = f"org.apache.spark.deploy.{name.lower()}.{name}"
            at = ("--host", host, "--port", "0", "--webui-port", "0")
            words = (*image.entrypoint, "/opt/spark/bin/spark-class", main, *at, *arguments)
            variables = image.variables | {"SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false"}
            with log.open("wb") as out:
                process = LeashedProcess(
                    image.command(*words), grace_seconds=30, stdout=out, stderr=subprocess.STDOUT, environ=variables
                )
            running.callback(process.end)
            return log

        log = start("Master", MASTER)
        url = re.compile(r"Starting Spark master at (spark://\S+)")
        wait_until(lambda: url.search(log.read_text()), DEADLINE_S, "a master")
        found = url.search(log.read_text())
        assert found is not None
        log = start("Worker", EXECUTOR, "--cores", "2", "--memory", "2g", "--work-dir", "/opt/spark/work-dir", found[1])
        wait_until(lambda: "Successfully registered with master" in log.read_text(), DEADLINE_S, "a worker")
        yield found[1]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", DRIVER)


@pytest.mark.usefixtures("variables")
def test_the_line_for_a_driver_in_a_pod(
    image: Image, master: str, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """The driver has the service's name, its own address and the ports that it is given, and so has the executor."""
    name, ports = topic(2), free_ports(3)
    line = words_of("docs/deploying.md", "Kubernetes", 1, {
        "k8s://https://kubernetes.default.svc": master,
        **dict(zip(("7078", "7079", "7080"), map(str, ports), strict=True)),
    })  # fmt: skip
    line[1:1] = ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
    said = output_of(
        image.run(*image.entrypoint, f"/opt/spark/bin/{line[0]}", *line[1:], kafka.bootstrap_servers, name)
    )
    assert sorted(numbers_in(kafka, name)) == list(range(1_000))
    (told,) = (json.loads(each) for each in said.splitlines() if each.startswith('{"found"'))
    assert told["found"]
    for where, status, text in told["verdicts"]:
        assert status == "OK", (where, text)
        assert text.startswith(f"{PYTHON}, Python 3.11") and "compiled kernel" in text
        assert "compiles pyspark" not in text
    of_driver, of_blocks, of_executor = ports
    assert f"service 'sparkDriver' on port {of_driver}" in said
    managers = re.findall(r"Registering block manager (\S+) with", said)
    assert managers == [f"{SERVICE}:{of_blocks}", f"{EXECUTOR}:{of_executor}"]


def test_the_check_from_inside(image: Image, master: str, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic(1))
    conf = "--conf spark.executor.memory=512m --conf spark.ui.enabled=false pyspark-shell"
    at = {"PYSPARK_SUBMIT_ARGS": conf, "SPARK_LOCAL_IP": DRIVER}
    said = output_of(image.run("/opt/venv/bin/pykafka", "check", *servers, "--json", "--spark", master, **at))
    verdicts = json.loads(said.splitlines()[-1])["verdicts"]
    assert [each for each in verdicts if each["status"] == "FAILED"] == []
    status = {each["where"]: each["status"] for each in verdicts if each["step"] == "python"}
    assert status == dict.fromkeys(("driver", "planner", "tasks"), "OK"), verdicts

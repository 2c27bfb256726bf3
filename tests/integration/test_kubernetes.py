"""The lines of docs/deploying.md for Kubernetes: the pods that Spark's own code would ask for, without a cluster.

A name that Spark does not know changes nothing, and a line with it would run. So each setting must be Spark's, and one
whose name ends as a user likes must be seen in a pod.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from code_blocks import ROOT, pages, words_of
from spark_pods import SparkPods, spark_pods
from standalone_spark import bare_environment

pytestmark = pytest.mark.long

PYTHON = "/home/me/bin/python"
SECRET = {"name": "kafka-ca-volume", "mountPath": "/etc/kafka-ca"}
# Names that Spark draws anew for each pod.
DRAWN = re.compile(r"[0-9a-f]{16}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkPods]:
    """Started as by a user who has named a Python, and with no other variables of Spark."""
    with pytest.MonkeyPatch.context() as environment:
        for name in os.environ.keys() - bare_environment().keys():
            environment.delenv(name)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYSPARK_PYTHON", PYTHON)
        with spark_pods() as made:
            yield made


@pytest.fixture
def cluster_mode() -> list[str]:
    return words_of("docs/deploying.md", "Kubernetes", 0, {})[1:]


@pytest.fixture
def client_mode(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    return words_of("docs/deploying.md", "Kubernetes", 1, {})[1:]


def unread(spark: SparkPods, line: list[str]) -> list[str]:
    """Return the settings of the line that Spark does not read."""
    begins = tuple(spark.prefixes())
    pods = asked_for(spark, line)
    found = []
    for place, word in enumerate(line):
        if word == "--conf" and not spark.declares(key := line[place + 1].partition("=")[0]):
            without = [*line[:place], *line[place + 2 :]]
            if not key.startswith(begins) or asked_for(spark, without) == pods:
                found.append(key)
    return found


def asked_for(spark: SparkPods, line: list[str]) -> str:
    try:
        return DRAWN.sub("", repr(spark.pods(line)))
    except Py4JJavaError as refused:
        return str(refused.java_exception.getMessage())


def test_spark_reads_each_setting_of_the_lines(
    spark: SparkPods, cluster_mode: list[str], client_mode: list[str]
) -> None:
    for line in (cluster_mode, client_mode):
        assert unread(spark, line) == []


@pytest.mark.parametrize("spelled", [
    "kubernetes.driver.secretKeyref.KAFKA_PASSWORD=kafka:password", "kubernetes.executor.secret.kafka-ca=/etc/kafka-ca",
    "kubernetes.container.images=x", "executor.memoryOverheads=1g",
    "kubernetes.driver.volumes.persistentVolumeClaim.state.mount.readonly=true",
])  # fmt: skip
def test_a_setting_that_is_misspelled_is_found(spark: SparkPods, cluster_mode: list[str], spelled: str) -> None:
    assert unread(spark, ["--conf", f"spark.{spelled}", *cluster_mode]) == [f"spark.{spelled.partition('=')[0]}"]


def test_spark_refuses_what_is_no_value_of_a_setting(spark: SparkPods, cluster_mode: list[str]) -> None:
    for wrong in ("kubernetes.driver.secretKeyRef.X=kafka", "kubernetes.driver.volumes.claim.state.mount.path=/state"):
        with pytest.raises(Py4JJavaError):
            spark.pods(["--conf", f"spark.{wrong}", *cluster_mode])


def test_each_setting_for_kubernetes_that_a_page_names_is_spark_s(spark: SparkPods, cluster_mode: list[str]) -> None:
    spark.pods(cluster_mode)  # Spark declares a setting when its classes are loaded
    names = re.compile(r"spark\.kubernetes\.[\w.-]*\w")
    named = {name for page in pages() for name in names.findall((ROOT / page).read_text(encoding="utf-8"))}
    assert len(named) > 5
    begins = tuple(spark.prefixes())
    assert [name for name in sorted(named) if not (spark.declares(name) or f"{name}.".startswith(begins))] == []


def test_the_pods_of_cluster_mode(spark: SparkPods, cluster_mode: list[str]) -> None:
    pods = spark.pods(cluster_mode)
    driver, executor = (pods[role]["spec"]["containers"][0] for role in ("driver", "executor"))
    assert {each["image"] for each in (driver, executor)} == {"registry.example/orders"}
    assert driver["args"][-3:] == ["--class", "org.apache.spark.deploy.PythonRunner", "local:///opt/app/app.py"]
    assert executor["args"] == ["executor"]
    of_password = {"secretKeyRef": {"name": "kafka", "key": "password"}}
    assert variables(driver)["KAFKA_PASSWORD"] == of_password
    assert "KAFKA_PASSWORD" not in variables(executor)
    for container in (driver, executor):
        assert SECRET in container["volumeMounts"]
    assert [each["mountPath"] for each in driver["volumeMounts"] if each["name"] == "state"] == ["/state"]
    claims = [each["persistentVolumeClaim"]["claimName"] for each in pods["driver"]["spec"]["volumes"]
              if "persistentVolumeClaim" in each]  # fmt: skip
    assert claims == ["state"]
    assert pods["driver"]["spec"]["serviceAccountName"] == "spark"
    assert variables(executor)["SPARK_DRIVER_URL"].endswith("-driver-svc.jobs.svc:7078")


def test_the_pods_of_client_mode(spark: SparkPods, client_mode: list[str]) -> None:
    pods = spark.pods(client_mode)
    assert pods.keys() == {"executor"}
    (executor,) = pods["executor"]["spec"]["containers"]
    assert variables(executor)["SPARK_DRIVER_URL"] == "spark://CoarseGrainedScheduler@10.0.0.7:7078"
    assert [each["containerPort"] for each in executor["ports"]] == [7080]
    assert [each["name"] for each in pods["executor"]["metadata"]["ownerReferences"]] == ["orders-driver"]


def test_the_memory_of_an_executor_s_pod(spark: SparkPods, cluster_mode: list[str], client_mode: list[str]) -> None:
    """In MiB, of which 2,048 are Java's. In client mode Spark does not know that the application is in Python."""
    place = client_mode.index("spark.executor.memoryOverheadFactor=0.4")
    without = [*client_mode[: place - 1], *client_mode[place + 1 :]]
    overhead, of_python = "spark.executor.memoryOverhead=1g", "spark.executor.pyspark.memory=1g"
    for line, more, limit in (
        (cluster_mode, [], 2_867), (client_mode, [], 2_867), (without, [], 2_432),
        (cluster_mode, [overhead], 3_072), (without, [overhead], 3_072),
        (cluster_mode, [of_python], 3_891), (without, [of_python], 2_432),
        (without, ["spark.executor.memory=8g"], 9_011),
    ):  # fmt: skip
        confs = [word for each in ("spark.executor.memory=2g", *more) for word in ("--conf", each)]
        (executor,) = spark.pods([*line[:-1], *confs, line[-1]])["executor"]["spec"]["containers"]
        assert executor["resources"]["limits"]["memory"] == f"{limit}Mi", (line, more)


def test_the_python_of_who_submits_goes_into_the_pod_of_the_driver(spark: SparkPods, cluster_mode: list[str]) -> None:
    """Where it is not. So the page says to unset it."""
    pods = spark.pods(cluster_mode)
    named = {role: variables(pods[role]["spec"]["containers"][0]).get("PYSPARK_PYTHON") for role in pods}
    assert named == {"driver": PYTHON, "executor": None}


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}

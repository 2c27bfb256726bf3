"""What Spark's own code makes of a spark-submit line for Kubernetes, without a cluster: the pods that it would ask for.

Spark parses the line, builds the driver's pod from it, and the executors' pods from what the driver is given.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_collections import ListConverter
from pyspark.java_gateway import launch_gateway

CONFIG = "org.apache.spark.deploy.k8s.Config"


class SparkPods:
    def __init__(self, gateway: Any) -> None:
        self._gateway, self._jvm = gateway, gateway.jvm

    def pods(self, line: Sequence[str]) -> dict[str, Any]:
        """Return the pods of "driver" (in cluster mode) and "executor". `line` begins behind `spark-submit`.

        Raises Py4JJavaError if Spark refuses it.
        """
        jvm = self._jvm
        words = ListConverter().convert(line, self._gateway._gateway_client)
        no_environment = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        arguments = jvm.org.apache.spark.deploy.SparkSubmitArguments(jvm.PythonUtils.toSeq(words), no_environment)
        submission = jvm.org.apache.spark.deploy.SparkSubmit().prepareSubmitEnvironment(arguments, self._none())
        conf, made = submission._3(), {}
        if conf.get("spark.submit.deployMode") == "cluster":
            driver = self._driver(conf, submission._1())
            made["driver"] = self._pod(driver)
            given = driver.systemProperties()
            for key in list(self._in_java(given.keys().toSeq())):
                conf.set(key, given.apply(key))
        made["executor"] = self._pod(self._executor(conf))
        return made

    def declares(self, key: str) -> bool:
        """Whether Spark has a setting of exactly this name."""
        return self._object("org.apache.spark.internal.config.ConfigEntry").findEntry(key) is not None

    def prefixes(self) -> Iterator[str]:
        """Yield what settings for Kubernetes begin with that end as a user likes, such as with a secret's name."""
        config = self._object(CONFIG)
        for method in config.getClass().getMethods():
            if method.getName().endswith("_PREFIX") and not method.getParameterCount():
                prefix = str(getattr(config, method.getName())())
                if prefix.endswith("."):
                    yield prefix

    def _driver(self, conf: Any, arguments: Any) -> Any:
        jvm, words = self._jvm, list(self._in_java(arguments))
        of_line = self._object("org.apache.spark.deploy.k8s.submit.ClientArguments")
        parsed = of_line.fromCommandLineArgs(self._array(words))
        made = self._object("org.apache.spark.deploy.k8s.KubernetesConf").createDriverConf(
            conf, "spark-0", parsed.mainAppResource(), parsed.mainClass(), parsed.driverArgs(), self._none()
        )
        return jvm.org.apache.spark.deploy.k8s.submit.KubernetesDriverBuilder().buildFromFeatures(made, None)

    def _executor(self, conf: Any) -> Any:
        jvm = self._jvm
        for key, value in {"spark.driver.host": "driver", "spark.driver.port": "7078"}.items():
            conf.setIfMissing(key, value)
        # A driver in a pod that has a name asks Kubernetes for this pod, which then owns those of executors.
        name = conf.get("spark.kubernetes.driver.pod.name", "")
        pod = jvm.io.fabric8.kubernetes.api.model.PodBuilder().withNewMetadata().withName(name).endMetadata().build()
        made = self._object("org.apache.spark.deploy.k8s.KubernetesConf").createExecutorConf(
            conf, "1", "spark-0", jvm.scala.Some(pod) if name else self._none(), 0
        )
        # Spark keeps the profile of a process.
        profiles = self._object("org.apache.spark.resource.ResourceProfile")
        profiles.clearDefaultProfile()
        profile = profiles.getOrCreateDefaultProfile(conf)
        security = jvm.org.apache.spark.SecurityManager(conf, self._none(), None)
        builder = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
        return builder.buildFromFeatures(made, security, None, profile)

    def _pod(self, spec: Any) -> Any:
        """Return the pod, whose first container is Spark's, as Kubernetes gets it."""
        jvm, of_spark = self._jvm, spec.pod()
        whole = jvm.io.fabric8.kubernetes.api.model.PodBuilder(of_spark.pod()).editSpec()
        whole = whole.addToContainers(0, of_spark.container()).endSpec().build()
        return json.loads(jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson(whole))

    def _object(self, name: str) -> Any:
        """Return Scala's object of that name."""
        *packages, own = name.split(".")
        found = self._jvm
        for package in packages:
            found = getattr(found, package)
        return getattr(getattr(found, f"{own}$"), "MODULE$")

    def _none(self) -> Any:
        return self._object("scala.None")

    def _in_java(self, sequence: Any) -> Any:
        return self._object("scala.jdk.javaapi.CollectionConverters").asJava(sequence)

    def _array(self, words: Sequence[str]) -> Any:
        made = self._gateway.new_array(self._jvm.String, len(words))
        for i, word in enumerate(words):
            made[i] = word
        return made


@contextmanager
def spark_pods() -> Iterator[SparkPods]:
    """Spark's classes in a process of their own, without a session."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        yield SparkPods(gateway)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()

"""Hadoop's own daemons in processes of their own: HDFS with one DataNode, and YARN with two NodeManagers.

Their classes are those of `hadoop-client-minicluster`, in the version of pyspark's Hadoop client. Ivy fetches that jar
once, and pyspark has the other jars.
"""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import processes
from fetched_jars import Module, fetched_jars, hadoop_version, pyspark_jars
from kafka_sink.broker.process import LeashedProcess
from kafka_sink.broker.resolve import find_java
from waiting import wait_until

HOST = "127.0.0.1"
DEADLINE_S = 240
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO")
# Of pyspark's jars, beside Hadoop's client.
LOGGING = ("slf4j-api-*.jar", "log4j-*.jar", "jcl-over-slf4j-*.jar", "jsr305-*.jar")
SERVERS = "org.apache.hadoop.hdfs.server", "org.apache.hadoop.yarn.server"
REGISTERED = "Registered with ResourceManager"
WITH_PAGES = "hdfs", "datanode", "cluster", "node"
# Beside the minicluster. The ResourceManager makes a certificate with Bouncy Castle.
MODULES = (
    Module("commons-logging", "commons-logging", "1.3.0"),
    *(Module("org.bouncycastle", f"{name}-jdk18on", "1.82") for name in ("bcprov", "bcpkix", "bcutil")),
)


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@dataclass(slots=True)
class Hadoop:
    """`folder`: of the configuration, the daemons' data and their output. `daemons`: by name."""

    folder: Path
    name_node: str
    daemons: dict[str, LeashedProcess] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """The folder for HADOOP_CONF_DIR."""
        return self.folder / "conf"

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start(self, name: str, main_class: str, *arguments: str) -> None:
        path = class_path(self.conf, self.folder / "pages")
        command: list[str | Path] = [find_java(os.environ), *JVM, "-cp", path, main_class]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = LeashedProcess(
                [*command, *arguments], grace_seconds=0, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                environ=os.environ | {"JAVA_HOME": str(find_java(os.environ).resolve().parents[1])},
            )  # fmt: skip

    def start_node_manager(self, name: str) -> None:
        """Start it with folders of its own for containers and their output."""
        own = {f"yarn.nodemanager.{each}-dirs": str(self.folder / name / each) for each in ("local", "log")}
        properties = [f"-D{key}={value}" for key, value in own.items()]
        self.start(name, f"{SERVERS[1]}.nodemanager.NodeManager", *properties)

    def containers(self) -> dict[tuple[int, int], str]:
        """Those of the newest application: the numbers of attempt and container, and the NodeManager. The first one of
        an attempt has the application master."""
        found = [*self.folder.glob("node-manager-*/log/application_*/container_*")]
        newest = max((each.parent.name for each in found), default="")
        of_newest = (each for each in found if each.parent.name == newest)
        return {(int(attempt), int(number)): each.parents[2].name
                for each in of_newest for attempt, number in [each.name.split("_")[-2:]]}  # fmt: skip

    def attempts(self) -> list[int]:
        """Those of the newest application, as the ResourceManager tells: a NodeManager that starts removes folders."""
        found = re.findall(r"appattempt_(\d+_\d+)_(\d+) State change from NEW ", self.said("resource-manager"))
        newest = max(application for application, _ in found)
        return [int(attempt) for application, attempt in found if application == newest]

    @contextmanager
    def without(self, node_manager: str) -> Iterator[None]:
        """Kill a NodeManager, whose containers live on, and start it again at the end."""
        self.daemons[node_manager].end()
        try:
            yield
        finally:
            registered = self.said(node_manager).count(REGISTERED)
            self.start_node_manager(node_manager)
            wait_until(lambda: self.said(node_manager).count(REGISTERED) > registered, DEADLINE_S, "a NodeManager")

    def output_of_containers(self, file: str) -> str:
        """The files of that name (stdout, stderr) of all containers that were started."""
        found = sorted(self.folder.glob(f"node-manager-*/log/*/*/{file}"))
        return "".join(each.read_text(errors="replace") for each in found)


def class_path(*folders: Path) -> str:
    version = hadoop_version()
    minicluster = Module("org.apache.hadoop", "hadoop-client-minicluster", version)
    jars = fetched_jars("hadoop", version, (minicluster, *MODULES))
    for names in ("hadoop-client-*.jar", *LOGGING):
        jars += pyspark_jars().glob(names)
    return os.pathsep.join(map(str, (*folders, *jars)))


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    lines = (f"<property><name>{key}</name><value>{escape(text)}</value></property>" for key, text in settings.items())
    file.write_text("\n".join(("<configuration>", *lines, "</configuration>\n")))


@contextmanager
def hdfs(folder: Path) -> Iterator[Hadoop]:
    """HDFS alone, with one DataNode."""
    (port,) = free_ports(1)
    conf, anywhere = folder / "conf", f"{HOST}:0"
    conf.mkdir()
    for name in WITH_PAGES:
        (folder / "pages" / "webapps" / name).mkdir(parents=True)
    name_node = f"hdfs://{HOST}:{port}"
    write_settings(conf / "core-site.xml", {"fs.defaultFS": name_node, "hadoop.tmp.dir": str(folder / "tmp")})
    write_settings(conf / "hdfs-site.xml", {
        "dfs.replication": "1", "dfs.permissions.enabled": "false", "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.name.dir": (folder / "name").as_uri(), "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.namenode.http-address": anywhere, "dfs.datanode.address": anywhere,
        "dfs.datanode.http.address": anywhere, "dfs.datanode.ipc.address": anywhere,
    })  # fmt: skip
    cluster = Hadoop(folder, name_node)
    main_class = f"{SERVERS[0]}.namenode.NameNode"
    subprocess.run(
        [find_java(os.environ), *JVM, "-cp", class_path(conf), main_class, "-format", "-force"],
        check=True, capture_output=True, timeout=DEADLINE_S,
    )  # fmt: skip
    try:
        cluster.start("name-node", main_class)
        cluster.start("data-node", f"{SERVERS[0]}.datanode.DataNode")
        wait_until(lambda: _is_up(cluster), DEADLINE_S, "a DataNode is registered")
        yield cluster
    finally:
        for daemon in reversed(cluster.daemons.values()):
            daemon.end()


@contextmanager
def yarn(folder: Path) -> Iterator[Hadoop]:
    """HDFS, a ResourceManager and two NodeManagers of two containers each."""
    with hdfs(folder) as cluster:
        of_manager = "address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address"
        ports = zip(of_manager, free_ports(len(of_manager)), strict=True)
        write_settings(cluster.conf / "yarn-site.xml", {
            **{f"yarn.resourcemanager.{name}": f"{HOST}:{port}" for name, port in ports},
            **{f"yarn.nodemanager.{name}address": f"{HOST}:0" for name in ("", "webapp.", "localizer.")},
            "yarn.resourcemanager.hostname": HOST, "yarn.nodemanager.hostname": HOST,
            "yarn.nodemanager.collector-service.address": f"{HOST}:0",
            "yarn.nodemanager.resource.memory-mb": "2560", "yarn.nodemanager.resource.cpu-vcores": "8",
            "yarn.nodemanager.vmem-check-enabled": "false", "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": "128", "yarn.resourcemanager.am.max-attempts": "3",
            # A busy machine takes minutes for the start of an application master.
            "yarn.nm.liveness-monitor.expiry-interval-ms": "20000",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
            "yarn.nodemanager.delete.debug-delay-sec": "600",
        })  # fmt: skip
        queue = "yarn.scheduler.capacity"
        write_settings(cluster.conf / "capacity-scheduler.xml", {
            f"{queue}.root.queues": "default", f"{queue}.root.default.capacity": "100",
            f"{queue}.maximum-am-resource-percent": "1.0",
        })  # fmt: skip
        cluster.start("resource-manager", f"{SERVERS[1]}.resourcemanager.ResourceManager")
        for number in range(2):
            cluster.start_node_manager(f"node-manager-{number}")
        wait_until(lambda: _has_nodes(cluster), DEADLINE_S, "two NodeManagers are registered")
        try:
            yield cluster
        finally:
            # Containers outlive a NodeManager that is killed.
            left = [each for each in processes.living() if f"{folder}/node-manager-" in each.command]
            processes.send_signal(left, signal.SIGKILL)


def _has_nodes(cluster: Hadoop) -> bool:
    _check_living(cluster)
    return all(REGISTERED in cluster.said(f"node-manager-{number}") for number in range(2))


def _check_living(cluster: Hadoop) -> None:
    for name, daemon in cluster.daemons.items():
        assert daemon.returncode is None, cluster.said(name)[-4_000:]


def _is_up(cluster: Hadoop) -> bool:
    _check_living(cluster)
    is_known = "successfully registered with NN" in cluster.said("data-node")
    return is_known and "Leaving safe mode" in cluster.said("name-node")

"""LocalKafka: a Kafka cluster of one or three nodes on this machine, which runs during a `with` block.

For development and tests only: it uses the loopback interface, and all nodes share one disk. There is always a
plaintext listener for this process, the quorum and the traffic between brokers. Further listeners are for clients.

One folder has all files: `node-<id>/server.properties`, `node-<id>/broker.log` (output of the JVM and of Kafka, from
warnings up), `node-<id>/data`, and the files of `state`. Every process started here is on a leash (`process`), so it
ends with the process that opened the cluster.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import random
import shutil
import stat
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from kafka_sink.broker import process, requests, resolve
from kafka_sink.broker.errors import (
    BrokerDied,
    BrokerStartFailed,
    DirectoryUnusable,
    DiskFull,
    HostExhausted,
    LocalClusterUnusable,
    LocalKafkaError,
    ToolFailed,
    tells_of_full_disk,
    writing_to,
)
from kafka_sink.broker.process import LeashedProcess
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS, ClassArchive, Release, find_java
from kafka_sink.broker.settings import Node, free_ports, render_properties, server_settings
from kafka_sink.broker.state import CLUSTER_FILE, LOCK_FILE, ClusterIdentity, open_private, write_atomically
from kafka_sink.errors.exhaustion import exhausted

NODE_COUNTS = (1, 3)

# One broker needs 3 s on an idle machine. Three brokers on a busy machine with two cores need ten times as long.
START_TIMEOUT_SECONDS = 90.0
FORMAT_TIMEOUT_SECONDS = 60.0
TOPIC_TIMEOUT_SECONDS = 30.0
ANSWER_TIMEOUT_SECONDS = 2.0
POLL_SECONDS = 0.05
# A clean shutdown takes 0.3 s. With three nodes the last ones lose the quorum, and would retry for a long time.
STOP_GRACE_SECONDS = 5.0
# Includes writing the archive of classes, which takes 2 s on an idle machine.
RECORDING_GRACE_SECONDS = 30.0
PORT_ATTEMPTS = 3
LOG_TAIL_LINES = 30

# 512 MiB is enough for benchmarks, because a broker's data is in the page cache, and small enough for three nodes.
# On two cores the serial collector starts fastest, and does not compete with the broker's threads.
BROKER_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError")
# A tool runs for one second, too short for the optimising compiler to help.
TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1")


class LocalKafka:
    """A Kafka cluster on this machine, started by `with`; for development and tests only.

    Parameters:

    - `nodes`: 1 or 3
    - `kafka_version`: one of KAFKA_VERSIONS
    - `dir`: a folder that keeps the data, created if it is missing (default: a temporary one, removed at the end)
    - `config`: broker settings with Kafka's names, e.g. `{"message.max.bytes": 2_000_000}`
    - `listeners`: name -> security protocol of further listeners, e.g. `{"INTERNET": "SASL_SSL"}`. Their keys and
      users are broker settings in `config` (`listener.name.internet.ssl.keystore.type`, ...)
    - `advertised`: listener -> node -> port that the node advertises instead of its own, for a proxy

    `with` returns when every node answers and lists all other nodes. It raises JavaNotFound, JavaVersionUnsupported,
    DownloadFailed, DiskFull, DirectoryUnusable, BrokerStartFailed. The brokers do not create topics automatically.

    Examples:
        >>> with LocalKafka() as kafka:
        ...     kafka.create_topic("orders", 2)
        ...     kafka_sink.partition_count({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "orders"})
        2
    """

    releases: ClassVar[Mapping[str, Release]] = KAFKA_VERSIONS

    def __init__(
        self,
        nodes: int = 1,
        kafka_version: str = DEFAULT_KAFKA_VERSION,
        dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, Mapping[int, int]] | None = None,
    ) -> None:
        if nodes not in NODE_COUNTS:
            raise ValueError(f"nodes is {nodes}; a local cluster has 1 or 3")
        if kafka_version not in self.releases:
            raise ValueError(f"Kafka {kafka_version!r} is not supported here; use one of {', '.join(self.releases)}")
        self.kafka_version = kafka_version
        self.node_ids = range(1, nodes + 1)
        self._release = self.releases[kafka_version]
        self._config = {name: _setting(value) for name, value in (config or {}).items()}
        self._protocols = dict(listeners or {})
        self._advertised = dict(advertised or {})
        self._wanted_dir = None if dir is None else Path(dir).absolute()
        self._dir: Path | None = None
        self._lock_fd: int | None = None
        self._nodes: dict[int, Node] = {}
        self._brokers: dict[int, LeashedProcess] = {}
        # The file into which the broker writes its classes when it ends, or None.
        self._recorded: Path | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            try:
                self._open()
            except (MemoryError, OSError, RuntimeError) as error:
                if (named := exhausted(error)) is None:
                    raise
                raise HostExhausted(what=named.what, reason=named.reason) from error
            on_failure.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def dir(self) -> Path:
        """The folder with all files of the cluster."""
        if self._dir is None:
            raise LocalClusterUnusable("the local cluster is not open: use it as `with LocalKafka() as kafka:`.")
        return self._dir

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node, also of killed nodes, separated by commas."""
        return ",".join("{}:{}".format(*node.address) for node in self._nodes.values())

    def addresses_of(self, listener: str) -> str:
        """Return the `host:port` of every node for one of `listeners`, separated by commas."""
        return ",".join(f"{node.address[0]}:{node.listeners[listener]}" for node in self._nodes.values())

    def pid(self, node: int) -> int:
        """Return the process id of a node's broker (the JVM)."""
        return self._running(node).pid

    def kill(self, node: int) -> None:
        """Kill one broker with SIGKILL. Return when its process has ended.

        The other brokers notice the loss after Kafka's own timeouts.
        """
        self._running(node).kill()
        del self._brokers[node]

    def start(self, node: int) -> None:
        """Start a killed broker again, with its ports and data. Return when it answers.

        Raises BrokerStartFailed, DiskFull.
        """
        if node in self._brokers:
            raise LocalClusterUnusable(f"node {node} of the local cluster is running already.")
        self._start_brokers([node])

    def check(self) -> None:
        """Raise BrokerDied or DiskFull if a broker has ended unexpectedly."""
        for node, broker in self._brokers.items():
            if broker.returncode is not None:
                log_tail = _last_lines(_read(self._log(node)))
                if tells_of_full_disk(log_tail):
                    raise DiskFull(directory=str(self._home(node)))
                raise BrokerDied(node=node, status=broker.returncode, log_tail=log_tail)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic. Return when every running node knows a leader for each partition.

        `config` has topic settings with Kafka's names. Raises LocalKafkaError, with the broker's reason if the broker
        refuses the topic.
        """
        settings = {key: _setting(value) for key, value in (config or {}).items()}
        running = [self._nodes[node].address for node in self._brokers]
        if not running:
            raise LocalClusterUnusable(f"topic {name!r} cannot be created: no node of the local cluster is running.")
        deadline = time.monotonic() + TOPIC_TIMEOUT_SECONDS
        try:
            requests.create_topic(running[0], name, partitions, replication_factor, settings, TOPIC_TIMEOUT_SECONDS)
            for address in running:
                while not _leads(requests.fetch_metadata(address, name, TOPIC_TIMEOUT_SECONDS), partitions):
                    if time.monotonic() > deadline:
                        raise LocalClusterUnusable(f"topic {name!r} has partitions without a leader.")
                    time.sleep(POLL_SECONDS)
        except OSError as error:
            raise LocalClusterUnusable(f"topic {name!r}: the local cluster does not answer: {error}") from error

    def run_tool(self, main_class: str, *args: str, input: str | None = None, timeout: float = 60.0) -> str:
        """Run one of Kafka's own Java programs from the same jars. Return its stdout.

        Example: `org.apache.kafka.tools.TopicCommand`. `input` is the program's stdin, `timeout` is in seconds. Bytes
        that are not UTF-8 become surrogate escapes. Raises ToolFailed if the program fails or does not end in time.
        """
        command = [*self._java_command(TOOL_JVM), main_class, *args]
        sent = None if input is None else input.encode(errors="surrogateescape")
        try:
            ended = process.run(command, timeout_seconds=timeout, input=sent)
        except subprocess.TimeoutExpired as error:
            output = ((error.output or b"") + (error.stderr or b"")).decode(errors="replace")
            raise ToolFailed(
                tool=main_class, reason=f"did not end within {timeout:g} s", output_tail=_last_lines(output)
            ) from error
        if ended.returncode:
            output = (ended.stdout + ended.stderr).decode(errors="replace")
            raise ToolFailed(
                tool=main_class, reason=f"ended with status {ended.returncode}", output_tail=_last_lines(output)
            )
        return ended.stdout.decode(errors="surrogateescape")

    def close(self) -> None:
        """End all brokers, and remove a temporary folder. The `with` block calls it."""
        self._keep_classes()
        for broker in self._brokers.values():  # all at once, because each may use its full grace time
            broker.let_go()
        for broker in self._brokers.values():
            broker.end()
        self._brokers.clear()
        if self._lock_fd is not None:
            # Unlock before closing: a forked child of this process may hold a copy of the descriptor.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = None
        if self._dir is not None and self._wanted_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)
        self._dir = None

    def _keep_classes(self) -> None:
        """End a recording broker by SIGTERM, because the JVM writes the classes at a clean shutdown."""
        if self._recorded is not None:
            for broker in self._brokers.values():
                if broker.terminate(RECORDING_GRACE_SECONDS):
                    self._classes.keep(self._recorded)
            self._recorded = None

    def _open(self) -> None:
        self._java = find_java(os.environ)
        self._jars = resolve.resolve_jars(
            self._release,
            resolve.default_cache_dir(os.environ),
            lambda: [self._java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())],
        )
        self._classes = ClassArchive(self._jars, self._java)
        with writing_to(self._wanted_dir or Path(tempfile.gettempdir())):
            if self._wanted_dir is None:
                self._dir = Path(tempfile.mkdtemp(prefix="kafka-"))
            else:
                self._wanted_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_private(self._wanted_dir)
                self._dir = self._wanted_dir
            self._lock_fd = _lock(self._dir)
            identity = self._claim()
            write_atomically(self._log4j, self._release.logging.configuration)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._choose_ports()
                self._prepare(identity)
                self._start_brokers(self.node_ids)
                return
            except BrokerStartFailed as error:
                if not error.port_taken or attempt == PORT_ATTEMPTS:
                    raise
                self._kill_all()

    def _claim(self) -> ClusterIdentity:
        """Return the identity of the cluster in the folder. Write a new one into an empty folder, before any data."""
        file = self.dir / CLUSTER_FILE
        wanted = ClusterIdentity(_new_cluster_id(), self.kafka_version, len(self.node_ids))
        if not file.exists():
            write_atomically(file, wanted.to_json())
            return wanted
        try:
            found = ClusterIdentity.from_json(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DirectoryUnusable(directory=str(self.dir), reason=f"{CLUSTER_FILE}: {error}") from error
        if (found.kafka_version, found.nodes) != (wanted.kafka_version, wanted.nodes):
            raise DirectoryUnusable(
                directory=str(self.dir),
                reason=f"it holds the data of Kafka {found.kafka_version} with {found.nodes} node(s)",
            )
        return found

    def _choose_ports(self) -> None:
        ports = iter(free_ports((2 + len(self._protocols)) * len(self.node_ids), random.Random()))
        self._nodes = {
            node: Node(
                node,
                next(ports),
                next(ports),
                {name: next(ports) for name in self._protocols},
                {name: of_node[node] for name, of_node in self._advertised.items()},
            )
            for node in self.node_ids
        }
        for node in self._nodes.values():
            home = self._home(node.node_id)
            with writing_to(home):
                home.mkdir(mode=0o700, exist_ok=True)
                # An earlier version may have created the folder with the umask's permissions.
                home.chmod(0o700)
                (home / "server.properties").write_text(render_properties(self._settings(node)), encoding="ascii")

    def _settings(self, node: Node) -> dict[str, str]:
        cluster = list(self._nodes.values())
        return server_settings(node, cluster, self._home(node.node_id) / "data", self._config, self._protocols)

    def _prepare(self, identity: ClusterIdentity) -> None:
        """Do the work of `kafka-storage.sh format` for all nodes in parallel."""
        # With `=`, because an id may begin with a dash. --ignore-formatted completes partly formatted folders.
        arguments = ["format", f"--cluster-id={identity.cluster_id}", "--ignore-formatted", "--config"]
        formatting = {
            node: LeashedProcess(
                [
                    *self._java_command(TOOL_JVM),
                    "kafka.tools.StorageTool",
                    *arguments,
                    self._home(node) / "server.properties",
                ],
                grace_seconds=0,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for node in self.node_ids
            if not (self._home(node) / "data" / "meta.properties").exists()
        }
        try:
            for node, formatter in formatting.items():
                output, _ = formatter.communicate(None, FORMAT_TIMEOUT_SECONDS)
                if formatter.returncode:
                    reason = "its storage could not be formatted"
                    raise self._start_failure(node, reason, output.decode(errors="replace"))
        except subprocess.TimeoutExpired as error:
            raise self._start_failure(node, f"formatting took over {error.timeout:g} s", "") from error
        finally:
            for formatter in formatting.values():
                formatter.end()

    def _start_brokers(self, nodes: Sequence[int]) -> None:
        log_starts = {}
        for node in nodes:
            with writing_to(self._home(node)), self._log(node).open("ab") as log:
                log_starts[node] = log.tell()
                self._brokers[node] = LeashedProcess(
                    [
                        *self._java_command((*BROKER_JVM, *self._recording_flags(node))),
                        "kafka.Kafka",
                        self._home(node) / "server.properties",
                    ],
                    # Temporary data needs no clean shutdown.
                    grace_seconds=0 if self._wanted_dir is None else STOP_GRACE_SECONDS,
                    remove=self._dir if self._wanted_dir is None else None,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        self._wait_until_they_answer(nodes, log_starts)

    def _wait_until_they_answer(self, nodes: Sequence[int], log_starts: Mapping[int, int]) -> None:
        """Wait until each of `nodes` lists all running nodes. A broker answers when it is registered and caught up."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        waiting = list(nodes)
        while waiting:
            for node in waiting:
                status = self._brokers[node].returncode
                if status is not None:
                    del self._brokers[node]
                    output = _read(self._log(node), log_starts[node])
                    raise self._start_failure(node, f"it ended with status {status}", output)
            waiting = [node for node in waiting if not self._lists_all(node)]
            if waiting and time.monotonic() > deadline:
                output = _read(self._log(waiting[0]), log_starts[waiting[0]])
                raise self._start_failure(waiting[0], f"no answer within {START_TIMEOUT_SECONDS:g} s", output)
            if waiting:
                time.sleep(POLL_SECONDS)

    def _lists_all(self, node: int) -> bool:
        try:
            metadata = requests.fetch_metadata(self._nodes[node].address, None, ANSWER_TIMEOUT_SECONDS)
        except OSError:
            return False
        return metadata.brokers >= self._brokers.keys()

    def _start_failure(self, node: int, reason: str, output: str) -> LocalKafkaError:
        if tells_of_full_disk(output):
            return DiskFull(directory=str(self._home(node)))
        port_taken = "java.net.BindException" in output or "Address already in use" in output
        return BrokerStartFailed(node=node, reason=reason, port_taken=port_taken, log_tail=_last_lines(output))

    def _kill_all(self) -> None:
        for node in list(self._brokers):
            self.kill(node)

    def _running(self, node: int) -> LeashedProcess:
        if node not in self._brokers:
            raise LocalClusterUnusable(f"node {node} of the local cluster is not running.")
        return self._brokers[node]

    def _java_command(self, flags: Sequence[str]) -> list[str | Path]:
        logging = f"-D{self._release.logging.system_property}={self._log4j.as_uri()}"
        return [self._java, *flags, *self._classes.flags(), logging, "-cp", f"{self._jars}/*"]

    def _recording_flags(self, node: int) -> tuple[str, ...]:
        """Return the JVM flags that record the classes. With three nodes none records: the last do not end cleanly."""
        if self._classes.exists or len(self.node_ids) > 1:
            return ()
        self._recorded = self._home(node) / "classes.jsa"
        return self._classes.recording_flags(self._recorded)

    def _home(self, node: int) -> Path:
        return self.dir / f"node-{node}"

    def _log(self, node: int) -> Path:
        return self._home(node) / "broker.log"

    @property
    def _log4j(self) -> Path:
        return self.dir / "log4j.properties"


def _check_private(directory: Path) -> None:
    """Raise DirectoryUnusable if other users can create files or links in the folder."""
    facts = directory.stat()
    # The user's own group may write, as with the umask 002.
    others = stat.S_IWOTH | (0 if facts.st_gid == os.getegid() else stat.S_IWGRP)
    if facts.st_uid != os.geteuid() or facts.st_mode & others:
        raise DirectoryUnusable(
            directory=str(directory), reason="other users can write into it, and could replace the broker's files"
        )


def _lock(directory: Path) -> int:
    descriptor = open_private(directory / LOCK_FILE, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DirectoryUnusable(directory=str(directory), reason="a local cluster is running in it") from error
    return descriptor


def _leads(metadata: requests.Metadata, partitions: int) -> bool:
    return len(metadata.leaders) == partitions and min(metadata.leaders.values()) >= 0


def _setting(value: object) -> str:
    """Return the value as Kafka writes it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _new_cluster_id() -> str:
    """Return a random id in the format of org.apache.kafka.common.Uuid: 22 characters of URL-safe Base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _read(file: Path, start: int = 0) -> str:
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read().decode(errors="replace")


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LOG_TAIL_LINES:])

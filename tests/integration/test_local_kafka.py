"""kafka_sink.broker with real brokers: they start, answer others' clients, come back, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kafka_sink.broker import KAFKA_VERSIONS, LocalKafka
from kafka_sink.broker.errors import BrokerDied, LocalKafkaError, ToolFailed
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION, default_cache_dir
from kafka_sink.broker.state import identify
from waiting import wait_until

DEADLINE_SECONDS = 60

HOLD_A_CLUSTER = """
import signal, sys
from kafka_sink.broker import LocalKafka
with LocalKafka() as kafka:
    print(kafka.pid(1), kafka.dir, flush=True)
    signal.pause()
"""


def produce(kafka: LocalKafka, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, DEADLINE_SECONDS)
        assert all(message.error() is None for message in messages)
        return [message.value() for message in messages]
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "version",
    [each if each == DEFAULT_KAFKA_VERSION else pytest.param(each, marks=pytest.mark.long) for each in KAFKA_VERSIONS],
)
def test_one_node(version: str) -> None:
    with LocalKafka(kafka_version=version, config={"message.max.bytes": 123456}) as kafka:
        folder, broker_pid = kafka.dir, kafka.pid(1)
        kafka.create_topic("t", 2, config={"retention.ms": -1, "preallocate": False})
        with pytest.raises(LocalKafkaError, match="'t' was not created: error 36"):
            kafka.create_topic("t", 2)

        values = [b"one", b"three", "Grüße ".encode() + b"\xff"]
        produce(kafka, "t", values)
        assert consume(kafka, "t", 3) == values  # through a group, so __consumer_offsets works with one node

        metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=DEADLINE_SECONDS)
        assert list(metadata.brokers) == [1]
        assert len(metadata.topics["t"].partitions) == 2

        check_tools(kafka)
        kafka.check()
        assert "log4j" not in (folder / "node-1" / "broker.log").read_text().lower()
    assert not folder.exists()
    assert identify(broker_pid) is None


def check_tools(kafka: LocalKafka) -> None:
    address = ["--bootstrap-server", kafka.bootstrap_servers]
    described = kafka.run_tool("org.apache.kafka.tools.TopicCommand", *address, "--describe", "--topic", "t")
    assert "retention.ms=-1" in described

    reader = ["--topic", "t", "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"]
    read = kafka.run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *address, *reader)
    assert read == "one\nthree\nGrüße \udcff\n"  # 0xff is not UTF-8: it comes as a surrogate escape

    segment = kafka.dir / "node-1" / "data" / "t-0" / "00000000000000000000.log"
    package = "kafka.tools" if kafka.kafka_version.startswith("3.") else "org.apache.kafka.tools"  # moved in 4.0
    dumped = kafka.run_tool(f"{package}.DumpLogSegments", "--files", str(segment), "--print-data-log")
    assert "payload: three" in dumped

    with pytest.raises(ToolFailed, match="TopicCommand ended with status 1"):
        kafka.run_tool("org.apache.kafka.tools.TopicCommand", *address, "--describe", "--topic", "nowhere")


@pytest.mark.long
def test_the_second_broker_begins_with_the_classes_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = default_cache_dir(os.environ) / f"kafka-{DEFAULT_KAFKA_VERSION}"
    if not jars.exists():
        with LocalKafka():
            pass
    own = tmp_path / "pykafka" / jars.name
    shutil.copytree(jars, own, ignore=shutil.ignore_patterns("classes-*"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with LocalKafka() as kafka:
        assert "classes-" not in Path(f"/proc/{kafka.pid(1)}/maps").read_text()
    (archive,) = own.glob("classes-*")
    with LocalKafka() as kafka:
        assert str(archive) in Path(f"/proc/{kafka.pid(1)}/maps").read_text()
        assert "[cds]" not in (kafka.dir / "node-1" / "broker.log").read_text()


@pytest.mark.long
def test_no_topic_by_writing_to_it() -> None:
    with LocalKafka() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.timeout.ms": 2000})
        failures: list[str] = []
        producer.produce("nowhere", b"x", on_delivery=lambda error, _: failures.append(error and error.name()))
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert failures == ["_MSG_TIMED_OUT"] or failures == ["UNKNOWN_TOPIC_OR_PART"]
        assert "nowhere" not in AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics().topics


@pytest.mark.long
def test_three_nodes_are_one_cluster_and_one_of_them_comes_back() -> None:
    with LocalKafka(nodes=3) as kafka:
        addresses = kafka.bootstrap_servers.split(",")
        for address in addresses:
            known = AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE_SECONDS)
            assert {f"{broker.host}:{broker.port}" for broker in known.brokers.values()} == set(addresses)

        kafka.create_topic("t", 3, replication_factor=3, config={"min.insync.replicas": 2})
        produce(kafka, "t", [b"before"])
        kafka.kill(2)
        with pytest.raises(LocalKafkaError, match="node 2 of the local cluster is not running"):
            kafka.pid(2)
        for partition in range(3):  # acks=all, and one of them had its leader on node 2
            produce(kafka, "t", [b"between"], partition)
        kafka.start(2)
        assert kafka.bootstrap_servers.split(",") == addresses
        assert sorted(consume(kafka, "t", 4)) == [b"before", b"between", b"between", b"between"]


def test_a_broker_that_dies_by_itself_is_noticed() -> None:
    with LocalKafka() as kafka:
        kafka.check()
        os.kill(kafka.pid(1), signal.SIGKILL)
        with pytest.raises(BrokerDied, match=r"node 1 .* with status 137"):
            wait_until(kafka.check, DEADLINE_SECONDS, "the check raises")


@pytest.mark.long
def test_kill_9_of_the_process_that_holds_a_cluster() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD_A_CLUSTER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    pid, folder = holder.stdout.readline().split()
    assert identify(int(pid)) is not None
    holder.kill()
    holder.communicate()
    wait_until(lambda: identify(int(pid)) is None, DEADLINE_SECONDS, "the broker is gone")
    wait_until(lambda: not Path(folder).exists(), DEADLINE_SECONDS, "its folder is gone")


def test_detached_start_status_stop(tmp_path: Path) -> None:
    def broker(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kafka_sink.broker", *arguments, "--dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS * 2,
        )

    try:
        started = broker("start", "--detach")
        assert started.returncode == 0, started.stderr
        assert "for development and tests only" in started.stderr
        name, _, servers = started.stdout.strip().partition("=")
        assert name == "bootstrap.servers"
        assert list(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE_SECONDS).brokers) == [1]

        status = broker("status")
        assert (status.returncode, status.stdout) == (0, started.stdout)
        assert "1 of 1 node(s) answer" in status.stderr
        document = broker("status", "--json")
        assert (document.returncode, document.stderr) == (0, "")
        said = json.loads(document.stdout)
        assert identify(said.pop("pid")) is not None
        assert said == {
            "running": True, "dir": str(tmp_path), "bootstrap_servers": servers,
            "kafka_version": DEFAULT_KAFKA_VERSION, "nodes": 1, "answering": 1,
        }  # fmt: skip

        again = broker("start", "--detach")
        assert (again.returncode, again.stdout) == (0, started.stdout)
        another = broker("start", "--detach", "--nodes", "3")
        assert another.returncode == 6
        assert "a local cluster is running in it" in another.stderr
    finally:
        stopped = broker("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert broker("status").returncode == 3
    assert not listens(servers)


@pytest.mark.long
def test_attached_start_ends_with_its_parent_and_with_sigterm(tmp_path: Path) -> None:
    between = 'import subprocess, sys; subprocess.call([sys.executable, "-m", "kafka_sink.broker", "start"])'
    parent = subprocess.Popen(
        [sys.executable, "-c", between], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    servers = parent.stdout.readline().strip().partition("=")[2]
    connect(servers)
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == ""  # ends when the last process with this stdout has ended
    wait_until(lambda: not listens(servers), DEADLINE_SECONDS, "the broker is gone")

    with subprocess.Popen(
        [sys.executable, "-m", "kafka_sink.broker", "start", "--dir", tmp_path], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        servers = started.stdout.readline().strip().partition("=")[2]
        connect(servers)
        os.kill(started.pid, signal.SIGTERM)
        assert started.wait(DEADLINE_SECONDS) == 0
    assert not listens(servers)


def connect(server: str) -> None:
    host, _, port = server.rpartition(":")
    socket.create_connection((host, int(port)), 5).close()


def listens(server: str) -> bool:
    try:
        connect(server)
    except OSError:
        return False
    return True

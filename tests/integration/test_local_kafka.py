"""kafka_sink.broker with real brokers: they start, answer others' clients, and leave nothing behind. Nodes that die:
unit/broker, and all tests in which brokers are killed."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from broker_admin import producer, send
from kafka_sink.broker import KAFKA_VERSIONS, LocalKafka
from kafka_sink.broker.errors import LocalKafkaError, ToolFailed
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION
from kafka_sink.broker.state import identify

DEADLINE_SECONDS = 60


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
        send(producer(kafka), "t", values)
        # Through a group, so __consumer_offsets works with one node.
        of_group = {"group.id": "readers", "auto.offset.reset": "earliest"}
        reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **of_group})
        reader.subscribe(["t"])
        assert [message.value() for message in reader.consume(3, DEADLINE_SECONDS)] == values
        reader.close()

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


def test_detached_start_status_stop(tmp_path: Path) -> None:
    def broker(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kafka_sink.broker", *arguments, "--dir", str(tmp_path)], capture_output=True,
            text=True, timeout=DEADLINE_SECONDS * 2,
        )  # fmt: skip

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
    with pytest.raises(OSError):
        connect(servers)


def connect(server: str) -> None:
    host, _, port = server.rpartition(":")
    socket.create_connection((host, int(port)), 5).close()


@pytest.mark.long
def test_attached_start_ends_with_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafka_sink.broker", "start", "--dir", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        servers = started.stdout.readline().strip().partition("=")[2]
        connect(servers)
        os.kill(started.pid, signal.SIGTERM)
        assert started.wait(DEADLINE_SECONDS) == 0
    with pytest.raises(OSError):
        connect(servers)

"""An outage of all brokers, as each step of a query meets it: what has worked is waited for, a first try fails early.

Each step runs in a new process. An earlier process' file, a checkpoint or a plan tell that a broker has answered.
"""

import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.commit.stream_name import is_new
from kafka_sink.errors import BrokersUnreachable
from kafka_sink.kafka import waits
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.waits import FIRST_MS, Contact
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.spark import kept_clients, rows
from kafka_sink.spark.exactly_once.plan import plan_stream
from kafka_sink.spark.kept_clients import lease_admin_client, lease_producer
from kafka_sink.spark.reading import stream_logs
from kafka_sink.spark.source import KafkaDataSource
from kafka_sink.spark.task import Task
from kafka_sink.spark.writer import KafkaStreamWriter
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients
from scripted_reads import ScriptedLog, serve

READ = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "startingOffsets": "earliest"}
FIVE_MINUTES_MS = 300_000


@pytest.fixture
def kafka() -> ScriptedKafka:
    """A cluster that is away for five minutes."""
    made = ScriptedKafka()
    serve(made, {("t", 0): ScriptedLog(0, 6)})
    made.topic_ids["t"] = uuid.UUID(int=1)
    made.down = {1, 2, 3}
    made.at = [(FIVE_MINUTES_MS, made.down.clear)]
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    made = connect_clients(ScriptedNetwork(kafka), monkeypatch)
    made.contacts = Contact(began_ms=0, away_since_ms=0, is_refused=True, is_unanswered=True)
    monkeypatch.setattr(stream_logs, "monotonic_ms", lambda: kafka.now_ms)
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    return made


def stream_reader() -> Any:
    source = KafkaDataSource(READ)
    return source.streamReader(source.schema())


def batch_reader() -> Any:
    source = KafkaDataSource(READ | {"endingOffsets": "latest"})
    return source.reader(source.schema())


def fails_early(kafka: ScriptedKafka, step: Callable[[], Any]) -> None:
    with pytest.raises(BrokersUnreachable, match="none has answered before"):
        step()
    assert kafka.now_ms == FIRST_MS


def waits_for_five_minutes(kafka: ScriptedKafka, step: Callable[[], Any]) -> None:
    assert step()
    assert kafka.now_ms >= FIVE_MINUTES_MS


class TestReads:
    def test_a_batch_and_the_plan_of_a_later_action(self, kafka: ScriptedKafka) -> None:
        fails_early(kafka, batch_reader().partitions)
        waits_for_five_minutes(kafka, lambda: (made := batch_reader())._plan(made._config, has_worked=True))

    def test_a_new_stream(self, kafka: ScriptedKafka) -> None:
        fails_early(kafka, stream_reader().initialOffset)

    @pytest.mark.parametrize("start", [({"t": {"0": 3}},), ()], ids=["Spark 4.2", "before"])
    def test_a_stream_that_goes_on_from_a_checkpoint(
        self, kafka: ScriptedKafka, start: tuple[dict[str, dict[str, int]], ...]
    ) -> None:
        waits_for_five_minutes(kafka, lambda: stream_reader().latestOffset(*start))

    def test_a_micro_batch_that_runs_again(self, kafka: ScriptedKafka) -> None:
        waits_for_five_minutes(kafka, lambda: stream_reader().partitions({"t": {"0": 3}}, {"t": {"0": 6}}))


SERVERS = {"kafka.bootstrap.servers": "localhost:1"}
EXACTLY_ONCE = {**SERVERS, "deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "orders", "topic": "t"}


def checkpoint(folder: Path, commits: int) -> str:
    (folder / "commits").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"7"}')
    for number in range(commits):
        (folder / "commits" / f".{number}.crc").touch()
        (folder / "commits" / str(number)).touch()
    return str(folder)


class TestExactlyOnce:
    def plan(self, location: str | None) -> Any:
        return plan_stream(given_options(EXACTLY_ONCE), location)

    def test_a_new_stream(self, kafka: ScriptedKafka, tmp_path: Path) -> None:
        fails_early(kafka, lambda: self.plan(checkpoint(tmp_path / "c", 0)))

    @pytest.mark.parametrize("where", ["here", "s3://bucket/checkpoint", None])
    def test_a_stream_that_goes_on_or_may_go_on(self, kafka: ScriptedKafka, tmp_path: Path, where: str | None) -> None:
        location = checkpoint(tmp_path / "c", 1) if where == "here" else where
        kafka.at = []
        with pytest.raises(BrokersUnreachable, match=r"raise kafka[.]max[.]block[.]ms"):
            self.plan(location)
        assert kafka.now_ms > FIVE_MINUTES_MS

    def test_which_stream_is_new(self, tmp_path: Path) -> None:
        assert is_new(checkpoint(tmp_path / "new", 0))
        assert is_new(f"file://{tmp_path}/new")
        assert not is_new(checkpoint(tmp_path / "old", 2))
        assert not is_new(str(tmp_path / "elsewhere"))
        assert not is_new("hdfs:/checkpoint")
        assert not is_new(None)


@pytest.fixture
def closed() -> ProducerConfig:
    """A producer of servers where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
    return sink_config({"kafka.bootstrap.servers": servers, "kafka.max.block.ms": "1500"}).producer


@pytest.mark.parametrize(("conf", "match"), [
    ({}, "none has answered before"), ({"streaming.sql.batchId": "0"}, "none has answered before"),
    ({"streaming.sql.batchId": "1"}, "within 1500 ms [(]kafka[.]max[.]block[.]ms[)]"),
])  # fmt: skip
def test_a_task_of_a_later_micro_batch_waits(
    closed: ProducerConfig, conf: dict[str, str], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "FIRST_MS", 200)
    monkeypatch.setattr(rows.Task, "current", lambda: Task(0, {"sql.streaming.queryId": "7", **conf}))
    given = {"kafka.bootstrap.servers": closed.bootstrap_servers_text, "kafka.max.block.ms": "1500", "topic": "t"}
    writer = KafkaStreamWriter(given_options(given))
    with pytest.raises(BrokersUnreachable, match=match):
        writer.write(iter([pa.record_batch({"value": [b"1"]})]))


class TestProcesses:
    """What the process of one step leaves for that of the next."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
        return tmp_path

    def test_that_was_answered(self, kafka: ScriptedKafka, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kafka.down.clear()
        assert batch_reader().partitions()
        (note,) = folder.iterdir()
        assert (note.name.startswith("pykafka-answered-"), note.read_bytes()) == (True, b"")
        kafka.down |= {1, 2, 3}
        monkeypatch.setattr(kept_clients, "KEPT", kept_clients.Kept())
        waits_for_five_minutes(kafka, batch_reader().partitions)

    def test_that_was_not_answered(self, kafka: ScriptedKafka, folder: Path) -> None:
        fails_early(kafka, batch_reader().partitions)
        assert list(folder.iterdir()) == []

    def test_that_asked_other_servers(self, kafka: ScriptedKafka, folder: Path) -> None:
        kafka.down.clear()
        others = sink_config({"kafka.bootstrap.servers": "others:1"}).producer
        with lease_admin_client(others) as client:
            client.topics(("t",))
        assert len(list(folder.iterdir())) == 1
        kafka.down |= {1, 2, 3}
        fails_early(kafka, batch_reader().partitions)

    def test_whose_folder_is_gone(self, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
        kafka.down.clear()
        assert batch_reader().partitions()

    def test_that_wrote_no_rows_was_not_answered(self, closed: ProducerConfig, folder: Path) -> None:
        with lease_producer(closed) as producer:
            Write(producer, topic="t").finish()
        assert list(folder.iterdir()) == []

    def test_a_client_of_a_known_cluster(self, kafka: ScriptedKafka) -> None:
        with lease_admin_client(sink_config(EXACTLY_ONCE).producer, "c") as client:
            waits_for_five_minutes(kafka, lambda: client.topics(("t",)))

"""`pykafka transactions status` shows how far a real stream is in its topics, beside what the brokers have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_admin import delete_topic, produce
from code_blocks import words_of
from kafka_reads import JVM, PYKAFKA
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import transactions
from variants import variants


@pytest.fixture
def session(both: SparkSession) -> SparkSession:
    return both.newSession()


def copy_all(
    session: SparkSession, kafka: LocalKafka, source: str, read_topic: str, write_topic: str, checkpoint: Path
) -> None:
    """Copy what is there, exactly once, in a stream that ends."""
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    reads = {"subscribe": read_topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    rows = session.readStream.format(source).options(**servers, **reads).load().select("value")
    writes = {"topic": write_topic, "deliveryGuarantee": "exactly-once", "checkpointLocation": str(checkpoint)}
    query = rows.writeStream.format("pykafka").options(**servers, **writes).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def state_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("source", variants(PYKAFKA, JVM))
@pytest.mark.parametrize("format_version", variants("1", "2"))
def test_status_tells_how_far_a_stream_is(
    session: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: str,
    format_version: str,
) -> None:
    read_topic, write_topic = topic(2), topic(1)
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", format_version)
    produce(kafka, read_topic, 30, 20)
    copy_all(session, kafka, source, read_topic, write_topic, tmp_path / "checkpoint")
    replaced = {"localhost:9092": kafka.bootstrap_servers, "/data/checkpoints/orders": str(tmp_path / "checkpoint")}
    line = words_of("docs/operations.md", "How far is the source?", 0, replaced)[2:]

    def said(*more: str) -> str:
        capsys.readouterr()
        assert transactions.main([*line, *more]) == 0
        return capsys.readouterr().out

    before = state_of(tmp_path / "checkpoint")
    assert [row.split() for row in said().splitlines() if row.startswith(read_topic)] == [[read_topic, "2", "0", "0"]]
    produce(kafka, read_topic, 3, 1_200)
    text = said()
    assert "in step with the sink" in text
    assert [row.split() for row in text.splitlines() if row.startswith(read_topic)] == [
        [read_topic, "2", "1,203", "0", f"{read_topic}-1:", "1,200"]
    ]
    (of_source,) = json.loads(said("--json"))["sources"]
    (of_topic,) = of_source["topics"]
    assert [(each["position"], each["behind"]) for each in of_topic["partitions"]] == [(30, 3), (20, 1_200)]
    # Spark would go on from here: nothing of the checkpoint has changed.
    assert state_of(tmp_path / "checkpoint") == before
    delete_topic(kafka, read_topic)
    assert f"{read_topic} is not on this cluster" in said()

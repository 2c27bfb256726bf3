"""How far a real stream is in its topics, by `pykafka transactions status`, and why it is stuck, by `pykafka check`."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_admin import delete_topic, leader, limit, produce, producer, send
from code_blocks import words_of
from effort import variants
from kafka_reads import JVM, PYKAFKA, copy_all
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import check, stuck, transactions
from kafka_sink.doctor import interpreter
from kafka_sink.doctor.report import Status
from waiting import wait_until


@pytest.fixture
def session(both: SparkSession) -> SparkSession:
    return both.newSession()


def state_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("source", variants(PYKAFKA, JVM))
@pytest.mark.parametrize("format_version", variants("1", "2"))
def test_status_tells_how_far_a_stream_is(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], source: str, format_version: str,
) -> None:  # fmt: skip
    read_topic, write_topic = topic(2), topic(1)
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", format_version)
    produce(kafka, read_topic, 30, 20)
    copy_all(session, source, kafka, read_topic, write_topic, tmp_path / "checkpoint")
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
    capsys.readouterr()
    line_of_check = ["--bootstrap-servers", kafka.bootstrap_servers, "--checkpoint", str(tmp_path / "checkpoint")]
    assert check.main([*line_of_check, "--wait", "0"]) == 0
    assert f"Begin with: hot partition, {read_topic}-1: it has 1,200 of the 1,203 records" in capsys.readouterr().out
    # Spark would go on from here: nothing of the checkpoint has changed.
    assert state_of(tmp_path / "checkpoint") == before
    delete_topic(kafka, read_topic)
    assert f"{read_topic} is not on this cluster" in said()


# --- stuck ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_stream_that_is_stuck_is_told_why(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One symptom after the other comes to a stream, and goes."""
    read_topic, write_topic, checkpoint = topic(2), topic(1), tmp_path / "checkpoint"
    produce(kafka, read_topic, 30, 20)
    copy_all(session, PYKAFKA, kafka, read_topic, write_topic, checkpoint)
    replaced = {
        "localhost:9092": kafka.bootstrap_servers, "/data/checkpoints/orders": str(checkpoint),
        "orders-upper": write_topic,
    }  # fmt: skip
    line = words_of("docs/operations.md", "My stream is stuck", 0, replaced)[2:]
    look_at_worker = interpreter.look_at_worker
    starts = look_at_worker()
    assert starts.status is not Status.FAILED
    monkeypatch.setattr(interpreter, "look_at_worker", lambda: starts)
    meanwhile: list[Callable[[], None]] = []
    monkeypatch.setattr(stuck, "pause", lambda seconds: [each() for each in meanwhile])

    def told(*more: str) -> tuple[str, str]:
        capsys.readouterr()
        check.main([*line, "--json", *more])
        document = json.loads(capsys.readouterr().out)
        return document["cause"]["step"], f"{document['cause']['where']}: {document['cause']['found']}"

    def in_between(what: Callable[[], None], *more: str) -> tuple[str, str]:
        meanwhile[:] = [what]
        return told(*more)

    assert told()[0] == "new records"
    assert in_between(lambda: produce(kafka, read_topic, 7, 7)) == (
        "lag", "source 0: it grows: 14 records behind, 0 some 5 s before"
    )  # fmt: skip
    meanwhile.clear()
    step, found = told()
    assert step == "micro-batch" and "none was planned although there are records" in found
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    planned = newest.with_name(str(int(newest.name) + 1))
    planned.write_bytes(newest.read_bytes())
    step, found = told()
    assert step == "micro-batch" and f"micro-batch {planned.name} was planned" in found and "is not recorded" in found
    planned.unlink()
    produce(kafka, read_topic, 0, 1_200)
    step, found = told()
    assert (step, found.split(":")[0]) == ("hot partition", f"{read_topic}-1")
    for held, what in ((read_topic, "source with read_committed"), (write_topic, "readers of committed records")):
        writer = producer(kafka, **{"transactional.id": f"{held}-left"})
        writer.init_transactions(60)
        writer.begin_transaction()
        send(writer, held, [b"open"], partition=0)
        step, found = told()
        assert (step, found.split(":")[0]) == ("open transaction", f"{held}-0")
        assert what in found and f"'{held}-left', from offset " in found and "Ongoing for " in found
        writer.abort_transaction(60)
    limit(kafka, read_topic, producer_byte_rate=100)
    produce(kafka, write_topic, 100, **{"client.id": read_topic})
    step, found = told("--option", f"kafka.client.id={read_topic}")
    assert step == "throttle" and "it throttles this client for " in found
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(interpreter, "LIMIT_S", 0.5)
    with monkeypatch.context() as busy:
        busy.setattr(interpreter, "look_at_worker", look_at_worker)
        busy.setenv("PYSPARK_DRIVER_PYTHON", str(python))
        step, found = told()
    assert step == "python worker" and "Python worker failed to connect back" in found
    with socket.create_server(("127.0.0.1", 0)) as listener:
        away = listener.getsockname()[1]
    assert told("--bootstrap-servers", f"127.0.0.1:{away}")[0] == "tcp"
    delete_topic(kafka, read_topic)
    step, found = told()
    assert step == "data loss" and f"{read_topic} is not on this cluster" in found


@pytest.mark.long
def test_a_stream_that_waits_for_a_broker(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalKafka(nodes=3) as kafka:
        kafka.create_topic("read", 3)
        kafka.create_topic("write", 1, 2)
        produce(kafka, "read", 10, 10, 10)
        copy_all(session, PYKAFKA, kafka, "read", "write", tmp_path / "checkpoint")
        kafka.kill(next(node for node in (2, 3) if node != leader(kafka, "write", 0)))
        line = ["--bootstrap-servers", kafka.bootstrap_servers, "--checkpoint", str(tmp_path / "checkpoint")]

        def cause() -> str:
            capsys.readouterr()
            check.main([*line, "--json", "--wait", "0"])
            document = json.loads(capsys.readouterr().out)
            return f"{document['cause']['step']} {document['cause']['found']}"

        wait_until(lambda: "no leader for read-" in cause(), 60, "the others notice")

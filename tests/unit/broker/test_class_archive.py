"""kafka_sink.broker.class_archive: which JVM records Kafka's classes, and which begins with them. Real: integration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.broker import LocalKafka, cluster, requests

pytestmark = pytest.mark.programs

# A JVM that notes how it was begun, and records on SIGTERM if it was told to.
RECORDS = """
import signal
with (home / "begun").open("a") as begun:
    print(next((flag for flag in arguments if ".jsa" in flag), "without"), file=begun)
recorded = next((flag.partition("=")[2] for flag in arguments if "ArchiveClassesAtExit" in flag), None)
def end(*_):
    if recorded:
        Path(recorded).write_text("classes")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)
signal.signal(signal.SIGTERM, end)
(home / "ready").touch()
while True:
    signal.pause()
"""


@pytest.fixture
def begun(java: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with a line for each broker's JVM: its archive options. Brokers answer as soon as they run."""
    java.will("kafka.Kafka", RECORDS)

    def fetch_metadata(*_: object) -> SimpleNamespace:
        if not (java.home / "ready").exists():
            raise ConnectionRefusedError
        return SimpleNamespace(brokers={1, 2, 3})

    monkeypatch.setattr(requests, "fetch_metadata", fetch_metadata)
    return Path(java.home, "begun")


def archives(java: Any) -> list[Path]:
    return list(java.home.parent.glob("cache/pykafka/kafka-*/classes*"))


def run_a_cluster(java: Any, nodes: int = 1, *, killed: bool = False) -> None:
    (java.home / "ready").unlink(missing_ok=True)
    with LocalKafka(nodes) as kafka:
        if killed:
            kafka.kill(1)


def test_what_the_first_broker_records_is_what_the_next_begins_with(java: Any, begun: Path) -> None:
    run_a_cluster(java)
    (archive,) = archives(java)
    assert archive.read_text() == "classes"
    run_a_cluster(java)
    first, second = begun.read_text().splitlines()
    assert "ArchiveClassesAtExit" in first and second == f"-XX:SharedArchiveFile={archive}"
    assert archives(java) == [archive]


def test_a_killed_broker_leaves_nothing_and_the_next_records(java: Any, begun: Path) -> None:
    run_a_cluster(java, killed=True)
    assert archives(java) == []
    run_a_cluster(java)
    assert len(archives(java)) == 1


def test_a_jvm_that_cannot_record_runs_the_broker_all_the_same(java: Any, begun: Path) -> None:
    (java.home / "records nothing").touch()
    run_a_cluster(java)
    assert begun.read_text().split() == ["without"] and archives(java) == []


def test_a_broker_that_does_not_end_is_killed(java: Any, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RECORDING_GRACE_SECONDS", 0.2)
    java.will("kafka.Kafka", RECORDS.replace("signal.SIGTERM, end", "signal.SIGTERM, signal.SIG_IGN"))
    run_a_cluster(java)
    assert archives(java) == []

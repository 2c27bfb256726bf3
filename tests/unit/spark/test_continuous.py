from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafka_sink.errors import ContinuousTriggerUnsupported
from kafka_sink.spark import writes
from kafka_sink.spark.continuous import is_continuous
from kafka_sink.spark.source import KafkaDataSource

EPOCHS = "epoch update thread for q"[:15]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return checkpoint_of(tmp_path / "checkpoint", offsets=(), commits=())


def checkpoint_of(folder: Path, offsets: Sequence[int], commits: Sequence[int]) -> Path:
    for log, entries in (("offsets", offsets), ("commits", commits)):
        (folder / log).mkdir(parents=True)
        for entry in entries:
            (folder / log / str(entry)).touch()
            (folder / log / f".{entry}.crc").touch()
    return folder


def proc_of(folder: Path, *, threads: Sequence[str], jvm: str = "java") -> Path:
    """30 is a worker, 20 a daemon with a name that is meant badly, 10 the JVM, 5 a shell."""
    for pid, comm, parent in ((30, "python", 20), (20, "a) S 7 (b", 10), (10, jvm, 5), (5, "sh", 1)):
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "comm").write_text(comm + "\n")
        (folder / str(pid) / "stat").write_text(f"{pid} ({comm}) S {parent} 1 1 0")
    for number, name in enumerate(threads):
        (folder / "10" / "task" / str(number)).mkdir(parents=True)
        (folder / "10" / "task" / str(number) / "comm").write_text(name + "\n")
    return folder


@pytest.mark.parametrize(
    ("offsets", "commits", "threads", "continuous"),
    [
        ((), (), ["java", EPOCHS, "stream executio"], True),
        ((8, 9, 10), (9, 10), ["java", EPOCHS], True),  # micro-batches until now; numbers, not texts
        ((0,), (), ["java", EPOCHS], False),
        ((8, 9, 10), (8, 9), ["java", EPOCHS], False),
        ((), (), ["java", "stream executio"], False),
        ((), (), [], False),
    ],
)
def test_offsets_without_commit_are_a_micro_batch_and_the_thread_is_needed(
    tmp_path: Path, offsets: Sequence[int], commits: Sequence[int], threads: Sequence[str], continuous: bool
) -> None:
    folder = checkpoint_of(tmp_path / "checkpoint", offsets, commits)
    assert is_continuous(str(folder), pid=30, proc=proc_of(tmp_path / "proc", threads=threads)) is continuous


@pytest.mark.parametrize(
    ("prefix", "seen"), [("", True), ("file:", True), ("file://", True), ("hdfs:", False), ("s3a://bucket", False)]
)
def test_a_checkpoint_is_looked_for_on_this_machine_only(
    tmp_path: Path, checkpoint: Path, prefix: str, seen: bool
) -> None:
    proc = proc_of(tmp_path / "proc", threads=[EPOCHS])
    assert is_continuous(f"{prefix}{checkpoint}", pid=30, proc=proc) is seen


def test_what_cannot_be_seen_is_a_micro_batch(tmp_path: Path, checkpoint: Path) -> None:
    proc = proc_of(tmp_path / "proc", threads=[EPOCHS])
    assert not is_continuous(None, pid=30, proc=proc)
    assert not is_continuous(str(tmp_path / "elsewhere"), pid=30, proc=proc)
    assert not is_continuous(str(checkpoint), pid=30, proc=tmp_path / "no-proc")
    assert not is_continuous(str(checkpoint), pid=30, proc=proc_of(tmp_path / "p", threads=[EPOCHS], jvm="sh"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc on this system")
def test_the_real_proc_can_be_read(checkpoint: Path) -> None:
    assert not is_continuous(str(checkpoint))


def test_a_stream_writer_is_refused_to_a_continuous_query(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(writes, "is_continuous", lambda location: bool(asked.append(location)) or location == "/c")
    schema = StructType([StructField("value", StringType())])
    options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t", "checkpointlocation": "/c"}
    with pytest.raises(ContinuousTriggerUnsupported, match=r"No row of this write was sent"):
        KafkaDataSource(options).streamWriter(schema=schema, overwrite=False)
    KafkaDataSource({**options, "checkpointlocation": "/d"}).streamWriter(schema=schema, overwrite=False)
    assert asked == ["/c", "/d"]

"""What is read of a checkpoint's folder, what both logs together say, and how far a source is in a topic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.cli import checkpoint
from kafka_sink.cli.checkpoint import Checkpoint, SourceOffsets
from kafka_sink.cli.source_progress import Log, PartitionProgress, TopicProgress, topic_progress
from kafka_sink.commit.markers import Decision, Ids
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

QUERY = "7e1c"


def checkpoint_in(folder: Path, **logs: dict[str, str]) -> Path:
    for log, files in logs.items():
        (folder / log).mkdir(parents=True)
        for name, text in files.items():
            (folder / log / name).write_text(text)
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    return folder


def decided(micro_batch_id: int, query_id: str = QUERY) -> Decision:
    return Decision(micro_batch_id, query_id, Ids(1, 0), 2, 0, (Ids(2, 0),))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["orders", "check point ü", "a%20b#?"])
def test_the_last_of_each_log_counts_by_number(tmp_path: Path, name: str, scheme: str) -> None:
    """Spark takes each character of a location as it is."""
    offsets, commits = (dict.fromkeys(names.split(), "v1") for names in ("8 9 10 .10.crc 11.tmp", "8 9 notes"))
    folder = checkpoint_in(tmp_path / name, offsets=offsets, commits=commits)
    (folder / "offsets" / "12").mkdir()
    assert checkpoint.read_checkpoint(f"{scheme}{folder}") == Checkpoint(QUERY, planned=10, recorded=9)


def test_a_query_that_has_just_begun_has_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError):
        checkpoint.read_checkpoint(str(tmp_path))
    (tmp_path / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    monkeypatch.chdir(tmp_path.parent)
    assert checkpoint.read_checkpoint(tmp_path.name) == Checkpoint(QUERY, planned=None, recorded=None)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{"])
def test_a_location_that_cannot_be_opened_and_a_folder_without_a_query_are_oserrors(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text(text)
    with pytest.raises(OSError, match="no query id"):
        checkpoint.read_checkpoint(str(tmp_path))
    for location in ("gopher://a/b", "hdfs://a b/c", "s3a://"):
        with pytest.raises(OSError):
            checkpoint.read_checkpoint(location)


METADATA = '{"batchWatermarkMs":0,"conf":{"a":"b"}}'


@pytest.mark.parametrize(
    ("recorded", "planned"),
    [
        (f'v1\n{METADATA}\n{{"t":{{"0":5}}}}\n-', f'v1\n{METADATA}\n{{"t":{{"0":9}}}}\n{{"logOffset":3}}'),
        (f'v2\n{METADATA}\n0:{{"t":{{"0":5}}}}\n', f'v2\n{METADATA}\n1:{{"logOffset":3}}\n0:{{"t":{{"0":9}}}}\n'),
    ],
)
def test_offsets_of_sources_are_those_of_both_micro_batches(tmp_path: Path, recorded: str, planned: str) -> None:
    folder = checkpoint_in(tmp_path, offsets={"7": recorded, "8": planned})
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=8, recorded=7)) == {
        "0": SourceOffsets('{"t":{"0":5}}', '{"t":{"0":9}}'), "1": SourceOffsets(None, '{"logOffset":3}')
    }  # fmt: skip
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=7, recorded=None)) == {
        "0": SourceOffsets(None, '{"t":{"0":5}}')
    }
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=None, recorded=None)) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "another format than v1 and v2"),
        ("v3\n{}\n{}", "another format than v1 and v2"),
        (f"v1\n{METADATA}\n".ljust(checkpoint.MAX_OFFSETS_BYTES + 1), "more than 16,777,216 bytes"),
    ],
)
def test_a_log_of_offsets_that_cannot_be_read_is_an_oserror(tmp_path: Path, text: str, words: str) -> None:
    folder = checkpoint_in(tmp_path, offsets={"7": text})
    with pytest.raises(OSError, match=f"offsets/7 has {words}"):
        checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=7, recorded=None))
    with pytest.raises(FileNotFoundError):
        checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=8, recorded=None))


@pytest.mark.parametrize(
    ("planned", "recorded", "decision", "words"),
    [
        (None, None, None, "no micro-batch was planned yet"),
        (0, None, None, "micro-batch 0 planned, none recorded; nothing was decided. Either the query does not write"),
        (0, None, decided(9, "another"), "another query's micro-batch was decided. Either the query"),
        (7, 7, decided(7), "in step with the sink"),
        (7, 6, decided(7), "decided and not recorded yet. A start finds its rows visible"),
        (8, 7, decided(7), "being written, or the query ended while it was written. A start writes it"),
        (5, 5, decided(7), "2 behind the sink: an older copy of the checkpoint. A start from it stops with Checkp"),
        (9, 9, decided(7), "2 ahead of the sink"),
    ],
)
def test_both_together(planned: int | None, recorded: int | None, decision: Decision | None, words: str) -> None:
    assert words in checkpoint.compared(Checkpoint(QUERY, planned, recorded), decision)


@pytest.mark.parametrize(
    ("position", "planned", "log", "told"),
    [
        pytest.param(20, 25, Log(0, 100, 100), {"behind": 80, "planned": 5}, id="what the log has after its position"),
        pytest.param(100, 100, Log(0, 100, 100), {}, id="nothing"),
        pytest.param(100, None, Log(100, 100, 100), {}, id="nothing of an empty log"),
        pytest.param(20, 20, Log(0, 70, 100), {"behind": 80, "unstable": 30}, id="a part behind open transactions"),
        pytest.param(90, 90, Log(0, 70, 100), {"behind": 10, "unstable": 10}, id="all behind open transactions"),
        pytest.param(20, 20, Log(50, 100, 100), {"behind": 80, "deleted": 30}, id="retention has overtaken it"),
        pytest.param(50, 50, Log(50, 100, 100), {"behind": 50}, id="retention is at it"),
        pytest.param(20, 20, Log(100, 100, 100), {"behind": 80, "deleted": 80}, id="DeleteRecords up to the end"),
        pytest.param(50, 50, Log(0, 10, 10), {"ahead": 40}, id="the log ends before the position"),
    ],
)
def test_a_partition_is_behind_by_what_the_log_has_after_its_position(
    position: int, planned: int | None, log: Log, told: dict[str, int]
) -> None:
    logs = {TopicPartition("t", 0): log}
    found = topic_progress("t", {0: position}, {} if planned is None else {0: planned}, logs)
    nothing = PartitionProgress(0, position, behind=0, planned=0, unstable=0, deleted=0, ahead=0)
    assert found.partitions == (replace(nothing, **told),)


def test_a_new_partition_is_read_from_its_earliest_offset() -> None:
    logs = {TopicPartition("t", number): Log(3, 10, 10) for number in range(2)} | {TopicPartition("u", 0): Log(0, 9, 9)}
    found = topic_progress("t", {0: 10}, {0: 10, 1: 5}, logs)
    assert [(each.position, each.behind, each.planned) for each in found.partitions] == [(10, 0, 0), (3, 7, 2)]
    assert (found.behind, found.planned, found.slowest) == (7, 2, found.partitions[1])


def test_what_the_cluster_does_not_tell_is_named() -> None:
    logs = {TopicPartition("t", 0): Log(0, 10, 10), TopicPartition("t", 1): None}
    found = topic_progress("t", {0: 10, 1: 5, 2: 7}, {}, logs)
    assert (len(found.partitions), found.not_looked_at, found.gone, found.slowest) == (1, (1,), (2,), None)
    assert topic_progress("u", {0: 10}, {}, logs) == TopicProgress("u", (), gone=(0,))

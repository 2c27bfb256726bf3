"""What is read of a checkpoint's folder, and what both logs together say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.cli import checkpoint
from kafka_sink.cli.checkpoint import Checkpoint, SourceOffsets
from kafka_sink.commit.markers import Decision, Ids

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


@pytest.mark.parametrize("location", ["gopher://a/b", "hdfs://a b/c", "s3a://"])
def test_a_location_that_cannot_be_opened_is_an_oserror(location: str) -> None:
    with pytest.raises(OSError):
        checkpoint.read_checkpoint(location)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{"])
def test_nor_is_a_folder_without_a_query_a_checkpoint(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text(text)
    with pytest.raises(OSError, match="no query id"):
        checkpoint.read_checkpoint(str(tmp_path))


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

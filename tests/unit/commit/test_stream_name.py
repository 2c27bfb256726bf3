"""Names of streams' sinks, and the file in a checkpoint that keeps one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_sink.commit.stream_name import FILE_NAME, LocalCheckpoint, local_folder, query_name, spelled_name
from kafka_sink.errors import CheckpointUnusable

QUERY = "3e0a1c1e-8a2b-4c57-9d5e-0d4f5ad0b0d1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint, as Spark begins one."""
    made = tmp_path / "checkpoint"
    made.mkdir()
    begin(made, QUERY)
    return made


def begin(folder: Path, query_id: str) -> None:
    (folder / "metadata").write_text(json.dumps({"id": query_id}))


def at(location: object) -> LocalCheckpoint:
    found = LocalCheckpoint.at(str(location))
    assert found is not None
    return found


def test_names_are_kept_for_ever() -> None:
    """A release that derives another name loses the state of every stream."""
    assert query_name(QUERY) == f"pykafka-{QUERY}"
    assert spelled_name("s3://bucket/checkpoint") == "pykafka-fed0669422493087"
    assert spelled_name("s3://bucket/another") != spelled_name("s3://bucket/checkpoint")


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("/data/checkpoint", "/data/checkpoint"), ("checkpoint", "checkpoint"),
        ("file:/data/checkpoint", "/data/checkpoint"), ("file:///data/checkpoint", "/data/checkpoint"),
        ("s3a://bucket/checkpoint", None), ("hdfs:///checkpoint", None), ("dbfs:/checkpoint", None),
    ],
)  # fmt: skip
def test_a_location_without_another_scheme_is_a_folder_of_this_host(location: str, folder: str | None) -> None:
    assert local_folder(location) == (None if folder is None else Path(folder))


def test_a_name_moves_with_its_checkpoint_however_its_path_is_spelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    at("checkpoint").give("orders")
    for spelling in ("checkpoint", "./checkpoint/", folder, f"file:{folder}", f"file://{folder}"):
        assert (at(spelling).query_id, at(spelling).name()) == (QUERY, "orders")
    at(folder).give("orders")
    shutil.copytree(folder, folder.parent / "copy")
    folder.rename(folder.parent / "moved")
    assert at(folder.parent / "copy").name() == at(folder.parent / "moved").name() == "orders"


def test_a_name_can_be_given_again_and_is_not_inherited_by_another_query(folder: Path) -> None:
    assert at(folder).name() is None
    at(folder).give("one")
    at(folder).give("other")
    assert at(folder).name() == "other"
    assert sorted(file.name for file in folder.iterdir()) == ["metadata", FILE_NAME]
    begin(folder, "another")
    assert at(folder).name() is None


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", "7"])
@pytest.mark.parametrize("file", ["metadata", FILE_NAME])
def test_a_file_that_is_not_what_was_written_is_no_missing_one(folder: Path, file: str, text: str) -> None:
    """Taken for one, the stream would get another name, and write again what it has written."""
    (folder / file).write_text(text)
    with pytest.raises(CheckpointUnusable, match="not what was written there") as raised:
        at(folder).name()
    assert raised.value.file == str(folder / file)


def test_a_name_that_cannot_be_read_or_written_is_an_error(folder: Path) -> None:
    (folder / FILE_NAME).write_text(json.dumps({"version": 2, "queryId": QUERY, "transactionalIdPrefix": "x"}))
    with pytest.raises(CheckpointUnusable, match="its version is 2"):
        at(folder).name()
    checkpoint = at(folder)
    shutil.rmtree(folder)
    with pytest.raises(CheckpointUnusable, match="No such file or directory"):
        checkpoint.give("orders")

"""Whose state an exactly-once stream finds: its own, wherever its checkpoint lies and however that is spelled."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import exactly_once_app
from committed_rows import read
from exactly_once_runs import DEADLINE_S, ROWS_A_FILE, add_file
from here import Here
from kafka_sink import error_of
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import transactions
from kafka_sink.commit.stream_name import FILE_NAME, query_name, spelled_name
from kafka_sink.errors import StateExpired, WrittenOtherwise


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with the first file of a stream's."""
    (tmp_path / "incoming").mkdir()
    add_file(tmp_path / "incoming", 0)
    return tmp_path


def rows(files: int) -> Counter[int]:
    return Counter(range(files * ROWS_A_FILE))


def run(spark: SparkSession, kafka: LocalKafka, topic: str, work: Path, checkpoint: object, *options: str) -> None:
    """The stream until all files are written, named by its checkpoint."""
    arguments = [kafka.bootstrap_servers, topic, str(work / "incoming"), str(checkpoint), *options]
    query = exactly_once_app.start(spark, exactly_once_app.parse([*arguments, "--derived-name"]))
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


def name_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / FILE_NAME).read_text())["transactionalIdPrefix"])


def id_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def begin_by_an_earlier_build(spark: SparkSession, kafka: LocalKafka, topic: str, work: Path, checkpoint: Path) -> None:
    """Its first micro-batch, under the name that earlier builds gave."""
    run(spark, kafka, topic, work, checkpoint, f"transactionalIdPrefix={spelled_name(str(checkpoint))}")
    (checkpoint / FILE_NAME).unlink()


@pytest.mark.long
def test_a_stream_goes_on_however_its_checkpoint_is_spelled_or_moved(here: Here, work: Path) -> None:
    name, first = here.topic(1), work / "checkpoint"
    run(here.spark, here.kafka, name, work, first)
    assert name_of(first) == query_name(id_of(first))
    moved, copied = work / "moved", work / "copied"
    add_file(work / "incoming", 1)
    run(here.spark, here.kafka, name, work, f"file://{first}/")
    add_file(work / "incoming", 2)
    first.rename(moved)
    run(here.spark, here.kafka, name, work, os.path.relpath(moved))
    assert read(here.kafka, name, "read_committed") == rows(3)
    # The last micro-batch is not recorded in the copy, and is not written again.
    shutil.copytree(moved, copied)
    last = max((copied / "commits").iterdir(), key=lambda file: int(file.name) if file.name.isdecimal() else -1)
    last.unlink()
    (copied / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    run(here.spark, here.kafka, name, work, copied)
    assert read(here.kafka, name, "read_committed") == rows(3)


@pytest.mark.long
def test_a_stream_of_an_earlier_build_goes_on_under_its_old_name(here: Here, work: Path) -> None:
    name, checkpoint = here.topic(1), work / "checkpoint"
    begin_by_an_earlier_build(here.spark, here.kafka, name, work, checkpoint)
    add_file(work / "incoming", 1)
    run(here.spark, here.kafka, name, work, checkpoint)
    assert name_of(checkpoint) == spelled_name(str(checkpoint))
    add_file(work / "incoming", 2)
    run(here.spark, here.kafka, name, work, f"file:{checkpoint}")
    assert read(here.kafka, name, "read_committed") == rows(3)


@pytest.mark.long
def test_a_first_micro_batch_that_an_earlier_build_did_not_record_is_not_doubled(here: Here, work: Path) -> None:
    name, checkpoint = here.topic(1), work / "checkpoint"
    begin_by_an_earlier_build(here.spark, here.kafka, name, work, checkpoint)
    shutil.rmtree(checkpoint / "commits")
    run(here.spark, here.kafka, name, work, checkpoint)
    assert read(here.kafka, name, "read_committed") == rows(1)


@pytest.mark.long
def test_another_query_in_the_folder_of_an_earlier_build_has_its_own_name(here: Here, work: Path) -> None:
    one, other, checkpoint = here.topic(1), here.topic(1), work / "checkpoint"
    begin_by_an_earlier_build(here.spark, here.kafka, one, work, checkpoint)
    checkpoint.rename(work / "kept")
    run(here.spark, here.kafka, other, work, checkpoint)
    assert name_of(checkpoint) == query_name(id_of(checkpoint))
    # The first one was disturbed by nobody.
    shutil.rmtree(checkpoint)
    (work / "kept").rename(checkpoint)
    add_file(work / "incoming", 1)
    run(here.spark, here.kafka, one, work, checkpoint)
    assert read(here.kafka, one, "read_committed") == rows(2)


def test_two_queries_with_one_prefix_are_told_of_each_other(here: Here, work: Path) -> None:
    name = here.topic(1)
    prefix = f"transactionalIdPrefix={name}"
    run(here.spark, here.kafka, name, work, work / "one", prefix)
    run(here.spark, here.kafka, name, work, work / "other", prefix)
    add_file(work / "incoming", 1)
    with pytest.raises(StreamingQueryException) as raised:
        run(here.spark, here.kafka, name, work, work / "one", prefix)
    error = error_of(raised.value)
    assert isinstance(error, StateExpired)
    assert (error.query_id, error.decided_query_id) == (id_of(work / "one"), id_of(work / "other"))
    assert "Two queries need two names" in str(error)


@pytest.mark.long
def test_micro_batches_between_that_were_written_at_least_once(here: Here, work: Path) -> None:
    name, checkpoint = here.topic(1), work / "checkpoint"
    run(here.spark, here.kafka, name, work, checkpoint)
    add_file(work / "incoming", 1)
    run(here.spark, here.kafka, name, work, checkpoint, "deliveryGuarantee=at-least-once")
    add_file(work / "incoming", 2)
    with pytest.raises(StreamingQueryException) as raised:
        run(here.spark, here.kafka, name, work, checkpoint)
    error = error_of(raised.value)
    assert isinstance(error, WrittenOtherwise)
    assert (error.micro_batch_id, error.next_micro_batch_id) == (0, 2)
    assert read(here.kafka, name, "read_committed") == rows(2)
    # As it says.
    run(here.spark, here.kafka, name, work, checkpoint, "allowLostState=true")
    assert read(here.kafka, name, "read_committed") == rows(3)


def test_operators_find_a_sink_by_its_checkpoint_and_in_the_list(
    here: Here, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, checkpoint = here.topic(1), work / "checkpoint"
    run(here.spark, here.kafka, name, work, checkpoint)
    servers = ("--bootstrap-servers", here.servers, "--topic", name)
    capsys.readouterr()
    assert transactions.main(["status", *servers, "--checkpoint", str(checkpoint)]) == 0
    said = capsys.readouterr().out
    assert f"Sink {name_of(checkpoint)}, " in said
    assert "in step with the sink" in said
    assert transactions.main(["list", *servers]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{name_of(checkpoint)} ")]
    assert line.split()[1:3] == [id_of(checkpoint), "0"]

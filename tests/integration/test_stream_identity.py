"""Whose state an exactly-once stream finds: its own, wherever its checkpoint lies and however that is spelled. And
what becomes of streams whose checkpoints, or whose groups' offsets, went back."""

import json
import os
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import kafka_sink
from broker_admin import held_back, produce, read, read_values
from effort import variants
from exactly_once_runs import ALL_ONCE, ROWS_A_FILE, add_file, finish_run, incoming, is_unrecorded, run_in
from kafka_reads import PYKAFKA, copy_all, places, read_now, stream
from kafka_sink.cli import transactions
from kafka_sink.commit.requests import PARTITION
from kafka_sink.commit.stream_name import FILE_NAME, query_name, spelled_name
from kafka_sink.errors import CheckpointBehind, KafkaSinkError, NonDeterministicReplay, StateExpired, WrittenOtherwise
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind, OffsetCommitRequest, OffsetFetchRequest
from kafka_sink.options.config import sink_config
from spark_writes import Here

COMMIT_TOPIC = "pykafka-commits"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with the first file of a stream's."""
    (tmp_path / "incoming").mkdir()
    add_file(tmp_path / "incoming", 0)
    return tmp_path


def run(here: Here, topic: str, checkpoint: object, *options: str) -> None:
    """The stream until all files are written, named by its checkpoint."""
    run_in(here.spark, here.kafka, topic, here.folder / "incoming", checkpoint, *options, "--derived-name")


def error_of(here: Here, topic: str, checkpoint: object, *options: str) -> KafkaSinkError | None:
    with pytest.raises(StreamingQueryException) as raised:
        run(here, topic, checkpoint, *options)
    return kafka_sink.error_of(raised.value)


def assert_files_once(here: Here, topic: str, files: int) -> None:
    assert read(here.kafka, topic, "read_committed") == Counter(range(files * ROWS_A_FILE))


def name_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / FILE_NAME).read_text())["transactionalIdPrefix"])


def id_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def begin_by_an_earlier_build(here: Here, topic: str, checkpoint: Path) -> None:
    """Its first micro-batch, under the name that earlier builds gave."""
    run(here, topic, checkpoint, f"transactionalIdPrefix={spelled_name(str(checkpoint))}")
    (checkpoint / FILE_NAME).unlink()


@pytest.mark.long
def test_a_stream_goes_on_however_its_checkpoint_is_spelled_or_moved(here: Here, work: Path) -> None:
    name, first = here.topic(1), work / "checkpoint"
    run(here, name, first)
    assert name_of(first) == query_name(id_of(first))
    add_file(work / "incoming", 1)
    run(here, name, f"file://{first}/")
    add_file(work / "incoming", 2)
    moved = first.rename(work / "moved")
    run(here, name, os.path.relpath(moved))
    assert_files_once(here, name, 3)
    # The last micro-batch is not recorded in the copy, and is not written again.
    copied = Path(shutil.copytree(moved, work / "copied"))
    is_unrecorded(work, "copied")
    run(here, name, copied)
    assert_files_once(here, name, 3)


@pytest.mark.long
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_stream_of_an_earlier_build_goes_on_under_its_old_name(here: Here, work: Path, is_recorded: bool) -> None:
    """Also where its first micro-batch is not recorded, and not written again."""
    name, checkpoint = here.topic(1), work / "checkpoint"
    begin_by_an_earlier_build(here, name, checkpoint)
    if not is_recorded:
        shutil.rmtree(checkpoint / "commits")
        run(here, name, checkpoint)
        assert_files_once(here, name, 1)
    for file, spelled in ((1, checkpoint), (2, f"file:{checkpoint}")):
        add_file(work / "incoming", file)
        run(here, name, spelled)
        assert name_of(checkpoint) == spelled_name(str(checkpoint))
    assert_files_once(here, name, 3)


@pytest.mark.long
def test_another_query_in_the_folder_of_an_earlier_build_has_its_own_name(here: Here, work: Path) -> None:
    one, other, checkpoint = here.topic(1), here.topic(1), work / "checkpoint"
    begin_by_an_earlier_build(here, one, checkpoint)
    checkpoint.rename(work / "kept")
    run(here, other, checkpoint)
    assert name_of(checkpoint) == query_name(id_of(checkpoint))
    # The first one was disturbed by nobody.
    shutil.rmtree(checkpoint)
    (work / "kept").rename(checkpoint)
    add_file(work / "incoming", 1)
    run(here, one, checkpoint)
    assert_files_once(here, one, 2)


def test_two_queries_with_one_prefix_are_told_of_each_other(here: Here, work: Path) -> None:
    name = here.topic(1)
    prefix = f"transactionalIdPrefix={name}"
    for checkpoint in ("one", "other"):
        run(here, name, work / checkpoint, prefix)
    add_file(work / "incoming", 1)
    error = error_of(here, name, work / "one", prefix)
    assert isinstance(error, StateExpired)
    assert (error.query_id, error.decided_query_id) == (id_of(work / "one"), id_of(work / "other"))
    assert "Two queries need two names" in str(error)


@pytest.mark.long
def test_micro_batches_between_that_were_written_at_least_once(here: Here, work: Path) -> None:
    name, checkpoint = here.topic(1), work / "checkpoint"
    run(here, name, checkpoint)
    add_file(work / "incoming", 1)
    run(here, name, checkpoint, "deliveryGuarantee=at-least-once")
    add_file(work / "incoming", 2)
    error = error_of(here, name, checkpoint)
    assert isinstance(error, WrittenOtherwise)
    assert (error.micro_batch_id, error.next_micro_batch_id) == (0, 2)
    assert_files_once(here, name, 2)
    # As it says.
    run(here, name, checkpoint, "allowLostState=true")
    assert_files_once(here, name, 3)


def test_operators_find_a_sink_by_its_checkpoint_and_in_the_list(
    here: Here, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, checkpoint = here.topic(1), work / "checkpoint"
    run(here, name, checkpoint)
    servers = ("--bootstrap-servers", here.servers, "--topic", name)
    capsys.readouterr()
    assert transactions.main(["status", *servers, "--checkpoint", str(checkpoint)]) == 0
    said = capsys.readouterr().out
    assert f"Sink {name_of(checkpoint)}, " in said and "in step with the sink" in said
    assert transactions.main(["list", *servers]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{name_of(checkpoint)} ")]
    assert line.split()[1:3] == [id_of(checkpoint), "0"]


# --- offsets of groups that went back, as after an unclean election of __consumer_offsets -----------------------------


def ask(here: Here, group_id: str, request: Any) -> Any:
    with closing(AdminClient(sink_config({"kafka.bootstrap.servers": here.servers}).producer)) as client:
        (answer,) = client.await_all(client.begin_all([(CoordinatorKind.GROUP, group_id, request)]))
    return answer


@pytest.mark.parametrize("recorded", variants(1, 2))
def test_a_micro_batch_that_the_groups_do_not_know_any_more_is_not_written_again(here: Here, recorded: int) -> None:
    name, later = here.topic(3), here.folder / "later"
    files = sorted(incoming(here.folder / "incoming").iterdir())
    later.mkdir()
    for file in files[2 * recorded :]:
        file.rename(later / file.name)
    where = here.spark, here.kafka, name, here.folder
    assert finish_run(*where) == (0, "")
    groups = [f"{name}.{each}" for each in ("0", "1", "decision")]
    fetched = [ask(here, each, OffsetFetchRequest((each,), COMMIT_TOPIC, PARTITION, True, None)) for each in groups]
    for file in files[2 * recorded : 2 * recorded + 2]:
        (later / file.name).rename(file)
    assert finish_run(*where) == (0, "")
    visible = read(here.kafka, name)
    assert visible == Counter(range(2 * (recorded + 1) * ROWS_A_FILE))
    is_unrecorded(here.folder)
    for each, (found,) in zip(groups, (answer.groups for answer in fetched), strict=True):
        put_back = OffsetCommitRequest(each, COMMIT_TOPIC, PARTITION, found.offset, found.metadata)
        assert ask(here, each, put_back).error_code == 0
    for _ in range(2):
        status, said = finish_run(*where)
        assert (status, "__consumer_offsets lost its last records" in said) == (1, True), said
        assert read(here.kafka, name) == read(here.kafka, name, "read_uncommitted") == visible


@pytest.mark.long
@pytest.mark.parametrize("reset", ["0", "decision"])
def test_a_group_whose_offsets_were_reset_is_deleted_as_the_error_advises(here: Here, reset: str) -> None:
    name = here.topic(3)
    incoming(here.folder / "incoming")
    where = here.spark, here.kafka, name, here.folder
    assert finish_run(*where) == (0, "")
    is_unrecorded(here.folder)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", here.servers
    group = "--group", f"{name}.{reset}"
    here.kafka.run_tool(*tool, "--reset-offsets", "--to-earliest", "--execute", *group, "--topic", "pykafka-commits:0")
    status, said = finish_run(*where)
    assert (status, f"--delete --group {name}.{reset}" in said) == (1, True), said
    here.kafka.run_tool(*tool, "--delete", *group)
    status, said = finish_run(*where)
    # Without the decision nothing proves any more what was decided.
    assert (status, said) == (0, "") if reset == "0" else (status, "nothing is known" in said) == (1, True), said
    assert read(here.kafka, name) == ALL_ONCE


# --- older copies of checkpoints --------------------------------------------------------------------------------------


class TopicToTopic:
    """A stream that copies what is there exactly-once, in micro-batches of 20 rows, and ends."""

    def __init__(self, here: Here) -> None:
        self._here, self._checkpoint = here, here.folder / "checkpoint"
        self._source, self._target = here.topic(1), here.topic(1)

    def run(self, more: int = 0) -> KafkaSinkError | None:
        """Run with so many more records. Return the error that ended it."""
        produce(self._here.kafka, self._source, more)
        topics = self._source, self._target
        try:
            copy_all(self._here.spark, PYKAFKA, self._here.kafka, *topics, self._checkpoint)
        except PySparkException as failure:
            return kafka_sink.error_of(failure)
        return None

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._checkpoint, self._here.folder / name))

    def restore(self, copy: Path) -> None:
        shutil.rmtree(self._checkpoint)
        shutil.copytree(copy, self._checkpoint)

    @property
    def rows(self) -> int:
        assert held_back(self._here.kafka, self._target) == 0
        return read_values(self._here.kafka, self._target).total()


@pytest.mark.long
def test_a_copy_that_is_too_old_stops_and_the_newest_goes_on(here: Here) -> None:
    copying = TopicToTopic(here)
    assert copying.run(40) is None
    old = copying.copy("old")
    assert copying.run(40) is None
    new = copying.copy("new")
    copying.restore(old)
    for _ in range(2):
        assert isinstance(copying.run(), CheckpointBehind)
        assert copying.rows == 80
    copying.restore(new)
    assert copying.run(10) is None
    assert copying.rows == 90


@pytest.mark.long
@pytest.mark.parametrize("more", [0, 5])
def test_a_copy_that_is_one_micro_batch_behind_writes_nothing_again(here: Here, more: int) -> None:
    """Spark plans the micro-batch anew: with the same rows it is done, with others it stops."""
    copying = TopicToTopic(here)
    assert copying.run(20) is None
    behind = copying.copy("behind")
    assert copying.run(10) is None
    copying.restore(behind)
    error = copying.run(more)
    assert isinstance(error, NonDeterministicReplay) if more else error is None
    assert copying.rows == 30


@pytest.mark.long
def test_a_stream_that_only_reads_goes_on_where_the_copy_ends(here: Here) -> None:
    name, checkpoint = here.topic(2), here.folder / "checkpoint"
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    frame = stream(here.spark, PYKAFKA, here.kafka, **options)
    produce(here.kafka, name, 20, 20)
    first = read_now(frame, checkpoint)
    old = Path(shutil.copytree(checkpoint, here.folder / "old"))
    produce(here.kafka, name, 20, 20)
    later = read_now(frame, checkpoint)
    again = read_now(frame, old)
    assert again.batches == later.batches
    assert Counter(places(first.rows + again.rows)) == Counter((p, o) for p in range(2) for o in range(40))

"""The file that the driver makes of its tasks' messages: what a replay keeps, and what a failure costs."""

import errno
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem
from pyspark.sql.types import StructType

from kafka_sink import records
from kafka_sink.errors import ReceiptNotWritten, ReceiptsPathUnusable, WriteKind
from kafka_sink.exporting.result import SENT_TYPES, ReceiptReader, ReceiptSource
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.producer.acknowledgements import NO_OFFSET, PackedRuns
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records import receipt_file
from kafka_sink.records.receipt_file import SCHEMA, columns_of
from kafka_sink.spark.receipt_writer import PAUSES_S, leave_receipt, make_folder, write_receipt
from kafka_sink.spark.task_results import Identity, TaskCommitMessage, TaskProof

DEADLINE_S = 60
QUERY = "2f1c9bd0-0000-4000-8000-000000000000"
HERE = (TopicPartition("t", 0), TopicPartition("u", 7))


def message(
    path: Path | str, slot: int, *offsets: int, visible: bool = False, batch_id: int = 4, count: int | None = None,
    dropped: int = 0,
) -> TaskCommitMessage:  # fmt: skip
    """Of a task that wrote 10 records at each of `offsets`, in turns to the partitions HERE, and left `dropped` rows
    out; or, where they were `visible`, counted as many."""
    runs = [(place % 2, 10, offset, 1_000, 99, 2**32 - 1 - place, 2) for place, offset in enumerate(offsets)]
    packed = None if visible else PackedRuns(HERE, b"".join(struct.pack("<iiqqiIi", *run) for run in runs))
    identity = Identity(QUERY, batch_id, WriteKind.STREAM)
    proof = TaskProof(str(path), identity, "exactly-once", 5_000 + slot, 6_000 + slot, packed)
    record_count = 10 * len(offsets) + dropped if count is None else count
    bad_rows = BadRowCounts({"TopicNull": dropped} if dropped else {})
    return TaskCommitMessage(slot, record_count, (), {"t": "an id", "u": None}, proof, bad_rows)


def proof_of(message: TaskCommitMessage) -> TaskProof:
    assert message.proof is not None
    return message.proof


def file(path: Path, batch_id: int = 4) -> Path:
    return path / receipt_file.relative_path(QUERY, batch_id)


def told(path: Path, *columns: str, batch_id: int = 4) -> list[tuple[Any, ...]]:
    table = receipt_file.read(LocalFileSystem(), str(file(path, batch_id)))
    return [tuple(row[column] for column in columns) for row in table.to_pylist()]


def test_a_row_for_each_run_with_what_the_whole_micro_batch_has_in_common(tmp_path: Path) -> None:
    write_receipt([message(tmp_path, 0, 50, 70), message(tmp_path, 1), message(tmp_path, 2, NO_OFFSET)])
    place = ("slot", "topic", "topic_id", "partition", "base_offset")
    assert told(tmp_path, *place, "record_count", "checksum", "batch_bytes", "retries", "base_timestamp") == [
        (0, "t", "an id", 0, 50, 10, 2**32 - 1, 99, 2, 1_000),
        (0, "u", None, 7, 70, 10, 2**32 - 2, 99, 2, 1_000),
        (2, "t", "an id", 0, None, 10, 2**32 - 1, 99, 2, 1_000),
    ]
    common = ("query_id", "batch_id", "kind", "guarantee", "rows", "duration_ms")
    assert set(told(tmp_path, *common)) == {(QUERY, 4, "stream", "exactly-once", 30, 1_002)}
    assert told(tmp_path, "started_at")[0][0].timestamp() == 5
    assert sorted(each.name for each in file(tmp_path).parent.iterdir()) == [file(tmp_path).name]


def test_a_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(os.umask, os.umask(0)))
    write_receipt([message(tmp_path, 0, 50, 70)])
    assert file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_nothing_where_nobody_asks_and_one_row_of_a_micro_batch_without_rows(tmp_path: Path) -> None:
    for nothing in ([], [TaskCommitMessage(0, 3, ())]):
        write_receipt(nothing)
    assert list(tmp_path.iterdir()) == []
    write_receipt([message(tmp_path, 0), message(tmp_path, 1)])
    assert told(tmp_path, "query_id", "batch_id", "rows", "record_count", "topic") == [(QUERY, 4, 0, 0, None)]


def test_rows_that_were_left_out_are_told_once_a_slot(tmp_path: Path) -> None:
    write_receipt([message(tmp_path, 0, 50, 70, dropped=3), message(tmp_path, 1, dropped=2), message(tmp_path, 2, 90)])
    columns = ("slot", "base_offset", "record_count", "dropped", "rows")
    assert told(tmp_path, *columns) == [
        (0, 50, 10, 3, 35), (0, 70, 10, 0, 35), (1, None, 0, 2, 35), (2, 90, 10, 0, 35)
    ]  # fmt: skip
    before = file(tmp_path).read_bytes()
    # A replay counts them, and does not ask which are bad.
    counts = {0: 23, 1: 2, 2: 10}
    write_receipt([message(tmp_path, slot, visible=True, count=count) for slot, count in counts.items()])
    assert file(tmp_path).read_bytes() == before


def test_a_rerun_replaces_its_own_file_and_no_other(tmp_path: Path) -> None:
    for offset, batch_id in ((10, 3), (20, 4), (30, 4)):
        write_receipt([message(tmp_path, 0, offset, batch_id=batch_id)])
    assert (told(tmp_path, "base_offset"), told(tmp_path, "base_offset", batch_id=3)) == ([(30,)], [(10,)])


def test_a_replay_of_what_was_visible_leaves_the_file(tmp_path: Path) -> None:
    write_receipt([message(tmp_path, 0, 10), message(tmp_path, 1), message(tmp_path, 2, 20, 30)])
    before = file(tmp_path).read_bytes()
    again = [message(tmp_path, slot, visible=True, count=count) for slot, count in ((0, 10), (1, 0), (2, 20))]
    # Its times are those of the run that wrote the rows.
    write_receipt([replace(each, proof=replace(proof_of(each), started_ms=1, ended_ms=9_000)) for each in again])
    assert file(tmp_path).read_bytes() == before


def test_a_replay_keeps_other_slots_and_replaces_a_file_of_other_rows(tmp_path: Path) -> None:
    write_receipt([message(tmp_path, 0, 10), message(tmp_path, 1, 20), message(tmp_path, 2, 30)])
    visible = [message(tmp_path, slot, visible=True, count=10) for slot in (0, 2)]
    write_receipt([visible[0], message(tmp_path, 1, 80), visible[1]])
    assert told(tmp_path, "slot", "base_offset", "rows") == [(0, 10, 30), (1, 80, 30), (2, 30, 30)]
    # A run between the two left it, which was not decided.
    write_receipt([message(tmp_path, 0, 10), message(tmp_path, 1, 20, 30)])
    write_receipt([message(tmp_path, slot, visible=True, count=10) for slot in (0, 1)])
    assert told(tmp_path, "slot", "base_offset", "record_count") == [(0, 10, 10), (1, None, 10)]


@pytest.mark.parametrize("old", [None, b"cut", "of other rows"])
def test_rows_that_no_file_tells_of_are_told_without_offsets(tmp_path: Path, old: bytes | str | None) -> None:
    if old is not None:
        write_receipt([message(tmp_path, 0, 1, 2), message(tmp_path, 1, 3)])
    if isinstance(old, bytes):
        file(tmp_path).write_bytes(old)
    write_receipt([message(tmp_path, 0, visible=True, count=77), message(tmp_path, 1, 80)])
    columns = ("slot", "topic", "base_offset", "record_count", "rows", "batch_id")
    assert told(tmp_path, *columns) == [(0, None, None, 77, 87, 4), (1, "t", 80, 10, 87, 4)]


NO_SPACE = OSError("no space left\nDetail: as Arrow has it")


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[OSError, int], list[float]]:
    """A file system that fails so many times before it does what it should. Returns what is slept."""

    def fail(error: OSError, times: int) -> list[float]:
        failing = mock.Mock(side_effect=[error] * times + [mock.DEFAULT], wraps=pq.write_table)
        monkeypatch.setattr(pq, "write_table", failing)
        return []

    return fail


def test_a_failure_that_passes_costs_a_pause(tmp_path: Path, fails: Any) -> None:
    slept = fails(NO_SPACE, 2)
    write_receipt([message(tmp_path, 0, 10)], sleep=slept.append)
    assert slept == list(PAUSES_S)
    assert told(tmp_path, "base_offset") == [(10,)]


@pytest.mark.parametrize(("error", "pauses_s", "words"), [
    (NO_SPACE, list(PAUSES_S), r"no space left[.] "),
    # What a second does not change is not waited for.
    *((OSError(code, os.strerror(code)), [], os.strerror(code)) for code in (errno.EACCES, errno.EROFS, errno.ENOSPC)),
])  # fmt: skip
def test_a_failure_that_stays_is_the_commits_to_judge(
    tmp_path: Path, fails: Any, error: OSError, pauses_s: list[float], words: str
) -> None:
    slept = fails(error, 99)
    with pytest.raises(ReceiptNotWritten, match=words) as failure:
        write_receipt([message(tmp_path, 0, 10)], sleep=slept.append)
    assert (failure.value.path, slept) == (str(file(tmp_path)), pauses_s)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_at_least_once_logs_it_and_goes_on(tmp_path: Path, fails: Any, caplog: pytest.LogCaptureFixture) -> None:
    leave_receipt([message(tmp_path, 0, 10)], sleep=fails(NO_SPACE, 99).append)
    (said,) = caplog.messages
    for part in ("micro-batch 4", QUERY, str(file(tmp_path)), "no space left", "rows are in Kafka"):
        assert part in said


@pytest.mark.parametrize("path", ["foo://b/x", "{file}/below"])
def test_a_path_that_cannot_be_a_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReceiptsPathUnusable, match="No row of this write was sent") as failure:
        make_folder(path.format(file=tmp_path / "file"))
    assert str(failure.value).isprintable()


RUNS = columns_of([{"topic": "t", "partition": 3, "base_offset": None, "rows": 7, "record_count": 7}])


def read(path: Path, remove: str = "") -> pa.Table:
    reader = ReceiptSource({"path": str(path), "remove": remove}).reader(StructType())
    (partition,) = reader.partitions()
    # The reader travels to the task as well.
    there: ReceiptReader = pickle.loads(pickle.dumps(reader))
    # Of times as whole numbers, which Spark and Sail read alike.
    assert "started_at BIGINT" in ReceiptSource({}).schema()
    return pa.Table.from_batches(there.read(pickle.loads(pickle.dumps(partition))), SENT_TYPES).cast(SCHEMA)


def test_the_rows_of_the_file_and_what_was_temporary_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "r" / "query_id=a"
    assert read(folder / "b.parquet").num_rows == 0
    folder.mkdir(parents=True)
    pq.write_table(RUNS, folder / "b.parquet")
    assert read(folder / "b.parquet").equals(RUNS)
    assert folder.exists()
    assert read(folder / "b.parquet", remove=str(tmp_path / "r")).equals(RUNS)
    assert list(tmp_path.iterdir()) == []


class NameNode:
    """Stands for hdfs-native's client, with files of a folder. `refused`: what the next request is told."""

    folder: Path
    asked: str
    refused = ""

    def __init__(self, url: str, _settings: object) -> None:
        NameNode.asked = url

    def at(self, path: str) -> Path:
        if self.refused:
            raise RuntimeError(self.refused)
        if not path.startswith("/") or "//" in path:
            raise RuntimeError(f"Invalid path name {path}")
        return self.folder / path[1:]

    def get_file_info(self, path: str) -> SimpleNamespace:
        found = self.at(path)
        return SimpleNamespace(path=path, isdir=found.is_dir(), length=found.stat().st_size)

    def list_status(self, path: str, recursive: bool) -> list[SimpleNamespace]:
        self.get_file_info(path)
        found = self.at(path).rglob("*") if recursive else self.at(path).iterdir()
        return [self.get_file_info(f"/{each.relative_to(self.folder)}") for each in sorted(found)]

    def mkdirs(self, path: str, create_parent: bool) -> None:
        self.at(path).mkdir(parents=create_parent, exist_ok=True)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        if self.at(target).exists() and not overwrite:
            raise FileExistsError(target)
        self.at(source).replace(self.at(target))

    def delete(self, path: str) -> None:
        self.at(path).unlink()

    def read(self, path: str) -> Any:
        return self.at(path).open("rb", buffering=0)

    def create(self, path: str, _options: object) -> Any:
        return self.at(path).open("wb", buffering=0)


def import_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kafka_sink.records.receipts_in_hdfs", raising=False)
    monkeypatch.delattr(records, "receipts_in_hdfs", raising=False)


@pytest.fixture
def name_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[NameNode]:
    module = ModuleType("hdfs_native")
    module.__spec__ = ModuleSpec("hdfs_native", None)
    module.__dict__.update(Client=NameNode, WriteOptions=dict)
    monkeypatch.setitem(sys.modules, "hdfs_native", module)
    import_anew(monkeypatch)
    monkeypatch.setattr(NameNode, "folder", tmp_path, raising=False)
    monkeypatch.setattr(NameNode, "refused", "")
    return NameNode


def test_receipts_in_hdfs_are_written_and_replaced_by_hdfs_native(name_node: type[NameNode], tmp_path: Path) -> None:
    path = "hdfs://nn:8020/mit Leerzeichen//ü/"
    for offsets in ((0, 10), (20,)):
        write_receipt([message(path, 0, *offsets)])
    folder = tmp_path / "mit Leerzeichen" / "ü"
    assert told(folder, "base_offset") == [(20,)]
    assert [each.name for each in file(folder).parent.iterdir()] == [file(folder).name]
    filesystem, found = receipt_file.filesystem_of(path, within)
    (only,) = receipt_file.paths_in(filesystem, found)
    assert receipt_file.read(filesystem, only).num_rows == 1
    assert receipt_file.paths_in(filesystem, only) == [only]
    assert name_node.asked == "hdfs://nn:8020"
    with pytest.raises(FileNotFoundError):
        receipt_file.paths_in(filesystem, f"{found}/none")


def test_what_a_name_node_refuses_is_said(name_node: type[NameNode], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_node, "refused", r"AccessControlException: Permission denied: user=eve\n\tat org.apache")
    with pytest.raises(ReceiptsPathUnusable, match=r"Permission denied: user=eve\W") as failure:
        make_folder("hdfs://nn/receipts")
    assert "org.apache" not in str(failure.value)
    with pytest.raises(ReceiptNotWritten, match="Permission denied"):
        write_receipt([message("hdfs://nn/receipts", 0, 0)], sleep=mock.Mock())


def test_a_file_in_hdfs_that_was_not_finished_is_removed(
    name_node: type[NameNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_node, "rename", mock.Mock(side_effect=RuntimeError("the lease is another's")))
    with pytest.raises(ReceiptNotWritten, match="the lease is another's"):
        write_receipt([message("viewfs://cluster/r", 0, 0)], sleep=mock.Mock())
    assert list(file(tmp_path / "r").parent.iterdir()) == []


def test_a_file_whose_data_node_does_not_answer_is_given_up(
    name_node: type[NameNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem, folder = receipt_file.filesystem_of("hdfs://nn/", within)
    monkeypatch.setattr("kafka_sink.records.receipts_in_hdfs.DATA_TIMEOUT_S", 0.01)
    answer = Event()
    stuck = mock.Mock(write=lambda _: answer.wait(DEADLINE_S))
    monkeypatch.setattr(name_node, "create", lambda *_: stuck)
    with pytest.raises(TimeoutError, match="HDFS did not answer"), filesystem.open_output_stream(f"{folder}/a") as file:
        file.write(b"x")
    answer.set()
    stuck.close.assert_not_called()


def test_a_name_node_that_refuses_or_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hdfs-native itself, which must know both settings: without them the first takes 3 minutes."""
    import_anew(monkeypatch)
    from kafka_sink.records import receipts_in_hdfs

    tries, longest_ms = map(int, receipts_in_hdfs.SETTINGS.values())
    assert sum(min(500 * 2**n, longest_ms) for n in range(tries)) < 40_000
    monkeypatch.setattr(receipts_in_hdfs, "SETTINGS", dict(zip(receipts_in_hdfs.SETTINGS, ("3", "10"), strict=True)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(receipts_in_hdfs, "TIMEOUT_S", 0.2)
        path = f"hdfs://127.0.0.1:{server.getsockname()[1]}/receipts"
        with pytest.raises(ReceiptsPathUnusable, match=r"HDFS did not answer \(within 0\.2 s\)"):
            make_folder(path)
    monkeypatch.setattr(receipts_in_hdfs, "TIMEOUT_S", DEADLINE_S)
    with pytest.raises(ReceiptsPathUnusable, match="Connection refused"):
        make_folder(path)


def test_without_a_client_of_hdfs_the_refusal_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.setattr(receipt_file, "find_spec", lambda name: None)
    for said in ("Unable to load libjvm\ndlopen(...)", "Prior attempt to load libhdfs failed"):
        monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=mock.Mock(side_effect=OSError(said))))
        with pytest.raises(ReceiptsPathUnusable, match=r"pip install 'pyspark-pykafka\[hdfs\]'"):
            make_folder("hdfs://nn/receipts")

"""Words and statuses, over scripted brokers and lists of records. Real brokers: tests/integration/test_receipts.py."""

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from kafka_sink.cli import verify
from kafka_sink.cli.verification.checking import Log, Record, RunChecksum
from kafka_sink.cli.verification.cluster import Topic
from kafka_sink.cli.verification.receipts import Receipts
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.records import receipt_file
from scripted_kafka import ScriptedKafka


@dataclass
class ReadablePartition:
    """`there`: its records. `asked`: first and last offset of each read."""

    there: list[Record]
    log_now: Log
    asked: list[tuple[int, int]] = field(default_factory=list)

    def log(self) -> Log:
        return self.log_now

    def records(self, first: int, last: int) -> Iterator[Record]:
        self.asked.append((first, last))
        return (record for record in self.there if first <= record.offset <= last)


@dataclass
class ReadableCluster:
    """`partitions`: by topic and number. `committed`: of each partition that was read, whether as committed."""

    kafka: ScriptedKafka
    partitions: dict[tuple[str, int], ReadablePartition]
    committed: list[bool] = field(default_factory=list)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        answer = self.kafka.answer(min(self.kafka.brokers), MetadataRequest(tuple(names), False))
        return {
            topic.name: Topic(len(topic.partitions), topic.topic_id and str(topic.topic_id), is_compacted=False)
            for topic in answer.topics
            if not topic.error_code
        }

    def partition(self, topic: str, partition: int, *, committed: bool, is_compacted: bool | None) -> ReadablePartition:
        self.committed.append(committed)
        return self.partitions[topic, partition]


Run = Callable[..., tuple[int, Any]]
WHOLE = Log(0, 100, 100, False)
TOPIC_ID = uuid.UUID(int=1)
SERVER = ["--bootstrap-servers", "localhost:1"]


def records(partition: int, *offsets: int) -> list[Record]:
    return [Record(offset, None, b"%d" % partition, (), 1_000, False) for offset in offsets]


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka(brokers=[1])
    made.leaders = {("t", 0): 1, ("t", 1): 1}
    made.topic_ids = {"t": TOPIC_ID}
    return made


@pytest.fixture
def cluster(kafka: ScriptedKafka) -> ReadableCluster:
    """Offsets 0 to 99 have a record each, unless a test takes them away."""
    return ReadableCluster(kafka, {("t", at): ReadablePartition(records(at, *range(100)), WHOLE) for at in (0, 1)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two micro-batches with two runs of 10 records each."""
    for batch_id in (0, 1):
        rows: list[dict[str, Any]] = []
        for partition in (0, 1):
            base_offset = 40 * batch_id
            checksum = RunChecksum(1_000)
            for record in records(partition, *range(base_offset, base_offset + 10)):
                checksum.add(record.key, record.value, record.headers, record.timestamp_ms)
            rows.append({
                "query_id": "q", "batch_id": batch_id, "kind": "stream", "guarantee": "at-least-once", "rows": 20,
                "slot": 0, "topic": "t", "topic_id": str(TOPIC_ID), "partition": partition, "base_offset": base_offset,
                "record_count": 10, "checksum": checksum.crc, "base_timestamp": 1_000,
            })  # fmt: skip
        file = tmp_path / receipt_file.relative_path("q", batch_id)
        file.parent.mkdir(exist_ok=True)
        pq.write_table(receipt_file.columns_of(rows), file)
    return tmp_path


@pytest.fixture
def run(folder: Path, cluster: ReadableCluster, capsys: pytest.CaptureFixture[str]) -> Run:
    """The status, and the lines."""

    def run(as_json: bool = False) -> tuple[int, list[str]]:
        receipts = Receipts(LocalFileSystem(), str(folder))
        status = verify.verify(receipts, cluster, as_json=as_json)  # type: ignore[arg-type]
        return status, capsys.readouterr().out.splitlines()

    return run


def test_all_is_there(cluster: ReadableCluster, run: Run) -> None:
    assert run() == (
        verify.EQUAL, ["2 receipts, 40 rows in 4 runs: 40 EQUAL.", "EQUAL: all records are there and unchanged."]
    )  # fmt: skip
    assert cluster.partitions["t", 0].asked == [(0, 9), (40, 49)]
    assert cluster.committed == [False, False]


def test_what_is_missing_or_altered_is_named_with_its_receipt(folder: Path, cluster: ReadableCluster, run: Run) -> None:
    del cluster.partitions["t", 0].there[43:45]
    cluster.partitions["t", 1].there[5] = cluster.partitions["t", 1].there[5]._replace(value=b"other")
    status, said = run()
    assert status == verify.DIFFERENT
    missing, altered, total, last = said
    assert missing.startswith("MISSING  t-0 offsets 43-44 (2 of the run's 10 records): the log goes from 0 to 99")
    assert missing.endswith(f"Batch 1 of query q, {folder / receipt_file.relative_path('q', 1)}")
    assert altered.startswith("ALTERED  t-1 offsets 0-9 (10 of the run's 10 records): checksum")
    assert total == "2 receipts, 40 rows in 4 runs: 20 EQUAL, 2 MISSING, 8 COUNTED, 10 ALTERED."
    assert last.startswith("DIFFERENT")


def test_what_cannot_be_compared_has_a_status_of_its_own(cluster: ReadableCluster, run: Run) -> None:
    looks = iter([Log(0, 45, 45, False), WHOLE])  # A log that grew is looked at again.
    cluster.partitions["t", 1].log = lambda: next(looks)  # type: ignore[method-assign]
    partition = cluster.partitions["t", 0]
    partition.log_now = replace(partition.log_now, start=5)
    status, said = run()
    assert (status, len(said)) == (verify.NOT_COMPARED, 3)
    assert said[0].startswith("DELETED  t-0 offsets 0-4 (5 of the run's 10 records): the log begins at offset 5")
    # What the log has no more is not asked for.
    assert (0, 9) not in partition.asked


@pytest.mark.parametrize(("partitions", "topic_id", "missing", "why"), [
    (0, TOPIC_ID, 4, "there is no such topic"), (1, TOPIC_ID, 2, "no such partition"),
    (2, uuid.UUID(int=2), 4, "created again"), (2, None, 0, "an id that is not told"),
])  # fmt: skip
def test_a_topic_that_is_another_has_none_of_them(
    kafka: ScriptedKafka, partitions: int, topic_id: uuid.UUID | None, missing: int, why: str, run: Run
) -> None:
    kafka.leaders = {("t", number): 1 for number in range(partitions)}
    kafka.topic_ids = {} if topic_id is None else {"t": topic_id}
    status, said = run()
    assert status == (verify.DIFFERENT if missing else verify.EQUAL)
    assert sum(line.startswith("MISSING") and why in line for line in said) == missing


def test_a_micro_batch_without_a_receipt_and_a_file_that_is_none(folder: Path, run: Run) -> None:
    files = receipt_file.paths_in(LocalFileSystem(), str(folder))
    Path(files[1]).rename(folder / receipt_file.relative_path("q", 4))
    table = pq.ParquetFile(folder / receipt_file.relative_path("q", 4)).read()
    position = table.schema.get_field_index("batch_id")
    pq.write_table(table.set_column(position, "batch_id", [[4, 4]]), folder / receipt_file.relative_path("q", 4))
    status, said = run()
    assert (status, said[0][:45]) == (verify.DIFFERENT, "NO RECEIPT  for micro-batches 1 to 3 of query")
    Path(files[0]).write_bytes(b"none")
    status, said = run()
    assert (status, said[0].startswith(f"NOT A RECEIPT  {files[0]}: ")) == (verify.DIFFERENT, True)


def test_findings_and_the_sum_as_json_lines(folder: Path, cluster: ReadableCluster, run: Run) -> None:
    def documents() -> tuple[int, list[Any]]:
        status, lines = run(as_json=True)
        return status, [json.loads(line) for line in lines]

    status, (total,) = documents()
    assert status == verify.EQUAL
    sums = {"found": "SUM", "receipts": 2, "rows": 40, "runs": 4, "dropped": 0}
    assert total == sums | {"result": "EQUAL", "records": {"EQUAL": 40}}
    del cluster.partitions["t", 0].there[43:45]
    Path(files := receipt_file.paths_in(LocalFileSystem(), str(folder))[0]).write_bytes(b"none")
    status, (unreadable, missing, total) = documents()
    assert status == verify.DIFFERENT
    assert (unreadable["found"], unreadable["file"]) == ("NOT_A_RECEIPT", files)
    assert (missing.pop("why")[:23], missing.pop("file")[-7:]) == ("the log goes from 0 to ", "parquet")
    assert missing == {
        "found": "MISSING", "topic": "t", "partition": 0, "offsets": [[43, 44]], "records": 2, "run_records": 10,
        "micro_batch_id": 1, "query_id": "q",
    }  # fmt: skip
    assert (total["result"], total["records"]) == ("DIFFERENT", {"MISSING": 2, "COUNTED": 8, "EQUAL": 10})


def test_wrong_usage_and_brokers_or_a_client_that_are_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, arguments, status, says in (
        (folder, [], verify.WRONG_USAGE, "kafka.bootstrap.servers"),
        (folder / "nowhere", SERVER, verify.WRONG_USAGE, "cannot be read"),
        (folder, [*SERVER, "--option", "kafka.ack=1"], verify.WRONG_USAGE, "kafka.acks"),
        (folder, [*SERVER, "--option", "kafka.max.block.ms=500"], verify.NOT_COMPARED, "localhost:1"),
        (folder, SERVER, verify.WRONG_USAGE, 'pip install "pyspark-pykafka[verify]"'),
    ):
        if "pip" in says:
            monkeypatch.setitem(sys.modules, "confluent_kafka", None)
            monkeypatch.delitem(sys.modules, "kafka_sink.cli.verification.cluster", raising=False)
        assert verify.main(["--receipts", str(place), *arguments]) == status
        assert says in capsys.readouterr().err

"""The format as Sail calls it: with Arrow's schemas, and with tasks that know nothing of themselves."""

import pickle
import struct
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

from kafka_sink import errors
from kafka_sink.errors import WriteKind
from kafka_sink.kafka.producer.acknowledgements import PackedRuns
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records import receipt_file
from kafka_sink.spark import session
from kafka_sink.spark import writer as spark_writer
from kafka_sink.spark.source import KafkaDataSource
from kafka_sink.spark.task_results import Identity, TaskCommitMessage, TaskProof

OPTIONS = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
FIXED = OPTIONS | {"sailPartitions": "2"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def writer(options: dict[str, str] = FIXED, *, overwrite: bool = False, **columns: pa.DataType) -> Any:
    """The writer of a DataFrame of these columns, as it arrives in a task."""
    made = KafkaDataSource(options).writer(pa.schema(list((columns or {"value": pa.binary()}).items())), overwrite)
    return pickle.loads(pickle.dumps(made))


@pytest.mark.parametrize("columns", [
    {"value": pa.binary()}, {"value": pa.string()}, {"value": pa.null()}, {"value": pa.large_string()},
    {"value": pa.string_view(), "key": pa.binary_view()}, {"value": pa.binary(), "partition": pa.int32()},
    {"value": pa.binary(), "headers": HEADERS, "timestamp": pa.timestamp("us", "Europe/Berlin")},
    {"value": pa.binary(), "topic": pa.string(), "timestamp": pa.timestamp("us")},
])  # fmt: skip
def test_columns_of_arrow_that_a_record_can_take(columns: dict[str, pa.DataType]) -> None:
    assert writer(**columns).options["topic"] == "t"


@pytest.mark.parametrize(("columns", "error", "found"), [
    ({"key": pa.binary()}, errors.MissingColumn, None), ({"value": pa.int64()}, errors.ColumnTypeMismatch, "bigint"),
    ({"value": pa.uint16()}, errors.ColumnTypeMismatch, "uint16"),
    ({"value": pa.binary(), "partition": pa.int64()}, errors.ColumnTypeMismatch, "bigint"),
    ({"value": pa.binary(), "id": pa.int64()}, errors.UnexpectedColumn, None),
])  # fmt: skip
def test_columns_of_arrow_that_it_cannot(
    columns: dict[str, pa.DataType], error: type[Exception], found: str | None
) -> None:
    with pytest.raises(error) as failure:
        writer(**columns)
    assert getattr(failure.value, "found", None) == found or found is None


def test_a_write_whose_partitions_may_change_is_refused_with_what_to_do() -> None:
    with pytest.raises(errors.PartitionsNotFixed, match=r"No row of this write was sent\..*coalesce\(1\)") as failure:
        writer(OPTIONS)
    for words in ("sailPartitions=1", ".repartition(n)", "kafka_sink.export"):
        assert words in str(failure.value)


@pytest.mark.parametrize(("options", "option"), [
    ({"deliveryGuarantee": "exactly-once"}, "deliveryGuarantee=exactly-once"), ({"rowIdentity": "true"}, "rowIdentity"),
    ({"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "0"}, "deliveryGuarantee=exactly-once"),
])  # fmt: skip
def test_what_needs_to_know_its_task_is_refused_before_any(options: dict[str, str], option: str) -> None:
    for given in (FIXED | options, OPTIONS | options):
        with pytest.raises(errors.RefusedOption, match="does not know which partition") as failure:
            writer(given)
        assert failure.value.option == option


def test_a_stream_is_refused_that_sail_would_run_once_as_a_batch() -> None:
    with pytest.raises(errors.RefusedOption, match="as a batch"):
        writer(FIXED | {"checkpointLocation": "/data/checkpoints/orders"})


def test_the_checks_of_spark_hold() -> None:
    with pytest.raises(errors.WriteModeUnsupported):
        writer(overwrite=True)
    with pytest.raises(errors.UnknownOption):
        writer(FIXED | {"kafka.lingerms": "5"})


def test_receipts_have_the_partitions_that_the_tasks_did_not_know(tmp_path: Path) -> None:
    def message(offset: int) -> TaskCommitMessage:
        runs = PackedRuns((TopicPartition("t", 0),), struct.pack("<iiqqiIi", 0, 1, offset, 1_000, 99, 7, 0))
        proof = TaskProof(str(tmp_path), Identity("q", 0, WriteKind.BATCH), "at-least-once", 5_000, 6_000, runs)
        return TaskCommitMessage(0, 1, (), {"t": None}, proof)

    writer().commit([message(0), message(1), message(2)])
    table = receipt_file.read(LocalFileSystem(), str(tmp_path / receipt_file.relative_path("q", 0)))
    assert table.select(["slot", "base_offset"]).to_pylist() == [{"slot": i, "base_offset": i} for i in range(3)]


def test_a_missing_message_fails_the_commit() -> None:
    with pytest.raises(errors.CommitRefused):
        writer().commit([TaskCommitMessage(0, 0, ()), None])


def test_the_process_of_sail_keeps_its_own_objects_collectable(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock.patch.object(spark_writer.gc, "freeze") as freeze:
        monkeypatch.setattr(spark_writer, "_modules_seen", 0)
        monkeypatch.setitem(sys.modules, "pysail", mock.Mock())
        spark_writer.freeze_modules()
        assert not freeze.called
        monkeypatch.delitem(sys.modules, "pysail")
        spark_writer.freeze_modules()
        assert freeze.called


def test_a_client_without_py4j_starts_no_other_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(session.shutil, "which", lambda name: "/elsewhere/python3")
    assert session.other_python() == "/elsewhere/python3"
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert session.other_python() is None

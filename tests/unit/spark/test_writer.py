"""What `write_task` does with a producer, seen through one that only remembers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

import kafka_sink
from given_rows import ALL, PLAIN_TYPES, Given, Letter, batch_of, with_letters
from kafka_sink import errors
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, PackedRuns, PartitionOffsets
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts
from kafka_sink.kafka.producer.throttling import RateLimit
from kafka_sink.kafka.statistics import WriteStatistics
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.spark import rows
from kafka_sink.spark.task_results import Identity, TaskCommitMessage
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
TEXTS = {**SERVERS, "topic": "t"}
OPTIONS = given_options(TEXTS)


class Remembering:
    """Producer and write in one."""

    record_count = throttled_ms = 0
    left_with: type[BaseException] | None = None
    expected, topic_ids, cluster_id = sink_config(TEXTS).producer, {"t": "an id"}, "c"
    topic: str | None = "t"
    runs, bad_rows, took = PackedRuns(), BadRowCounts(), WriteStatistics()
    keeps_runs, partitioner = False, ""
    rate_limit: RateLimit | None = None
    # A good row asks nothing.
    admin = None
    acknowledged: int | None = None
    failure: errors.DeliveryError | None = None

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def begin(self, *, topic: str | None, partitioner: str, rate_limit: RateLimit | None, **_: object) -> Remembering:
        assert topic == self.topic
        self.partitioner, self.rate_limit = partitioner, rate_limit
        return self

    @property
    def acknowledgements(self) -> Acknowledgements:
        found = Acknowledgements()
        if self.throttled_ms:
            found.answered(self.throttled_ms)
        return found

    def statistics(self) -> WriteStatistics:
        return self.took

    def keep_runs(self) -> None:
        assert not self.batches
        self.keeps_runs = True

    def append(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.record_count += batch.num_rows

    def finish(self) -> tuple[PartitionOffsets, ...]:
        if self.failure is not None:
            raise self.failure
        count = self.record_count if self.acknowledged is None else self.acknowledged
        return (PartitionOffsets("t", 0, count, 0, count - 1, 1, 100),)


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(**remembers: Any) -> Remembering:
        producer = Remembering()
        vars(producer).update(remembers)

        @contextmanager
        def lease(config: object, **_: object) -> Iterator[Remembering]:
            assert config == producer.expected
            try:
                yield producer
            except BaseException as error:
                producer.left_with = type(error)
                raise

        monkeypatch.setattr(rows, "lease_producer", lease)
        monkeypatch.setattr(rows, "Write", Remembering.begin)
        return producer

    return use


def batches(*counts: int, **columns: pa.Array) -> Iterator[pa.RecordBatch]:
    for count in counts:
        yield pa.record_batch({"value": pa.array([b"v"] * count, pa.binary()), **columns})


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    def enter(**conf: str) -> None:
        properties = {key.replace("__", "."): text for key, text in conf.items()} | {"spark.app.id": "a"}
        task = SimpleNamespace(partitionId=lambda: 3, stageId=int, attemptNumber=int, _localProperties=properties)
        monkeypatch.setattr(TaskContext, "get", lambda: task)

    return enter


BOTH = pytest.mark.parametrize("make", [KafkaBatchWriter, KafkaStreamWriter])


@BOTH
def test_write_reads_its_iterator_to_the_end_and_returns_the_receipts(using: Any, make: type) -> None:
    producer = using()
    iterator = batches(3, 0, 5)
    receipt = make(OPTIONS).write(iterator)
    assert next(iterator, None) is None
    assert [batch.num_rows for batch in producer.batches] == [3, 0, 5]
    offsets = PartitionOffsets("t", 0, 8, 0, 7, 1, 100)
    assert receipt == TaskCommitMessage(0, 8, (offsets,), {"t": "an id"}, cluster_id="c")


@pytest.mark.parametrize("conf", [False, True])
@BOTH
def test_a_receipt_says_whose_it_is_and_where_it_goes_whoever_asks(
    using: Any, in_task: Any, tmp_path: Path, make: type, conf: bool
) -> None:
    producer = using()
    properties = {"sql__streaming__queryId": "a query", "streaming__sql__batchId": "7"}
    in_task(**properties, **({"spark__pykafka__receiptsPath": str(tmp_path)} if conf else {}))
    written = make(OPTIONS if conf else {**OPTIONS, "receipts_path": str(tmp_path)})
    receipt = written.write(batches(3))
    assert producer.keeps_runs
    proof = receipt.proof
    assert (proof.receipts_path, proof.guarantee, proof.runs) == (str(tmp_path), "at-least-once", PackedRuns())
    assert proof.started_ms <= proof.ended_ms
    is_stream = make is KafkaStreamWriter
    # A batch write has its own, also in foreachBatch.
    of_stream = Identity("a query", 7, errors.WriteKind.STREAM)
    assert proof.identity == (of_stream if is_stream else written.guarantee.identity)
    written.commit([receipt], *((7,) if is_stream else ()))
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_batch_writes_have_receipts_of_their_own() -> None:
    one, other = (KafkaBatchWriter(OPTIONS) for _ in range(2))
    assert one.guarantee.identity != other.guarantee.identity
    named, again = (KafkaBatchWriter(given_options({**TEXTS, "receiptName": "orders-1"})) for _ in range(2))
    assert named.guarantee.identity.named == again.guarantee.identity.named == "orders-1"
    # Of other rows, perhaps.
    assert named.guarantee.identity.query_id != again.guarantee.identity.query_id
    assert pickle.loads(pickle.dumps(one)).guarantee.identity == one.guarantee.identity


@BOTH
def test_an_unusable_receipts_path_is_found_when_the_write_is_planned(tmp_path: Path, make: type) -> None:
    (tmp_path / "file").touch()
    planned = make({**OPTIONS, "receipts_path": str(tmp_path / "file" / "below")})
    with pytest.raises(errors.ReceiptsPathUnusable):
        pickle.dumps(planned)


def test_fewer_acknowledged_than_delivered_is_never_a_success(using: Any) -> None:
    producer = using(acknowledged=7)
    with pytest.raises(errors.ReceiptMismatch) as failure:
        KafkaBatchWriter(OPTIONS).write(batches(8))
    assert (failure.value.received, failure.value.acknowledged) == (8, 7)
    assert producer.left_with is errors.ReceiptMismatch


def test_a_task_takes_partitioner_and_rate_and_says_what_throttled_it(
    using: Any, caplog: pytest.LogCaptureFixture
) -> None:
    producer = using(throttled_ms=900)
    options = {**TEXTS, "partitioner": "fnv1a", "maxRowsPerSecond": "800", "rateTasks": "4"}
    KafkaBatchWriter(given_options(options)).write(batches(1))
    assert producer.partitioner == "fnv1a"
    assert producer.rate_limit is not None and producer.rate_limit.rows_at_once(1_000, 0) == 20
    (line,) = caplog.messages
    assert "brokers throttled this task" in line and "by 900 ms at the longest" in line


@BOTH
def test_a_task_takes_from_the_conf_what_options_do_not_say(using: Any, in_task: Any, make: type) -> None:
    producer = using()
    in_task(spark__pykafka__topic="t", spark__pykafka__kafka__acks="1", spark__pykafka__kafka__linger__ms="7")
    given = {"kafka.bootstrap.servers": "h:1", "kafka.linger.ms": "8"}
    producer.expected = sink_config({**given, "kafka.acks": "1"}).producer
    receipt = make(given_options(given)).write(batches(2))
    assert (receipt.spark_partition_id, receipt.record_count) == (3, 2)


@pytest.mark.parametrize(("options", "conf", "error"), [
    ({"topic": "t"}, {}, errors.MissingOption), (TEXTS, {"spark__pykafka__kafka__ack": "1"}, errors.UnknownOption),
    (TEXTS, {"spark__pykafka__kafka__acks": "7"}, errors.InvalidOption),
    ({**TEXTS, "kafka.delivery.timeout.ms": "100"}, {}, errors.InvalidOption),
    (SERVERS, {}, errors.MissingColumn),
])  # fmt: skip
def test_what_the_conf_does_not_mend_is_an_error_before_any_row(
    using: Any, in_task: Any, options: dict[str, str], conf: dict[str, str], error: type[Exception]
) -> None:
    producer = using(expected=sink_config(SERVERS).producer, topic=None)
    in_task(**conf)
    with pytest.raises(error, match="No row of this write was sent"):
        KafkaBatchWriter(given_options(options)).write(batches(2))
    assert producer.batches == []


class Noting(kafka_sink.Interceptor):
    """Adds its name to every value, and notes every call; raises where it is told to."""

    def __init__(self, name: str, calls: list[Any], *, raises_in: str = "", at_call: int = 1) -> None:
        self.name, self.calls, self.raises_in, self.left = name, calls, raises_in, at_call

    def _note(self, method: str, *facts: Any) -> None:
        self.calls.append((self.name, method, *facts))
        self.left -= method == self.raises_in
        if method == self.raises_in and self.left == 0:
            raise RuntimeError("it has seen hunter2")

    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        self._note("on_send", arrow_batch.num_rows)
        values = [value + self.name.encode() for value in arrow_batch["value"].to_pylist()]
        return arrow_batch.set_column(0, "value", pa.array(values, pa.binary()))

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._note("on_acknowledgement", sum(receipt.record_count for receipt in receipts), type(error))

    def on_statistics(self, statistics: WriteStatistics) -> None:
        self._note("on_statistics", statistics)

    def close(self) -> None:
        self._note("close")


@BOTH
def test_interceptors_are_called_in_order_and_each_gets_what_the_one_before_made(using: Any, make: type) -> None:
    took, calls = WriteStatistics({"t": 3}, 40, {"KeyNull": 1}), []
    producer = using(took=took)
    receipt = make(OPTIONS, [Noting("1", calls), Noting("2", calls)]).write(batches(3, 2))
    assert [batch["value"].to_pylist() for batch in producer.batches] == [[b"v12"] * 3, [b"v12"] * 2]
    assert receipt.record_count == 5
    ended = [("on_acknowledgement", 5, type(None)), ("on_statistics", took), ("close",)]
    assert calls == [(name, *call) for call in [("on_send", 3), ("on_send", 2), *ended] for name in "12"]


def test_on_send_that_raises_fails_the_write_and_sends_nothing_of_its_batch(using: Any) -> None:
    producer, calls = using(), []
    chain = [Noting("1", calls), Noting("2", calls, raises_in="on_send", at_call=2), Noting("3", calls)]
    with pytest.raises(errors.InterceptorFailed, match="interceptor Noting: on_send raised RuntimeError") as failure:
        KafkaBatchWriter(OPTIONS, chain).write(batches(3, 2, 4))
    # Where Spark shows it: behind the error, with the interceptor's own lines.
    assert any("RuntimeError" in note and "in on_send" in note for note in failure.value.__notes__)
    assert "hunter2" not in str(failure.value)
    assert [batch.num_rows for batch in producer.batches] == [3]
    assert producer.left_with is errors.InterceptorFailed
    ended = [("on_acknowledgement", 0, errors.InterceptorFailed), ("close",)]
    assert calls[-6:] == [(name, *call) for call in ended for name in "123"]


@pytest.mark.parametrize(("method", "failure"), [
    ("on_acknowledgement", None), ("on_acknowledgement", errors.ProducerClosed(reason="test")), ("on_statistics", None),
    ("close", None), ("close", errors.ProducerClosed(reason="test")),
])  # fmt: skip
def test_raising_at_the_end_is_logged_and_changes_nothing(
    using: Any, caplog: pytest.LogCaptureFixture, method: str, failure: errors.DeliveryError | None
) -> None:
    using(failure=failure)
    calls: list[Any] = []
    wrong = KafkaStreamWriter(OPTIONS, [Noting("1", calls, raises_in=method), Noting("2", calls)])
    with nullcontext() if failure is None else pytest.raises(errors.ProducerClosed):
        assert wrong.write(batches(2)).record_count == 2
    told = ["on_acknowledgement", "on_statistics", "close"] if failure is None else ["on_acknowledgement", "close"]
    assert [call[:2] for call in calls[2:]] == [(name, called) for called in told for name in "12"]
    (record,) = caplog.records
    assert record.getMessage() == f"interceptor Noting: {method} raised; the task goes on without it"


class Returning(kafka_sink.Interceptor):
    def __init__(self, make: Any) -> None:
        self.make = make

    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.make(arrow_batch)


@pytest.mark.parametrize(("make", "says"), [
    (lambda batch: None, "on_send returned NoneType; expected pyarrow.RecordBatch"),
    (lambda batch: pa.table(batch), "on_send returned Table"),
    (lambda batch: batch.slice(1), "on_send returned 2 rows for 3"),
    (lambda batch: pa.concat_batches([batch, batch]), "on_send returned 6 rows for 3"),
    (lambda batch: batch.rename_columns(["payload"]), "MissingColumn: 'value'"),
    (lambda batch: batch.append_column("extra", batch["value"]), "UnexpectedColumn: 'extra'"),
    (lambda batch: batch.append_column("partition", batch["value"]), "ColumnTypeMismatch: 'partition'"),
])  # fmt: skip
def test_what_on_send_returns_is_checked(using: Any, make: Any, says: str) -> None:
    producer = using()
    with pytest.raises(errors.InterceptorFailed, match=says) as failure:
        KafkaBatchWriter(OPTIONS, [Returning(make)]).write(batches(3))
    assert "Returning" in str(failure.value) and "Nothing is lost" in str(failure.value)
    assert producer.batches == []


def test_dead_letters_need_a_place_and_no_interceptor_loses_them(using: Any) -> None:
    producer = using()
    rows = batch_of([Given(None, None, "t", None, None, None)], PLAIN_TYPES, ALL)
    batch = with_letters(rows, [Letter(b"v", b"k", None)], PLAIN_TYPES)
    with pytest.raises(errors.DeadLettersRefused, match="No row of this write was sent"):
        KafkaBatchWriter(OPTIONS).write(iter([batch]))
    without = Returning(lambda batch: batch.drop_columns(["dead_letter"]))
    with pytest.raises(errors.InterceptorFailed, match="returned no column 'dead_letter'"):
        KafkaBatchWriter(OPTIONS, [without]).write(iter([batch]))
    assert producer.batches == []


def test_columns_that_interceptors_left_as_they_were_are_not_theirs_to_answer_for(using: Any) -> None:
    producer = using(topic=None)
    with pytest.raises(errors.MissingColumn, match="'topic' option"):
        KafkaBatchWriter(given_options(SERVERS), [Noting("1", [])]).write(batches(1))
    assert producer.batches == []


def test_an_interceptor_may_change_columns_in_the_middle_and_give_the_topic(using: Any) -> None:
    """Every new schema is checked, and no topic is needed but the one that comes out."""
    columns = iter(("topic", "topic", "tropic"))
    with_topic = Returning(lambda batch: batch.append_column(next(columns), pa.array(["t"] * batch.num_rows)))
    producer = using(topic=None)
    with pytest.raises(errors.InterceptorFailed, match="'topic'"):
        KafkaBatchWriter(given_options(SERVERS), [with_topic]).write(batches(1, 1, 1))
    assert [batch.schema.names for batch in producer.batches] == [["value", "topic"]] * 2


def test_register_takes_objects_only() -> None:
    with pytest.raises(TypeError, match=r"extend kafka_sink\.Interceptor"):
        kafka_sink.register(None, interceptors=[Noting])  # type: ignore[arg-type, list-item]
    with pytest.raises(TypeError, match="token is a callable"):
        kafka_sink.register(None, token="of mine")  # type: ignore[arg-type]


@pytest.mark.parametrize(("execution", "is_refused"), [
    ({}, False), ({"spark.sql.execution.id": "7"}, False),
    ({"spark.sql.execution.id": "7", "spark.sql.execution.root.id": "7"}, False),
    ({"spark.sql.execution.id": "8", "spark.sql.execution.root.id": "7"}, True),
    # Of foreachBatch.
    ({"spark.sql.execution.id": "8", "spark.sql.execution.root.id": "7", "sql.streaming.queryId": "q"}, False),
])  # fmt: skip
def test_a_write_in_an_execution_is_a_tables(
    using: Any, in_task: Any, execution: dict[str, str], is_refused: bool
) -> None:
    producer = using()
    in_task(**execution, streaming__sql__batchId="0")
    with pytest.raises(errors.TableUnsupported, match="saveAsTable") if is_refused else nullcontext():
        KafkaBatchWriter(OPTIONS).write(batches(3))
    assert producer.record_count == (0 if is_refused else 3)

"""Options from Spark's conf, and interceptors, with real Spark and a real broker; confluent-kafka reads back."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink.broker import LocalKafka
from kafka_sink.spark.tally import Tally
from read_back import read_topic
from spark_writes import numbers

DEADLINE_S = 120


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Its conf and what is registered in it are its own."""
    return spark.newSession()


def set_conf(session: SparkSession, **options: str) -> None:
    for name, text in options.items():
        session.conf.set(f"spark.pykafka.{name}", text)


def to(kafka: LocalKafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}


def save(frame: DataFrame, **options: str) -> None:
    frame.write.format("pykafka").mode("append").options(**options).save()


def failure_of(frame: DataFrame, **options: str) -> str:
    with pytest.raises(PySparkException) as failure:
        save(frame, **options)
    return str(failure.value)


def records(kafka: LocalKafka, topic: str) -> list[Any]:
    return [record for _, _, record in read_topic(kafka.bootstrap_servers, topic, 30)]


def values(kafka: LocalKafka, topic: str) -> Counter[str]:
    return Counter(record.value.decode() for record in records(kafka, topic))


@contextmanager
def stream(session: SparkSession, folder: Path, files: int, **options: str) -> Iterator[Callable[[], None]]:
    """A query that has begun over `files` times ten new rows, in files of five, two a micro-batch. What it yields waits
    for the end and raises the query's error."""
    for number in range(files):
        session.range(number * 10, number * 10 + 10, 1, 2).write.mode("append").parquet(str(folder / "incoming"))
    query = (
        session.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 2).parquet(str(folder / "incoming"))
        .selectExpr("cast(id AS STRING) AS value")
        .writeStream.format("pykafka").options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip

    def finish() -> None:
        assert query.awaitTermination(DEADLINE_S), "the query did not end in time"

    try:
        yield finish
    finally:
        query.stop()


def test_a_batch_write_takes_from_the_conf_what_its_options_do_not_say(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    in_conf, in_option = topic(1), topic(1)
    set_conf(session, **to(kafka, in_conf))
    save(numbers(session, 10, 2))
    save(numbers(session, 20, 2), topic=in_option)
    assert values(kafka, in_conf) == Counter(map(str, range(10)))
    assert values(kafka, in_option) == Counter(map(str, range(20)))
    # Another session has another conf.
    assert "'kafka.bootstrap.servers' is required" in failure_of(numbers(session.newSession(), 1), topic=in_conf)


@pytest.mark.long
def test_a_stream_keeps_the_conf_that_it_was_started_with(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    set_conf(session, **{"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.acks": "1"})
    with stream(session, tmp_path, 3, topic=name) as finish:
        set_conf(session, **{"kafka.bootstrap.servers": "localhost:1", "kafka.acks": "none"})
        finish()
    assert values(kafka, name) == Counter(map(str, range(30)))


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"kafka.lingerms": "5"}, "UnknownOption: unknown option 'spark.pykafka.kafka.lingerms'"),
        ({"kafka.acks": "2"}, "InvalidOption: option 'spark.pykafka.kafka.acks' is '2'"),
        ({"kafka.sasl.login.class": "hunter2"}, "RefusedOption: option 'spark.pykafka.kafka.sasl.login.class'"),
        ({"kafka.sasl.jaas.config": "hunter2;"}, "InvalidOption: option 'spark.pykafka.kafka.sasl.jaas.config'"),
        ({"kafka.ssl.truststore.location": "/ca.pem"}, "MissingOption: option 'kafka.security.protocol' is required"),
        ({"kafka.request.timeout.ms": "400000"}, "InvalidOption: option 'kafka.delivery.timeout.ms'"),
    ],
)
def test_a_wrong_conf_is_an_error_before_any_row_and_shows_no_secret(
    session: SparkSession, conf: dict[str, str], says: str
) -> None:
    set_conf(session, **conf)
    # Nothing listens there: the error comes although no broker is asked.
    message = failure_of(numbers(session, 1, 1), **{"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
    assert says in message
    assert "No row of this write was sent" in message
    assert "hunter2" not in message


def tracing(folder: Path, name: str, raises_at: str = "") -> kafka_sink.Interceptor:
    """Puts its name and its count of Arrow batches behind each value; writes a line per call to a file of its own
    process. Nested classes travel by value: a worker cannot import this file."""

    class Tracing(kafka_sink.Interceptor):
        def __init__(self) -> None:
            self.folder, self.name, self.raises_at, self.batches = str(folder), name, raises_at, 0

        def _note(self, method: str, **facts: Any) -> None:
            with open(f"{self.folder}/{os.getpid()}.jsonl", "a", encoding="utf-8") as lines:
                lines.write(json.dumps({"by": self.name, "method": method, "own": id(self), **facts}) + "\n")

        def on_send(self, arrow_batch: Any) -> Any:
            import pyarrow as pa

            self.batches += 1
            self._note("on_send", rows=arrow_batch.num_rows)
            got = arrow_batch["value"].to_pylist()
            if self.raises_at and self.raises_at in got:
                raise RuntimeError("this row is not for the eyes of others")
            sent = [f"{value}{self.name}{self.batches}" for value in got] if self.name else got
            return arrow_batch.set_column(0, "value", pa.array(sent, pa.string()))

        def on_acknowledgement(self, receipts: Any, error: Exception | None) -> None:
            self._note("on_acknowledgement", rows=sum(r.record_count for r in receipts), error=type(error).__name__)

        def close(self) -> None:
            self._note("close")

    folder.mkdir(exist_ok=True)
    return Tracing()


def traces(folder: Path) -> list[list[dict[str, Any]]]:
    """The calls of each write: from one process, up to the last interceptor's close."""
    writes: list[list[dict[str, Any]]] = []
    for path in folder.glob("*.jsonl"):
        calls = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        names = [call["by"] for call in calls]
        last, begin = names[-1], 0
        for at, call in enumerate(calls, 1):
            if (call["by"], call["method"]) == (last, "close"):
                writes.append(calls[begin:at])
                begin = at
        assert begin == len(calls), "a write ended without its close"
    return writes


def assert_each_write_is_whole(writes: list[list[dict[str, Any]]], names: str) -> None:
    for calls in writes:
        sent = [(call["by"], call["method"]) for call in calls[: -2 * len(names)]]
        assert sent == [(name, "on_send") for _ in range(len(sent) // len(names)) for name in names]
        assert [(call["by"], call["method"]) for call in calls[-2 * len(names) :]] == [
            *((name, "on_acknowledgement") for name in names),
            *((name, "close") for name in names),
        ]
        # Each interceptor is one object for the whole of a write.
        assert len({(call["by"], call["own"]) for call in calls}) == len(names)


def test_a_batch_goes_through_interceptors_in_order_and_each_task_has_its_own(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, folder = topic(2), tmp_path / "traces"
    kafka_sink.register(session, interceptors=[tracing(folder, "a"), tracing(folder, "b")])
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    # Three tasks of two Arrow batches, and one task without rows, on two workers.
    frame = numbers(session, 60, 3).union(numbers(session, 1, 1).where("value = 'none'"))
    save(frame, **to(kafka, name))
    expected = Counter(f"{i}a{number}b{number}" for i in range(60) for number in [1 + i % 20 // 10])
    assert values(kafka, name) == expected
    writes = traces(folder)
    assert_each_write_is_whole(writes, "ab")
    assert sorted(len(calls) for calls in writes) == [4, 8, 8, 8]
    assert sum(call["rows"] for calls in writes for call in calls if call["method"] == "on_acknowledgement") == 2 * 60


@pytest.mark.long
def test_a_stream_has_new_interceptors_for_each_micro_batch(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, folder = topic(1), tmp_path / "traces"
    kafka_sink.register(session, interceptors=[tracing(folder, "a")])
    options = to(kafka, name)
    with stream(session, tmp_path, 3, **options) as finish:
        finish()
    assert values(kafka, name) == Counter(f"{i}a1" for i in range(30))
    assert_each_write_is_whole(traces(folder), "a")


@pytest.mark.long
def test_a_tally_sums_up_batches_and_streams_beside_other_interceptors(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    tally = Tally(session)
    kafka_sink.register(session, interceptors=[tally, tracing(tmp_path / "traces", "", raises_at="77")])
    options = to(kafka, name)
    save(numbers(session, 50, 2), **options)
    with stream(session, tmp_path, 3, **options) as finish:
        finish()
    # A task that fails is not in the sum; it fails before it sends a row.
    failure_of(numbers(session, 100, 1).where("value = '77'"), **options)
    (receipt,) = tally.value.values()
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset) == (80, 0, 79)


def test_partitions_are_those_of_what_interceptors_return(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    class ToTwo(kafka_sink.Interceptor):
        def on_send(self, arrow_batch: Any) -> Any:
            import pyarrow as pa

            twos = pa.array([2] * arrow_batch.num_rows, pa.int32())
            return arrow_batch.append_column("partition", twos)

    name = topic(3)
    kafka_sink.register(session, interceptors=[ToTwo()])
    save(numbers(session, 9, 2), **to(kafka, name))
    assert {partition for partition, _, _ in read_topic(kafka.bootstrap_servers, name, 30)} == {2}


def test_a_batch_whose_interceptor_raises_fails_and_is_whole_when_it_runs_again(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, folder = topic(1), tmp_path / "traces"
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    options = to(kafka, name)
    kafka_sink.register(session, interceptors=[tracing(folder, "", raises_at="25")])
    message = failure_of(numbers(session, 40, 1), **options)
    assert "InterceptorFailed" in message
    assert "Tracing: on_send raised RuntimeError" in message
    written = values(kafka, name)
    assert set(written) <= set(map(str, range(20))), "rows of the Arrow batch that raised, or behind it, were sent"
    (calls,) = traces(folder)
    assert [call["method"] for call in calls] == ["on_send"] * 3 + ["on_acknowledgement", "close"]
    assert calls[3]["error"] == "InterceptorFailed"
    kafka_sink.register(session)
    save(numbers(session, 40, 1), **options)
    again = values(kafka, name)
    again.subtract(written)
    assert again == Counter(map(str, range(40)))


@pytest.mark.long
def test_a_stream_whose_interceptor_raises_does_not_go_on_without_its_rows(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, folder = topic(1), tmp_path / "traces"
    options = to(kafka, name)
    kafka_sink.register(session, interceptors=[tracing(folder, "", raises_at="25")])
    with stream(session, tmp_path, 4, **options) as finish, pytest.raises(PySparkException, match="on_send raised"):
        finish()
    before = values(kafka, name)
    assert "25" not in before
    kafka_sink.register(session)
    with stream(session, tmp_path, 0, **options) as finish:
        finish()
    assert set(values(kafka, name)) == set(map(str, range(40)))


def test_interceptors_that_raise_at_the_end_change_nothing(
    session: SparkSession, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    class Late(kafka_sink.Interceptor):
        def on_acknowledgement(self, receipts: Any, error: Exception | None) -> None:
            raise RuntimeError("too late")

        def close(self) -> None:
            raise RuntimeError("later still")

    name = topic(1)
    kafka_sink.register(session, interceptors=[Late()])
    save(numbers(session, 10, 2), **to(kafka, name))
    assert values(kafka, name) == Counter(map(str, range(10)))

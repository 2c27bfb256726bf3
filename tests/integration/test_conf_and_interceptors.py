"""Options from Spark's conf, and interceptors, with real Spark and a real broker; confluent-kafka reads back."""

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
from spark_writes import Here, finish, numbers


@pytest.fixture
def here(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> Here:
    """The session's conf and what is registered in it are its own."""
    return Here(spark.newSession(), kafka, topic, tmp_path)


def set_conf(here: Here, **options: str) -> None:
    for name, text in options.items():
        here.spark.conf.set(f"spark.pykafka.{name}", text)


def save(frame: DataFrame, **options: str) -> None:
    frame.write.format("pykafka").mode("append").options(**options).save()


def failure_of(frame: DataFrame, **options: str) -> str:
    with pytest.raises(PySparkException) as failure:
        save(frame, **options)
    return str(failure.value)


def values(here: Here, topic: str) -> Counter[str]:
    return Counter(map(bytes.decode, here.values(topic)))


@contextmanager
def stream(here: Here, files: int, **options: str) -> Iterator[Callable[[], None]]:
    """A query that has begun over `files` times ten new rows, in files of five, two a micro-batch. What it yields waits
    for the end and raises the query's error."""
    for number in range(files):
        here.numbers(10, 2, first=10 * number).write.mode("append").parquet(str(here.folder / "incoming"))
    rows = here.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 2)
    writer = rows.parquet(str(here.folder / "incoming")).writeStream.format("pykafka").options(**options)
    query = writer.option("checkpointLocation", str(here.folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        yield lambda: finish(query)
    finally:
        query.stop()


def test_a_batch_write_takes_from_the_conf_what_its_options_do_not_say(here: Here) -> None:
    in_conf, in_option = here.topic(1), here.topic(1)
    set_conf(here, **here.to(in_conf))
    save(here.numbers(10, 2))
    save(here.numbers(20, 2), topic=in_option)
    assert values(here, in_conf) == Counter(map(str, range(10)))
    assert values(here, in_option) == Counter(map(str, range(20)))
    # Another session has another conf.
    assert "'kafka.bootstrap.servers' is required" in failure_of(numbers(here.spark.newSession(), 1), topic=in_conf)


@pytest.mark.long
def test_a_stream_keeps_the_conf_that_it_was_started_with(here: Here) -> None:
    name = here.topic(1)
    set_conf(here, **{"kafka.bootstrap.servers": here.servers, "kafka.acks": "1"})
    with stream(here, 3, topic=name) as finish:
        set_conf(here, **{"kafka.bootstrap.servers": "localhost:1", "kafka.acks": "none"})
        finish()
    assert values(here, name) == Counter(map(str, range(30)))


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"kafka.lingerms": "5"}, "UnknownOption: unknown option 'spark.pykafka.kafka.lingerms'"),
        ({"kafka.sasl.jaas.config": "hunter2;"}, "InvalidOption: option 'spark.pykafka.kafka.sasl.jaas.config'"),
    ],
)
def test_a_wrong_conf_is_an_error_before_any_row_and_shows_no_secret(
    here: Here, conf: dict[str, str], says: str
) -> None:
    set_conf(here, **conf)
    # Nothing listens there: the error comes although no broker is asked.
    message = failure_of(here.numbers(1), **{"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
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


def test_a_batch_goes_through_interceptors_in_order_and_each_task_has_its_own(here: Here) -> None:
    name, folder = here.topic(2), here.folder / "traces"
    kafka_sink.register(here.spark, interceptors=[tracing(folder, "a"), tracing(folder, "b")])
    here.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    # Three tasks of two Arrow batches, and one task without rows, on two workers.
    here.save(here.numbers(60, 3).union(here.numbers(1).where("value = 'none'")), name)
    expected = Counter(f"{i}a{number}b{number}" for i in range(60) for number in [1 + i % 20 // 10])
    assert values(here, name) == expected
    writes = traces(folder)
    assert_each_write_is_whole(writes, "ab")
    assert sorted(len(calls) for calls in writes) == [4, 8, 8, 8]
    assert sum(call["rows"] for calls in writes for call in calls if call["method"] == "on_acknowledgement") == 2 * 60


@pytest.mark.long
def test_a_stream_has_new_interceptors_for_each_micro_batch_and_a_tally_sums_them_up(here: Here) -> None:
    name, folder, tally = here.topic(1), here.folder / "traces", Tally(here.spark)
    kafka_sink.register(here.spark, interceptors=[tally, tracing(folder, "a", raises_at="77")])
    with stream(here, 3, **here.to(name)) as finish:
        finish()
    assert values(here, name) == Counter(f"{i}a1" for i in range(30))
    assert_each_write_is_whole(traces(folder), "a")
    here.save(here.numbers(50, 2), name)
    # A task that fails is not in the sum; it fails before it sends a row.
    here.failure_of(here.numbers(100).where("value = '77'"), name)
    (receipt,) = tally.value.values()
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset) == (80, 0, 79)


def test_partitions_are_those_of_what_interceptors_return_and_their_end_changes_nothing(here: Here) -> None:
    class ToTwo(kafka_sink.Interceptor):
        def on_send(self, arrow_batch: Any) -> Any:
            import pyarrow as pa

            return arrow_batch.append_column("partition", pa.array([2] * arrow_batch.num_rows, pa.int32()))

        def on_acknowledgement(self, receipts: Any, error: Exception | None) -> None:
            raise RuntimeError("too late")

        def close(self) -> None:
            raise RuntimeError("later still")

    name = here.topic(3)
    kafka_sink.register(here.spark, interceptors=[ToTwo()])
    here.save(here.numbers(9, 2), name)
    found = [(partition, int(record.value or b"")) for partition, _, record in here.records(name)]
    assert sorted(found) == [(2, number) for number in range(9)]


def test_a_batch_whose_interceptor_raises_fails_and_is_whole_when_it_runs_again(here: Here) -> None:
    name, folder = here.topic(1), here.folder / "traces"
    here.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    kafka_sink.register(here.spark, interceptors=[tracing(folder, "", raises_at="25")])
    message = here.failure_of(here.numbers(40), name)
    assert "InterceptorFailed" in message
    assert "Tracing: on_send raised RuntimeError" in message
    written = values(here, name)
    assert set(written) <= set(map(str, range(20))), "rows of the Arrow batch that raised, or behind it, were sent"
    (calls,) = traces(folder)
    assert [call["method"] for call in calls] == ["on_send"] * 3 + ["on_acknowledgement", "close"]
    assert calls[3]["error"] == "InterceptorFailed"
    kafka_sink.register(here.spark)
    here.save(here.numbers(40), name)
    again = values(here, name)
    again.subtract(written)
    assert again == Counter(map(str, range(40)))


@pytest.mark.long
def test_a_stream_whose_interceptor_raises_does_not_go_on_without_its_rows(here: Here) -> None:
    name = here.topic(1)
    kafka_sink.register(here.spark, interceptors=[tracing(here.folder / "traces", "", raises_at="25")])
    with stream(here, 4, **here.to(name)) as finish, pytest.raises(PySparkException, match="on_send raised"):
        finish()
    assert "25" not in values(here, name)
    kafka_sink.register(here.spark)
    with stream(here, 0, **here.to(name)) as finish:
        finish()
    assert set(values(here, name)) == set(map(str, range(40)))

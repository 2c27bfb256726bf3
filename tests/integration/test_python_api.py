"""What a new user tries in Python, on a real Spark: threads, errors, update mode, and what the format is not for."""

import io
import json
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from applications import told_by
from broker_admin import read_values
from effort import variants
from exactly_once_runs import is_unrecorded
from kafka_sink import errors
from kafka_sink.broker import LocalKafka
from kafka_sink.monitoring.listener import ProgressLine, ProgressListener, StreamTally
from spark_writes import Here, error_of, numbers
from waiting import wait_until

DEADLINE_S = 180
# Of the topic that is not there: brokers that deny it end the wait, so this is for a machine that is busy.
SOON = {"validate": False, "max_block_ms": 30_000}


def rows_in(here: Here, topic: str) -> list[str]:
    return [value.decode() for value in here.values(topic)]


def active(spark: SparkSession) -> Any:
    """What the JVM has as this thread's session; None: none."""
    found = SparkSession._get_j_spark_session_class(spark._jvm).getActiveSession()
    return found.get() if found.isDefined() else None


def test_exports_run_in_threads_and_leave_them_the_session_they_had(here: Here, own_session: SparkSession) -> None:
    name = here.topic(2)

    def export(frame: DataFrame) -> Any:
        kafka_sink.export(frame, name, bootstrap_servers=here.servers)
        return active(here.spark)

    def fail(frame: DataFrame) -> Any:
        with pytest.raises(errors.TopicNotFound):
            kafka_sink.export(frame, "nobody-made-this", bootstrap_servers=here.servers, **SOON)
        return active(here.spark)

    def of_another(_: int) -> bool:
        SparkSession._get_j_spark_session_class(here.spark._jvm).setActiveSession(here.spark._jsparkSession)
        return bool(export(numbers(own_session, 3)).equals(here.spark._jsparkSession))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(export, [here.numbers(2), numbers(own_session, 2)])) == [None, None]
        assert list(pool.map(of_another, range(2))) == [True, True]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(fail, here.numbers(1)).result() is None
    left: list[Any] = []
    thread = InheritableThread(target=lambda: left.append(export(here.numbers(1))))
    thread.start()
    thread.join()
    assert left == [None]
    assert rows_in(here, name) == sorted([*"01" * 2, *"012" * 2, "0"])


@pytest.mark.long
def test_in_a_thread_sparks_own_writes_need_its_session_made_active(here: Here) -> None:
    """One line in the thread does it, and `register` does not. Reads need nothing."""
    name = here.topic(1)
    options = {"kafka.bootstrap.servers": here.servers, "topic": name, "checkpointLocation": str(here.folder / "point")}
    source, frame = here.arriving(here.numbers(2)), here.numbers(1)

    def write() -> None:
        frame.write.format("pykafka").mode("append").options(**options).save()

    def stream() -> None:
        query = source.writeStream.format("pykafka").options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)

    def read() -> int:
        asked = {"kafka.bootstrap.servers": here.servers, "subscribe": name}
        assert here.spark.readStream.format("pykafka").options(**asked).load().isStreaming
        return here.spark.read.format("pykafka").options(**asked).load().count()

    kafka_sink.register(here.spark)
    for action in write, stream:
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
                pool.submit(action).result()
            pool.submit(here.spark.createDataFrame, [], "x INT").result()
            pool.submit(action).result()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(read).result() == 3


def test_a_stream_starts_in_a_thread(here: Here) -> None:
    name = here.topic(1)
    source = here.arriving(here.numbers(5))

    def start() -> Any:
        return kafka_sink.to_kafka(
            source, name, bootstrap_servers=here.servers, trigger={"availableNow": True},
            checkpoint_location=str(here.folder / "checkpoint"),
        ), active(here.spark)  # fmt: skip

    with ThreadPoolExecutor(1) as pool:
        query, left = pool.submit(start).result()
    assert query.awaitTermination(DEADLINE_S) and left is None
    assert rows_in(here, name) == list("01234")


def test_an_export_raises_the_error_itself_from_plan_task_and_commit(here: Here) -> None:
    name, servers = here.topic(1), {"bootstrap_servers": here.servers}
    rows = here.numbers(4)
    with pytest.raises(errors.InvalidOption, match="900000") as in_plan:
        kafka_sink.export(rows, name, exactly_once=True, validate=False, transaction_timeout_ms=10**8, **servers)
    assert (in_plan.value.option, in_plan.value.value) == ("kafka.transaction.timeout.ms", "100000000")
    with pytest.raises(errors.TopicNotFound) as in_task:
        kafka_sink.export(rows, "nobody-made-this", **servers, **SOON)
    assert in_task.value.topic == "nobody-made-this" and 0 < in_task.value.waited_ms <= 30_000
    # Each task is within the fraction's limit for small ones; all together are not.
    bad = here.spark.range(0, 40, 1, 2).selectExpr("CAST(id AS STRING) AS value", "IF(id % 20 = 3, 99, 0) AS partition")
    with pytest.raises(errors.TooManyBadRows) as in_commit:
        kafka_sink.export(bad, name, exactly_once=True, validate=False, bad_rows="drop", max_bad_rows=1, **servers)
    assert (dict(in_commit.value.counts), in_commit.value.allowed) == ({"PartitionOutOfRange": 2}, 1)
    for raised in (in_plan, in_task, in_commit):
        assert isinstance(raised.value.__cause__, PySparkException)
        assert str(raised.value) in str(raised.value.__cause__) and "\n" not in str(raised.value)
        assert raised.value.__cause__ is not None and kafka_sink.error_of(raised.value.__cause__) is not raised.value
    assert rows_in(here, name) == []


@pytest.fixture
def ticks(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    return source.selectExpr("CAST(value AS STRING) AS value")


@pytest.mark.parametrize("mode", variants("update", "append"))
def test_a_streams_error_is_raised_asked_for_and_printed(
    spark: SparkSession, ticks: DataFrame, kafka: LocalKafka, tmp_path: Path, mode: str
) -> None:
    file = io.StringIO()
    listener = ProgressListener(StreamTally(spark), ProgressLine(file))
    spark.streams.addListener(listener)
    try:
        query = kafka_sink.to_kafka(
            ticks, "nobody-made-this", bootstrap_servers=kafka.bootstrap_servers, output_mode=mode,
            checkpoint_location=str(tmp_path), **SOON,
        )  # fmt: skip
        with pytest.raises(errors.TopicNotFound) as raised:
            query.awaitTermination(DEADLINE_S)
        # A query of the test before may end meanwhile.
        wait_until(lambda: f"{query.id} has failed" in file.getvalue(), DEADLINE_S, "the listener hears of the end")
    finally:
        spark.streams.removeListener(listener)
    assert isinstance(raised.value.__cause__, StreamingQueryException)
    assert raised.value.topic == "nobody-made-this"
    for failure in (query, query.exception(), raised.value.__cause__):
        error = kafka_sink.error_of(failure)
        assert type(error) is errors.TopicNotFound and str(error) == str(raised.value)
    assert f"{query.id} has failed: TopicNotFound: {raised.value}\n" in file.getvalue()
    assert file.getvalue().count(str(query.id)) == 1


def test_a_failure_of_the_users_own_code_is_raised_as_spark_brings_it(here: Here) -> None:
    """Its message quotes a row, which quotes an error of the sink."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        raise ValueError("bad row\nkafka_sink.errors.TornBatch: all is lost\npykafka: {}")
        yield from batches

    rows = here.numbers(1).mapInArrow(fail, "value STRING")
    with pytest.raises(PySparkException, match="TornBatch") as raised:
        kafka_sink.export(rows, here.topic(1), bootstrap_servers=here.servers)
    assert kafka_sink.error_of(raised.value) is None


class Sums:
    """A running aggregation over files, written in update mode."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder

    def put(self, *numbers: int) -> None:
        frame = self.spark.createDataFrame([(number,) for number in numbers], "n INT").coalesce(1)
        frame.write.mode("append").parquet(str(self.folder / "incoming"))

    def write(self, topic: str, checkpoint: str, **more: Any) -> Any:
        source = self.spark.readStream.schema("n INT").parquet(str(self.folder / "incoming"))
        sums = source.selectExpr("n % 2 AS k", "n").groupBy("k").sum("n").withColumnRenamed("sum(n)", "s")
        query = kafka_sink.to_kafka(
            sums, topic, key="k", value="json", output_mode="update", trigger={"availableNow": True},
            checkpoint_location=str(self.folder / checkpoint), bootstrap_servers=self.kafka.bootstrap_servers, **more,
        )  # fmt: skip
        assert query.awaitTermination(DEADLINE_S)
        return query

    def seen(self, topic: str) -> list[tuple[int, int]]:
        told = map(json.loads, read_values(self.kafka, topic).elements())
        return sorted((each["k"], each["s"]) for each in told)


@pytest.fixture
def sums(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Sums:
    return Sums(spark, kafka, tmp_path)


@pytest.mark.parametrize("exactly_once", variants(True, False))
def test_update_mode_just_works_and_goes_on_after_a_restart(
    sums: Sums, topic: Callable[..., str], exactly_once: bool, tmp_path: Path
) -> None:
    name = topic(2)
    for numbers_in in ([1, 2, 3], [4], [5]):
        sums.put(*numbers_in)
        query = sums.write(name, "checkpoint", exactly_once=exactly_once, receipts_path=tmp_path / "receipts")
    assert sums.seen(name) == [(0, 2), (0, 6), (1, 4), (1, 9)]
    receipts = kafka_sink.receipts(sums.spark, str(tmp_path / "receipts")).where("topic IS NOT NULL")
    assert receipts.groupBy().sum("record_count").collect()[0][0] == 4
    if exactly_once:
        # The micro-batches' numbers, under the query's name.
        written = {(row.query_id, row.batch_id) for row in receipts.collect()}
        assert written == {(f"txnAppId:pykafka-{query.id}", number) for number in range(3)}


@pytest.mark.long
def test_a_micro_batch_that_spark_did_not_record_is_written_once_in_update_mode(
    sums: Sums, topic: Callable[..., str], tmp_path: Path
) -> None:
    once, twice = topic(1), topic(1)
    sums.put(1, 2)
    for name, checkpoint, exactly_once in ((once, "once", True), (twice, "twice", False)):
        sums.write(name, checkpoint, exactly_once=exactly_once)
        is_unrecorded(tmp_path, checkpoint)
        sums.write(name, checkpoint, exactly_once=exactly_once)
    assert sums.seen(once) == [(0, 2), (1, 1)]
    assert sums.seen(twice) == [(0, 2), (0, 2), (1, 1), (1, 1)]


@pytest.mark.long
def test_a_new_checkpoint_is_a_new_query_in_update_mode(sums: Sums, topic: Callable[..., str], tmp_path: Path) -> None:
    """Numbered from 0 again: known by the path, its micro-batches would be taken for the old one's and left out."""
    name = topic(1)
    sums.put(1, 2)
    sums.write(name, "checkpoint", exactly_once=True, transactional_id_prefix="sums")
    (tmp_path / "checkpoint").rename(tmp_path / "old")
    sums.write(name, "checkpoint", exactly_once=True, transactional_id_prefix="sums")
    assert sums.seen(name) == [(0, 2), (0, 2), (1, 1), (1, 1)]


def test_what_update_mode_needs_is_told_before_the_query_starts(here: Here, ticks: DataFrame) -> None:
    name, servers = here.topic(1), {"bootstrap_servers": here.servers}
    with pytest.raises(errors.InvalidArgument, match="checkpoint_location"):
        kafka_sink.to_kafka(ticks, name, output_mode="update", exactly_once=True, **servers)
    with pytest.raises(errors.WriteModeUnsupported):
        kafka_sink.to_kafka(ticks, name, output_mode="complete", **servers)
    with pytest.raises(errors.InvalidArgument, match="output_mode"):
        kafka_sink.to_kafka(ticks, name, output_mode="upsert", **servers)
    assert here.spark.streams.active == []


def test_a_table_is_not_made_and_the_error_says_how_to_read(spark: SparkSession) -> None:
    error = error_of(lambda: spark.sql("CREATE TABLE no_columns USING pykafka"))
    assert isinstance(error, errors.ReadUnsupported) and 'spark.readStream.format("pykafka")' in str(error)


@pytest.mark.long
def test_a_read_without_options_is_told_what_is_missing(spark: SparkSession) -> None:
    reader = spark.read.format("pykafka")
    for attempt in (reader.load, lambda: reader.schema("value BINARY").load().collect()):
        assert isinstance(error_of(attempt), errors.MissingOption)


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[Callable[[], set[str]]]:
    yield lambda: {row.tableName for row in spark.sql("SHOW TABLES").collect()}
    spark.sql("DROP TABLE IF EXISTS with_columns")


@pytest.mark.parametrize("exactly_once", variants(True, False))
def test_a_write_that_would_make_a_table_is_refused_and_leaves_nothing(
    here: Here, tables: Any, exactly_once: bool
) -> None:
    name = here.topic(1)
    options = here.to(name)
    options |= {"deliveryGuarantee": "exactly-once"} if exactly_once else {}
    writer = here.numbers(3).write.format("pykafka").options(**options)
    for call in (
        lambda: writer.mode("append").saveAsTable("saved"),
        lambda: writer.mode("errorifexists").saveAsTable("saved"),
        here.numbers(3).writeTo("written").using("pykafka").options(**options).create,
    ):
        assert isinstance(error_of(call), errors.TableUnsupported)
    assert tables().isdisjoint({"saved", "written"})
    assert rows_in(here, name) == []
    writer.mode("append").save()
    assert rows_in(here, name) == list("012")


@pytest.mark.long
def test_a_table_with_columns_is_made_by_spark_and_cannot_be_read_or_filled(here: Here, tables: Any) -> None:
    """Spark asks nothing of the format for it, and gives its options to no reader: as docs/from-spark-kafka.md says."""
    name = here.topic(1)
    options = f"'kafka.bootstrap.servers' '{here.servers}', topic '{name}'"
    here.spark.sql(f"CREATE TABLE with_columns (value STRING) USING pykafka OPTIONS ({options})")
    assert "with_columns" in tables()
    read = error_of(here.spark.sql("SELECT * FROM with_columns").collect)
    assert isinstance(read, errors.ColumnTypeMismatch | errors.MissingOption)
    assert isinstance(error_of(lambda: here.spark.sql("INSERT INTO with_columns VALUES ('a')")), errors.MissingOption)
    assert rows_in(here, name) == []


@pytest.mark.long
@pytest.mark.parametrize("way", ["export", "register"])
def test_an_environment_that_is_not_activated_works_on_a_local_master(here: Here, way: str) -> None:
    """Spark's own look-up starts a Python that has neither the package nor pyarrow."""
    name = here.topic(1)
    venv.create(here.folder / "other")
    told = told_by("apps.py", "not_activated", here.servers, name, here.folder / "other" / "bin", way)
    assert told["before"], "Spark finds the format by itself"
    assert told["there"] == (6 if way == "export" else 3)


class Lazy:
    """As a frame of polars or duckdb."""

    def __init__(self, table: pa.Table) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def test_a_frame_of_another_library_is_written(here: Here) -> None:
    name = here.topic(1)
    pandas = pd.DataFrame({"n": [1, 2], "amount": [0.5, float("nan")], "at": pd.to_datetime(["2026-11-01", None])})
    for frame in (pandas.set_index("n", drop=False), pa.table({"n": [3]}), Lazy(pa.table({"n": [4]}))):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(kafka_sink.export, frame, name, value="json", bootstrap_servers=here.servers).result()
    first, *others = map(json.loads, rows_in(here, name))
    assert first.pop("at").startswith("2026-11-01T00:00:00")
    assert [first, *others] == [{"n": 1, "amount": 0.5}, {"n": 2}, {"n": 3}, {"n": 4}]
    view = pa.array(["a", None], pa.string_view())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.uint32()), view.slice(0, 1))
    texts, counts = pa.array([["b"], []], pa.large_list(pa.string_view())), pa.array([2**64 - 1, 0], pa.uint64())
    of_polars = pa.table({"s": view, "c": coded, "l": texts, "u": counts})
    for frame in (Lazy(of_polars), of_polars.slice(2)):
        kafka_sink.export(frame, name, value="json", bootstrap_servers=here.servers)
    nulls, full = sorted((row for row in map(json.loads, rows_in(here, name)) if "u" in row), key=len)
    assert (full, nulls) == ({"s": "a", "c": "a", "l": ["b"], "u": 2**64 - 1}, {"l": [], "u": 0})
    with pytest.raises(TypeError, match=r"df is a pandas\.DataFrame that Spark cannot take: .*column a"):
        kafka_sink.export(pd.DataFrame({"a": [1, "x"]}), name, bootstrap_servers=here.servers)
    assert kafka_sink.validate(pa.table({"value": ["x"]}), name, bootstrap_servers=here.servers).ok


@pytest.mark.parametrize("call", [kafka_sink.export, kafka_sink.to_kafka, kafka_sink.validate])
def test_a_list_is_no_data_frame(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"df is a DataFrame, not list: spark\.createDataFrame"):
        call([1, 2], "orders", bootstrap_servers="localhost:1")

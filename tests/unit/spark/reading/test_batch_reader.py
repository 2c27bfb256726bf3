"""The reader of a batch, as Spark calls it: the plan, and the rows of a range, over scripted brokers."""

import os
import pickle
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyspark.cloudpickle as cloudpickle
import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from kafka_sink import Interceptor, errors
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse, SharedFetchRequest
from kafka_sink.kafka.statistics import ReadStatistics
from kafka_sink.records.record_batch import AbortedTransaction
from kafka_sink.spark.reading import batch_reader
from kafka_sink.spark.reading.batch_reader import KafkaBatchReader
from kafka_sink.spark.source import KafkaDataSource, source_with
from record_sets import Batch, marker, plain
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, connect_reads, serve

OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
OUT_OF_RANGE = 1


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, {("t", 0): ScriptedLog(0, 6), ("t", 1): ScriptedLog(0, 0)})
    made.topic_ids["t"] = uuid.UUID(int=1)
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(kafka, monkeypatch)


def holds(kafka: ScriptedKafka, *batches: Batch, aborted: tuple[AbortedTransaction, ...] = ()) -> None:
    """Let the log have these batches. An answer has those from the wanted offset on."""

    def answer(request: FetchRequest) -> FetchResponse:
        wanted = b"".join(bytes(batch) for batch in batches if batch.last_offset >= request.offset)
        of_level = aborted if request.isolation_level.value else ()
        return FetchResponse(0, 0, 6, 6, 0, aborted_transactions=of_level, records=memoryview(wanted))

    kafka.always(FetchRequest, answer)


def reader(*columns: str, interceptors: tuple[Interceptor, ...] = (), **options: str) -> Any:
    """The reader, as it arrives in a worker."""
    source = source_with(interceptors)(OPTIONS | options)
    schema = source.schema()
    if columns:
        schema = StructType([schema[name] for name in columns])
    return source.reader(schema)


def rows_of(made: Any) -> list[dict[str, Any]]:
    """All rows, each range by a reader of its own, as Spark's tasks have."""
    found: list[dict[str, Any]] = []
    for partition in made.partitions():
        sent, part = pickle.loads(pickle.dumps((made, partition)))
        for batch in sent.read(part):
            assert isinstance(batch, pa.RecordBatch)
            found += batch.to_pylist()
    return found


def test_rows_have_the_columns_of_sparks_source(kafka: ScriptedKafka) -> None:
    holds(kafka, plain(b"a", None, b"c"), plain(b"d", b"e", b"f", base_offset=3, codec="zstd"))
    found = rows_of(reader())
    assert [row["value"] for row in found] == [b"a", None, b"c", b"d", b"e", b"f"]
    assert [row["offset"] for row in found] == list(range(6))
    assert {(row["topic"], row["partition"], row["timestampType"], row["key"]) for row in found} == {("t", 0, 0, None)}
    assert list(found[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert list(rows_of(reader(includeHeaders="true"))[0])[-1] == "headers"
    assert rows_of(reader("offset", "topic")) == [{"offset": offset, "topic": "t"} for offset in range(6)]


@pytest.mark.parametrize(("batch", "error", "words"), [
    (plain(b"x", base_offset=2, crc=1), errors.RecordsCorrupt, "the batch at offset 2 of t-0 is damaged: .*CRC"),
    (plain(b"x", base_offset=2, magic=1, crc=1), errors.MessageFormatTooOld,
     "offset 2 of t-0 has message format 1.*format"),
    (plain(b"x", base_offset=2, stored=b"junk", codec="zstd"), errors.RecordsCorrupt, "offset 2 of t-0"),
])  # fmt: skip
def test_a_batch_that_cannot_be_read_is_named_and_not_left_out(
    kafka: ScriptedKafka, batch: Batch, error: type[errors.KafkaSinkError], words: str
) -> None:
    holds(kafka, plain(b"a", b"b"), batch, plain(b"c", b"d", b"e", base_offset=3))
    for lenient in ("true", "false"):
        with pytest.raises(error, match=words) as failure:
            rows_of(reader(failOnDataLoss=lenient))
        assert "No row is left out silently: the read fails instead." in str(failure.value)
    if "CRC" in words:
        assert len(rows_of(reader(**{"kafka.check.crcs": "false"}))) == 6


def test_what_is_left_out_is_reported(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture, calls: list[object]
) -> None:
    rest = plain(b"d", b"e", b"f", base_offset=3)
    holds(kafka, rest)
    parts = (made := reader("offset", failOnDataLoss="false", interceptors=(Noting(),))).partitions()
    serve(kafka, {("t", 0): ScriptedLog(3, 6)})
    kafka.script(FetchRequest, FetchResponse(0, OUT_OF_RANGE))
    (batch,) = made.read(parts[0])
    assert batch.column("offset").to_pylist() == [3, 4, 5]
    assert "offsets 0 to 2 of t-0 are left out: deleted (failOnDataLoss is false)" in caplog.text
    assert calls == [ReadStatistics("t", 0, 3, len(bytes(rest)), left_out_count=3), "close"]
    strict = reader("offset")
    kafka.script(FetchRequest, FetchResponse(0, OUT_OF_RANGE))
    with pytest.raises(errors.OffsetsLost, match=r"offsets 0 to 2 of t-0.*Records are missing"):
        list(strict.read(parts[0]))


class Noting(Interceptor):
    """Takes note of its calls, in `calls`."""

    calls: ClassVar[list[object]] = []

    def on_read(self, statistics: ReadStatistics) -> None:
        self.calls.append(statistics)

    def close(self) -> None:
        self.calls.append("close")


class Raising(Interceptor):
    def on_read(self, statistics: ReadStatistics) -> None:
        raise RuntimeError("of a test")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    noted: list[object] = []
    monkeypatch.setattr(Noting, "calls", noted)
    return noted


def test_each_range_is_reported_at_its_end(kafka: ScriptedKafka, calls: list[object]) -> None:
    both = plain(b"a", b"b", b"c"), plain(b"d", b"e", b"f", base_offset=3, codec="zstd")
    holds(kafka, *both)
    assert len(rows_of(reader("offset", minPartitions="2", interceptors=(Noting(),)))) == 6
    first, second = (len(bytes(batch)) for batch in both)
    # The answer to the first range has the batch behind it, too.
    assert calls == [ReadStatistics("t", 0, 3, first + second), "close", ReadStatistics("t", 0, 3, second), "close"]
    del calls[:]
    only = marker(1, 0, 1, last_offset_delta=5)
    holds(kafka, only)
    assert rows_of(reader(interceptors=(Noting(),))) == []
    assert calls == [ReadStatistics("t", 0, 0, len(bytes(only))), "close"], "a range without rows"


def test_a_task_of_several_partitions_tells_each_of_them(
    kafka: ScriptedKafka, calls: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    serve(kafka, {("t", number): ScriptedLog(0, 3) for number in range(5)})
    batches = {number: plain(b"a", b"b", b"%d" % number) for number in range(5)}

    def answer(request: FetchRequest) -> FetchResponse:
        if request.partition == 3 and request.offset < 2:
            return FetchResponse(0, OUT_OF_RANGE)
        return FetchResponse(0, 0, 3, 3, 0, records=memoryview(bytes(batches[request.partition])))

    kafka.always(FetchRequest, answer)
    made = reader("partition", "offset", failOnDataLoss="false", maxPartitions="2", interceptors=(Noting(),))
    parts = made.partitions()
    assert [[each.partition for each in part.ranges] for part in parts] == [[0, 2, 4], [1, 3]]
    serve(kafka, {("t", 3): ScriptedLog(2, 3)})
    found = Counter(
        (row["partition"], row["offset"]) for part in parts for b in made.read(part) for row in b.to_pylist()
    )
    assert found == Counter((number, offset) for number in range(5) for offset in range(2 * (number == 3), 3))
    size = len(bytes(batches[0]))
    assert calls == [
        *(ReadStatistics("t", number, 3, size) for number in (0, 2, 4)), "close",
        ReadStatistics("t", 1, 3, size), ReadStatistics("t", 3, 1, size, 2), "close",
    ]  # fmt: skip
    assert "offsets 0 to 1 of t-3 are left out: deleted (failOnDataLoss is false)" in caplog.text
    batches[2] = plain(b"a", b"b", b"c", crc=1)
    with pytest.raises(errors.RecordsCorrupt, match="offset 0 of t-2 is damaged"):
        list(made.read(parts[0]))


def test_many_partitions_are_one_arrow_batch(kafka: ScriptedKafka) -> None:
    serve(kafka, {("t", number): ScriptedLog(0, 50) for number in range(200)})

    def answer(request: FetchRequest) -> FetchResponse:
        values = [b"%d of %d" % (number, request.partition) for number in range(50)]
        codec = "zstd" if request.partition % 2 else "none"
        return FetchResponse(0, 0, 50, 50, 0, records=memoryview(bytes(plain(*values, codec=codec))))

    kafka.always(FetchRequest, answer)
    made = reader("topic", "offset", "partition", "value", maxPartitions="1")
    (part,) = made.partitions()
    (batch,) = made.read(part)
    found = sorted((row["partition"], row["offset"], row["value"], row["topic"]) for row in batch.to_pylist())
    assert found == [(part, at, b"%d of %d" % (at, part), "t") for part in range(200) for at in range(50)]


def test_a_range_that_fails_or_is_left_is_closed_and_not_reported(
    kafka: ScriptedKafka, calls: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    made = reader(interceptors=(Noting(),))
    (part,) = made.partitions()
    holds(kafka, plain(*(b"x",) * 6, crc=1))
    with pytest.raises(errors.RecordsCorrupt):
        list(made.read(part))
    assert calls == ["close"]
    holds(kafka, plain(*(b"x",) * 6))
    taken = made.read(part)
    next(taken)
    taken.close()
    assert calls == ["close"] * 2
    # An on_read that raises changes nothing.
    assert len(rows_of(reader("offset", interceptors=(Raising(), Noting())))) == 6
    assert len(calls) == 4
    assert "interceptor Raising: on_read raised; the task goes on without it" in caplog.text


@pytest.mark.parametrize(("fail", "error"), [
    (lambda: KafkaDataSource(OPTIONS | {"startingOffset": "earliest"}).schema(), errors.UnknownOption),
    (lambda: KafkaDataSource(OPTIONS | {"startingOffset": "earliest"}).reader(StructType()), errors.UnknownOption),
    (lambda: KafkaDataSource(OPTIONS).reader(StructType().add("id", "long")), errors.ColumnNotRead),
    (lambda: reader(subscribe="u").partitions(), errors.TopicToReadMissing),
])  # fmt: skip
def test_errors_of_a_plan_are_those_of_a_read(fail: Callable[[], object], error: type[errors.KafkaSinkError]) -> None:
    with pytest.raises(error) as failure:
        fail()
    assert "No row of this write was sent" not in str(failure.value)
    assert "the records stay in Kafka" in str(failure.value)
    # In the form that `kafka_sink.error_of` reads back.
    assert failure.value.__notes__


@pytest.mark.parametrize(("is_for_one_query", "left"), [(True, (4, 6)), (False, (0, 6))])
def test_pushed_filters_narrow_a_plan_that_no_other_query_gets(
    kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch, is_for_one_query: bool, left: tuple[int, int]
) -> None:
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("Spark before 4.1 pushes no filters down")
    monkeypatch.setattr(batch_reader, "IS_PLANNED_FOR_ONE_QUERY", is_for_one_query)
    made = reader("offset")
    filters = [datasource.GreaterThan(("offset",), 3), datasource.EqualTo(("value",), b"x")]
    # Spark applies all of them again.
    assert list(made.pushFilters(filters)) == filters
    assert [(each.first, each.end) for part in made.partitions() for each in part.ranges] == [left]


@pytest.mark.parametrize("method", ["pushFilters", "pushLimit", "pruneColumns"])
def test_spark_takes_the_reader_for_one_without_pushdown_unless_it_is_on(method: str) -> None:
    """data_source_pushdown_filters is called only with the setting; without it Spark refuses a reader of its own
    `pushFilters`, which it knows by `__func__`. It may as well look at the class."""
    made = pickle.loads(cloudpickle.dumps(reader()))
    assert isinstance(made, KafkaBatchReader)
    assert getattr(made, method).__func__ is getattr(DataSourceReader, method, None)
    assert getattr(KafkaBatchReader, method, None) is getattr(DataSourceReader, method, None)


class Worker:
    """As Spark's worker of SPARK-58551: what it sends to tasks after it has pushed a limit, or planned without."""

    def __init__(self, made: Any, limit: int, *, enable_limit_pushdown: bool) -> None:
        self.is_refused = not enable_limit_pushdown and self._is_own(made)
        self.is_pushed = limit >= 0 and self._is_own(made) and made.pushLimit(limit)
        sent, parts = pickle.loads(cloudpickle.dumps((made, made.partitions())))
        self.rows = [batch.num_rows for part in parts for batch in sent.read(part)]

    def _is_own(self, made: Any) -> bool:
        return getattr(made.pushLimit, "__func__", None) is not self._base

    _base = getattr(DataSourceReader, "pushLimit", None)


def test_a_task_ends_with_as_many_rows_as_a_query_wants(
    kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch, calls: list[object]
) -> None:
    monkeypatch.setattr(batch_reader, "IS_PLANNED_FOR_ONE_QUERY", True)
    batches = [plain(b"a", b"b", base_offset=offset) for offset in (0, 2, 4)]
    kafka.always(
        FetchRequest, lambda asked: FetchResponse(0, 0, 6, 6, 0, records=memoryview(bytes(batches[asked.offset // 2])))
    )
    for limit, rows in ((0, [0]), (1, [1]), (2, [2]), (3, [2, 1]), (6, [2, 2, 2]), (9, [2, 2, 2])):
        worker = Worker(reader(interceptors=(Noting(),)), limit, enable_limit_pushdown=True)
        assert (worker.is_refused, worker.is_pushed, worker.rows) == (False, True, rows), limit
        assert calls.pop() == "close"
    off = Worker(reader(), -1, enable_limit_pushdown=False)
    assert (off.is_refused, off.is_pushed, off.rows) == (False, False, [2, 2, 2])
    none = Worker(reader(), -1, enable_limit_pushdown=True)
    assert (none.is_refused, none.is_pushed, none.rows) == (False, False, [2, 2, 2])
    # Another query of the DataFrame would have the same plan.
    monkeypatch.setattr(batch_reader, "IS_PLANNED_FOR_ONE_QUERY", False)
    made = reader()
    assert not made.pushLimit(2)
    assert len(rows_of(made)) == 6


KIB = 1024


@pytest.mark.parametrize(("options", "sizes"), [
    ({}, [64, 256, 1024, 1024, 1024, 1024]), ({"maxPartitions": "1"}, [64, 256, 1024, 1024, 1024, 1024]),
    ({"kafka.max.partition.fetch.bytes": "100000"}, [64, 100_000 / KIB] + [100_000 / KIB] * 4),
    ({"kafka.max.partition.fetch.bytes": "2000"}, [2_000 / KIB] * 6),
])  # fmt: skip
def test_the_answers_to_a_query_that_may_want_a_few_rows_begin_small(
    kafka: ScriptedKafka, options: dict[str, str], sizes: list[float]
) -> None:
    partitions = 2 if "maxPartitions" in options else 1
    serve(kafka, {("t", 0): ScriptedLog(0, 6), ("t", 1): ScriptedLog(0, 6 * (partitions - 1))})

    def answer(request: FetchRequest) -> FetchResponse:
        if request.partition:
            return FetchResponse(0, 0, 6, 6, 0, records=memoryview(bytes(plain(*(b"x",) * 6))))
        return FetchResponse(0, 0, 6, 6, 0, records=memoryview(bytes(plain(b"x", base_offset=request.offset))))

    kafka.always(FetchRequest, answer)
    assert len(rows_of(reader("offset", **options))) == 6 * partitions
    asked = [each for _, each in kafka.received if isinstance(each, FetchRequest | SharedFetchRequest)]
    assert [each.max_bytes / KIB for each in asked] == sizes
    # A micro-batch is read to its end.
    del kafka.received[:]
    source = source_with(())(OPTIONS | options | {"startingOffsets": "earliest"})
    stream = source.streamReader(source.schema())
    (part, *_) = stream.partitions(stream.initialOffset(), {"t": {str(n): 6 for n in range(partitions)}})
    assert sum(batch.num_rows for batch in stream.read(part)) == 6 * len(part.ranges)
    asked = [each for _, each in kafka.received if isinstance(each, FetchRequest | SharedFetchRequest)]
    assert {each.max_bytes / KIB for each in asked} == {sizes[-1]}


@dataclass
class ColumnPruning:
    """As in SPARK-51713."""

    full: StructType
    required: StructType


@pytest.mark.parametrize(("needed", "left"), [
    (("offset", "key"), ("key", "offset")), (("value",), ("value",)), ((), ("key",)),
])  # fmt: skip
def test_columns_that_a_query_does_not_need_are_not_decoded(
    kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch, needed: tuple[str, ...], left: tuple[str, ...]
) -> None:
    holds(kafka, plain(*(b"x",) * 6))
    for is_for_one_query, expected in ((True, left), (False, ("key", "value", "offset"))):
        monkeypatch.setattr(batch_reader, "IS_PLANNED_FOR_ONE_QUERY", is_for_one_query)
        whole = source_with(())(OPTIONS).schema()
        required = StructType([whole[name] for name in needed])
        for pushed in (required, ColumnPruning(whole, required)):
            made = reader("key", "value", "offset")
            assert tuple(made.pruneColumns(pushed).names) == expected
            assert [tuple(row) for row in rows_of(made)] == [expected] * 6


# --- Sail -------------------------------------------------------------------------------------------------------------


def test_sail_gets_the_schema_of_a_read_as_arrows_and_spark_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source = KafkaDataSource(OPTIONS | {"includeHeaders": "true"})
    sparks = source.schema()
    # Spark reads the JSON, whose type is by the name of the class.
    assert type(sparks) is StructType
    monkeypatch.setitem(sys.modules, "pysail", sys)
    assert source.schema().json() == sparks.json()
    found = pa.schema(source.schema())
    assert found.names == sparks.names
    assert found.field("timestamp").type == pa.timestamp("us", "UTC")
    assert found.field("headers").type == pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_sail_gets_rows_of_the_very_types_that_it_asks_for(kafka: ScriptedKafka, zone: str) -> None:
    holds(kafka, plain(b"a", b"b", b"c"), plain(b"d", b"e", b"f", base_offset=3))
    asked = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", zone)), ("value", pa.binary())])
    made = pickle.loads(pickle.dumps(KafkaDataSource(OPTIONS).reader(asked)))
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    assert {batch.schema for batch in batches} == {asked}
    in_spark = rows_of(reader("offset", "timestamp", "value"))
    assert [row for batch in batches for row in batch.to_pylist()] == in_spark


def test_sail_gets_all_its_filters_back(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves out their casts: a filter on CAST(offset AS TINYINT) arrives as one on the offset."""
    monkeypatch.setattr(batch_reader, "IS_PLANNED_FOR_ONE_QUERY", True)
    holds(kafka, plain(b"a", b"b", b"c", b"d", b"e", b"f"))
    made: Any = KafkaDataSource(OPTIONS).reader(pa.schema([("offset", pa.int64())]))
    if not hasattr(DataSourceReader, "pushFilters"):
        return
    filters = [datasource.EqualTo(("offset",), 5)]
    assert list(made.pushFilters(filters)) == filters
    assert len(rows_of(made)) == 6


def test_sail_gets_few_tasks_as_it_runs_all_of_them_at_once(
    kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    serve(kafka, {("t", number): ScriptedLog(0, 6) for number in range(10)})
    asked = pa.schema([("offset", pa.int64())])
    for options, tasks in (({}, 4), ({"maxPartitions": "7"}, 7), ({"minPartitions": "10"}, 10)):
        parts = KafkaDataSource(OPTIONS | options).reader(asked).partitions()
        assert len(parts) == tasks
        assert sum(len(part.ranges) for part in parts) == 10


def test_sail_is_told_of_a_column_that_a_read_does_not_have() -> None:
    for name, kind in (("valu", pa.binary()), ("value", pa.string()), ("timestamp", pa.timestamp("us"))):
        with pytest.raises(errors.ColumnNotRead if name == "valu" else errors.ColumnTypeMismatch):
            KafkaDataSource(OPTIONS).reader(pa.schema([(name, kind)]))

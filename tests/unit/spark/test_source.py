"""The format as Spark calls it: what it refuses before a task, what travels with it, and whose tokens are whose."""

import os
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, StringType, StructType

import kafka_sink
from kafka_sink import Interceptor, errors
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.auth import security
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.options.config import complete, given_options
from kafka_sink.spark import source, writes
from kafka_sink.spark.source import KafkaDataSource, pickled, registered, source_of, source_with
from kafka_sink.spark.writer import KafkaStreamWriter, stream_arrow_writer
from kafka_sink.spark.writes import check_spark_schema, is_continuous

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


def schema(*names: str, **columns: Any) -> StructType:
    """Types may be Spark's names for them. `names`: of binary columns."""
    made = StructType()
    for name, type_ in [*((name, "binary") for name in names), *columns.items()]:
        made.add(name, type_)
    return made


HEADERS = ArrayType(schema(key="string", value="binary"))
VALUE = schema("value")
NEW_TYPES = (
    spark_types.VariantType(), spark_types.DayTimeIntervalType(), spark_types.YearMonthIntervalType(),
    spark_types.CalendarIntervalType(),
    *(getattr(spark_types, name)() for name in ("TimeType",) if hasattr(spark_types, name)),  # since pyspark 4.1
)  # fmt: skip


@pytest.mark.parametrize("columns", [
    {"value": "binary"}, {"value": "string"}, {"value": "varchar(10)"}, {"value": "void"},
    {"value": "binary", "key": "string", "headers": HEADERS, "timestamp": "timestamp"},
    {"value": "binary", "timestamp": "timestamp_ntz", "partition": "integer"},
    {"value": "binary", "partition": "short"}, {"value": "binary", "partition": "byte"},
    {"value": StringType("UTF8_LCASE"), "topic": StringType("UNICODE_CI"), "key": "char(5)"},
])  # fmt: skip
def test_columns_that_a_record_can_take(columns: dict[str, object]) -> None:
    check_spark_schema(schema(**columns), topic_option=True)


@pytest.mark.parametrize(("columns", "error", "column"), [
    ({"key": "binary"}, errors.MissingColumn, "value"), ({"value": "long"}, errors.ColumnTypeMismatch, "value"),
    ({"value": "binary", "key": "decimal(10,2)"}, errors.ColumnTypeMismatch, "key"),
    ({"value": "binary", "partition": "long"}, errors.ColumnTypeMismatch, "partition"),
    ({"value": "binary", "headers": ArrayType(StringType())}, errors.ColumnTypeMismatch, "headers"),
    *(({"value": type_}, errors.ColumnTypeMismatch, "value") for type_ in NEW_TYPES),
    ({"value": "binary", "id": "long"}, errors.UnexpectedColumn, "id"),
])  # fmt: skip
def test_columns_that_it_cannot(columns: dict[str, object], error: type[Exception], column: str) -> None:
    with pytest.raises(error) as failure:
        check_spark_schema(schema(**columns), topic_option=True)
    assert failure.value.column == column  # type: ignore[attr-defined]
    # Types are named as Spark names them.
    assert column != "key" or failure.value.found == "decimal(10,2)"  # type: ignore[attr-defined]


def test_a_topic_comes_from_the_option_the_column_or_the_conf() -> None:
    check_spark_schema(schema(value="binary", topic="string"), topic_option=False)
    with pytest.raises(errors.MissingColumn):
        check_spark_schema(VALUE, topic_option=False)
    for options in ({}, {"kafka.delivery.timeout.ms": "100"}):
        KafkaDataSource(options).streamWriter(schema=VALUE, overwrite=False)


def test_writers_are_pickled_with_their_options_and_made_without_a_cluster() -> None:
    source = KafkaDataSource(OPTIONS)
    for writer in (source.writer(schema=VALUE, overwrite=False), source.streamWriter(schema=VALUE, overwrite=False)):
        again = pickle.loads(pickle.dumps(writer))
        assert again.options == writer.options == {"bootstrap_servers": (("localhost", 9092),), "topic": "t"}


@pytest.mark.parametrize(("options", "error"), [
    ({}, errors.WriteModeUnsupported), ({"kafka.lingerms": "1"}, errors.UnknownOption),
    ({"kafka.acks": "2"}, errors.InvalidOption), ({"kafka.partitioner.class": "x"}, errors.RefusedOption),
    ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, errors.InvalidOption),
])  # fmt: skip
def test_overwrite_and_bad_options_are_refused_for_both_kinds(options: dict[str, str], error: type[Exception]) -> None:
    for make in (KafkaDataSource(OPTIONS | options).writer, KafkaDataSource(OPTIONS | options).streamWriter):
        with pytest.raises(error):
            make(schema=VALUE, overwrite=not options)


def test_a_version_is_for_batch_writes() -> None:
    versioned = KafkaDataSource(OPTIONS | {"deliveryguarantee": "exactly-once", "txnappid": "a", "txnversion": "0"})
    assert versioned.writer(schema=VALUE, overwrite=False).options["txn_version"] == 0
    with pytest.raises(errors.RefusedOption, match="In foreachBatch, set it on the batch write"):
        versioned.streamWriter(schema=VALUE, overwrite=False)
    alone = KafkaDataSource(OPTIONS | {"txnappid": "a"})
    with pytest.raises(errors.RefusedOption, match="txnAppId"):
        alone.streamWriter(schema=VALUE, overwrite=False)
    with pytest.raises(errors.InvalidOption, match="txnVersion with it"):
        alone.writer(schema=VALUE, overwrite=False)


class Marked(Interceptor):
    def __init__(self, mark: str) -> None:
        self.mark = mark


def test_interceptors_travel_with_the_class_and_each_write_has_its_own() -> None:
    """As Spark sends it: the class by cloudpickle to the process that plans, the writer from there to each task."""
    planned = pickle.loads(cloudpickle.dumps(source_with((Marked("a"), Marked("b")))))(OPTIONS)
    assert planned.name() == "pykafka"
    for make in (planned.writer, planned.streamWriter):
        writer = cloudpickle.dumps(make(schema=VALUE, overwrite=False))
        first, second = pickle.loads(writer).interceptors, pickle.loads(writer).interceptors
        assert [one.mark for one in first] == [one.mark for one in second] == ["a", "b"]
        assert not set(map(id, first)) & set(map(id, second))


def test_what_a_sessions_format_means_is_known_or_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "REGISTERED", {})

    one, copied = mock.Mock(), mock.Mock()
    assert source_of(one) is KafkaDataSource
    kafka_sink.register(one, interceptors=[Marked("a")])
    found = source_of(one)
    assert found is not None and [each.mark for each in found.interceptors] == ["a"]  # type: ignore[attr-defined]
    assert source_of(copied) is None
    kafka_sink.register(copied)
    assert source_of(copied) is KafkaDataSource


def keeps_its_formats(condition: str) -> Any:
    """A session of Spark 4.0, which has found the format by itself."""
    refusal = AnalysisException(message=condition)
    # Only an exception of the JVM has a condition.
    refusal.getCondition = lambda: condition  # type: ignore[method-assign]
    return mock.Mock(version="4.0.5", **{"dataSource.register.side_effect": refusal})


def test_spark_4_0_keeps_the_format_that_it_has_found() -> None:
    session = keeps_its_formats("DATA_SOURCE_ALREADY_EXISTS")
    kafka_sink.register(session)
    assert source_of(session) is KafkaDataSource
    with pytest.raises(errors.FormatNotReplaced, match=r"Spark 4\.0\.5"):
        kafka_sink.register(session, interceptors=[Marked("a")])
    with pytest.raises(errors.FormatNotReplaced):
        kafka_sink.register(session, token=lambda: ("token", 60.0))
    with pytest.raises(AnalysisException):
        kafka_sink.register(keeps_its_formats("DATA_SOURCE_NOT_FOUND"))


def test_a_token_callable_travels_with_the_options_and_shows_itself_to_nobody() -> None:
    secret = "canary-1a2b"
    again = cloudpickle.loads(cloudpickle.dumps(source_with((), lambda: (secret, 60.0))))
    writer = again({"topic": "t"}).writer(VALUE, overwrite=False)
    assert isinstance(writer.options["token_callable"], Secret)
    assert secret not in repr(writer.options) + repr(vars(again))
    assert pickle.loads(writer.options["token_callable"].value)() == (secret, 60.0)
    assert source_with(()) is KafkaDataSource


@pytest.mark.parametrize("missing", ["headers", "topic"])
def test_columns_that_it_takes_are_named(missing: str) -> None:
    columns = [name for name in ("value", "headers", "topic", "partition", "offset") if name != missing]
    with pytest.raises(ValueError, match=f"needs the column '{missing}'.*includeHeaders=true"):
        kafka_sink.dedupe(mock.Mock(DataFrame, columns=columns))


def test_spark_4_0_takes_a_stream_writer_for_one_that_wants_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceArrowWriter)
    assert issubclass(KafkaStreamWriter, datasource.DataSourceStreamWriter)
    assert issubclass(KafkaStreamWriter, asked_for)
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    of_4_0 = stream_arrow_writer()
    assert issubclass(of_4_0, datasource.DataSourceStreamWriter)
    assert issubclass(of_4_0, datasource.DataSourceArrowWriter)


EPOCHS = "epoch update thread for q"[:15]


def checkpoint_of(folder: Path, offsets: Sequence[int] = (), commits: Sequence[int] = ()) -> Path:
    for log, entries in (("offsets", offsets), ("commits", commits)):
        (folder / log).mkdir(parents=True)
        for entry in entries:
            (folder / log / str(entry)).touch()
            (folder / log / f".{entry}.crc").touch()
    return folder


def proc_of(folder: Path, *, threads: Sequence[str], jvm: str = "java") -> Path:
    """30 is a worker, 20 a daemon with a name that is meant badly, 10 the JVM, 5 a shell."""
    for pid, comm, parent in ((30, "python", 20), (20, "a) S 7 (b", 10), (10, jvm, 5), (5, "sh", 1)):
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "comm").write_text(comm + "\n")
        (folder / str(pid) / "stat").write_text(f"{pid} ({comm}) S {parent} 1 1 0")
    for number, name in enumerate(threads):
        (folder / "10" / "task" / str(number)).mkdir(parents=True)
        (folder / "10" / "task" / str(number) / "comm").write_text(name + "\n")
    return folder


@pytest.mark.parametrize(("offsets", "commits", "threads", "continuous"), [
    ((), (), ["java", EPOCHS, "stream executio"], True),
    ((8, 9, 10), (9, 10), ["java", EPOCHS], True),  # micro-batches until now; numbers, not texts
    ((0,), (), ["java", EPOCHS], False), ((8, 9, 10), (8, 9), ["java", EPOCHS], False),
    ((), (), ["java", "stream executio"], False), ((), (), [], False),
])  # fmt: skip
def test_offsets_without_commit_are_a_micro_batch_and_the_thread_is_needed(
    tmp_path: Path, offsets: Sequence[int], commits: Sequence[int], threads: Sequence[str], continuous: bool
) -> None:
    folder = checkpoint_of(tmp_path / "checkpoint", offsets, commits)
    assert is_continuous(str(folder), pid=30, proc=proc_of(tmp_path / "proc", threads=threads)) is continuous


def test_what_cannot_be_seen_is_a_micro_batch(tmp_path: Path) -> None:
    """A checkpoint is looked for on this machine only."""
    proc, checkpoint = proc_of(tmp_path / "proc", threads=[EPOCHS]), checkpoint_of(tmp_path / "checkpoint")
    for prefix, seen in (("", True), ("file:", True), ("file://", True), ("hdfs:", False), ("s3a://bucket", False)):
        assert is_continuous(f"{prefix}{checkpoint}", pid=30, proc=proc) is seen
    assert not is_continuous(None, pid=30, proc=proc)
    assert not is_continuous(str(tmp_path / "elsewhere"), pid=30, proc=proc)
    assert not is_continuous(str(checkpoint), pid=30, proc=tmp_path / "no-proc")
    assert not is_continuous(str(checkpoint), pid=30, proc=proc_of(tmp_path / "p", threads=[EPOCHS], jvm="sh"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc on this system")
def test_the_real_proc_can_be_read(tmp_path: Path) -> None:
    assert not is_continuous(str(checkpoint_of(tmp_path / "checkpoint")))


def test_a_stream_writer_is_refused_to_a_continuous_query(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(writes, "is_continuous", lambda location: bool(asked.append(location)) or location == "/c")
    with pytest.raises(errors.ContinuousTriggerUnsupported, match=r"No row of this write was sent"):
        KafkaDataSource({**OPTIONS, "checkpointlocation": "/c"}).streamWriter(schema=VALUE, overwrite=False)
    KafkaDataSource({**OPTIONS, "checkpointlocation": "/d"}).streamWriter(schema=VALUE, overwrite=False)
    assert asked == ["/c", "/d"]


OAUTH = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.security.protocol": "SASL_SSL",
         "kafka.sasl.mechanism": "OAUTHBEARER"}  # fmt: skip


def config_of(token_callable: Any) -> ProducerConfig:
    return complete({**given_options(OAUTH), "token_callable": token_callable}).producer


def test_a_registration_is_one_configuration_and_another_one_is_another() -> None:
    """Of the same function: in its tasks they are equal bytes."""

    def token() -> tuple[str, float]:
        return "header.claims.signature", 60.0

    first, second = (source_with((), token).token_callable for _ in range(2))
    assert config_of(first) == config_of(first)
    assert hash(config_of(first)) == hash(config_of(first))
    assert config_of(first) != config_of(second)
    # What is kept for an export stays the same in each micro-batch.
    kept = registered(token)
    assert registered(kept) is kept
    assert pickled(kept) == pickled(kept)


def test_a_process_keeps_tokens_of_so_many_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "_kept", {})
    monkeypatch.setattr(security, "MAX_KEPT_TOKENS", 3)
    configs = [config_of(pickled(lambda: ("t", 60.0))).security for _ in range(5)]
    kept = [security._tokens_of(each) for each in configs]
    assert [config for config, _ in security._kept] == configs[2:]
    assert security._tokens_of(configs[4]) is kept[4]


def test_two_tenants_in_one_worker_have_two_tokens(spark: SparkSession) -> None:
    """The function is the same for both and asks Spark whose task it runs in."""

    def of_current_user() -> tuple[str, float]:
        context = TaskContext.get()
        assert context is not None
        return f"token-of-{context.getLocalProperty('tenant')}", 3_600.0

    def connects(producer: ProducerConfig) -> Any:
        def in_task(rows: Any) -> list[tuple[int, str]]:
            from kafka_sink.kafka.auth.security import _tokens_of

            # Else Spark does not use the worker again.
            list(rows)
            return [(os.getpid(), _tokens_of(producer.security)[1].current())]

        return in_task

    context, workers = spark.sparkContext, []
    for tenant in ("alice", "bob", "carol"):
        context.setLocalProperty("tenant", tenant)
        producer = replace(config_of(source_with((), of_current_user).token_callable), client_id="nightly")
        task = connects(producer)
        seen = [found for _ in range(3) for found in context.parallelize([0], 1).mapPartitions(task).collect()]
        assert {token for _, token in seen} == {f"token-of-{tenant}"}
        workers.append({pid for pid, _ in seen})
    context.setLocalProperty("tenant", None)
    assert set.intersection(*workers), "or they had workers of their own"

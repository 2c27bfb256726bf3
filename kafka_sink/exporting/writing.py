"""The steps of `kafka_sink.export` and `kafka_sink.to_kafka`: check, write, report.

1. Read and check the options and arguments, as for any write.
2. Check the cluster (doctor/examinations.py) by about 20 requests, without a row. Skipped with Spark Connect, because
   this process may be in another network than Spark.
3. Make the record's columns, with co_partition after a shuffle. This step may register a schema in the Schema Registry,
   so it comes after the checks.
4. Write by `format("pykafka")`, mode append.
5. Read the receipt. The rows are in Kafka by then, so a failure here is not an error of the export: a user who runs the
   export again would duplicate them.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafka_sink.doctor.examinations import examine
from kafka_sink.doctor.report import Report
from kafka_sink.errors import (
    InvalidArgument,
    PartitionsNotFixed,
    RefusedOption,
    UnknownOption,
    WriteModeUnsupported,
    WriteWouldFail,
)
from kafka_sink.errors.failures import error_of, told_by_spark, told_to_spark
from kafka_sink.errors.redaction import reason_for, redacted
from kafka_sink.exporting import co_partition
from kafka_sink.exporting.columns import ColumnArguments, ColumnOrName, names, record_frame, staged
from kafka_sink.exporting.progress import watched
from kafka_sink.exporting.result import ExportResult, Place, dropped_of, partitions_of, place_of, rows_of
from kafka_sink.options.config import CONF_PREFIX, EXACTLY_ONCE, OPTION_OF, SinkConfig, given_options
from kafka_sink.options.table import OPTIONS, SPARK_OPTIONS, WRITING
from kafka_sink.records import receipt_file
from kafka_sink.spark.session import active, is_connect
from kafka_sink.spark.source import KafkaDataSource, make_findable, registered
from kafka_sink.spark.validation import configuration, option_text
from kafka_sink.spark.writes import check_spark_schema

log = logging.getLogger(__name__)


# --- keyword arguments ------------------------------------------------------------------------------------------------
#
# They are in snake case, also those that are options. Names in `options` are spelled as in Spark and docs/options.md,
# in any case:
#
#     linger_ms=5, bad_rows="drop"                           Kafka's or Spark's name in snake case, without `kafka.`
#     options={"kafka.linger.ms": 5, "badRows": "drop"}
#     create_topics={"partitions": 12, "retention.ms": 86_400_000}      as partitions=12,retention.ms=86400000
#
# It is an error to give an option twice, even with the same value. Names are checked here, values in options/config.py,
# as for any write.


def _snake(name: str) -> str:
    """`checkpointLocation` -> checkpoint_location, `kafka.linger.ms` -> linger_ms."""
    return re.sub("([A-Z])", r"_\1", name.removeprefix("kafka.")).replace(".", "_").lower()


# Arguments that are not options.
ARGUMENTS = ("exactly_once", "co_partition", "order_by", "output_mode")
# A test checks that no two options have the same word.
NAME_OF_WORD = {_snake(name): name for name in (*(option.name for option in OPTIONS), *SPARK_OPTIONS)}
_SPELLING = "As an argument, an option is in snake case, without 'kafka.'"
_SPARKS_OWN = {name.lower(): name for name in SPARK_OPTIONS}


def sink_options(
    topic: str | None, *, exactly_once: bool, options: Mapping[str, object], words: Mapping[str, object]
) -> dict[str, str]:
    """Return the options of a write as texts, by their own names. The value None means "not given".

    Raises InvalidArgument for an option that is given twice or misspelled as an argument, UnknownOption, RefusedOption.
    """
    given: list[tuple[str, object]] = [("topic", topic), ("deliveryGuarantee", EXACTLY_ONCE if exactly_once else None)]
    given += [(_name_of(word), value) for word, value in words.items()]
    given += [(_name(name), value) for name, value in options.items()]
    return dict(_once((name, _text(value)) for name, value in given if value is not None))


def _name_of(word: str) -> str:
    if word in NAME_OF_WORD:
        return NAME_OF_WORD[word]
    if word not in ARGUMENTS and _snake(word) in ARGUMENTS:
        raise InvalidArgument(argument=word, reason=f"it is spelled {_snake(word)}.")
    try:
        name = _name(word)
    except UnknownOption as unknown:
        nearest = get_close_matches(word, (*NAME_OF_WORD, *ARGUMENTS), n=2, cutoff=0.75)
        nearest = nearest or [_snake(each) for each in unknown.nearest]
        raise UnknownOption(option=word, nearest=nearest, spelling=_SPELLING) from None
    raise InvalidArgument(
        argument=word, reason=f"it is spelled {_snake(name)}; options={{{name!r}: ...}} takes the option's own name."
    )


def _name(given: str) -> str:
    """Return the canonical name of an option. Raises UnknownOption, RefusedOption."""
    option = WRITING.named(given)
    return _SPARKS_OWN.get(given.lower(), given) if option is None else option.name


def _text(value: object) -> str:
    """Return the text of a value. A mapping becomes `name=value,...`, for create_topics."""
    if not isinstance(value, Mapping):
        return option_text(value)
    return ",".join(f"{name}={option_text(each)}" for name, each in value.items() if each is not None) or "true"


def _once(given: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    names: set[str] = set()
    for name, text in given:
        if name.lower() in names:
            raise InvalidArgument(argument=name, reason="it is given twice; keep one of the two.")
        names.add(name.lower())
        yield name, text


Token = Callable[[], tuple[str, float]]
SAIL_PARTITIONS = OPTION_OF["sail_partitions"].name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The arguments of `export` and `to_kafka` that do not describe columns."""

    options: Mapping[str, str]
    co_partition: bool
    order_by: tuple[ColumnOrName, ...]
    validate: bool
    token: Token | None

    @classmethod
    def of(
        cls,
        topic: str | None,
        exactly_once: bool,
        options: Mapping[str, object] | None,
        words: Mapping[str, object],
        co_partition: bool,
        order_by: ColumnOrName | Sequence[ColumnOrName],
        validate: bool,
        token: Token | None,
    ) -> ExportSettings:
        """Make the settings from the user's arguments. Raises InvalidArgument, UnknownOption, RefusedOption."""
        named = sink_options(topic, exactly_once=exactly_once, options=options or {}, words=words)
        return cls(
            options=named,
            co_partition=co_partition,
            order_by=names(order_by),
            validate=validate,
            token=registered(token),
        )


def export_batch(
    frame: DataFrame, arguments: ColumnArguments, settings: ExportSettings, *, progress: bool | None
) -> ExportResult:
    """Write a batch DataFrame.

    Before the write, raises ConfigError, SchemaError, WriteWouldFail, ClusterError. If the write fails, raises the
    KafkaSinkError behind Spark's exception, or else Spark's exception.
    """
    if frame.isStreaming:
        raise InvalidArgument(argument="df", reason="it is a stream: kafka_sink.to_kafka(df, ...) starts its query.")
    with active(frame.sparkSession), told_by_spark():
        make_findable(frame.sparkSession)
        records, config = made_ready(frame, arguments, settings)
        return _export(records, config, settings.options, arguments.topic_name, progress)


def _export(
    records: DataFrame, config: SinkConfig, options: Mapping[str, str], topic: str | None, progress: bool | None
) -> ExportResult:
    spark = records.sparkSession
    is_remote = is_connect(spark)
    with place_of(config, is_remote=is_remote) as place:
        asked = {"receiptsPath": place.folder}
        if config.txn_app_id is None:
            asked["receiptName"] = place.name
        # Under a random name there is no earlier receipt.
        is_own_name = config.txn_app_id is None and config.receipt_name is None
        before = receipt_file.SCHEMA.empty_table() if is_own_name else _facts(spark, place)
        with watched(spark, topic, wanted=progress, is_remote=is_remote) as name:
            started_s = time.monotonic()
            _save(records, name, {**options, **asked})
            duration_s = time.monotonic() - started_s
        return _receipt(config, place, before, _facts(spark, place), duration_s)


def _save(records: DataFrame, name: str, options: Mapping[str, str]) -> None:
    """Write the records by the format `name`. On Sail, which tells who it is by refusing, with the step that it needs
    at the end of the plan: coalesce(1), which keeps the order of the rows, or repartition(n) for `sailPartitions`."""
    plain = {option: text for option, text in options.items() if option != SAIL_PARTITIONS}
    try:
        records.write.format(name).mode("append").options(**plain).save()
        return
    except PySparkException as failure:
        if not isinstance(error_of(failure), PartitionsNotFixed):
            raise
    _refuse_conf(records.sparkSession)
    number = int(options.get(SAIL_PARTITIONS, 1))
    fixed = records.coalesce(1) if number == 1 else records.repartition(number)
    fixed.write.format(name).mode("append").options(**plain, **{SAIL_PARTITIONS: str(number)}).save()


def _refuse_conf(spark: SparkSession) -> None:
    """Raise RefusedOption if the conf has options: Sail does not give it to tasks."""
    for name in spark.conf.getAll:
        if name.startswith(CONF_PREFIX):
            raise RefusedOption(
                option=name, instead="Sail does not give its conf to tasks: set it as an option of the write."
            )


def made_ready(frame: DataFrame, arguments: ColumnArguments, settings: ExportSettings) -> tuple[DataFrame, SinkConfig]:
    """Check the write, and return its records and configuration."""
    if settings.order_by and not settings.co_partition:
        raise InvalidArgument(
            argument="order_by", reason="it is the order within a topic's partition: give co_partition=True too."
        )
    is_remote = is_connect(frame.sparkSession)
    config = configuration(frame, settings.options, settings.token)
    if settings.validate and not is_remote:
        _refuse(examine(config))
    with_raw, record = staged(frame, arguments)
    records = record_frame(with_raw, record)
    check_spark_schema(records.schema, topic_option=config.topic is not None)
    if settings.co_partition:
        co_partition.check(config, record, settings.order_by)
        n = co_partition.topic_partitions(frame.sparkSession, config, from_executors=is_remote)
        records = record_frame(*co_partition.co_partitioned(with_raw, record, n, settings.order_by))
    return records, config


def _refuse(report: Report) -> None:
    if report.ok:
        return
    first = report.failures[0]
    raise WriteWouldFail(
        step=first.step,
        where=first.where,
        found=first.finding.found,
        remedy=first.finding.remedy,
        failures=len(report.failures),
    )


def _facts(spark: SparkSession, place: Place) -> pa.Table | None:
    """Return the rows of the receipt file (no rows if it does not exist), or None if it cannot be read (logged)."""
    try:
        return place.read(spark)
    except (OSError, pa.ArrowException, PySparkException) as error:
        log.warning("the receipt %s cannot be read: %s", redacted(place.path), reason_for(place.path, error))
        return None


def _receipt(
    config: SinkConfig, place: Place, before: pa.Table | None, after: pa.Table | None, duration_s: float
) -> ExportResult:
    """Make the result from the file's content before and after the write; None: unknown.

    The file belongs to this write only if its content has changed:

    * If an at-least-once write cannot write its receipt, it continues, and an old receipt stays.
    * A skipped version leaves the file unchanged. The file may come from a run that died before its decision. Then its
      rows were aborted by a later version.
    """
    receipt = ExportResult(topic=config.topic, guarantee=config.delivery_guarantee, duration_s=duration_s)
    path = None if place.is_temporary else place.path
    is_there = after is not None and after.num_rows > 0
    if after is not None and is_there and before is not None and not after.equals(before):
        partitions = partitions_of(after)
        return replace(
            receipt,
            rows=rows_of(after),
            dropped=dropped_of(after),
            dead_lettered=sum(each.record_count for each in partitions if each.topic == config.dead_letter_topic),
            partitions=partitions,
            path=path,
        )
    if config.txn_app_id is not None:
        # Exactly-once writes its file or fails. So without a file, or with an unchanged one, nothing was written.
        is_known = after is not None and before is not None
        return replace(receipt, path=path if is_there else None, was_written_before=True if is_known else None)
    if is_there:
        log.warning("the receipt %s may be an earlier write's, so the result does not use it", redacted(place.path))
    return receipt


# --- queries of to_kafka ----------------------------------------------------------------------------------------------

# The default prefix. The query's id follows it and makes the name unique.
APP_ID_PREFIX = "pykafka"
# A placeholder with the length of a query's id.
_ANY_ID = "0" * 36
_PATTERN = re.compile(r"[\\{}\[\]*?]")


def start_stream(
    frame: DataFrame,
    arguments: ColumnArguments,
    settings: ExportSettings,
    *,
    trigger: str | Mapping[str, Any] | None,
    output_mode: str | None,
) -> StreamingQuery:
    """Start the query of a streaming DataFrame. Raises as `export_batch`."""
    if not frame.isStreaming:
        raise InvalidArgument(argument="df", reason="it is no stream: kafka_sink.export(df, ...) writes it.")
    if update := _is_update(output_mode):
        settings = replace(settings, options=in_update_mode(settings.options))
    with active(frame.sparkSession), told_by_spark():
        make_findable(frame.sparkSession)
        records, _ = made_ready(frame, arguments, settings)
        writer = records.writeStream
        if update:
            writer = each_micro_batch(writer, settings.options).outputMode("update")
        else:
            writer = writer.format(KafkaDataSource.name()).options(**settings.options)
        if trigger is not None:
            every = {"processingTime": trigger} if isinstance(trigger, str) else trigger
            writer = writer.trigger(**every)
        return telling(writer.start())


def _is_update(output_mode: str | None) -> bool:
    """Return True for update mode, False for append mode. Raises WriteModeUnsupported, InvalidArgument."""
    mode = "append" if output_mode is None else output_mode.lower()
    if mode == "complete":
        raise WriteModeUnsupported
    if mode not in ("append", "update"):
        raise InvalidArgument(argument="output_mode", reason=f'it is "append" or "update", not {output_mode!r}.')
    return mode == "update"


def in_update_mode(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a query in update mode. With exactly-once they have a transactionalIdPrefix.

    Spark does not support update mode for Python sinks, but foreachBatch supports all modes. So each micro-batch is a
    batch write. With exactly-once its number is the write's `txnVersion`, and `txnAppId` contains the query's id.

    Raises InvalidArgument, InvalidOption, before any request to the cluster.
    """
    if options.get("deliveryGuarantee") != EXACTLY_ONCE:
        return dict(options)
    if "checkpointLocation" not in options:
        reason = "exactly-once in update mode needs it to read the query's id."
        raise InvalidArgument(argument="checkpoint_location", reason=reason)
    named = {"transactionalIdPrefix": APP_ID_PREFIX, **options}
    given_options({"txnAppId": f"{named['transactionalIdPrefix']}-{_ANY_ID}"})
    return named


def each_micro_batch(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """Return `writer` with a foreachBatch that writes each micro-batch. `options` come from `in_update_mode`."""
    of_query = {name: text for name, text in options.items() if name in SPARK_OPTIONS}
    of_write = {name: text for name, text in options.items() if name not in SPARK_OPTIONS}
    if of_write.get("deliveryGuarantee") != EXACTLY_ONCE:
        return writer.options(**of_query).foreachBatch(MicroBatchWrite(of_write))
    # A batch write has txnAppId instead of transactionalIdPrefix.
    prefix = of_write.pop("transactionalIdPrefix")
    return writer.options(**of_query).foreachBatch(MicroBatchWrite(of_write, prefix, of_query["checkpointLocation"]))


class MicroBatchWrite:
    """The function for foreachBatch. With Spark Connect the server runs a copy of it.

    The query's id is in the checkpoint's file `metadata` before the first micro-batch. A restart continues with it. A
    new checkpoint begins at number 0 again, with a new id: with the checkpoint's path instead of the id, its
    micro-batches would be skipped as already written. Source: StreamExecution.scala, StreamMetadata.scala.
    """

    def __init__(self, options: Mapping[str, str], prefix: str = "", checkpoint: str | None = None) -> None:
        self._options = dict(options)
        self._prefix = prefix
        # None: at-least-once needs no name.
        self._checkpoint = checkpoint
        self._query_id: str | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        with told_to_spark(), told_by_spark():
            version = self._version(rows, number)
            rows.write.format(KafkaDataSource.name()).mode("append").options(**self._options, **version).save()

    def _version(self, rows: DataFrame, number: int) -> dict[str, str]:
        if self._checkpoint is None:
            return {}
        if self._query_id is None:
            # A reader takes a pattern. The checkpoint is a path.
            folder = _PATTERN.sub(r"\\\g<0>", self._checkpoint)
            (line,) = rows.sparkSession.read.text(f"{folder}/metadata").collect()
            self._query_id = json.loads(line.value)["id"]
        return {"txnAppId": f"{self._prefix}-{self._query_id}", "txnVersion": str(number)}


def telling(query: StreamingQuery) -> StreamingQuery:
    """Return the same query. It raises the sink's own error if Spark's exception contains one."""
    kind = type(query)
    query.__class__ = type(kind.__name__, (_Telling, kind), {})
    return query


class _Telling:
    """A mixin for the query classes of PySpark and of Spark Connect."""

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        with told_by_spark():
            ended: bool | None = super().awaitTermination(timeout)  # type: ignore[misc]
            return ended

    def processAllAvailable(self) -> None:
        with told_by_spark():
            super().processAllAvailable()  # type: ignore[misc]

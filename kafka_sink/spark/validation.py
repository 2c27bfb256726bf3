"""`kafka_sink.validate`: checks the options, columns and cluster of a write without writing.

The functions of the data source (`source.py`) check options and columns, and the doctor's engine checks the cluster.
This module makes no checks of its own. It uses the session's conf as tasks do, except with exactly-once: the planning
process cannot see the conf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession

from kafka_sink.commit.stream_name import expected_name
from kafka_sink.doctor.examinations import examine
from kafka_sink.doctor.report import Report, Verdict, ok
from kafka_sink.errors import NotPlanned
from kafka_sink.options.config import (
    EXACTLY_ONCE,
    SinkConfig,
    check_given,
    check_stream,
    complete,
    given_options,
    over_conf,
)
from kafka_sink.spark.interpreters import examine_from_executors
from kafka_sink.spark.source import pickled
from kafka_sink.spark.writer import is_exactly_once
from kafka_sink.spark.writes import check_spark_schema


class ArrowStream(Protocol):
    """A frame of pandas, pyarrow, polars or another library. Source: Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def frame_of(df: object) -> DataFrame:
    """Return `df`, or a DataFrame of its rows in the session that is active. NaN of pandas is null, as in Arrow.

    Raises TypeError if `df` is no frame, if Spark has no type for a column, or if there is no session.
    """
    if isinstance(df, DataFrame):
        return df
    kind = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}".removeprefix("builtins.")
    if kind != "pandas.DataFrame" and not hasattr(df, "__arrow_c_stream__"):
        raise TypeError(f"df is a DataFrame, not {kind}: spark.createDataFrame(rows, schema) makes one")
    try:
        spark = SparkSession.active()
    except PySparkRuntimeError:
        raise TypeError(f"df is a {kind}, which needs a SparkSession: SparkSession.builder.getOrCreate()") from None
    try:
        table = pa.Table.from_pandas(df, preserve_index=False) if kind == "pandas.DataFrame" else pa.table(df)
        columns = [_as_spark_takes_it(column) for column in table.columns]
        if table.num_rows:
            return spark.createDataFrame(pa.table(columns, table.column_names))
        # Spark Connect takes no table without rows.
        nulls = [pa.nulls(1, column.type) for column in columns]
        return spark.createDataFrame(pa.table(nulls, table.column_names)).limit(0)
    except (pa.ArrowException, PySparkTypeError) as error:
        reason = f"{error}".rstrip(".")
        raise TypeError(f"df is a {kind} that Spark cannot take: {reason}. Convert that column first") from error


def _as_spark_takes_it(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        # No cast: pyarrow has none for a dictionary of views, as of a categorical of polars.
        kind = _sparks_kind(column.type.value_type)
        return pa.chunked_array([each.dictionary.cast(kind).take(each.indices) for each in column.chunks], kind)
    return column.cast(_sparks_kind(column.type))


def _sparks_kind(kind: pa.DataType) -> pa.DataType:
    """Return the type that `kind` has in Spark, where Spark refuses it: texts of polars, unsigned numbers."""
    of = pa.types
    if of.is_list(kind) or of.is_large_list(kind):
        return pa.list_(_sparks_kind(kind.value_type))
    if of.is_struct(kind):
        return pa.struct([(field.name, _sparks_kind(field.type)) for field in kind])
    return _KINDS.get(kind, kind)


_KINDS = {
    pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary(),
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20),
}  # fmt: skip


def validated(
    df: DataFrame, texts: Mapping[str, str], *, executors: bool, token: Callable[[], tuple[str, float]] | None
) -> Report:
    """Return the report for a write of `df`. Raises ConfigError, SchemaError, TypeError."""
    config = configuration(df, texts, token)
    check_spark_schema(df.schema, topic_option=config.topic is not None)
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in df.schema)
    kind = "stream" if df.isStreaming else "batch write"
    here = (Verdict("options", kind, ok(config.delivery_guarantee)), Verdict("columns", kind, ok(columns)))
    report = Report(here) + examine(config)
    return report + examine_from_executors(df.sparkSession, config.producer) if executors else report


def option_text(value: object) -> str:
    """Return the text of a value as Spark's `option` makes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def configuration(df: DataFrame, texts: Mapping[str, str], token: Callable[[], tuple[str, float]] | None) -> SinkConfig:
    """Return the configuration of a write of `df` with the options `texts`. Raises ConfigError, TypeError."""
    texts = {name.lower(): text for name, text in texts.items()}
    given = given_options(texts)
    if token is not None:
        given = {**given, "token_callable": pickled(token)}
    if df.isStreaming:
        check_stream(given)
    check_given(given)
    # The process that plans an exactly-once write cannot see the conf.
    config = complete(given if is_exactly_once(given) else over_conf(given, df.sparkSession.conf.getAll))
    if config.delivery_guarantee == EXACTLY_ONCE and not is_exactly_once(given):
        raise NotPlanned(option="deliveryGuarantee=exactly-once")
    if df.isStreaming and is_exactly_once(given):
        return replace(config, transactional_id_prefix=expected_name(given, texts.get("checkpointlocation")))
    return config

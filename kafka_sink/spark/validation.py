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
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from kafka_sink.doctor.report import Report, Verdict, ok
from kafka_sink.doctor.writing import examine
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
from kafka_sink.spark.executors import examine_from_executors
from kafka_sink.spark.guarantee import is_exactly_once
from kafka_sink.spark.source import pickled
from kafka_sink.spark.stream_naming import expected_name
from kafka_sink.spark.writes import check_spark_schema


class ArrowStream(Protocol):
    """A frame of pandas, pyarrow, polars or another library. Source: Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def frame_of(df: object) -> DataFrame:
    """Return `df`, or a DataFrame of its rows in the session that is active. NaN of pandas is null, as in Arrow.

    Raises TypeError if `df` is no frame, or if there is no session.
    """
    if isinstance(df, DataFrame):
        return df
    kind = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}"
    if kind == "pandas.DataFrame":
        table = pa.Table.from_pandas(df, preserve_index=False)
    elif hasattr(df, "__arrow_c_stream__"):
        table = pa.table(df)
    else:
        raise TypeError(f"df is a DataFrame, not {type(df).__name__}: spark.createDataFrame(rows, schema) makes one")
    try:
        spark = SparkSession.active()
    except PySparkRuntimeError:
        raise TypeError(f"df is a {kind}, which needs a SparkSession: SparkSession.builder.getOrCreate()") from None
    return spark.createDataFrame(table)


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

"""pykafka: a Kafka sink for PySpark.

    Spark rows, as Arrow batches
       |  spark/             the "pykafka" data source: driver half, executor half, commit messages
       v
    kafka/write.py           a task's rows: checks, topics, partitions
       |  records/           columns -> checked columns -> a partition per row -> record-batch v2 bytes
       v
    kafka/producer/          RecordAccumulator + BufferPool -> Sender: sequences, acks, retries
       v
    kafka/protocol/, net/    requests and responses; connections, in-flight limits, timeouts
       v
    brokers ... acknowledgements -> receipts -> the task's commit message -> the driver

`kafka/` is a client that needs no other part of the package. `options/` has the table of options and makes the
configuration. `errors/` has the tree of errors, and quotes and redacts texts. `commit/` is the two-phase commit.
`doctor/` finds out why a write would fail. `cli/` has the commands. `monitoring/` shows progress. `registry/` encodes
values for a Schema Registry. `exporting/` writes with one call. `broker/` is a local Kafka for development and tests.

    df.writeStream.format("pykafka").option("kafka.bootstrap.servers", "host:9092").option("topic", "orders")...

    kafka_sink.export(df, "orders", key="tenant_id", value="json", bootstrap_servers="host:9092")

Both work without registration if the package is installed on the host of Spark's driver. `register(spark)` is for
sessions that cannot find packages, and for interceptors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_sink.errors.failures import error_of
from kafka_sink.kafka.config import VERSION as __version__
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.session import warn_if_it_lacks_the_package

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kafka_sink.doctor.report import Report
    from kafka_sink.exporting.columns import ColumnOrName, Headers
    from kafka_sink.exporting.result import ExportResult
    from kafka_sink.spark.validation import ArrowStream

__all__ = [
    "Interceptor", "__version__", "dedupe", "error_of", "export", "partition_count", "receipts", "register", "to_kafka",
    "validate",
]  # fmt: skip


def register(
    spark: SparkSession,
    *,
    interceptors: Sequence[Interceptor] = (),
    token: Callable[[], tuple[str, float]] | None = None,
) -> None:
    """Register `format("pykafka")` with `spark`, for sessions where Spark's automatic look-up fails.

    The look-up fails if the package is a zip, from `--py-files` or a Spark Connect artifact. It also fails if only
    `spark.pyspark.python` names the Python, or if another `pyspark_*` module breaks the look-up. Workers must be able
    to import the package.

    All later writes and reads of the session use `interceptors`, in this order. Another call of `register` replaces
    them. `token` is for `kafka.sasl.mechanism=OAUTHBEARER`, instead of `kafka.sasl.oauthbearer.token.endpoint.url`. It
    returns a token and its lifetime in seconds, and is called again after 80 % of that time. It is pickled and runs on
    executors. With exactly-once it also runs in the processes that plan and commit writes.

    Raises TypeError if an interceptor is not an Interceptor object (e.g. a class), or if `token` is not callable.

    Examples:
        >>> kafka_sink.register(spark)
    """
    from kafka_sink.spark.source import register_source, source_with

    for interceptor in interceptors:
        if not isinstance(interceptor, Interceptor):
            raise TypeError(f"interceptors are objects that extend kafka_sink.Interceptor, not {interceptor!r}")
    register_source(spark, source_with(tuple(interceptors), token))


def receipts(spark: SparkSession, path: str) -> DataFrame:
    """Return the receipts of writes with `receiptsPath` = `path`, a row for each record batch.

    The columns are `receipt_file.COLUMNS`. If `path` is the subfolder of one query, only its receipts are returned. The
    result is empty if nothing was written yet. Spark must be able to read the path: the driver's own disk works with a
    local Spark only. Raises Spark's AnalysisException if the path does not exist.

    Examples:
        >>> kafka_sink.export(spark.range(3), "numbers", value="json", receipts_path=f"{folder}/receipts",
        ...     create_topics=True, bootstrap_servers=servers).rows
        3
        >>> kafka_sink.receipts(spark, f"{folder}/receipts").agg({"record_count": "sum"}).first()[0]
        3
    """
    from kafka_sink.records.receipt_file import SPARK_SCHEMA

    # A path without a scheme is on the driver's disk for the sink, but on fs.defaultFS for Spark.
    uri = f"file://{path}" if path.startswith("/") else path
    return spark.read.option("recursiveFileLookup", "true").schema(SPARK_SCHEMA).parquet(uri)


def dedupe(df: DataFrame, *, watermark: str | None = None) -> DataFrame:
    """Return `df` without the duplicates of a write with `rowIdentity`. Any one of the equal rows is kept.

    `df`: the result of Spark's own `format("kafka")` with `includeHeaders=true`, batch or stream, before a select. All
    records without an identity are kept, including dead letters; for this `df` is read twice. The headers of the
    identity are removed, so that a later write of the rows does not copy them. Other headers stay, and `headers` is
    null if none is left.

    `watermark`: for a stream. Without it the stream's state keeps every row with an identity. With "2 hours" it keeps
    the rows of the last 2 hours before the latest `timestamp`, and Spark drops older rows with an identity. So the
    watermark must exceed the time for a restart of the writing query, the disorder of records in a partition, and the
    delay of one partition behind another.

    Raises ValueError if columns are missing, TypeError if `df` is not a DataFrame.

    Examples:
        >>> kafka_sink.export(spark.range(3), "marked", value="json", row_identity=True, create_topics=True,
        ...     bootstrap_servers=servers).rows
        3
        >>> rows = (spark.read.format("pykafka").option("kafka.bootstrap.servers", servers)
        ...     .option("subscribe", "marked").option("includeHeaders", "true").load())
        >>> kafka_sink.dedupe(rows.union(rows)).count()
        3
    """
    from kafka_sink.spark.duplicates import without_duplicates
    from kafka_sink.spark.validation import frame_of

    return without_duplicates(frame_of(df), watermark)


def partition_count(
    options: Mapping[str, str],
    spark: SparkSession | None = None,
    *,
    token: Callable[[], tuple[str, float]] | None = None,
) -> int:
    """Return the current number of partitions of the topic in `options`.

    `options`: the sink's options, with `topic`. Missing options are taken from the conf of `spark`, as in a write.
    `token`: as for `register`; it runs in this process. Use the number to route rows:
    `(F.col("tenant_id") % partition_count(options)).cast("int").alias("partition")`.

    Raises ConfigError, ClusterError if the cluster does not answer or has no such topic, TypeError if `token` is not
    callable.

    Examples:
        >>> kafka_sink.partition_count({"kafka.bootstrap.servers": servers, "topic": "clicks"})
        3
    """
    from kafka_sink.errors import MissingOption
    from kafka_sink.kafka.admin.client import AdminClient
    from kafka_sink.kafka.admin.topics import partition_count as count
    from kafka_sink.options.config import complete, given_options, over_conf
    from kafka_sink.spark.kept_clients import once
    from kafka_sink.spark.source import pickled

    conf = {} if spark is None else spark.conf.getAll
    config = complete({**over_conf(given_options(options), conf), "token_callable": pickled(token)})
    if config.topic is None:
        raise MissingOption(option="topic", hint="the topic whose partitions are counted.")
    with once(AdminClient, config.producer) as client:
        return count(client, config.topic)


def validate(
    df: DataFrame | ArrowStream,
    topic: str | None = None,
    *,
    exactly_once: bool = False,
    executors: bool = False,
    token: Callable[[], tuple[str, float]] | None = None,
    options: Mapping[str, object] | None = None,
    **more_options: object,
) -> Report:
    """Check that a write of `df` with these options would work, without writing a row.

    It checks options and columns, then runs the steps of `pykafka check` from this host, and with `executors` from
    their hosts too. `df`: a batch or streaming DataFrame. For a stream, Spark itself reports such errors only after
    `start()` has returned.

    Pass the options of the write as for `export`, including checkpoint_location. Missing options are taken from the
    conf of the DataFrame's session. `token`: as for `register`; it runs in this process. With create_topics a missing
    topic is created. The check takes seconds if something is wrong. Notebooks show the report as a table. `report.ok`
    is False if a step failed.

    Raises ConfigError for options and SchemaError for columns, as a write does. Raises TypeError if `df` is not a
    DataFrame or `token` is not callable.

    Examples:
        >>> rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
        >>> kafka_sink.validate(rows, "clicks", bootstrap_servers=servers).ok
        True
    """
    from kafka_sink.exporting.writing import sink_options
    from kafka_sink.spark.validation import frame_of, validated

    named = sink_options(topic, exactly_once=exactly_once, options=options or {}, words=more_options)
    return validated(frame_of(df), named, executors=executors, token=token)


def export(
    df: DataFrame | ArrowStream,
    topic: str | Column,
    *,
    key: ColumnOrName | None = None,
    value: ColumnOrName | None = None,
    headers: Headers | None = None,
    partition: ColumnOrName | None = None,
    timestamp: ColumnOrName | None = None,
    registry: Mapping[str, Any] | SchemaRegistryClient | None = None,
    schema: str | Schema | type | None = None,
    subject: str = "topic",
    exactly_once: bool = False,
    co_partition: bool = False,
    order_by: ColumnOrName | Sequence[ColumnOrName] = (),
    validate: bool = True,
    progress: bool | None = None,
    token: Callable[[], tuple[str, float]] | None = None,
    options: Mapping[str, object] | None = None,
    **more_options: object,
) -> ExportResult:
    """Write `df` to `topic` once, and return the result: rows, offsets of each partition, bad rows, duration.

    `df`: a DataFrame of Spark. A frame of pandas, pyarrow, polars or another library with Arrow's PyCapsule interface
    becomes one in the active session.

    `topic`: a name, or a Column with each row's topic. `key`, `value`, `headers`, `partition`, `timestamp`: a column's
    name or a Column. A key that is a whole number, boolean, date, or decimal with at most 6 decimal places is converted
    to text. `headers` may also be {name: column or value}, where a str names a column.

    `value`: "json" writes all columns, without null fields. "avro", "protobuf", and "json" with a registry encode all
    columns for the Schema Registry at `registry`, with `schema` or a schema derived from the DataFrame, under
    `subject`. None: `df` has the columns of a record.

    `co_partition`: run one task for each partition of the topic, so that batches are full. With `order_by` the rows of
    a partition, and so of a key, are in that order over all of `df`. `exactly_once`: read_committed readers see all
    rows or none. `validate`: check the cluster first. `progress`: show a bar of acknowledged rows; None: only in a
    terminal or notebook, and not in foreachBatch. `token`: as for `kafka_sink.validate`.

    The sink's options are arguments in snake case (`bootstrap_servers="host:9092", linger_ms=5, bad_rows="drop"`) or
    have their own names in `options` (`options={"kafka.linger.ms": 5}`). The function can be called in any thread.

    Raises ConfigError, SchemaError, WriteWouldFail or ClusterError before a row is written, and TypeError for an
    unknown argument. A failed write raises its KafkaSinkError from Spark's exception. If another part of the query
    fails, Spark's exception is raised.

    Examples:
        >>> orders = spark.range(1_000).selectExpr("id AS order_id", "id % 7 AS tenant_id")
        >>> receipt = kafka_sink.export(orders, "orders", key="tenant_id", value="json", create_topics=True,
        ...     bootstrap_servers=servers)
        >>> receipt.rows
        1000
    """
    from kafka_sink.exporting.columns import ColumnArguments
    from kafka_sink.exporting.writing import ExportSettings, export_batch
    from kafka_sink.spark.validation import frame_of

    arguments = ColumnArguments(
        topic=topic, key=key, value=value, headers=headers, partition=partition, timestamp=timestamp,
        registry=registry, schema=schema, subject=subject,
    )  # fmt: skip
    settings = ExportSettings.of(
        arguments.topic_name, exactly_once, options, more_options, co_partition, order_by, validate, token
    )
    return export_batch(frame_of(df), arguments, settings, progress=progress)


def to_kafka(
    df: DataFrame,
    topic: str | Column,
    *,
    key: ColumnOrName | None = None,
    value: ColumnOrName | None = None,
    headers: Headers | None = None,
    partition: ColumnOrName | None = None,
    timestamp: ColumnOrName | None = None,
    registry: Mapping[str, Any] | SchemaRegistryClient | None = None,
    schema: str | Schema | type | None = None,
    subject: str = "topic",
    exactly_once: bool = False,
    co_partition: bool = False,
    validate: bool = True,
    token: Callable[[], tuple[str, float]] | None = None,
    checkpoint_location: str | None = None,
    query_name: str | None = None,
    output_mode: str | None = None,
    trigger: str | Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    **more_options: object,
) -> StreamingQuery:
    """Start a query that writes the stream `df` to `topic`, and return it, as `DataStreamWriter.toTable` does.

    The arguments are those of `export`, with these differences. `trigger`: an interval such as "10 seconds", or the
    arguments of Spark's `trigger` such as {"availableNow": True}. `co_partition`: the query uses the number of
    partitions at its start. Each micro-batch is shuffled, and its rows have no order. `output_mode`: "append" or
    "update". With "update" each micro-batch is a batch write, and exactly-once needs `checkpoint_location`.

    `awaitTermination` of the query raises errors of the running query as `export` does. `error_of(query)` returns them.

    Examples:
        >>> clicks = (spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers)
        ...     .option("subscribe", "clicks").option("startingOffsets", "earliest").load())
        >>> query = kafka_sink.to_kafka(clicks.select("key", "value"), "clicks-copy", exactly_once=True,
        ...     create_topics=True, bootstrap_servers=servers, checkpoint_location=f"{folder}/clicks-copy",
        ...     trigger={"availableNow": True})
        >>> query.awaitTermination()
    """
    from kafka_sink.exporting.columns import ColumnArguments
    from kafka_sink.exporting.writing import ExportSettings, start_stream
    from kafka_sink.spark.validation import frame_of

    arguments = ColumnArguments(
        topic=topic, key=key, value=value, headers=headers, partition=partition, timestamp=timestamp,
        registry=registry, schema=schema, subject=subject,
    )  # fmt: skip
    of_spark = {"checkpoint_location": checkpoint_location, "query_name": query_name}
    settings = ExportSettings.of(
        arguments.topic_name, exactly_once, options, {**more_options, **of_spark}, co_partition, (), validate, token
    )
    return start_stream(frame_of(df), arguments, settings, trigger=trigger, output_mode=output_mode)


warn_if_it_lacks_the_package()

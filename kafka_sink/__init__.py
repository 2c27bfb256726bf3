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

`kafka/` is a client that could stand alone, `kept.py` what a worker keeps of it from task to task. `options/` is
the table of options and the configuration made of them, `errors/` the tree of errors, `text/` what may be shown of
texts. `commit/` is the two-phase commit. `doctor/` finds out why a write would fail; `verification/` compares receipts
with topics; `cli/` has the commands; `monitoring/` shows progress; `registry/` frames for a Schema Registry;
`exporting/` writes by one call; `broker/` is a local Kafka for development and tests.

    df.writeStream.format("pykafka").option("kafka.bootstrap.servers", "host:9092").option("topic", "orders")...

    kafka_sink.export(df, "orders", key="tenant_id", value="json", bootstrap_servers="host:9092")

work without any registration when the package is installed where Spark's driver runs; `register(spark)` does the same
for a session that cannot look packages up, and takes interceptors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_sink.errors.failures import error_of
from kafka_sink.kafka.config import VERSION as __version__
from kafka_sink.spark.interceptors import Interceptor

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kafka_sink.doctor.report import Report
    from kafka_sink.exporting.columns import ColumnOrName, Headers
    from kafka_sink.exporting.result import ExportResult

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
    """Makes `format("pykafka")` known to `spark`, where the automatic look-up cannot: a package that was shipped as a
    zip, with `--py-files` or as an artifact of Spark Connect; a Python that only `spark.pyspark.python` names; or
    another `pyspark_*` module that breaks the look-up. The package itself must be where workers can import it.

    Every later write of the session goes through `interceptors`, in their order; another `register` replaces them.
    `token` is for `kafka.sasl.mechanism=OAUTHBEARER`, instead of `kafka.sasl.oauthbearer.token.endpoint.url`: it
    returns a token and for how many seconds that is good. It is pickled, runs on executors and, with exactly-once,
    where writes are planned and committed, and is called again at 80 % of that time.

    Raises TypeError for something that is no Interceptor, e.g. its class, or a token that cannot be called.
    """
    from kafka_sink.spark.source import register_source, source_with

    for interceptor in interceptors:
        if not isinstance(interceptor, Interceptor):
            raise TypeError(f"interceptors are objects that extend kafka_sink.Interceptor, not {interceptor!r}")
    register_source(spark, source_with(tuple(interceptors), token))


def receipts(spark: SparkSession, path: str) -> DataFrame:
    """What writes with `receiptsPath` = `path` have written, a row for each record batch; columns as
    `receipt_file.COLUMNS` says. Of one query where `path` is its folder below. Empty where nothing was written yet.

    Spark must reach it: a path of the driver's own disk is good for a local Spark only. Raises Spark's
    AnalysisException where there is no such path.
    """
    from kafka_sink.verification.receipt_file import SPARK_SCHEMA

    # Without a scheme it is the driver's disk for the sink, and for Spark its fs.defaultFS.
    uri = f"file://{path}" if path.startswith("/") else path
    return spark.read.option("recursiveFileLookup", "true").schema(SPARK_SCHEMA).parquet(uri)


def dedupe(df: DataFrame, *, watermark: str | None = None) -> DataFrame:
    """The rows of `df` without those that a write with `rowIdentity` has written again, of which one is kept, whichever
    it is. `df`: what Spark's own `format("kafka")` reads with `includeHeaders=true`, batch or stream, before a select.
    Records without an identity are all kept, dead letters among them; to that end `df` is read twice. The identity's
    headers are taken away, so that who writes the rows on does not pass them off as its own; other headers stay, and
    `headers` is null where there are none.

    A stream without `watermark` remembers every row with an identity that it has seen. With one, as "2 hours", it
    remembers those of so long before the latest `timestamp`, and Spark drops such rows that are older than that: so it
    must be longer than what the restart of the writing query takes, and than a partition's records are out of order or
    behind another partition's.

    Raises ValueError where columns are missing, TypeError for what is no DataFrame.
    """
    from kafka_sink.spark.duplicates import without_duplicates
    from kafka_sink.spark.validation import check_frame

    check_frame(df)
    return without_duplicates(df, watermark)


def partition_count(
    options: Mapping[str, str],
    spark: SparkSession | None = None,
    *,
    token: Callable[[], tuple[str, float]] | None = None,
) -> int:
    """How many partitions the topic that `options` name has now; the sink's options, `topic` among them. What they do
    not say is looked up in the conf of `spark`, as a write would. `token`: as for `register`; it runs here.

    Rows are routed by it: `(F.col("tenant_id") % partition_count(options)).cast("int").alias("partition")`.

    Raises ConfigError, ClusterError when the cluster cannot be asked or has no such topic, or TypeError for a `token`
    that cannot be called.
    """
    from kafka_sink.errors import MissingOption
    from kafka_sink.kafka.admin.client import AdminClient
    from kafka_sink.kafka.admin.topics import partition_count as count
    from kafka_sink.kept import once
    from kafka_sink.options.config import complete, given_options, over_conf
    from kafka_sink.spark.source import pickled

    conf = {} if spark is None else spark.conf.getAll
    config = complete({**over_conf(given_options(options), conf), "token_callable": pickled(token)})
    if config.topic is None:
        raise MissingOption(option="topic", hint="the topic whose partitions are counted.")
    with once(AdminClient, config.producer) as client:
        return count(client, config.topic)


def validate(
    df: DataFrame,
    topic: str | None = None,
    *,
    exactly_once: bool = False,
    executors: bool = False,
    token: Callable[[], tuple[str, float]] | None = None,
    options: Mapping[str, object] | None = None,
    **more_options: object,
) -> Report:
    """Whether a write of `df` with these options would work, without writing a row: options, columns, and then what
    `pykafka check` asks the cluster, from here and with `executors` from their hosts too. For batch and
    streaming DataFrames; of a stream Spark itself tells none of it before `start()` has returned.

    The options are those of the write, checkpoint_location among them, and said as for `export`; what they do not say
    is looked up in the conf of the DataFrame's session. `token`: as for `register`; it runs here. With create_topics a
    topic that is missing is made. Takes seconds where something is wrong. In notebooks the report shows itself as a
    table; `report.ok` is False where something failed.

    Raises ConfigError for options and SchemaError for columns, as a write does, or TypeError for what is no DataFrame,
    or a `token` that cannot be called.
    """
    from kafka_sink.exporting.arguments import sink_options
    from kafka_sink.spark.validation import check_frame, validated

    check_frame(df)
    named = sink_options(topic, exactly_once=exactly_once, options=options or {}, words=more_options)
    return validated(df, named, executors=executors, token=token)


def export(
    df: DataFrame,
    topic: str | Column,
    *,
    key: ColumnOrName | None = None,
    value: ColumnOrName | None = None,
    headers: Headers | None = None,
    partition: ColumnOrName | None = None,
    timestamp: ColumnOrName | None = None,
    registry: Mapping[str, Any] | SchemaRegistryClient | None = None,
    schema: str | type | None = None,
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
    """Writes `df` to `topic` once, and returns what was written: rows, offsets of each partition, bad rows, duration.

    `topic`: a name, or a Column of each row's. `key`, `value`, `headers`, `partition`, `timestamp`: a column's name or
    a Column; a key that is a whole number, boolean, date, or decimal of at most 6 decimal places becomes its text.
    `value`: "json" is all columns, without fields that are null; "avro", "protobuf", or "json" with a registry, are all
    columns framed for the Schema Registry at `registry`, by `schema` or one made of the DataFrame's, under `subject`;
    None: `df` has the columns of a record. `headers`: also {name: column or value}, where a str names a column.

    `co_partition`: one task for each partition of the topic, so that batches are full; with `order_by` the rows of a
    partition, and so those of a key, are in that order over all of `df`. `exactly_once`: readers with read_committed
    see all of it or nothing. `validate`: look at the cluster before. `progress`: a bar of acknowledged rows; None: in a
    terminal or notebook, not in foreachBatch. `token`: as for `kafka_sink.validate`. The sink's options are
    arguments in snake case, `bootstrap_servers="host:9092", linger_ms=5, bad_rows="drop"`, or have their own names in
    `options`: `options={"kafka.linger.ms": 5}`. It can be called in any thread.

    Raises ConfigError, SchemaError, WriteWouldFail or ClusterError before a row is written, and TypeError for an
    argument that is none. A write that fails raises its KafkaSinkError from Spark's exception; a failure of another
    part of the query is raised as Spark brings it.
    """
    from kafka_sink.exporting.columns import ColumnArguments, Framing
    from kafka_sink.exporting.writing import ExportSettings, export_batch
    from kafka_sink.spark.validation import check_frame

    check_frame(df)
    name, column = (topic, None) if isinstance(topic, str) else (None, topic)
    arguments = ColumnArguments(
        key=key, value=value, headers=headers, partition=partition, timestamp=timestamp, topic=column
    )
    framing = Framing(topic=name, registry=registry, schema=schema, subject=subject)
    settings = ExportSettings.of(name, exactly_once, options, more_options, co_partition, order_by, validate, token)
    return export_batch(df, arguments, framing, settings, progress=progress)


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
    schema: str | type | None = None,
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
    """Starts a query that writes the stream `df` to `topic`, and returns it, as `DataStreamWriter.toTable` does.

    As `export`, but for these: `trigger` is an interval, "10 seconds", or the arguments of Spark's `trigger`,
    {"availableNow": True}. Of the topic's partitions a query with `co_partition` uses as many as there were when it
    started, and each micro-batch is shuffled; there is no order among its rows. `output_mode`: "append", or "update",
    for which each micro-batch is a batch write; its exactly-once needs `checkpoint_location`. An error of a running
    query is raised by its `awaitTermination`, as `export` does, and found by `error_of(query)`.
    """
    from kafka_sink.exporting.columns import ColumnArguments, Framing
    from kafka_sink.exporting.writing import ExportSettings, start_stream
    from kafka_sink.spark.validation import check_frame

    check_frame(df)
    name, column = (topic, None) if isinstance(topic, str) else (None, topic)
    arguments = ColumnArguments(
        key=key, value=value, headers=headers, partition=partition, timestamp=timestamp, topic=column
    )
    framing = Framing(topic=name, registry=registry, schema=schema, subject=subject)
    of_spark = {"checkpoint_location": checkpoint_location, "query_name": query_name}
    settings = ExportSettings.of(
        name, exactly_once, options, {**more_options, **of_spark}, co_partition, (), validate, token
    )
    return start_stream(df, arguments, framing, settings, trigger=trigger, output_mode=output_mode)

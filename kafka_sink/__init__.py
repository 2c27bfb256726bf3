"""pykafka: a Kafka sink for PySpark.

    Spark rows, as Arrow batches
       |  spark/       the "pykafka" data source: driver half, executor half, commit messages
       v
    records/           columns -> checked columns -> a partition per row -> record-batch v2 bytes
       v
    producer/          RecordAccumulator + BufferPool -> Sender: sequences, acks, retries
       v
    protocol/          requests and responses, framing, correlation ids
       v
    net/               NetworkClient over a Selector: connections, in-flight limits, timeouts
       v
    brokers ... acknowledgements -> receipts -> the task's commit message -> the driver

`client.py` is the shell that owns the Sender thread, the lock and the waiting; `options.py` is the table of options,
`config.py` what becomes of it, `errors.py` the tree of errors; `doctor/` finds out why a write would fail, `verify.py`
compares receipts with what is in the topics, `monitoring/` shows progress; `broker/` is a local Kafka for development
and tests.

    df.writeStream.format("pykafka").option("kafka.bootstrap.servers", "host:9092").option("topic", "orders")...

works without any registration when the package is installed where Spark's driver runs; `register(spark)` does the same
for a session that cannot look packages up, and takes interceptors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_sink.config import VERSION as __version__
from kafka_sink.spark.interceptors import Interceptor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafka_sink.doctor.report import Report

__all__ = ["Interceptor", "__version__", "dedupe", "partition_count", "receipts", "register", "validate"]


def register(
    spark: SparkSession,
    *,
    interceptors: Sequence[Interceptor] = (),
    token: Callable[[], tuple[str, float]] | None = None,
) -> None:
    """Makes `format("pykafka")` known to `spark`, where the automatic look-up cannot: a package that was shipped with
    `--py-files`, a Spark Connect session, or a session in which another `pyspark_*` module breaks the look-up.

    Every later write of the session goes through `interceptors`, in their order; another `register` replaces them.
    `token` is for `kafka.sasl.mechanism=OAUTHBEARER`, in place of `kafka.sasl.oauthbearer.token.endpoint.url`: it
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
    from kafka_sink.receipt_file import SPARK_SCHEMA

    # Without a scheme it is the driver's disk for the sink, and for Spark its fs.defaultFS.
    uri = f"file://{path}" if path.startswith("/") else path
    return spark.read.option("recursiveFileLookup", "true").schema(SPARK_SCHEMA).parquet(uri)


def dedupe(df: DataFrame, *, watermark: str | None = None) -> DataFrame:
    """The rows of `df` without those that a write with `rowIdentity` has written again, of which one is kept, whichever
    it is. `df`: what Spark's own `format("kafka")` reads with `includeHeaders=true`, batch or stream, before a select.
    Records without an identity are all kept. The identity's headers are taken away, so that who writes the rows on does
    not pass them off as its own; other headers stay, and `headers` is null where there are none.

    A stream without `watermark` remembers every row that it has seen. With one, as "2 hours", it remembers those of so
    long before the latest `timestamp`, and Spark drops records that are older than that, with an identity or without:
    so it must be longer than what the restart of the writing query takes, and than a partition's records are out of
    order or behind another partition's.

    Raises ValueError where columns are missing.
    """
    from kafka_sink.duplicates import without_duplicates

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
    from kafka_sink.client import partition_count as count
    from kafka_sink.config import complete, given_conf, given_options
    from kafka_sink.errors import MissingOption
    from kafka_sink.spark.source import pickled

    conf = {} if spark is None else spark.conf.getAll
    config = complete({**given_conf(conf), **given_options(options), "token_callable": pickled(token)})
    if config.topic is None:
        raise MissingOption(option="topic", hint="the topic whose partitions are counted.")
    return count(config.producer, config.topic)


def validate(
    df: DataFrame,
    *,
    executors: bool = False,
    token: Callable[[], tuple[str, float]] | None = None,
    **options: object,
) -> Report:
    """Whether a write of `df` with these options would work, without writing a row: options, columns, and then what
    `python -m kafka_sink.check` asks the cluster, from here and with `executors` from their hosts too. For batch and
    streaming DataFrames; of a stream Spark itself tells none of it before `start()` has returned.

    The options are those of the write, checkpointLocation among them; what they do not say is looked up in the conf of
    the DataFrame's session. `token`: as for `register`; it runs here. With createTopics=true a topic that is missing is
    made. Takes seconds where something is wrong. In notebooks the report shows itself as a table; `report.ok` is False
    where something failed.

    Raises ConfigError for options and SchemaError for columns, as a write does, or TypeError for a `token` that cannot
    be called.
    """
    from kafka_sink.spark.validation import validated

    return validated(df, options, executors=executors, token=token)

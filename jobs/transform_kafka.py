"""Reads topics, changes the records by SQL, and writes them into a topic: a job for spark-submit.

    # all that is there, then the end; the next run goes on behind it
    spark-submit jobs/transform_kafka.py --subscribe orders --starting-offsets earliest \\
        --bootstrap-servers localhost:9092 --topic large-orders --checkpoint /data/checkpoints/large-orders \\
        --where "get_json_object(CAST(value AS STRING), '$.quantity') > 30" --available-now

    # runs until it is stopped; every committed record of the source is in the topic once, whatever crashes
    spark-submit jobs/transform_kafka.py --subscribe orders,returns --starting-offsets earliest \\
        --bootstrap-servers broker:9092 --topic movements --checkpoint s3a://lake/checkpoints/movements \\
        --value "upper(CAST(value AS STRING))" --processing-time "10 seconds" \\
        --option deliveryGuarantee=exactly-once --option transactionalIdPrefix=movements

    # between two clusters, a limit on each micro-batch (Spark 4.2), and times and headers of the source's records
    spark-submit jobs/transform_kafka.py --subscribe-pattern "^orders-" \\
        --source-option kafka.bootstrap.servers=old:9092 --bootstrap-servers new:9092 --topic orders \\
        --checkpoint /data/checkpoints/orders --timestamp timestamp --headers headers \\
        --source-option maxOffsetsPerTrigger=100000 --processing-time "10 seconds"

The expressions are over the columns of the source: key and value (binary), topic, partition, offset, timestamp,
timestampType, and headers if --headers is given. By default key and value stay what they are, there is no header, and
the timestamp is the time of the write. {partitions} is the number of partitions that the written topic has at the start
of the job.

The source has the sink's options for servers, connections and security. --source-option sets and overrides options of
the source. If the sink writes exactly-once, the source reads with kafka.isolation.level=read_committed.

The job first checks both sides, as `pykafka check` does, and ends with status 1 if the read or the write would fail. It
prints one line for each micro-batch with the acknowledged rows, and a total. With --available-now it ends when the
records that existed at its start are written. Otherwise it runs until it is stopped. It fails with the error of the
source or the sink, or else the query's. On SIGTERM, to spark-submit or to the job, it finishes the running micro-batch
and ends with status 0. The next start continues with the next micro-batch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job_support import add_columns, add_sink, end_unless_ok, sink_options
from kafka_sink.command_line import assignment, parser_of
from kafka_sink.doctor.examinations import examine_read
from kafka_sink.doctor.report import Report
from kafka_sink.errors import ConfigError
from kafka_sink.options.config import EXACTLY_ONCE, given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.options.table import WRITING
from stream_support import add_stream, run, write


def main(arguments: Sequence[str]) -> None:
    run(parse(arguments), start)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the checked command line. Exit with a message and status 2 if it is wrong."""
    assert __doc__ is not None
    parser = parser_of(__doc__, "transform_kafka.py")
    source = parser.add_argument_group("source")
    what = source.add_mutually_exclusive_group(required=True)
    what.add_argument("--subscribe", metavar="TOPIC,...", help="topics to read")
    what.add_argument("--subscribe-pattern", metavar="REGEX", help="read the topics in whose names it is found")
    source.add_argument(
        "--starting-offsets",
        metavar="WHERE",
        help="earliest, latest or JSON, for the first run; later runs go on at the checkpoint (default: latest)",
    )
    source.add_argument(
        "--source-option",
        action="append",
        default=[],
        type=assignment,
        metavar="KEY=VALUE",
        help="option of the source, repeatable: failOnDataLoss=false",
    )
    source.add_argument("--where", metavar="EXPR", help="SQL condition; other records are left out (default: none are)")
    add_columns(parser, key="key", value="value")
    add_stream(parser, add_sink(parser))
    return parser.parse_args(arguments)


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    options = sink_options(args)
    source = source_options(args, options)
    end_unless_ok(lambda: looked_at(source))
    return write(read(spark, source, args.where), args, options)


def source_options(args: argparse.Namespace, sink: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the source, in lower case. --source-option overrides what the sink's options say of the
    cluster, and other arguments override both. `sink`: as sink_options returns them."""
    options = {name: text for name, text in sink.items() if is_of_both(name)}
    if sink.get("deliveryguarantee", "").strip().lower() == EXACTLY_ONCE:
        options["kafka.isolation.level"] = "read_committed"
    over = {
        "subscribe": args.subscribe,
        "subscribepattern": args.subscribe_pattern,
        "startingoffsets": args.starting_offsets,
        "includeheaders": "true" if args.headers else None,
    }
    options |= {name.lower(): text for name, text in args.source_option}
    return options | {name: text for name, text in over.items() if text is not None}


def is_of_both(name: str) -> bool:
    """Return whether the option is one and the same for reads and writes: servers, connections, security."""
    option = WRITING.by_key.get(name)
    return option is not None and READING.by_key.get(name) is option


def looked_at(source: Mapping[str, str]) -> Report:
    """Raises ConfigError."""
    try:
        config = read_config(given_options(source, table=READING), is_stream=True)
    except ConfigError as error:
        raise error.of_read() from None
    return examine_read(config)


def read(spark: SparkSession, source: Mapping[str, str], where: str | None) -> DataFrame:
    records = spark.readStream.format("pykafka").options(**source).load()
    return records.where(where) if where else records


if __name__ == "__main__":
    main(sys.argv[1:])

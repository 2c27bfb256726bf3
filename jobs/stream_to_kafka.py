"""Streams rows of any source, files above all, into Kafka: a job for spark-submit.

    spark-submit jobs/stream_to_kafka.py \\
        --format json --schema "id BIGINT, name STRING, at TIMESTAMP" --source /data/incoming \\
        --bootstrap-servers localhost:9092 --topic people --checkpoint /data/checkpoints/people \\
        --key "CAST(id AS STRING)" --timestamp at --available-now

    # runs until it is stopped, a micro-batch at most every 10 s; the tenants share the topic's partitions evenly
    spark-submit jobs/stream_to_kafka.py \\
        --format parquet --schema "tenant_id BIGINT, event STRING" --source s3a://lake/events \\
        --bootstrap-servers broker:9092 --topic events --checkpoint s3a://lake/checkpoints/events \\
        --partition "tenant_id % {partitions}" --processing-time "10 seconds" --preset conf/throughput.conf

    # a source that needs no files and no schema
    spark-submit jobs/stream_to_kafka.py --format rate --source-option rowsPerSecond=100 \\
        --bootstrap-servers localhost:9092 --topic ticks --checkpoint /data/checkpoints/ticks \\
        --processing-time "1 second" --preset conf/low-latency.conf

SQL expressions make Kafka's columns from the rows. By default the value is the whole row as JSON, there is no key and
no header, and the timestamp is the time of the write. {partitions} is the topic's number of partitions at the start of
the job. Options of the sink come from a preset, a file of `key = value` lines (conf/*.conf), and from --option
(spark-submit uses the name --conf itself). The job first checks the cluster, as `pykafka check` does, and ends with
status 1 if the write would fail.

The job prints one line for each micro-batch with the acknowledged rows, and a total. With --available-now it ends when
the rows that existed at its start are written. Otherwise it runs until it is stopped. It fails with the sink's error,
or else the query's. On SIGTERM, to spark-submit or to the job, it finishes the running micro-batch and ends with status
0. The next start continues with the next micro-batch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job_support import add_columns, add_files, add_sink, sink_options
from kafka_sink.command_line import parser_of
from stream_support import add_stream, run, write


def main(arguments: Sequence[str]) -> None:
    run(parse(arguments), lambda spark, args: start(read(spark, args), args))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the checked command line. Exit with a message and status 2 if it is wrong."""
    assert __doc__ is not None
    parser = parser_of(__doc__, "stream_to_kafka.py")
    source = parser.add_argument_group("source")
    source.add_argument("--format", default="json", help="json, csv, parquet, ..., any source (default: json)")
    source.add_argument("--source", metavar="PATH", help="folder the files arrive in")
    add_files(source)
    source.add_argument("--max-files-per-trigger", type=int, metavar="N", help="at most N files in a micro-batch")
    add_columns(parser)
    add_stream(parser, add_sink(parser))
    return parser.parse_args(arguments)


def read(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    options = dict(args.source_option)
    if args.max_files_per_trigger:
        options["maxFilesPerTrigger"] = str(args.max_files_per_trigger)
    reader = spark.readStream.format(args.format).options(**options)
    if args.schema:
        reader = reader.schema(args.schema)
    return reader.load(args.source)


def start(rows: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    return write(rows, args, sink_options(args))


if __name__ == "__main__":
    main(sys.argv[1:])

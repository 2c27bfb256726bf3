"""Streams files into a Kafka topic: a job for spark-submit.

    spark-submit jobs/stream_to_kafka.py \\
        --format json --schema "id BIGINT, name STRING, at TIMESTAMP" --source /data/incoming \\
        --bootstrap-servers localhost:9092 --topic people --checkpoint /data/checkpoints/people \\
        --key "CAST(id AS STRING)" --timestamp at --available-now

The rows' columns become Kafka's by SQL expressions: by default the value is the whole row as JSON, there is
no key and no header, and the timestamp is the time of the write. Options of the sink come from a preset, a
file of `key = value` lines (conf/demo.conf is one); spark-submit keeps the name --conf for itself.

A line is printed for every micro-batch, and a total. With --available-now the job ends when the files that
were there at its start are written; otherwise it runs on. It fails with the query's error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

PROGRESS_POLL_SECONDS = 1


def main(arguments: Sequence[str]) -> None:
    args = parse(arguments)
    spark = SparkSession.builder.appName(f"files to {args.topic}").getOrCreate()
    try:
        follow(start(kafka_columns(read(spark, args), args), args))
    finally:
        spark.stop()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, checked; exits with a message and status 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="stream_to_kafka.py", description="Stream files into a Kafka topic.")
    source = parser.add_argument_group("source")
    source.add_argument("--source", required=True, metavar="PATH", help="folder the files arrive in")
    source.add_argument("--format", default="json", help="of the files: json, csv, parquet, ... (default: json)")
    source.add_argument("--schema", required=True, metavar="DDL", help='"name TYPE, ..." as in CREATE TABLE')
    source.add_argument(
        "--source-option",
        action="append",
        default=[],
        type=assignment,
        metavar="KEY=VALUE",
        help="option of the source, repeatable: header=true",
    )
    source.add_argument("--max-files-per-trigger", type=int, metavar="N", help="at most so many a micro-batch")

    columns = parser.add_argument_group("columns", "SQL expressions over the source's columns")
    columns.add_argument("--value", default="to_json(struct(*))", metavar="EXPR", help="default: %(default)s")
    for column in ("key", "headers", "timestamp"):
        columns.add_argument(f"--{column}", metavar="EXPR", help="default: none")

    sink = parser.add_argument_group("sink")
    sink.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="unless the preset names them")
    sink.add_argument("--topic", required=True)
    sink.add_argument("--checkpoint", required=True, metavar="PATH", help="this stream's own, kept between runs")
    sink.add_argument("--preset", type=preset, default={}, metavar="FILE", help="sink options, `key = value` lines")

    trigger = parser.add_mutually_exclusive_group(required=True)
    trigger.add_argument("--available-now", action="store_true", help="write what is there and end")
    trigger.add_argument("--processing-time", metavar="INTERVAL", help='run on; "10 seconds"')
    return parser.parse_args(arguments)


def assignment(text: str) -> tuple[str, str]:
    key, separator, value = (part.strip() for part in text.partition("="))
    if not (key and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def preset(path: str) -> dict[str, str]:
    """The sink's options that a preset file holds."""
    options: dict[str, str] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, separator, value = (part.strip() for part in line.partition("="))
        # The line itself stays out of the message: its value may be a password.
        if not (key and separator):
            raise argparse.ArgumentTypeError(f"{path}, line {number} is not `key = value`")
        if key.lower() in map(str.lower, options):
            raise argparse.ArgumentTypeError(f"{path}, line {number} sets {key} again")
        options[key] = value
    return options


def read(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    options = dict(args.source_option)
    if args.max_files_per_trigger:
        options["maxFilesPerTrigger"] = str(args.max_files_per_trigger)
    return spark.readStream.format(args.format).schema(args.schema).options(**options).load(args.source)


def kafka_columns(rows: DataFrame, args: argparse.Namespace) -> DataFrame:
    """`rows` as the columns the sink takes, those that were asked for."""
    expressions = {name: getattr(args, name) for name in ("key", "value", "headers", "timestamp")}
    return rows.selectExpr(*(f"{text} AS {name}" for name, text in expressions.items() if text))


def start(records: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    writer = records.writeStream.format("pykafka").options(**args.preset).option("topic", args.topic)
    if args.bootstrap_servers:
        writer = writer.option("kafka.bootstrap.servers", args.bootstrap_servers)
    writer = writer.option("checkpointLocation", args.checkpoint)
    if args.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=args.processing_time)
    return writer.start()


def follow(query: StreamingQuery) -> None:
    """Prints a line for each micro-batch until the query ends, then a total; raises the query's error."""
    total = Total()
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(PROGRESS_POLL_SECONDS))
        for progress in query.recentProgress:
            # Spark also reports while it waits for files, under the number of the micro-batch to come.
            if progress["batchId"] > total.last_batch_id and progress["numInputRows"]:
                print(total.add(progress), flush=True)
    print(total, flush=True)


@dataclass(slots=True)
class Total:
    """What the micro-batches seen so far add up to; Spark keeps the progress of the last hundred only."""

    last_batch_id: int = -1
    micro_batches: int = 0
    rows: int = 0
    seconds: float = 0.0

    def add(self, progress: Any) -> str:
        """Counts a micro-batch in and returns its line."""
        rows, seconds = progress["numInputRows"], max(progress["batchDuration"], 1) / 1000
        self.last_batch_id = progress["batchId"]
        self.micro_batches += 1
        self.rows += rows
        self.seconds += seconds
        rate = rows / seconds
        return f"micro-batch {self.last_batch_id:>4} {rows:>10,} rows {seconds:7.2f} s {rate:>10,.0f} rows/s"

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0
        what = f"{self.rows:,} rows in {self.micro_batches:,} micro-batches"
        return f"{what}, {self.seconds:.2f} s, {rate:,.0f} rows/s"


if __name__ == "__main__":
    main(sys.argv[1:])

"""Checks, step by step and without writing a row, whether a write would work, and says what to do where it would not.

DNS, TCP, TLS, versions and SASL of each bootstrap server and of each broker where the cluster says that it is; the
topic, its leaders, replicas and settings; what the guarantee needs of ACLs and of the brokers. Options are those of the
write. Nothing is written; with createTopics=true a topic that is missing is made.

examples:
    pykafka check --bootstrap-servers localhost:9092 --topic orders
    pykafka check --preset conf/production.conf --topic orders
    pykafka check --preset conf/production.conf --topic orders --spark local[2]
    pykafka check --preset conf/production.conf --topic orders --json | jq '.verdicts[] | select(.status=="FAILED")'

with --json: ok; counts, by status; verdicts: status (OK, WARNING, FAILED, SKIPPED), step, where, seen_from, found,
remedy

exit status: 0 nothing failed (warnings may have been given); 1 something did; 2 wrong usage, or an option is wrong
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kafka_sink.command_line import (
    add_json,
    add_options,
    options_of,
    parser_of,
    run_to_the_end,
    say,
    tell,
    tell_json,
    terminal_width,
)
from kafka_sink.config import SinkConfig, sink_config
from kafka_sink.doctor.engine import examine
from kafka_sink.doctor.report import Report
from kafka_sink.errors import ConfigError

OK, FAILED, WRONG_USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        config = configuration(args)
    except ConfigError as error:
        return say(f"error: {error}", WRONG_USAGE)
    report = examine(config)
    if args.spark is not None:
        report += from_executors(config, args.spark)
    if args.json:
        tell_json(report.document())
    else:
        tell(*report.text(terminal_width()).split("\n"))
    return OK if report.ok else FAILED


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__, "pykafka check")
    add_options(made, example="kafka.security.protocol=SSL")
    made.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="the option `kafka.bootstrap.servers`")
    made.add_argument("--topic", metavar="NAME", help="the option `topic`")
    made.add_argument(
        "--spark", nargs="?", const="", metavar="MASTER",
        help="also from the executors: a small job connects from each to every broker. Without MASTER that of "
        "spark-defaults.conf",
    )  # fmt: skip
    add_json(made, "one document")
    return made


def configuration(args: argparse.Namespace) -> SinkConfig:
    """Raises ConfigError."""
    return sink_config(options_of(args, {"kafka.bootstrap.servers": args.bootstrap_servers, "topic": args.topic}))


def from_executors(config: SinkConfig, master: str) -> Report:
    """The steps of the hosts as executors see them."""
    from pyspark.sql import SparkSession

    from kafka_sink.spark.executors import examine_from_executors

    builder = SparkSession.builder.appName("kafka_sink.check")
    spark = (builder.master(master) if master else builder).getOrCreate()
    try:
        return examine_from_executors(spark, config.producer)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(run_to_the_end(main))

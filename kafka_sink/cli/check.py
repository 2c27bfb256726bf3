"""Checks, step by step and without writing a row, whether a write would work, and says what to do where it would not.

DNS, TCP, TLS, versions and SASL of each bootstrap server and of each broker where the cluster says that it is; the
topic, its leaders, replicas and settings; what the guarantee needs of ACLs and of the brokers. Options are those of the
write. Nothing is written; with createTopics=true a topic that is missing is made.

examples:
    pykafka check --bootstrap-servers localhost:9092 --topic orders
    pykafka check --preset conf/production.conf --topic orders
    pykafka check --preset conf/production.conf --topic orders --json | jq '.verdicts[] | select(.status=="FAILED")'
    pykafka check --preset conf/production.conf --topic orders --spark spark://master:7077
    PYSPARK_SUBMIT_ARGS="--master yarn --archives environment.tar.gz#environment pyspark-shell" \\
        pykafka check --preset conf/production.conf --topic orders --spark

with --json: ok; counts, by status; verdicts: status (OK, WARNING, FAILED, SKIPPED), step, where, seen_from, found,
remedy

exit status: 0 nothing failed (warnings may have been given); 1 something did; 2 wrong usage, or an option is wrong
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_sink.command_line import (
    add_json,
    add_options,
    options_of,
    parser_of,
    say,
    tell,
    tell_json,
    terminal_width,
)
from kafka_sink.doctor.engine import examine
from kafka_sink.doctor.report import Report, Verdict, warning
from kafka_sink.errors import ConfigError
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.options.config import SinkConfig, sink_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, FAILED, WRONG_USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        config = configuration(args)
    except ConfigError as error:
        return say(f"error: {error}", WRONG_USAGE)
    report = examine(config)
    if args.spark is not None:
        report += from_spark(config, args.spark)
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
        help="also which Python, version and kernel the driver, the planner and the tasks have, and each broker as "
        "executors see it. Without MASTER: the one of PYSPARK_SUBMIT_ARGS, SPARK_REMOTE or spark-defaults.conf",
    )  # fmt: skip
    add_json(made, "one document")
    return made


def configuration(args: argparse.Namespace) -> SinkConfig:
    """Raises ConfigError."""
    return sink_config(options_of(args, {"kafka.bootstrap.servers": args.bootstrap_servers, "topic": args.topic}))


def from_spark(config: SinkConfig, master: str) -> Report:
    """The interpreters that a write has, and the steps of the hosts as executors see them."""
    from pyspark.sql import SparkSession

    from kafka_sink.spark.interpreters import examine_interpreters

    builder = SparkSession.builder.appName("kafka_sink.check")
    if master:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    spark = builder.getOrCreate()
    try:
        report = examine_interpreters(spark)
        return report + from_executors(spark, config.producer) if report.ok else report
    finally:
        spark.stop()


def from_executors(spark: SparkSession, config: ProducerConfig) -> Report:
    """A warning where functions of the session, which do the looking, have another Python than the writer."""
    from kafka_sink.spark.executors import examine_from_executors
    from kafka_sink.spark.interpreters import telling

    try:
        return examine_from_executors(spark, config)
    except Exception as failure:
        found = f"Python functions cannot run there, so nobody looked at the brokers from there: {telling(failure)}"
        remedy = "set PYSPARK_PYTHON, which functions run, to a Python that has pyspark-pykafka and Spark's pyarrow"
        return Report((Verdict("python", "functions", warning(found, remedy), seen_from="executors"),))

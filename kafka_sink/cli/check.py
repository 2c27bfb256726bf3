"""Checks step by step if a write or a read would work, without a row, and says how to fix what fails.

It checks DNS, TCP, TLS, versions and SASL of each bootstrap server, and of each broker at its advertised address. Then
it checks the topic, its leaders, replicas and settings, and the ACLs and brokers that the guarantee needs. Its options
are the options of the write. It writes nothing; with createTopics=true it creates a missing topic. With --read it
checks the topics of a read, their leaders and the ACL TOPIC READ, and its options are those of the read. With
--checkpoint it also says why a stream is stuck: no new records, a lag that grows, an open transaction, a throttle, one
hot partition, a broker that is away, or Python workers that do not start. It looks twice, --wait seconds apart.

examples:
    pykafka check --bootstrap-servers localhost:9092 --topic orders
    pykafka check --preset conf/production.conf --topic orders
    pykafka check --preset conf/production.conf --topic orders --json | jq '.verdicts[] | select(.status=="FAILED")'
    pykafka check --preset conf/production.conf --topic orders --spark spark://master:7077
    pykafka check --read --preset conf/production.conf --topic orders,clicks
    pykafka check --bootstrap-servers localhost:9092 --checkpoint /data/checkpoints/orders --topic orders-upper
    PYSPARK_SUBMIT_ARGS="--master yarn --archives environment.tar.gz#environment pyspark-shell" \\
        pykafka check --preset conf/production.conf --topic orders --spark

with --json: ok; counts, by status; verdicts: status (OK, WARNING, FAILED, SKIPPED), step, where, seen_from, found,
remedy; with --checkpoint also cause: the verdict to begin with, or null

exit status: 0 no step failed (there may be warnings); 1 a step failed; 2 wrong usage, or an option is wrong
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_sink.command_line import add_json, add_options, answer, options_of, parser_of, say, terminal_width
from kafka_sink.doctor.examinations import examine, examine_read
from kafka_sink.doctor.report import Finding, Report, Verdict, failed, ok, skipped, warning
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.failures import of_read
from kafka_sink.errors.installed import NEEDED, found_pyspark
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.options.config import SinkConfig, given_options, sink_config
from kafka_sink.options.reading import READING, ReadConfig, read_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, FAILED, WRONG_USAGE = 0, 1, 2
MAX_WAIT_S = 3_600


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if args.read and args.checkpoint is not None:
        return say("error: --checkpoint is for the options of the write: leave --read out", WRONG_USAGE)
    try:
        config = read_configuration(args) if args.read else configuration(args)
    except ConfigError as error:
        return say(f"error: {error}", WRONG_USAGE)
    if args.spark is not None and found_pyspark() is None:
        return say(f"error: {NEEDED}", WRONG_USAGE)
    report = Report((Verdict("pyspark", "this Python", _pyspark()),))
    report += examined_read(config) if isinstance(config, ReadConfig) else examine(config)
    if args.spark is not None:
        client = config.consumer if isinstance(config, ReadConfig) else config.producer
        report += from_spark(client, args.spark)
    of_cause, lines = dict[str, object](), list[str]()
    if args.checkpoint is not None and isinstance(config, SinkConfig):
        from kafka_sink.cli import stuck

        report += stuck.examine_stream(args.checkpoint, config, args.wait)
        of_cause, lines = cause_of(stuck.cause(report))
    answer(args.json, report.document() | of_cause, *report.text(terminal_width()).split("\n"), *lines)
    return OK if report.ok else FAILED


def cause_of(cause: Verdict | None) -> tuple[dict[str, object], list[str]]:
    """Return why the stream is stuck, as a key of the document and as lines."""
    if cause is None:
        return {"cause": None}, ["", "Nothing here holds the stream up."]
    line = f"Begin with: {cause.step}, {cause.where}: {cause.finding.found}. To fix it: {cause.finding.remedy}."
    return {"cause": cause.document()}, ["", line]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= MAX_WAIT_S:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MAX_WAIT_S} seconds")
    return seconds


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__, "pykafka check")
    add_options(made, example="kafka.security.protocol=SSL")
    made.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="the option `kafka.bootstrap.servers`")
    made.add_argument("--topic", metavar="NAME", help="the option `topic`; of a read, `subscribe`")
    made.add_argument("--read", action="store_true", help="check a read, whose options these are")
    made.add_argument(
        "--spark", nargs="?", const="", metavar="MASTER",
        help="also check the Python, version and kernel of the driver, the planner and the tasks, and each broker from "
        "the executors. Default of MASTER: that of PYSPARK_SUBMIT_ARGS, SPARK_REMOTE or spark-defaults.conf",
    )  # fmt: skip
    made.add_argument(
        "--checkpoint", metavar="LOCATION",
        help="the checkpointLocation of a stream: say why it is stuck. --topic is the topic that it writes, if any",
    )  # fmt: skip
    made.add_argument(
        "--wait", type=_seconds, default=5.0, metavar="SECONDS", help="between the two looks at it; default: 5"
    )
    add_json(made, "one document")
    return made


def configuration(args: argparse.Namespace) -> SinkConfig:
    """Return the configuration of the write. Raises ConfigError."""
    return sink_config(options_of(args, {"kafka.bootstrap.servers": args.bootstrap_servers, "topic": args.topic}))


def _pyspark() -> Finding:
    """Say which pyspark this Python imports. This command needs none without --spark."""
    found = found_pyspark()
    if found is None:
        return skipped("none is installed here: commands need none")
    trouble = found.trouble()
    return ok(str(found)) if trouble is None else warning(*trouble)


def read_configuration(args: argparse.Namespace) -> ReadConfig:
    """Return the configuration of the read: of a stream, unless the options say where it ends. Raises ConfigError."""
    texts = options_of(args, {"kafka.bootstrap.servers": args.bootstrap_servers, "subscribe": args.topic})
    is_stream = not any(name.lower().startswith("ending") for name in texts)
    try:
        return read_config(given_options(texts, table=READING), is_stream=is_stream)
    except ConfigError as error:
        raise error.of_read() from None


def examined_read(config: ReadConfig) -> Report:
    """Check a read: what it needs of the cluster, and whether its tasks are worth their cost."""
    report = examine_read(config)
    return report + Report((Verdict("tasks", "read", _tasks(config)),)) if report.ok else report


def _tasks(config: ReadConfig) -> Finding:
    """Plan the read, as Spark's driver would now. A stream's first micro-batch is planned, without its limits."""
    from kafka_sink.kafka.clock import wall_clock_ms
    from kafka_sink.spark.kept_clients import lease_admin_client
    from kafka_sink.spark.reading.divide import described, enough_tasks, packed
    from kafka_sink.spark.reading.plan import Wanted, plan

    try:
        with of_read(), lease_admin_client(config.consumer) as client:
            tasks = packed(plan(client, config.at(wall_clock_ms()), Wanted()), config.max_partitions)
    except KafkaSinkError as error:
        return failed(str(error), "do what it says, then check again")
    enough = enough_tasks(tasks, config)
    if enough is None:
        return ok(described(tasks))
    found = f"{described(tasks)}: each costs more than that"
    return warning(found, f"set maxPartitions={enough}, which makes {enough} tasks of the same rows")


def from_spark(config: ClientConfig, master: str) -> Report:
    """Check the interpreters of Spark, then the brokers from the executors."""
    from pyspark.sql import SparkSession

    from kafka_sink.spark.interpreters import examine_interpreters

    builder = SparkSession.builder.appName("kafka_sink.check")
    if master:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    spark = builder.getOrCreate()
    try:
        report = examine_interpreters(spark)
        return report + from_executors(spark, config) if report.ok else report
    finally:
        spark.stop()


def from_executors(spark: SparkSession, config: ClientConfig) -> Report:
    """Check the brokers from the executors.

    The session's Python functions run the check. Return a warning if they cannot run: their Python may be another one
    than the writer's.
    """
    from kafka_sink.spark.interpreters import examine_from_executors, telling

    try:
        return examine_from_executors(spark, config)
    except Exception as failure:
        found = f"Python functions cannot run there, so the brokers were not checked from there: {telling(failure)}"
        remedy = "set PYSPARK_PYTHON, which runs functions, to a Python that has pyspark-pykafka"
        return Report((Verdict("python", "functions", warning(found, remedy), seen_from="executors"),))

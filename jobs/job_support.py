"""Shared code of the writing jobs: their arguments, the record's columns, and a clean end on SIGTERM.

A job imports this file by its name. `spark-submit jobs/<job>.py` finds it, because Python searches a script's folder
first. If Spark copies the script (cluster deploy mode), add `--py-files jobs/job_support.py`.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from kafka_sink.command_line import add_options, assignment, options_of, say, tell
from kafka_sink.doctor.examinations import examine
from kafka_sink.doctor.report import Report
from kafka_sink.errors import KafkaSinkError
from kafka_sink.spark.validation import configuration

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
PARTITIONS = "{partitions}"

# Valid names of topics. Source: org.apache.kafka.common.internals.Topic.
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


# --- arguments --------------------------------------------------------------------------------------------------------


def add_files(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--schema", metavar="DDL", help='of the rows, "name TYPE, ..." as in CREATE TABLE')
    parser.add_argument(
        "--source-option",
        action="append",
        default=[],
        type=assignment,
        metavar="KEY=VALUE",
        help="option of the source, repeatable: header=true",
    )


def add_columns(parser: argparse.ArgumentParser, *, key: str | None = None, value: str = "to_json(struct(*))") -> None:
    columns = parser.add_argument_group(
        "columns", f"SQL expressions over the source's columns; {PARTITIONS} in one is the topic's number of partitions"
    )
    columns.add_argument("--value", default=value, metavar="EXPR", help="default: %(default)s")
    columns.add_argument("--key", default=key, metavar="EXPR", help=f"string or binary; default: {key or 'no key'}")
    columns.add_argument("--headers", metavar="EXPR", help="array<struct<key: string, value: binary>>; default: none")
    columns.add_argument("--timestamp", metavar="EXPR", help="default: the time of the write")
    columns.add_argument("--partition", metavar="EXPR", help=f'"tenant_id %% {PARTITIONS}"; default: by key, or sticky')


def add_sink(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    sink = parser.add_argument_group("sink")
    sink.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="required if the preset names none")
    sink.add_argument(
        "--topic",
        required=True,
        metavar="NAME|EXPR",
        help="the name of one topic, or an expression for each row's topic. A text that is no valid name is an "
        'expression: "concat(\'orders-\', region)". Put a column alone into parentheses: "(region)"',
    )
    sink.add_argument(
        "--create-topics",
        nargs="?",
        const="true",
        metavar="partitions=12,replicas=3",
        help="create a missing topic, with these settings or the brokers' defaults (option createTopics)",
    )
    add_options(sink, example="kafka.security.protocol=SSL")
    return sink


# --- from arguments to a write ----------------------------------------------------------------------------------------


def sink_options(args: argparse.Namespace) -> dict[str, str]:
    """Return the sink's options. --option overrides the preset, and other arguments override both."""
    over = {
        "kafka.bootstrap.servers": args.bootstrap_servers,
        "createTopics": args.create_topics,
        "topic": args.topic if TOPIC_NAME.fullmatch(args.topic) else None,
    }
    options = options_of(args, over)
    if over["topic"] is None:
        # If --topic is an expression, a topic option of the preset would override it.
        options.pop("topic", None)
    return options


def look_before(rows: DataFrame, options: Mapping[str, str]) -> None:
    """Check the cluster as `pykafka check` does, before Spark starts and retries tasks.

    Create a missing topic if createTopics is set. If the write would fail, print the failed steps and exit with
    status 1.
    """
    end_unless_ok(lambda: examine(configuration(rows, options, None)))


def end_unless_ok(examined: Callable[[], Report]) -> None:
    """Exit with status 1 if an examination raises an error, or has failed steps."""
    try:
        report = examined()
    except KafkaSinkError as error:
        sys.exit(say(f"error: {error}", 1))
    if not report.ok:
        tell(*str(report).split("\n"), "", "Nothing was written: a step has FAILED.", file=sys.stderr)
        sys.exit(1)


def kafka_columns(rows: DataFrame, args: argparse.Namespace, count: Callable[[], int]) -> DataFrame:
    """Return `rows` with the requested columns of a record.

    `count` is called once, if an expression has `{partitions}`.
    """
    expressions = {name: getattr(args, name) for name in COLUMNS if getattr(args, name)}
    if not TOPIC_NAME.fullmatch(args.topic):
        expressions["topic"] = args.topic
    if any(PARTITIONS in text for text in expressions.values()):
        partitions = str(count())
        expressions = {name: text.replace(PARTITIONS, partitions) for name, text in expressions.items()}
    if "partition" in expressions:
        # `tenant_id % 12` is a bigint if tenant_id is a bigint, and the sink needs an int.
        expressions["partition"] = f"CAST({expressions['partition']} AS INT)"
    return rows.selectExpr(*(f"{text} AS {name}" for name, text in expressions.items()))


# --- SIGTERM ----------------------------------------------------------------------------------------------------------


def sigterm() -> threading.Event:
    """Make SIGTERM to this process only set the returned event."""
    arrived = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: arrived.set())
    return arrived


def session(name: str, arrived: threading.Event) -> SparkSession:
    """Return a Spark session whose JVM also sets the event on SIGTERM.

    spark-submit becomes the JVM, and the job is the JVM's child. A SIGTERM to spark-submit reaches only the JVM, which
    would end at once, and the job with it.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's own has no annotations
    java_signal = gateway.jvm.sun.misc.Signal
    java_signal.handle(java_signal("TERM"), JavaSignalHandler(arrived))
    return spark


class JavaSignalHandler:
    """A sun.misc.SignalHandler that the JVM calls through Py4J."""

    def __init__(self, arrived: threading.Event) -> None:
        self.arrived = arrived

    def handle(self, java_signal: object) -> None:
        self.arrived.set()

    class Java:
        implements = ("sun.misc.SignalHandler",)

"""What the jobs that write have in common: their arguments, the record's columns, and an orderly end on SIGTERM.

A job imports this by file name: `spark-submit jobs/<job>.py` finds it, since Python searches a script's folder first.
Where the script is copied elsewhere (cluster deploy mode), give it along: `--py-files jobs/job_support.py`.
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
from kafka_sink.doctor.engine import examine
from kafka_sink.errors import KafkaSinkError
from kafka_sink.spark.validation import configuration

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
PARTITIONS = "{partitions}"

# What Kafka takes for a topic's name (org.apache.kafka.common.internals.Topic).
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


def add_columns(parser: argparse.ArgumentParser) -> None:
    columns = parser.add_argument_group(
        "columns", f"SQL expressions over the source's columns; {PARTITIONS} in one is the topic's number of partitions"
    )
    columns.add_argument("--value", default="to_json(struct(*))", metavar="EXPR", help="default: %(default)s")
    columns.add_argument("--key", metavar="EXPR", help="string or binary; default: no key")
    columns.add_argument("--headers", metavar="EXPR", help="array<struct<key: string, value: binary>>; default: none")
    columns.add_argument("--timestamp", metavar="EXPR", help="default: the time of the write")
    columns.add_argument("--partition", metavar="EXPR", help=f'"tenant_id %% {PARTITIONS}"; default: by key, or sticky')


def add_sink(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    sink = parser.add_argument_group("sink")
    sink.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="unless the preset names them")
    sink.add_argument(
        "--topic",
        required=True,
        metavar="NAME|EXPR",
        help="one topic's name, or an expression for each row's: whatever cannot be a name is one, "
        '"concat(\'orders-\', region)"; a column alone goes in parentheses, "(region)"',
    )
    sink.add_argument(
        "--create-topics",
        nargs="?",
        const="true",
        metavar="partitions=12,replicas=3",
        help="make the topic if it is missing, as said or with the brokers' defaults: the option createTopics",
    )
    add_options(sink, example="kafka.security.protocol=SSL")
    return sink


# --- from arguments to a write ----------------------------------------------------------------------------------------


def sink_options(args: argparse.Namespace) -> dict[str, str]:
    """The sink's options: the preset's, over them those of --option, and over both the command line's own."""
    over = {
        "kafka.bootstrap.servers": args.bootstrap_servers,
        "createTopics": args.create_topics,
        "topic": args.topic if TOPIC_NAME.fullmatch(args.topic) else None,
    }
    options = options_of(args, over)
    if over["topic"] is None:
        # Where --topic is an expression, an option left by the preset would win over it.
        options.pop("topic", None)
    return options


def look_before(rows: DataFrame, options: Mapping[str, str]) -> None:
    """Looks at the cluster as `pykafka check` does, makes a missing topic where createTopics asks for that, and exits
    with status 1 and what is wrong where the write would fail: before Spark runs a task, and runs it again."""
    try:
        report = examine(configuration(rows, options, None))
    except KafkaSinkError as error:
        sys.exit(say(f"error: {error}", 1))
    if not report.ok:
        tell(*str(report).split("\n"), "", "Nothing was written: a step has FAILED.", file=sys.stderr)
        sys.exit(1)


def kafka_columns(rows: DataFrame, args: argparse.Namespace, count: Callable[[], int]) -> DataFrame:
    """`rows` as the columns the sink takes, those that were asked for.

    `count` is called, once, if an expression has `{partitions}`.
    """
    expressions = {name: getattr(args, name) for name in COLUMNS if getattr(args, name)}
    if not TOPIC_NAME.fullmatch(args.topic):
        expressions["topic"] = args.topic
    if any(PARTITIONS in text for text in expressions.values()):
        partitions = str(count())
        expressions = {name: text.replace(PARTITIONS, partitions) for name, text in expressions.items()}
    if "partition" in expressions:
        # `tenant_id % 12` is a bigint where tenant_id is one; the sink takes an int.
        expressions["partition"] = f"CAST({expressions['partition']} AS INT)"
    return rows.selectExpr(*(f"{text} AS {name}" for name, text in expressions.items()))


# --- SIGTERM ----------------------------------------------------------------------------------------------------------


def sigterm() -> threading.Event:
    """From now on SIGTERM to this process does no more than set the event."""
    arrived = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: arrived.set())
    return arrived


def session(name: str, arrived: threading.Event) -> SparkSession:
    """A Spark session whose JVM, too, answers SIGTERM with the event.

    The process that spark-submit becomes is the JVM, and the job is its child: a SIGTERM to the one that was started
    reaches the JVM alone, which would end at once and the job with it.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's own has no annotations
    java_signal = gateway.jvm.sun.misc.Signal
    java_signal.handle(java_signal("TERM"), JavaSignalHandler(arrived))
    return spark


class JavaSignalHandler:
    """sun.misc.SignalHandler, as the JVM calls it through Py4J."""

    def __init__(self, arrived: threading.Event) -> None:
        self.arrived = arrived

    def handle(self, java_signal: object) -> None:
        self.arrived.set()

    class Java:
        implements = ("sun.misc.SignalHandler",)

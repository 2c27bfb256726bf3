"""The mistakes of a newcomer. Each is a program, and the line of its traceback that explains the mistake.

docs/mistakes.md shows them, and `.ci/first_hour.py` makes them, as a new user's programs. The standard library only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from textwrap import dedent

# What every program begins with: a topic of two partitions is there, and nobody asked for security.
BEGINNING = """\
import os
import tempfile

import kafka_sink
from pyspark.sql import SparkSession

SERVERS, TOPIC = os.environ["SERVERS"], os.environ["TOPIC"]
folder = tempfile.mkdtemp()
spark = SparkSession.builder.getOrCreate()
orders = spark.range(10).selectExpr("id AS order_id", "id % 7 AS tenant_id")
texts = orders.selectExpr("to_json(struct(*)) AS value")
ticks = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
options = {"kafka.bootstrap.servers": SERVERS, "topic": TOPIC}
"""


class Place(Enum):
    """The place of the answer in the output of Python."""

    LAST = "the last line of the traceback"
    SINK = "the first line that begins with kafka_sink.errors."
    SPARK = "the first line that begins with pyspark.errors."


@dataclass(frozen=True, slots=True)
class Mistake:
    """`number`: the same for one mistake made by several calls. `what` and `call` are Markdown."""

    number: int
    name: str
    what: str
    call: str
    place: Place
    body: str

    @property
    def program(self) -> str:
        return BEGINNING + dedent(self.body).strip() + "\n"


MISTAKES = (
    Mistake(1, "option-export", "An option is misspelled", "`export`", Place.LAST,
            'kafka_sink.export(orders, TOPIC, value="json", bootstrap_server=SERVERS)'),
    Mistake(1, "option-write", "An option is misspelled", "`df.write`", Place.SINK, """
        options["kafka.bootstrap.server"] = options.pop("kafka.bootstrap.servers")
        texts.write.format("pykafka").mode("append").options(**options).save()
        """),
    Mistake(2, "topic-export", "The topic does not exist", "`export`", Place.LAST,
            'kafka_sink.export(orders, "ordres", value="json", bootstrap_servers=SERVERS)'),
    Mistake(2, "topic-write", "The topic does not exist", "`df.write`", Place.SINK, """
        options["topic"] = "ordres"
        texts.write.format("pykafka").mode("append").options(**options).save()
        """),
    Mistake(3, "address-export", "Nobody listens at the address", "`export`", Place.LAST,
            'kafka_sink.export(orders, TOPIC, value="json", bootstrap_servers="127.0.0.1:1")'),
    Mistake(4, "security-sasl", "PLAIN, and the brokers ask for no login", "`export`", Place.LAST, """
        login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="secret";'
        kafka_sink.export(
            orders, TOPIC, value="json", bootstrap_servers=SERVERS, security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN", sasl_jaas_config=login, allow_plaintext_credentials=True)
        """),
    Mistake(4, "security-tls", "TLS, and the brokers have none", "`export`", Place.LAST,
            'kafka_sink.export(orders, TOPIC, value="json", bootstrap_servers=SERVERS, security_protocol="SSL")'),
    Mistake(5, "column-export", "The DataFrame has no column `value`", "`export`", Place.LAST,
            "kafka_sink.export(orders, TOPIC, bootstrap_servers=SERVERS)"),
    Mistake(5, "column-write", "The DataFrame has no column `value`", "`df.write`", Place.SINK,
            'orders.write.format("pykafka").mode("append").options(**options).save()'),
    Mistake(5, "type-export", "The value is a number", "`export`", Place.LAST,
            'kafka_sink.export(orders, TOPIC, value="order_id", bootstrap_servers=SERVERS)'),
    Mistake(6, "mode-write", 'No `mode("append")`', "`df.write`", Place.SPARK,
            'texts.write.format("pykafka").options(**options).save()'),
    Mistake(6, "update-stream", 'Update mode by `outputMode("update")`', "`writeStream`", Place.SPARK, """
        counts = ticks.groupBy("value").count().selectExpr("CAST(count AS STRING) AS value")
        query = counts.writeStream.format("pykafka").outputMode("update").options(**options)
        query.option("checkpointLocation", folder).start().awaitTermination()
        """),
    Mistake(7, "read", "An option of writes", "`spark.read`", Place.SINK,
            'spark.read.format("pykafka").options(**options).load().show()'),
    Mistake(7, "table-write", "The format as a table's", "`saveAsTable`", Place.SINK,
            'texts.write.format("pykafka").mode("append").options(**options).saveAsTable("orders")'),
    Mistake(7, "table-sql", "The format as a table's", "`CREATE TABLE orders USING pykafka`", Place.SINK,
            'spark.sql("CREATE TABLE orders USING pykafka")'),
    Mistake(8, "list-export", "A list, and no DataFrame", "`export`", Place.LAST,
            'kafka_sink.export([{"order_id": 1}], TOPIC, value="json", bootstrap_servers=SERVERS)'),
    Mistake(8, "stream-export", "A stream, and no batch", "`export`", Place.LAST,
            'kafka_sink.export(ticks, TOPIC, value="value", bootstrap_servers=SERVERS)'),
    Mistake(9, "large-export", "A row is too large", "`export`", Place.LAST, """
        large = orders.selectExpr("CAST(order_id AS STRING) AS key", "repeat('x', 2000000) AS value").coalesce(1)
        kafka_sink.export(large, TOPIC, bootstrap_servers=SERVERS)
        """),
    Mistake(9, "large-stream", "A row is too large", "`writeStream`", Place.SINK, """
        large = ticks.selectExpr("repeat('x', 2000000) AS value").coalesce(1)
        query = large.writeStream.format("pykafka").options(**options)
        query.option("checkpointLocation", folder).start().awaitTermination()
        """),
    Mistake(10, "prefix-stream", "Two queries have one `transactionalIdPrefix`", "`to_kafka`", Place.LAST, """
        def run(checkpoint):
            texts.write.mode("append").parquet(f"{folder}/incoming")
            incoming = spark.readStream.schema(texts.schema).parquet(f"{folder}/incoming")
            query = kafka_sink.to_kafka(
                incoming, TOPIC, bootstrap_servers=SERVERS, exactly_once=True, transactional_id_prefix=TOPIC,
                checkpoint_location=f"{folder}/{checkpoint}", trigger={"availableNow": True})
            query.awaitTermination()

        run("one")
        run("other")
        run("one")
        """),
)  # fmt: skip

_SPARKS_LOG = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")
_QUERY_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# A text that many errors have. docs/errors.md shows it once.
_SENT_AGAIN = re.compile(r"The write fails, so Spark does not record it as done\. .* will be in the topic twice\.")


def answer_in(printed: str, place: Place) -> str | None:
    """Return the line at `place` of the output of Python and Spark; None if there is no such line."""
    lines = [line for line in printed.splitlines() if line.strip() and not _SPARKS_LOG.match(line)]
    if place is Place.LAST:
        return lines[-1] if lines else None
    beginning = "kafka_sink.errors." if place is Place.SINK else "pyspark.errors."
    return next((line for line in lines if line.startswith(beginning)), None)


def normalised(answer: str, bootstrap_servers: str, topic: str) -> str:
    """Replace addresses, names, ids and times by values that are the same in every run."""
    text = answer.replace(bootstrap_servers, "localhost:9092").replace(topic, "orders").strip()
    for number, query_id in enumerate(dict.fromkeys(_QUERY_ID.findall(text)), start=1):
        text = text.replace(query_id, f"QUERY-{number}")
    return re.sub(r"\bfor \d+ ms\b", "for 5000 ms", text)


PAGE = """\
# Ten mistakes

What a newcomer gets wrong in the first hour, and the line that says so. A test makes each of these mistakes and
compares the line.

| Call | The line is |
|---|---|
| `kafka_sink.export`, and the query of `kafka_sink.to_kafka` | the last line of the traceback |
| Spark's own API | the first that begins with `kafka_sink.errors.`; `kafka_sink.error_of(failure)` gives the error |
| Spark's own API over Spark Connect | the same; \
`spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")` leaves out the 109 lines of Java behind it |
| Spark's own API, where Spark refuses the call itself | the first that begins with `pyspark.errors.` |

In the lines below, `localhost:9092` is the cluster, `orders` a topic that is there, `QUERY-1` the id of a query, and
`...` the text [Sent again](errors.md#sent-again).

{table}

Three of these lines do not say what works: a write [without a mode](faq.md#why-modeappend), [update
mode](exports.md#update-mode), and [`CREATE TABLE` with
columns](from-spark-kafka.md#two-calls-that-spark-accepts), which Spark accepts.
"""


def page(answers: Mapping[str, str]) -> str:
    """Return the text of docs/mistakes.md. `answers`: name of the mistake -> its line, normalised."""
    return PAGE.format(table=table(answers))


def table(answers: Mapping[str, str]) -> str:
    rows = ["| | Mistake | Call | The line |", "|---|---|---|---|"]
    return "\n".join([*rows, *(row(mistake, answers.get(mistake.name, "")) for mistake in MISTAKES)])


def row(mistake: Mistake, answer: str) -> str:
    fence = "``" if "`" in answer else "`"
    line = _SENT_AGAIN.sub("...", answer).replace("|", "\\|")
    return f"| {mistake.number} | {mistake.what} | {mistake.call} | {fence}{line}{fence} |"

"""What Spark has since 4.1 to 4.3: types, settings of Arrow, and queries whose sources and sinks change."""

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from broker_admin import producer, read_values, send
from exactly_once_runs import is_unrecorded
from kafka_sink import errors
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import transactions
from spark_writes import Here, error_of, finish, pykafka, with_conf

pytestmark = pytest.mark.long

ARROW = "spark.sql.execution.arrow."
EVOLUTION = "spark.sql.streaming.queryEvolution."


# --- types ------------------------------------------------------------------------------------------------------------


def test_strings_with_a_collation_and_char_are_written_as_they_are(here: Here) -> None:
    name = here.topic(4)
    rows = here.spark.sql(
        f"SELECT '{name}' COLLATE UNICODE_CI AS topic, k COLLATE UTF8_LCASE AS key, "
        "v COLLATE UTF8_BINARY_RTRIM AS value, array(struct('h' COLLATE UTF8_LCASE AS key, X'31' AS value)) AS headers "
        "FROM VALUES ('A', '1 '), ('a', '2') AS t(k, v)"
    )
    here.save(rows, None)
    with with_conf(here.spark, "spark.sql.preserveCharVarcharTypeInfo", "true"):
        here.save(here.spark.sql("SELECT CAST('a' AS VARCHAR(5)) AS key, CAST('3' AS CHAR(3)) AS value"), name)
    kafka_sink.export(rows.select("key", "value"), name, key="key", bootstrap_servers=here.servers, co_partition=True)
    found = [(partition, record.key, record.value) for partition, _, record in here.records(name)]
    # Keys that the collation takes for equal are other bytes, and so other keys of Kafka's.
    (of_upper,), (of_lower,) = ({each[0] for each in found if each[1] == key} for key in (b"A", b"a"))
    assert of_upper != of_lower
    assert sorted(value for _, _, value in found if value) == [b"1 ", b"1 ", b"2", b"2", b"3  "]


@pytest.mark.parametrize("of", ["parse_json('{\"a\": 1}')", "TIME'12:34:56'", "INTERVAL '1' DAY", "INTERVAL '1' MONTH"])
def test_a_type_that_is_no_text_is_refused_before_a_row(here: Here, of: str) -> None:
    name = here.topic(1)
    rows = here.spark.sql(f"SELECT {of} AS value")
    for frame in (rows, rows.selectExpr("value AS key", "'v' AS value")):
        error = error_of(lambda frame=frame: here.save(frame, name))  # type: ignore[misc]
        assert isinstance(error, errors.ColumnTypeMismatch) and "cast('string')" in error.hint
    with pytest.raises(errors.ColumnTypeMismatch, match="No row of this write was sent"):
        kafka_sink.export(rows, name, key="value", value="json", bootstrap_servers=here.servers)
    kafka_sink.export(rows, name, value="json", bootstrap_servers=here.servers)
    here.save(rows.selectExpr("CAST(value AS STRING) AS value"), name)
    whole, text = (record.value for _, _, record in here.records(name))
    assert whole == b'{"value":%s}' % (text if "json" in of else b'"%s"' % text)


# --- settings of Arrow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [
    {"maxRecordsPerBatch": "7", "compression.codec": "zstd"}, {"useLargeVarTypes": "true", "maxBytesPerBatch": "100"},
], ids=str)  # fmt: skip
def test_rows_arrive_once_with_each_setting_of_arrow(here: Here, settings: dict[str, str]) -> None:
    source, target = here.topic(2), here.topic(2)
    rows = here.spark.range(0, 1_000, 1, 2).selectExpr(
        "IF(id % 7 = 0, NULL, STRING(id % 5)) AS key", "STRING(id) AS value",
        "map_entries(map('h', CAST(STRING(id) AS BINARY))) AS headers",
    )  # fmt: skip
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(with_conf(here.spark, ARROW + name, value))
        here.save(rows, source)
        copied = stream_of(here.spark, here.kafka, source, includeHeaders="true").select("key", "value", "headers")
        finish(here.start(copied, target, {"deliveryGuarantee": "exactly-once"}))

    def content(topic: str) -> list[tuple[bytes | None, bytes | None, Any]]:
        return sorted(
            ((each.key, each.value, each.headers) for _, _, each in here.records(topic)),
            key=lambda each: each[1] or b"",
        )

    assert content(target) == content(source) and len(content(target)) == 1_000


# --- queries whose sources and sinks change ---------------------------------------------------------------------------


def stream_of(spark: SparkSession, kafka: LocalKafka, topic: str, name: str | None = None, **options: str) -> DataFrame:
    reader = spark.readStream.format("pykafka").options(**options).option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("startingOffsets", "earliest")
    return (reader if name is None else reader.name(name)).load()


@dataclass(frozen=True, slots=True)
class Evolving:
    """A query from topics into a topic, exactly once, whose sources and sink have names and may change."""

    spark: SparkSession
    kafka: LocalKafka
    checkpoint: Path

    def run(self, sink: str, sources: Mapping[str, str], given: Mapping[str, str] = MappingProxyType({})) -> None:
        """Run the query to its end. The sink has the name of its topic."""
        each = [stream_of(self.spark, self.kafka, topic, name).select("value") for name, topic in sources.items()]
        rows = functools.reduce(DataFrame.union, each)
        writer = pykafka(rows.writeStream, self.kafka, sink).options(deliveryGuarantee="exactly-once", **given)
        # Only Scala's writer gives a sink a name.
        writer._jwrite = writer._jwrite.name(sink.replace("-", "_"))
        finish(writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start())

    def read(self, topic: str) -> list[str]:
        return sorted(value.decode() for value in read_values(self.kafka, topic).elements())


@pytest.fixture
def evolving(own_session: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Evolving:
    for of in "Source", "Sink":
        own_session.conf.set(f"{EVOLUTION}enable{of}Evolution", "true")
    return Evolving(own_session, kafka, tmp_path / "checkpoint")


def test_a_query_whose_sources_change_writes_each_record_once(
    evolving: Evolving, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    orders, returns, refunds, target = (topic(1) for _ in range(4))
    writer, checkpoint = producer(evolving.kafka), evolving.checkpoint

    def told() -> dict[str, int]:
        """What `pykafka transactions status` tells: how far behind each source is."""
        capsys.readouterr()
        line = "status", "--bootstrap-servers", evolving.kafka.bootstrap_servers, "--checkpoint", str(checkpoint)
        assert transactions.main([*line, "--json"]) == 0
        of_sources = json.loads(capsys.readouterr().out)["sources"]
        return {each["source"]: sum(of["behind"] for of in each["topics"]) for each in of_sources}

    send(writer, orders, [b"o1", b"o2"])
    send(writer, returns, [b"r1"])
    evolving.run(target, {"orders": orders, "returns": returns})
    assert (evolving.read(target), told()) == (["o1", "o2", "r1"], {"orders": 0, "returns": 0})
    send(writer, orders, [b"o3"])
    send(writer, returns, [b"r2"])
    send(writer, refunds, [b"f1"])
    assert told() == {"orders": 1, "returns": 1}
    for _ in range(2):
        evolving.run(target, {"refunds": refunds, "orders": orders})
        assert (evolving.read(target), told()) == (["f1", "o1", "o2", "o3", "r1"], {"orders": 0, "refunds": 0})
        is_unrecorded(checkpoint.parent)
    # A source that comes back goes on where it was.
    evolving.run(target, {"refunds": refunds, "orders": orders})
    evolving.run(target, {"returns": returns, "orders": orders})
    assert evolving.read(target) == ["f1", "o1", "o2", "o3", "r1", "r2"]


def test_a_query_whose_sink_changes_goes_on_in_the_other_topic(evolving: Evolving, topic: Callable[..., str]) -> None:
    source, one, two = (topic(1) for _ in range(3))
    writer = producer(evolving.kafka)
    for number, sink in enumerate((one, two, one)):
        send(writer, source, [b"%d" % number])
        evolving.run(sink, {"source": source})
    assert (evolving.read(one), evolving.read(two)) == (["0", "2"], ["1"])
    # A micro-batch that was decided is not written again, into no topic.
    is_unrecorded(evolving.checkpoint.parent)
    with pytest.raises(StreamingQueryException) as replay:
        evolving.run(two, {"source": source})
    assert isinstance(kafka_sink.error_of(replay.value), errors.NonDeterministicReplay)
    evolving.run(one, {"source": source})

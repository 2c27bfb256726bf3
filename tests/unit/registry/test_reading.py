"""What `deserialized` refuses, and what it asks the registry for, on the driver. Spark: integration."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import types as T

from kafka_sink import errors
from kafka_sink.registry import reading
from kafka_sink.registry.column import LETTER
from kafka_sink.registry.reading import deserialized
from small_registry import SmallRegistry, small_registry

FRAME: Any = SimpleNamespace(schema=T.StructType([
    T.StructField("value", T.BinaryType()), T.StructField("text", T.StringType()), T.StructField("t", T.BinaryType()),
    T.StructField("t", T.BinaryType()),
]))  # fmt: skip
LONG = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
STRING = LONG.replace("long", "string")
CONF = {"url": "http://127.0.0.1:1", "max.retries": "0"}


def made(monkeypatch: pytest.MonkeyPatch, at: SmallRegistry, **given: Any) -> str:
    """The type of the column. Making the column itself needs Spark."""
    monkeypatch.setattr(reading, "_column", lambda frame, column, of, reader, is_key: reader.spark_type.simpleString())
    of = {"topic": "orders", "form": "avro", "registry": {"url": at.url, "max.retries": "0"}, **given}
    return str(deserialized(FRAME, "value", **of))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"form": "orc"}, "form is one of"), ({"bad_rows": "skip"}, "bad_rows is one of fail, null, deadLetter"),
        ({"topic": None}, "give a topic, or a subject"), ({"subject": "s"}, "give a topic, or a subject"),
        ({"schema": LONG, "version": 1}, "are several schemas"),
        ({"schema_id": 7, "version": 1}, "are several schemas"),
        ({"message": "shop.Order"}, "message is for form='protobuf'"),
        ({"registry": {"url": "mock://"}}, "in the memory of this process"),
        ({"registry": SchemaRegistryClient.new_client({"url": "mock://x"})}, "in the memory of this process"),
    ],
)  # fmt: skip
def test_an_argument_is_refused_in_plain_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        deserialized(FRAME, "value", **{"topic": "orders", "form": "avro", "registry": CONF, **given})


def test_a_column_that_is_not_there_or_not_binary_is_refused() -> None:
    for column, error in (
        ("nowhere", errors.MissingColumn), ("text", errors.ColumnTypeMismatch), ("t", errors.DuplicateColumn),
    ):  # fmt: skip
        with pytest.raises(error, match=f"'{column}'"):
            deserialized(FRAME, column, topic="orders", form="avro", registry=CONF)


def test_a_dead_letter_has_all_of_its_record_or_is_refused() -> None:
    columns = ("key", "value", "headers", "topic", "partition", "offset")
    for missing in columns:
        frame = SimpleNamespace(schema=T.StructType([each for each in LETTER if each.name not in (missing, "reason")]))
        column = "key" if missing == "value" else "value"
        with pytest.raises(errors.MissingColumn, match=rf"no column '{missing}'.*includeHeaders=true"):
            deserialized(frame, column, topic="o", form="avro", registry=CONF, bad_rows="deadLetter")  # type: ignore[arg-type]


def test_the_readers_schema_is_the_latest_or_a_version_an_id_or_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_registry() as registry:
        first, _ = registry.add("orders-value", LONG), registry.add("orders-value", STRING)
        other = registry.add("orders-key", '"string"')
        assert made(monkeypatch, registry) == "struct<id:string>"
        assert made(monkeypatch, registry, version=1) == "struct<id:bigint>"
        assert made(monkeypatch, registry, schema_id=first) == "struct<id:bigint>"
        assert made(monkeypatch, registry, schema_id=other) == "string"
        assert made(monkeypatch, registry, is_key=True) == "string"
        assert made(monkeypatch, registry, topic=None, subject="orders-key") == "string"
        asked = len(registry.asked)
        assert made(monkeypatch, registry, schema='["null", "int"]') == "int"
        client = SchemaRegistryClient({"url": registry.url})
        assert made(monkeypatch, registry, registry=client, version=1) == "struct<id:bigint>"
        assert len(registry.asked) == asked + 1


def test_a_schema_that_cannot_be_the_readers_is_an_error_before_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_registry() as registry:
        with pytest.raises(errors.SchemaNotRegistered, match="'orders-value'"):
            made(monkeypatch, registry)
        with pytest.raises(errors.SchemaNotRegistered, match=r"no schema with id 7.*Check topic, subject, is_key"):
            made(monkeypatch, registry, schema_id=7)
        registry.add("orders-value", "{}", "JSON")
        with pytest.raises(errors.SchemaUnreadable, match=r"of subject 'orders-value'.*JSON.*or another schema_id"):
            made(monkeypatch, registry)
        rule = {"name": "mask", "kind": "TRANSFORM", "mode": "READ", "type": "CEL_FIELD"}
        registry.schemas.append({"schema": LONG, "schemaType": "AVRO", "ruleSet": {"domainRules": [rule]}})
        with pytest.raises(errors.SchemaUnreadable, match="its rule 'mask'"):
            made(monkeypatch, registry, schema_id=2)
        for text in ("{", "[" * 300 + "]" * 300):
            with pytest.raises(errors.SchemaUnreadable) as refused:
                made(monkeypatch, registry, schema=text)
            assert "the records stay in Kafka" in str(refused.value)
            assert "without one the subject's latest is used" in str(refused.value)
    with pytest.raises(errors.RegistryUnreachable, match="for a read executors as well"):
        deserialized(FRAME, "value", topic="orders", form="avro", registry=CONF)

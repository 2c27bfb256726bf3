"""What a column for a registry asks for, in which order, and what is refused before it asks. The columns that Spark
makes of it: tests/integration/test_registry.py."""

from __future__ import annotations

import base64
import functools
import json
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema, DuplicateColumn, MissingColumn, SchemaError, TypeNotMapped
from kafka_sink.registry import avro, column
from kafka_sink.registry.column import serialized
from kafka_sink.registry.registering import Registry
from kafka_sink.registry.subjects import record_name, subject_name
from registry_stand_in import registry_stand_in

ID = T.StructType([T.StructField("id", T.LongType())])
ID_AND_NAME = T.StructType([*ID.fields, T.StructField("name", T.StringType())])
TWICE = T.StructType([*ID.fields, *ID.fields])
LATEST = ("GET", "/subjects/orders-value/versions/latest")
QUICK = {"max.retries": "0", "timeout": "5"}


def registering(subject: str) -> tuple[str, str]:
    return "POST", f"/subjects/{subject}/versions"


def frame_of(columns: T.StructType) -> Any:
    """What of a DataFrame is looked at before Spark is needed."""
    return SimpleNamespace(schema=columns)


def pinned(
    form: str,
    registry: Any,
    columns: T.StructType = ID,
    *,
    subject: str = "topic",
    is_key: bool = False,
    schema: Any = None,
) -> tuple[Any, int]:
    names = functools.partial(subject_name, subject, "orders", is_key=is_key)
    name = record_name("orders", is_key)
    return column.pinned_schema(column.FORMS[form], columns, name, Registry.of(registry), names, schema)


@pytest.mark.parametrize(
    ("subject", "is_key", "asked"),
    [
        ("topic", False, "orders-value"),
        ("topic", True, "orders-key"),
        ("record", False, "orders_value"),
        ("record", True, "orders_key"),
        ("topic-record", False, "orders-orders_value"),
    ],
)
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_derived_schema_is_registered_once_under_its_subject(
    form: str, subject: str, is_key: bool, asked: str
) -> None:
    with registry_stand_in({registering(asked): (200, {"id": 9})}) as stand_in:
        encoding, schema_id = pinned(form, {"url": stand_in.url, **QUICK}, subject=subject, is_key=is_key)
    ((*request, body),) = stand_in.asked
    assert (tuple(request), schema_id) == (registering(asked), 9)
    # Avro is what a registry takes a schema for that names no type.
    assert body.get("schemaType", "AVRO") == form.upper()
    assert body["schema"] == encoding.text
    name = json.loads(body["schema"])["name" if form == "avro" else "title"]
    assert name == ("orders_key" if is_key else "orders_value")


def test_a_protobuf_schema_keeps_the_numbers_of_the_subjects_latest() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    _, first_id = pinned("protobuf", client, ID)
    reversed_columns = T.StructType(ID_AND_NAME.fields[::-1])
    encoding, second_id = pinned("protobuf", client, reversed_columns)
    (message,) = FileDescriptorProto.FromString(base64.b64decode(encoding.text)).message_type
    assert {field.name: field.number for field in message.field} == {"id": 1, "name": 2}
    assert first_id != second_id
    assert pinned("protobuf", client, ID_AND_NAME)[1] == second_id


def test_a_given_schemas_record_names_the_subject() -> None:
    schema = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": ["null", "long"]}]})  # fmt: skip
    with registry_stand_in({registering("shop.Order"): (200, {"id": 9})}) as stand_in:
        _, schema_id = pinned("avro", {"url": stand_in.url, **QUICK}, subject="record", schema=schema)
    assert schema_id == 9 and stand_in.asked[0][2]["schema"] == schema


def test_the_latest_is_taken_as_it_is_and_nothing_registered() -> None:
    text = avro.derived(ID, "of_somebody_else")
    latest = {"id": 4, "version": 2, "subject": "orders-value", "schema": text, "schemaType": "AVRO"}
    with registry_stand_in({LATEST: (200, latest)}) as stand_in:
        conf = {"url": stand_in.url, "use.latest.version": "true", **QUICK}
        encoding, schema_id = pinned("avro", conf)
        assert (encoding.text, schema_id) == (text, 4)
        with pytest.raises(ColumnNotInSchema):
            pinned("avro", conf, ID_AND_NAME)
    assert {asked[:2] for asked in stand_in.asked} == {LATEST}


@pytest.mark.parametrize("form", ["avro", "json"])
def test_columns_that_do_not_fit_are_refused_before_a_registry_is_asked(form: str) -> None:
    schemas = {"avro": avro.derived(ID, "r"), "json": '{"properties": {"id": {"type": "string"}}}'}
    with registry_stand_in({}) as stand_in:
        conf = {"url": stand_in.url, **QUICK}
        with pytest.raises(ColumnNotInSchema):
            pinned(form, conf, ID_AND_NAME, schema=schemas[form])
        with pytest.raises(TypeNotMapped):
            pinned(form, conf, T.StructType([T.StructField("v", T.VariantType())]))
    assert stand_in.asked == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"form": "xml"}, "form is one of avro, json, protobuf, not 'xml'"),
        ({"subject": "table"}, "subject is one of topic, record, topic-record, not 'table'"),
        ({"schema": "{}"}, "two schemas"),
        ({"columns": "id"}, "names of one or more columns"),
        ({"columns": []}, "names of one or more columns"),
    ],
)
def test_arguments_that_are_none_are_refused_before_a_registry_is_asked(changed: dict[str, Any], said: str) -> None:
    with registry_stand_in({}) as stand_in:
        latest = {"url": stand_in.url, "use.latest.version": "true", **QUICK}
        arguments = {"columns": ["id"], "topic": "orders", "form": "avro", "registry": latest, **changed}
        with pytest.raises(ValueError, match=said):
            serialized(frame_of(ID), **arguments)
    assert stand_in.asked == []


@pytest.mark.parametrize(
    ("frame", "columns", "error"),
    [
        (ID, ["id", "name"], MissingColumn),
        (ID, ["id.x"], MissingColumn),
        (TWICE, ["id"], DuplicateColumn),
        (ID, ["id", "id"], DuplicateColumn),
    ],
)
def test_columns_are_there_and_once(frame: T.StructType, columns: list[str], error: type[SchemaError]) -> None:
    with registry_stand_in({}) as stand_in, pytest.raises(error) as refused:
        serialized(frame_of(frame), columns, topic="orders", form="avro", registry={"url": stand_in.url, **QUICK})
    assert refused.value.column == columns[-1]
    assert stand_in.asked == []


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("orders", "orders_value"), ("shop.orders-eu", "shop_orders_eu_value"), ("1st", "_1st_value")],
)
def test_a_derived_record_has_a_name_that_every_form_allows(topic: str, expected: str) -> None:
    assert record_name(topic, is_key=False) == expected
    assert record_name(topic, is_key=True) == expected.replace("value", "key")


def test_columns_are_taken_in_the_order_they_are_named_in() -> None:
    assert column.fields_of(frame_of(ID_AND_NAME), ["name", "id"]).names == ["name", "id"]

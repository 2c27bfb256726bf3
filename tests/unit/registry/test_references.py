"""Schemas that refer to schemas of other subjects: what is fetched, its bounds, and that rows are the same bytes as by
the official serializers."""

import base64
import functools
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as T

from http_endpoints import registry_stand_in
from kafka_sink import errors
from kafka_sink.registry import avro, avro_reading, column, json_reading, json_schema, protobuf, references
from kafka_sink.registry.decoding import Batch, Reading, decoded
from kafka_sink.registry.forms import prefix
from kafka_sink.registry.references import Written, referred
from kafka_sink.registry.registering import Registry
from registry_rows import arrow_rows, columns_of

VALUE = SerializationContext("orders", MessageField.VALUE)
LATEST = {"use.latest.version": "true"}
CITY = {"type": "record", "name": "City", "namespace": "shop", "fields": [{"name": "zip", "type": "string"}]}
ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [
    {"name": "street", "type": "string"}, {"name": "city", "type": "City"}]}  # fmt: skip
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "to", "type": ["null", "Address"]},
    {"name": "from", "type": "City"}]}  # fmt: skip
PLACE = columns_of(zip=T.StringType())
COLUMNS = columns_of(id=T.LongType(), to=columns_of(street=T.StringType(), city=PLACE), **{"from": PLACE})
ROW = {"id": 7, "to": {"street": "s", "city": {"zip": "0150"}}, "from": {"zip": "0151"}}
FORMS = {"AVRO": avro, "JSON": json_schema, "PROTOBUF": protobuf}


def mock() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def registered(client: SchemaRegistryClient, subject: str, schema: Any, *refers: Any, form: str = "AVRO") -> Any:
    """Register the schema, and return a reference to it by the subject's name."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    client.register_schema(subject, Schema(text, form, [*refers]))
    return SchemaReference(subject, subject, client.get_latest_version(subject).version)


def latest(client: SchemaRegistryClient, form: str, columns: T.StructType = COLUMNS) -> tuple[Any, int]:
    asked = Registry(client, "mock://", registers=False, uses_latest=True)
    return column.pinned_schema(FORMS[form], columns, "r", asked, lambda name: "orders-value", None)


def given(client: SchemaRegistryClient, schema: Schema, columns: T.StructType = COLUMNS) -> tuple[Any, int]:
    form = FORMS[schema.schema_type or ""]
    return column.pinned_schema(form, columns, "r", Registry(client, "mock://"), lambda name: "orders-value", schema)


def avro_order(client: SchemaRegistryClient) -> Schema:
    city = registered(client, "shop.City", CITY)
    address = registered(client, "shop.Address", ADDRESS, city)
    return Schema(json.dumps(ORDER), "AVRO", [address, city])


def test_rows_of_an_avro_schema_that_refers_to_others_are_the_official_bytes() -> None:
    client = mock()
    schema = avro_order(client)
    encoding, schema_id = given(client, schema)
    found = client.get_latest_version("orders-value")
    assert (found.schema_id, found.schema.references) == (schema_id, schema.references)
    official = AvroSerializer(client, schema)(ROW, VALUE)
    for one in (encoding, latest(client, "AVRO")[0]):
        assert one.encode(arrow_rows([ROW], COLUMNS), prefix(schema_id)).to_pylist() == [official]


def test_a_json_schema_that_refers_to_others_is_checked_with_them() -> None:
    client = mock()
    city = registered(client, "city.json", {"properties": {"zip": {"type": "string"}}}, form="JSON")
    street = {"properties": {"street": {"type": "string"}, "city": {"$ref": "city.json"}}}
    address = registered(client, "address.json", street, city, form="JSON")
    order = {"title": "Order", "properties": {
        "id": {"type": "integer"}, "to": {"$ref": "address.json"}, "from": {"$ref": "city.json#"}}}  # fmt: skip
    schema = Schema(json.dumps(order), "JSON", [address])
    encoding, schema_id = given(client, schema)
    assert (encoding.name, client.get_latest_version("orders-value").schema_id) == ("Order", schema_id)
    assert JSONSerializer(schema, client)(ROW, VALUE)[:5] == prefix(schema_id)
    assert latest(client, "JSON")[1] == schema_id
    wrong = columns_of(id=T.LongType(), to=columns_of(city=columns_of(zip=T.LongType())))
    with pytest.raises(errors.ColumnNotInSchema) as refused:
        latest(client, "JSON", wrong)
    assert refused.value.column == "to.city.zip"


def test_a_name_is_relative_to_the_schemas_id_too() -> None:
    client = mock()
    city = registered(client, "city.json", {"properties": {"zip": {"type": "string"}}}, form="JSON")
    order = {"$id": "https://shop.example/order.json", "properties": {"from": {"$ref": "city.json"}}}
    with pytest.raises(errors.ColumnNotInSchema):
        given(client, Schema(json.dumps(order), "JSON", [city]), columns_of(**{"from": columns_of(zip=T.LongType())}))


def proto(name: str, *fields: tuple[str, str | int], imports: tuple[str, ...] = ()) -> str:
    file = FileDescriptorProto(name="default", package="shop", syntax="proto3", dependency=imports)
    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields, 1):
        of = {"type": kind} if isinstance(kind, int) else {"type": 11, "type_name": kind}
        message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, **of)
    return base64.b64encode(file.SerializeToString()).decode()


def test_a_protobuf_schema_finds_the_files_that_it_imports() -> None:
    client = mock()
    city = registered(client, "city.proto", proto("City", ("zip", 9)), form="PROTOBUF")
    street = proto("Address", ("street", 9), ("city", ".shop.City"), imports=("city.proto",))
    address = registered(client, "address.proto", street, city, form="PROTOBUF")
    order = proto(
        "Order", ("id", 3), ("to", ".shop.Address"), ("from", ".shop.City"), ("at", ".google.protobuf.Timestamp"),
        imports=("address.proto", "city.proto", "google/protobuf/timestamp.proto"),
    )  # fmt: skip
    # The files that every client has may be references too, as older serializers register them.
    known = SchemaReference("google/protobuf/timestamp.proto", "timestamp", 1)
    registered(client, "timestamp", proto("Timestamp"), form="PROTOBUF")
    schema = Schema(order, "PROTOBUF", [address, city, known])
    encoding, schema_id = given(client, schema)
    assert latest(client, "PROTOBUF")[1] == schema_id
    (row,) = encoding.encode(arrow_rows([ROW], COLUMNS), b"").to_pylist()
    assert row == b"\x08\x07\x12\x0b\x0a\x01s\x12\x06\x0a\x040150\x1a\x06\x0a\x040151"
    with pytest.raises(errors.SchemaUnreadable, match=r"it imports address\.proto"):
        given(client, Schema(order, "PROTOBUF", []))


def chain(client: SchemaRegistryClient, length: int, subject: str = "s") -> Schema:
    """Schemas that refer to the next one each."""
    refers: list[Any] = []
    for number in range(length):
        refers = [registered(client, f"{subject}{number}", "{}", *refers)]
    return Schema("{}", "AVRO", refers)


def wide(client: SchemaRegistryClient, width: int, text: str = "{}") -> Schema:
    return Schema("{}", "AVRO", [registered(client, f"s{number}", text) for number in range(width)])


@pytest.mark.parametrize(
    ("bound", "most", "of", "reason"),
    [
        ("MAX_CHAIN", 3, chain, "a chain of more than 3"), ("MAX_REFERENCES", 3, wide, "more than 3 schemas"),
        ("MAX_CHARACTERS", 6, wide, "longer than 6 characters"),
    ],
)  # fmt: skip
def test_references_have_bounds(bound: str, most: Any, of: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = mock()
    monkeypatch.setattr(references, bound, most)
    registry = Registry(client, "mock://")
    assert len(referred(registry, of(client, 3), "orders-value", "Avro")) == 3
    with pytest.raises(errors.SchemaUnreadable, match=reason):
        referred(registry, of(mock_of(client), 4), "orders-value", "Avro")


def test_references_that_come_too_slowly_are_the_registrys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    client = mock()
    monkeypatch.setattr(references, "RESOLVE_TIMEOUT_S", 0.0)
    with pytest.raises(errors.RegistryUnreachable, match="not fetched within 0 s"):
        referred(Registry(client, "mock://"), wide(client, 1), "orders-value", "Avro")


def mock_of(client: SchemaRegistryClient) -> SchemaRegistryClient:
    """The same client, emptied."""
    client._store.clear()
    return client


def test_a_circle_ends_and_a_diamond_is_fetched_once_its_parts_before_it() -> None:
    def answer(name: str, *refers: str) -> tuple[int, Any]:
        named = [{"name": one, "subject": one, "version": 1} for one in refers]
        return 200, {"id": 1, "version": 1, "subject": name, "schema": f'"{name}"', "references": named}

    graph: Mapping[str, tuple[str, ...]] = {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ("a",)}
    answers = {("GET", f"/subjects/{name}/versions/1"): answer(name, *refers) for name, refers in graph.items()}
    with registry_stand_in(answers) as stand_in:
        registry = Registry.of({"url": stand_in.url, "max.retries": "0"})
        top = Schema("", "AVRO", [SchemaReference("a", "a", 1)])
        assert list(referred(registry, top, "orders-value", "Avro").items()) == [(name, f'"{name}"') for name in "dbca"]
    assert sorted(path for _, path, _ in stand_in.asked) == sorted(path for _, path in answers)


@pytest.mark.parametrize(
    ("subject", "path", "city"),
    [
        ("orders-value", "", "city"), (":.:orders-value", "", "city"), (":.shop:orders-value", "", "%3A.shop%3Acity"),
        ("orders-value", "/contexts/.shop", "city"),
    ],
)  # fmt: skip
def test_a_reference_is_of_the_context_of_the_subject_that_has_it(subject: str, path: str, city: str) -> None:
    """As by Java's client, whose subjects of references are QualifiedSubject.qualifySubjectWithParent. The client for
    Python asks for them in the default context."""

    def answer(schema: Any, *refers: tuple[str, str]) -> tuple[int, Any]:
        named = [{"name": name, "subject": of_name, "version": 1} for name, of_name in refers]
        return 200, {"id": 1, "version": 1, "subject": "s", "schema": json.dumps(schema), "references": named}

    of_subject = f"{path}/subjects/{subject.replace(':', '%3A')}/versions/latest"
    of_address, of_city = (f"{path}/subjects/{each}/versions/1" for each in ("%3A.other%3Aaddress", city))
    there = f"{path}/subjects/%3A.other%3Acity/versions/1"
    answers = {
        ("GET", of_subject): answer(ORDER, ("shop.City", "city"), ("shop.Address", ":.other:address")),
        ("GET", of_address): answer(ADDRESS, ("shop.Town", "city")),
        ("GET", of_city): answer(CITY), ("GET", there): answer({**CITY, "name": "Town"}),
    }  # fmt: skip
    with registry_stand_in(answers) as stand_in:
        registry = Registry.of({"url": stand_in.url + path, "max.retries": "0", **LATEST})
        encoding, _ = column.pinned_schema(avro, COLUMNS, "r", registry, lambda name: subject, None)
    assert [each for _, each, _ in stand_in.asked] == [of_subject, of_city, of_address, there]
    assert encoding.encode(arrow_rows([ROW], COLUMNS), b"").to_pylist() == [b"\x0e\x02\x02s\x080150\x080151"]


def test_a_record_of_a_context_is_read_by_its_ids_and_references_of_its_context() -> None:
    schema = {"schema": '"shop.City"', "references": [{"name": "shop.City", "subject": "city", "version": 1}]}
    answers = {
        ("GET", "/schemas/ids/1"): (200, schema),
        ("GET", "/subjects/%3A.shop%3Acity/versions/1"): (200, {"id": 1, "version": 1, "schema": json.dumps(CITY)}),
    }
    with registry_stand_in(answers) as stand_in:
        conf = {"url": stand_in.url, "max.retries": "0"}
        of_place = functools.partial(avro_reading.Reader, references.Written(json.dumps(CITY)))
        reading = Reading("contexts", of_place, conf, ":.shop:orders-value", False)
        nothing = (pa.nulls(1, pa.string()), pa.nulls(1, pa.int32()), pa.nulls(1, pa.int64()))
        records = pa.array([prefix(1) + b"\x080150"], pa.binary())
        found = decoded(reading, Batch(records, pa.nulls(1, pa.binary()), nothing)).to_pylist()
    assert found == [{"zip": "0150"}]
    assert stand_in.queries == ["subject=%3A.shop%3Aorders-value", "deleted=true"]


def test_imports_are_registered_in_the_context_of_the_schema() -> None:
    pool = DescriptorPool()
    for name, text in (
        ("city.proto", proto("City", ("zip", 9))),
        ("order.proto", proto("Order", ("to", ".shop.City"), imports=("city.proto",))),
    ):
        file = FileDescriptorProto.FromString(base64.b64decode(text))
        file.name = name
        pool.Add(file)  # type: ignore[no-untyped-call]
    order = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    city, value = "/subjects/%3A.shop%3Acity.proto", "/subjects/%3A.shop%3Aorders-value"
    found = {"id": 1, "version": 7, "subject": "s", "schema": "", "schemaType": "PROTOBUF"}
    answers = {("POST", path): (200, found) for path in (city, f"{city}/versions", f"{value}/versions")}
    with registry_stand_in(answers) as stand_in:
        registry = Registry.of({"url": stand_in.url, "max.retries": "0"})
        column.pinned_schema(protobuf, columns_of(to=PLACE), "r", registry, lambda name: ":.shop:orders-value", order)
    assert [path for _, path, _ in stand_in.asked] == [f"{city}/versions", city, f"{value}/versions"]
    refers = [{"name": "city.proto", "subject": "city.proto", "version": 7}]
    assert stand_in.asked[-1][2]["references"] == refers


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (SchemaReference("a", "a", 9), "refers to 'a', version 9 of subject 'a': Schema Not Found"),
        *((SchemaReference(*parts), "no name, or no subject, or no version") for parts in (
            (None, "a", 1), ("", "a", 1), ("a", None, 1), ("a", "a", None), ("a", "a", 0), ("a", "a", True))),
        (SchemaReference("j", "j", 1), "'j', which is of form JSON"),
    ],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_is_said(reference: Any, reason: str) -> None:
    client = mock()
    registered(client, "j", "{}", form="JSON")
    with pytest.raises(errors.SchemaUnreadable, match=reason) as refused:
        given(client, Schema(json.dumps(ORDER), "AVRO", [reference]))
    assert refused.value.subject is None and "the schema that was given" in str(refused.value)
    client.register_schema("orders-value", Schema(json.dumps(ORDER), "AVRO", [reference]))
    with pytest.raises(errors.SchemaUnreadable, match="schema of subject 'orders-value'") as refused:
        latest(client, "AVRO")
    assert "Correct the subject's latest schema" in str(refused.value)


def test_a_schema_of_another_type_is_none() -> None:
    client = mock()
    client.register_schema("orders-value", Schema("{}", "JSON"))
    with pytest.raises(errors.SchemaUnreadable, match="a schema of type JSON"):
        latest(client, "AVRO")
    with pytest.raises(errors.SchemaUnreadable, match="a schema of type JSON"):
        column.pinned_schema(avro, COLUMNS, "r", Registry(client, ""), lambda name: "s", Schema("{}", "JSON"))


@pytest.mark.parametrize(
    ("mode", "disabled", "enable_at", "refused"),
    [
        (RuleMode.WRITE, False, None, True), (RuleMode.WRITEREAD, None, "CLIENT", True),
        (RuleMode.WRITEREAD, True, None, False), (RuleMode.READ, False, None, False),
        (RuleMode.WRITE, False, "SERVER", False),
    ],
)  # fmt: skip
def test_a_rule_that_changes_records_is_never_skipped(mode: Any, disabled: Any, enable_at: Any, refused: bool) -> None:
    """A rule may encrypt fields: their plain text must not go out."""
    client = mock()
    rule = Rule("pii", "", RuleKind.TRANSFORM, mode, "ENCRYPT", ["PII"], None, None, None, "ERROR", disabled)
    for rules in (RuleSet([], [rule], None, enable_at), RuleSet([], [], [rule], enable_at)):
        schema = Schema(json.dumps(CITY), "AVRO", [], None, rules)
        client.register_schema("orders-value", schema)
        if refused:
            with pytest.raises(errors.SchemaUnreadable, match="its rule 'pii' of type ENCRYPT"):
                latest(client, "AVRO", PLACE)
        else:
            latest(client, "AVRO", PLACE)
        # As with the official serializers, a schema that is registered brings rules for those that use the latest.
        given(client, schema, PLACE)
        assert client.get_latest_version("orders-value").schema.rule_set == rules


DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
WHOLE_NUMBER = {"type": "integer"}
BY_REF = {
    "escaped /": ("#/definitions/a~1b", {"definitions": {"a/b": WHOLE_NUMBER}}),
    "escaped ~": ("#/definitions/a~0b", {"definitions": {"a~b": WHOLE_NUMBER}}),
    "escaped ~1": ("#/definitions/a~01b", {"definitions": {"a~1b": WHOLE_NUMBER}}),
    "percent": ("#/definitions/a%25b%20c", {"definitions": {"a%b c": WHOLE_NUMBER}}),
    "both": ("#/definitions/a%7E1b", {"definitions": {"a/b": WHOLE_NUMBER}}),
    "in an array": ("#/definitions/n/oneOf/1", {"definitions": {"n": {"oneOf": [{"type": "string"}, WHOLE_NUMBER]}}}),
    "anchor of draft 7": ("#whole", {"definitions": {"n": {"$id": "#whole", **WHOLE_NUMBER}}}),
    "anchor": ("#whole", {"$schema": DRAFT_2020, "$defs": {"n": {"$anchor": "whole", **WHOLE_NUMBER}}}),
    "absolute $id": ("https://a.b/n.json", {"definitions": {"n": {"$id": "https://a.b/n.json", **WHOLE_NUMBER}}}),
    "relative $id": ("n.json", {"$id": "https://a.b/order.json", "definitions": {
        "n": {"$id": "n.json", **WHOLE_NUMBER}}}),
    "within an $id": ("https://a.b/n.json#/definitions/m", {"definitions": {
        "n": {"$id": "https://a.b/n.json", "definitions": {"m": WHOLE_NUMBER}}}}),
    "of a part with an $id": ("#/definitions/n", {"definitions": {
        "n": {"$id": "https://a.b/n.json", "anyOf": [{"$ref": "#/definitions/m"}],
              "definitions": {"m": WHOLE_NUMBER}}}}),
}  # fmt: skip


@pytest.mark.parametrize("kind", BY_REF)
def test_a_json_ref_finds_what_the_official_validator_finds(kind: str) -> None:
    ref, rest = BY_REF[kind]
    schema = {**rest, "type": "object", "properties": {"n": {"$ref": ref}}}
    text = json.dumps(schema)
    json_schema.fitted(text, columns_of(n=T.LongType()))
    with pytest.raises(errors.ColumnNotInSchema) as refused:
        json_schema.fitted(text, columns_of(n=T.BooleanType()))
    assert refused.value.column == "n"
    assert json_reading.Reader(Written(text)).spark_type.simpleString() == "struct<n:bigint>"
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)(schema)
    assert validator.is_valid({"n": 1}) and not validator.is_valid({"n": True})


def test_a_whole_by_ref_is_checked_and_nothing_is_fetched() -> None:
    order = {"type": "object", "properties": {"n": WHOLE_NUMBER}, "additionalProperties": False}
    text = json.dumps({"$ref": "#/definitions/Order", "definitions": {"Order": order}})
    json_schema.fitted(text, columns_of(n=T.LongType()))
    for columns in (columns_of(n=T.StringType()), columns_of(m=T.LongType())):
        with pytest.raises(errors.ColumnNotInSchema):
            json_schema.fitted(text, columns)
    with registry_stand_in({}) as stand_in:
        for ref in (f"{stand_in.url}/n.json", "#/definitions/m", "#nowhere", "n.json", "#//definitions/Order"):
            schema = {"properties": {"n": {"$ref": ref}}, "definitions": {"Order": order}}
            with pytest.raises(errors.SchemaUnreadable, match="which is not within it"):
                json_schema.fitted(json.dumps(schema), columns_of(n=T.LongType()))
    assert stand_in.asked == []

"""Rows written and read with a real schema registry: Apicurio Registry 2, by its API of Confluent's form.

Bytes are compared with those of confluent-kafka's serializers, which ask the same registry. It checks credentials by
tokens of `openid_provider`, as by Keycloak's. Not covered are contexts: Apicurio has only the default one, and takes
`:.name:subject` for a name as any other. `unit/registry/test_references.py` has the requests.
"""

import base64
import http.client
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from apicurio import Apicurio, apicurio
from avro_kinds import nested, or_null, record_of, with_names
from kafka_sink.errors import (
    RecordUndecodable,
    RegistryRefused,
    RegistryUnreachable,
    SchemaIncompatible,
    SchemaNotRegistered,
)
from kafka_sink.registry import avro_reading, column, deserialized, json_reading, protobuf_reading, protoc, serialized
from kafka_sink.registry.decoding import Batch, Reading, decoded
from kafka_sink.registry.forms import prefix
from kafka_sink.registry.references import Written
from kafka_sink.registry.registering import Registry, subject_name
from openid_provider import Provider, new_key, openid_provider
from registry_rows import arrow_rows, columns_of, message_class
from small_registry import SmallRegistry, small_registry

pytestmark = pytest.mark.long

FORMS = ("avro", "json", "protobuf")
READERS: Mapping[str, Any] = {
    "avro": avro_reading.Reader, "json": json_reading.Reader, "protobuf": protobuf_reading.Reader,
}  # fmt: skip
QUICK = {"max.retries": "0", "timeout": "30"}
ID_AND_NAME = columns_of(id=T.LongType(), name=T.StringType())
ROWS: Any = [{"id": 7, "name": "æ"}, {"id": None, "name": None}, {"id": -1, "name": ""}]
numbers = itertools.count()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as found:
        yield found


@pytest.fixture
def topic() -> str:
    return f"orders-{next(numbers)}"


def conf(registry: Apicurio, **more: str) -> dict[str, str]:
    return {"url": registry.url, **QUICK, **{name.replace("_", "."): text for name, text in more.items()}}


def written(
    of: Mapping[str, str], topic: str, form: str, rows: Any, columns: T.StructType, schema: Any = None
) -> list[Any]:
    """What `serialized` writes, without Spark. JSON's rows need Spark."""
    names = partial(subject_name, "topic", topic, is_key=False)
    encoding, schema_id = column.pinned_schema(column.FORMS[form], columns, "r", Registry.of(of), names, schema)
    found: list[Any] = encoding.encode(
        arrow_rows(rows, columns), prefix(schema_id, encoding.message_indexes)
    ).to_pylist()
    return found


def official(client: SchemaRegistryClient, topic: str, form: str) -> Callable[[Any], Any]:
    """The official serializer with the subject's latest schema, which it registers again."""
    schema = client.get_latest_version(f"{topic}-value").schema
    context = SerializationContext(topic, MessageField.VALUE)
    if form == "protobuf":
        cls = message_class(schema.schema_str or "")
        write: Any = ProtobufSerializer(cls, client, {"use.deprecated.format": False})
        return lambda row: write(cls(**row), context)
    write = AvroSerializer(client, schema) if form == "avro" else JSONSerializer(schema, client)
    return lambda row: write(row, context)


def read(of: Mapping[str, Any], topic: str, form: str, schema: str, records: list[Any], *, nulls: bool = False) -> Any:
    """What `deserialized` reads on executors."""
    places = (
        pa.nulls(len(records), pa.string()),
        pa.nulls(len(records), pa.int32()),
        pa.nulls(len(records), pa.int64()),
    )
    reading = Reading(f"{next(numbers)}", partial(READERS[form], Written(schema)), of, f"{topic}-value", nulls)
    batch = Batch(pa.array(records, pa.binary()), pa.nulls(len(records), pa.binary()), places)
    return decoded(reading, batch).to_pylist()


def latest(registry: Apicurio, topic: str, form: str) -> str:
    """The subject's latest schema, as `deserialized` asks for it."""
    return Registry.of(conf(registry)).latest(f"{topic}-value", READERS[form].REGISTRY_FORMAT).text


def test_spark_writes_the_official_bytes_of_all_forms_and_reads_both(
    spark: SparkSession, registry: Apicurio, topic: str
) -> None:
    columns = T.StructType([T.StructField("id", T.LongType(), False), T.StructField("name", T.StringType())])
    rows: Any = [{"id": 7, "name": "æ"}, {"id": -1, "name": ""}]
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    topics = {form: f"{topic}-{form}" for form in FORMS}
    values = [
        serialized(frame, columns.names, topic=name, form=form, registry=conf(registry)).alias(form)
        for form, name in topics.items()
    ]
    ours = frame.select("id", *values).collect()
    client = SchemaRegistryClient({"url": registry.url})
    theirs = {form: list(map(official(client, name, form), rows)) for form, name in topics.items()}
    for form in FORMS:
        assert [bytes(row[form]) for row in ours] == theirs[form]
    records = spark.createDataFrame(
        [tuple(bytearray(theirs[form][number]) for form in FORMS) for number in range(len(rows))],
        T.StructType([T.StructField(form, T.BinaryType()) for form in FORMS]),
    )
    readers = [
        deserialized(records, form, topic=name, form=form, registry=conf(registry)).alias(form)
        for form, name in topics.items()
    ]
    for row, found in zip(rows, records.coalesce(1).select(*readers).collect(), strict=True):
        assert found.asDict(recursive=True) == dict.fromkeys(FORMS, row)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_derived_schema_is_registered_once_and_read_again(registry: Apicurio, topic: str, form: str) -> None:
    of = conf(registry)
    ours = written(of, topic, form, ROWS, ID_AND_NAME)
    assert written(of, topic, form, ROWS, ID_AND_NAME) == ours
    assert written({**of, "auto.register.schemas": "false"}, topic, form, ROWS, ID_AND_NAME) == ours
    client = SchemaRegistryClient({"url": registry.url})
    write = official(client, topic, form)
    assert [write({name: one for name, one in row.items() if one is not None} if form == "protobuf" else row)
            for row in ROWS] == ours  # fmt: skip
    assert client.get_versions(f"{topic}-value") == [1]
    assert read(of, topic, form, latest(registry, topic, form), ours) == ROWS


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_avro_schema_is_registered_and_its_bytes_are_the_official_ones(
    registry: Apicurio, data: st.DataObject
) -> None:
    topic = f"any-{next(numbers)}"
    kind = record_of([or_null(one) for one in data.draw(st.lists(nested(2), min_size=1, max_size=3))])
    schema = json.dumps(with_names(kind.avro, []))
    rows = data.draw(st.lists(kind.values, min_size=1, max_size=2))
    assert isinstance(kind.spark, T.StructType)
    ours = written(conf(registry), topic, "avro", rows, kind.spark, schema)
    client = SchemaRegistryClient({"url": registry.url})
    write = AvroSerializer(client, schema)
    assert ours == [write(row, SerializationContext(topic, MessageField.VALUE)) for row in rows]


def referred(form: str, topic: str) -> tuple[str, str, str, str]:
    """The schema of a place, its name in a reference, its subject, and the schema of an order with a place."""
    city = f"{topic}-city"
    match form:
        case "avro":
            place: Any = {"type": "record", "name": "shop.City", "fields": [{"name": "zip", "type": "string"}]}
            order: Any = {"type": "record", "name": "shop.Order", "fields": [{"name": "to", "type": "shop.City"}]}
            return json.dumps(place), "shop.City", city, json.dumps(order)
        case "json":
            place = {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}
            order = {"type": "object", "properties": {"to": {"$ref": "city.json"}}, "required": ["to"]}
            return json.dumps(place), "city.json", city, json.dumps(order)
    files = [FileDescriptorProto(name=f"{name}.proto", package="shop", syntax="proto3") for name in ("city", "order")]
    files[0].message_type.add(name="City").field.add(name="zip", number=1, label=1, type=9)
    files[1].message_type.add(name="Order").field.add(name="to", number=1, label=1, type=11, type_name=".shop.City")
    files[1].dependency.append("city.proto")
    place, order = (base64.b64encode(file.SerializeToString()).decode() for file in files)
    return place, "city.proto", city, order


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_that_refers_to_another_subjects_is_written_and_read(
    registry: Apicurio, topic: str, form: str
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    place, name, subject, order = referred(form, topic)
    kind = column.FORMS[form].SCHEMA_TYPE
    client.register_schema(subject, Schema(place, kind))
    schema = Schema(order, kind, [SchemaReference(name, subject, 1)])
    client.register_schema(f"{topic}-value", schema)
    columns = columns_of(to=columns_of(zip=T.StringType()))
    of = conf(registry, use_latest_version="true")
    if form == "json":
        _, schema_id = column.pinned_schema(
            column.FORMS[form], columns, "r", Registry.of(of), lambda name: f"{topic}-value", None
        )
        records = [
            JSONSerializer(schema, client)({"to": {"zip": "0150"}}, SerializationContext(topic, MessageField.VALUE))
        ]
        assert records[0] is not None and records[0].startswith(prefix(schema_id))
    else:
        records = written(of, topic, form, [{"to": {"zip": "0150"}}], columns)
        payload = b"\x080150" if form == "avro" else b"\0\x0a\x06\x0a\x040150"
        assert records[0][5:] == payload
        if form == "avro":
            assert records == [official(client, topic, form)({"to": {"zip": "0150"}})]
    asked = Registry.of(conf(registry)).latest(f"{topic}-value").schema
    reader = Written.of(Registry.of(conf(registry)), asked, f"{topic}-value", form, READERS[form].REGISTRY_FORMAT)
    assert dict(reader.others) == {name: place}
    reading = Reading(topic, partial(READERS[form], reader), conf(registry), f"{topic}-value", False)
    nothing = (pa.nulls(1, pa.string()), pa.nulls(1, pa.int32()), pa.nulls(1, pa.int64()))
    found = decoded(reading, Batch(pa.array(records, pa.binary()), pa.nulls(1, pa.binary()), nothing))
    assert found.to_pylist() == [{"to": {"zip": "0150"}}]


def test_a_reference_to_nothing_is_refused(registry: Apicurio, topic: str) -> None:
    _, name, subject, order = referred("avro", topic)
    schema = Schema(order, "AVRO", [SchemaReference(name, subject, 1)])
    with pytest.raises(RegistryRefused, match="Unresolved reference"):
        Registry.of(conf(registry)).schema_id(f"{topic}-value", schema)


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_that_full_compatibility_forbids_is_refused_before_a_row(
    registry: Apicurio, topic: str, form: str
) -> None:
    client, subject = SchemaRegistryClient({"url": registry.url}), f"{topic}-value"
    names, of = partial(subject_name, "topic", topic, is_key=False), Registry.of(conf(registry))

    def pin(columns: T.StructType) -> Any:
        return column.pinned_schema(column.FORMS[form], columns, "r", of, names, None)

    pin(ID_AND_NAME)
    client.set_compatibility(subject, "FULL")
    # Apicurio 2 does not compare descriptors, which the official serializer registers too: its answer is a 500.
    expected = RegistryRefused if form == "protobuf" else SchemaIncompatible
    with pytest.raises(expected, match=f"subject '{subject}'") as refused:
        pin(columns_of(id=T.StringType(), name=T.StringType()))
    assert "No row of this write was sent" in str(refused.value) and ": :" not in str(refused.value)
    assert getattr(refused.value, "version", "1") == "1"
    if form == "avro":
        assert pin(columns_of(id=T.LongType(), name=T.StringType(), more=T.DoubleType()))[1] != pin(ID_AND_NAME)[1]
    assert client.get_versions(subject) == ([1, 2] if form == "avro" else [1])


OLD_AND_NEW = {
    "avro": [json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, *more]})
             for more in ([], [{"name": "n", "type": ["null", "string"], "default": None}])],
    "json": [json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, **more}, "required": ["id"]})
             for more in ({}, {"n": {"type": "string"}})],
    "protobuf": [base64.b64encode(protoc.compiled(
        f'syntax = "proto3"; message M {{ int64 id = 1; {more} }}')).decode()
        for more in ("", "optional string n = 2;")],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_with_the_older_of_two_versions_reads_both_also_if_one_is_deleted(
    registry: Apicurio, topic: str, form: str
) -> None:
    client, subject = SchemaRegistryClient({"url": registry.url}), f"{topic}-value"
    kind, (old, new) = column.FORMS[form].SCHEMA_TYPE, OLD_AND_NEW[form]
    payloads = {
        "avro": (b"\x0e", b"\x10\x02\x02a"), "json": (b'{"id": 7}', b'{"id": 8, "n": "a"}'),
        "protobuf": (b"\0\x08\x07", b"\0\x08\x08\x12\x01a"),
    }[form]  # fmt: skip
    ids = [client.register_schema(subject, Schema(text, kind)) for text in (old, new)]
    records = [prefix(schema_id) + payload for schema_id, payload in zip(ids, payloads, strict=True)]
    of = Registry.of(conf(registry))
    for is_deleted in (False, True):
        if is_deleted:
            client.delete_version(subject, 1)
        first = str(of.version_of(subject, 1, READERS[form].REGISTRY_FORMAT, timeout_s=30).schema_str)
        assert read(conf(registry), topic, form, first, records) == [{"id": 7}, {"id": 8}]
        newest = latest(registry, topic, form)
        assert read(conf(registry), topic, form, newest, records) == [{"id": 7, "n": None}, {"id": 8, "n": "a"}]
    assert (first, newest) == (old, new)
    assert client.get_versions(subject) == [2]


def test_what_the_registry_does_not_have_is_a_bad_record_and_a_wrong_url_is_none(
    registry: Apicurio, topic: str
) -> None:
    of, (schema, _) = Registry.of(conf(registry)), OLD_AND_NEW["avro"]
    for ask in (
        lambda: of.latest(f"{topic}-value"), lambda: of.version_of(f"{topic}-value", 1, None, timeout_s=30),
        lambda: Registry.of(conf(registry, auto_register_schemas="false")).schema_id(f"{topic}-value", Schema(schema)),
    ):  # fmt: skip
        with pytest.raises(SchemaNotRegistered, match=r"was found\. No row"):
            ask()
    records = [prefix(2**31 - 1) + b"\x0e", b"\1" + bytes(16) + b"\x0e", b"\0"]
    found = read(conf(registry), topic, "avro", schema, records, nulls=True)
    assert [one["value"] for one in found] == [None] * 3
    assert [
        said
        for said, one in zip(("id 2147483647", "GUID 00000000", "shorter"), found, strict=True)
        if said in one["reason"]
    ] == ["id 2147483647", "GUID 00000000", "shorter"]
    with pytest.raises(RecordUndecodable, match="the schema registry has no schema with id 2147483647"):
        read(conf(registry), topic, "avro", schema, records)
    for record in records[:2]:
        with pytest.raises(RegistryRefused, match="points to a schema registry"):
            read({**QUICK, "url": registry.url + "/elsewhere"}, topic, "avro", schema, [record], nulls=True)


def test_tls_needs_the_ca_to_write_and_to_read(registry: Apicurio, topic: str) -> None:
    without = {**QUICK, "url": registry.https_url}
    of = {**without, "ssl.ca.location": str(registry.ca)}
    with pytest.raises(RegistryUnreachable, match="certificate verify failed"):
        written(without, topic, "avro", ROWS, ID_AND_NAME)
    ours = written(of, topic, "avro", ROWS, ID_AND_NAME)
    schema = latest(registry, topic, "avro")
    assert read(of, topic, "avro", schema, ours) == ROWS
    with pytest.raises(RegistryUnreachable, match="certificate verify failed"):
        read(without, topic, "avro", schema, ours)


def test_a_subject_with_the_name_of_a_context_is_written_and_read(registry: Apicurio, topic: str) -> None:
    ours = written(conf(registry), f":.shop:{topic}", "avro", ROWS, ID_AND_NAME)
    assert f":.shop:{topic}-value" in SchemaRegistryClient({"url": registry.url}).get_subjects()
    schema = latest(registry, f":.shop:{topic}", "avro")
    assert read(conf(registry), f":.shop:{topic}", "avro", schema, ours) == ROWS


CLIENTS = {
    "writer": ("write-canary/1+", "sr-developer"), "reader": ("read-canary/2+", "sr-readonly"),
    "other": ("other-canary/3+", "of-another-service"),
}  # fmt: skip
KINDS = ("basic", "url", "token", "oauth")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Apicurio, Provider]]:
    with openid_provider(CLIENTS) as provider, apicurio(tmp_path_factory.mktemp("guarded"), provider) as found:
        yield found, provider


def credentials(kind: str, at: tuple[Apicurio, Provider], client: str, secret: str | None = None) -> dict[str, str]:
    """A conf with the credentials of a client. `secret`: another one than its own, or for "token" the token."""
    registry, provider = at
    bearer = {"bearer.auth.logical.cluster": "lsrc-1"}
    own = CLIENTS[client][0] if secret is None else secret
    match kind:
        case "basic":
            return conf(registry) | {"basic.auth.user.info": f"{client}:{own}"}
        case "url":
            return conf(registry) | {"url": registry.url.replace("//", f"//{client}:{quote(own, safe='')}@")}
        case "token":
            bearer |= {"bearer.auth.token": secret or provider.token(client)}
            return conf(registry) | bearer | {"bearer.auth.credentials.source": "STATIC_TOKEN"}
    bearer |= {"bearer.auth.client.id": client, "bearer.auth.client.secret": own, "bearer.auth.scope": "registry"}
    bearer |= {"bearer.auth.issuer.endpoint.url": provider.token_url}
    return conf(registry) | bearer | {"bearer.auth.credentials.source": "OAUTHBEARER"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_client_that_may_write_registers_and_one_that_may_read_reads_and_looks_up(
    guarded: tuple[Apicurio, Provider], topic: str, kind: str, form: str
) -> None:
    writer, reader = (credentials(kind, guarded, client) for client in ("writer", "reader"))
    ours = written(writer, topic, form, ROWS, ID_AND_NAME)
    schema = Registry.of(reader).latest(f"{topic}-value", READERS[form].REGISTRY_FORMAT).text
    assert read(reader, topic, form, schema, ours) == ROWS
    for only_reads in ("auto.register.schemas", "false"), ("use.latest.version", "true"):
        assert written(reader | dict([only_reads]), topic, form, ROWS, ID_AND_NAME) == ours
    with pytest.raises(RegistryRefused, match=f"subject '{topic}-new-value', with status 403") as refused:
        written(reader, f"{topic}-new", form, ROWS, ID_AND_NAME)
    for said in ("No row of this write was sent", "Allow this user to read and write the subject",
                 "with auto.register.schemas=false reading is enough"):  # fmt: skip
        assert said in str(refused.value)
    check_hidden(str(refused.value), guarded, reader)
    assert f"{topic}-new-value" not in Registry.of(writer).client.get_subjects()


def check_hidden(said: str, at: tuple[Apicurio, Provider], of: Mapping[str, Any]) -> None:
    assert "canary" not in said and "eyJ" not in said and "Basic " not in said
    assert "canary" not in f"{Registry.of(of)!r}"


@pytest.mark.parametrize("form", ["avro"])
@pytest.mark.parametrize(
    ("kind", "client", "secret", "expected", "said"),
    [
        ("basic", "writer", "wrong-canary", RegistryRefused, "status 401"),
        ("url", "writer", "wrong-canary", RegistryRefused, "status 401"),
        ("token", "writer", "no-token-canary", RegistryRefused, "status 401"),
        ("token", "writer", "of another key", RegistryRefused, "status 401"),
        ("token", "writer", "expired", RegistryRefused, "status 401"),
        ("oauth", "writer", "wrong-canary", RegistryUnreachable, "invalid_client"),
        ("basic", "other", None, RegistryRefused, "status 403"),
        ("oauth", "other", None, RegistryRefused, "status 403"),
    ],
)
def test_wrong_credentials_fail_the_write_before_a_row_and_the_task_of_a_read(
    guarded: tuple[Apicurio, Provider], topic: str, form: str, kind: str, client: str, secret: str | None,
    expected: type[Exception], said: str,
) -> None:  # fmt: skip
    ours = written(credentials("basic", guarded, "writer"), topic, form, ROWS, ID_AND_NAME)
    schema = Registry.of(credentials("basic", guarded, "reader")).latest(f"{topic}-value").text
    provider = guarded[1]
    made = {"of another key": provider.token(client, key=new_key()), "expired": provider.token(client, lifetime_s=-60)}
    wrong = credentials(kind, guarded, client, made.get(secret or "", secret))
    for do in (
        lambda: written(wrong, topic, form, ROWS, ID_AND_NAME),
        lambda: written({**wrong, "auto.register.schemas": "false"}, topic, form, ROWS, ID_AND_NAME),
        lambda: read(wrong, topic, form, schema, ours), lambda: read(wrong, topic, form, schema, ours, nulls=True),
    ):  # fmt: skip
        with pytest.raises(expected, match=said) as refused:
            do()
        check_hidden(f"{refused.value} {vars(refused.value)}", guarded, wrong)
        assert refused.value.__cause__ is None and refused.value.__suppress_context__


def test_a_client_asks_for_a_new_token_when_its_own_expires(guarded: tuple[Apicurio, Provider], topic: str) -> None:
    of = credentials("oauth", guarded, "writer")
    provider = guarded[1]
    try:
        for told_s, tokens in (300, 1), (-60, 3):
            provider.told_s = told_s
            provider.given.clear()
            registry = Registry.of(of)
            for number in range(3):
                registry.schema_id(f"{topic}-{told_s}-{number}", Schema(A))
            assert provider.given == ["writer"] * tokens
    finally:
        provider.told_s = 300


A, B = (json.dumps({"type": "record", "name": name, "fields": []}) for name in "AB")
OBJECT = '{"properties": {"id": {"type": "integer"}}}'
TO_A = [{"name": "A", "subject": "a", "version": 1}]
DIALOGUE: list[tuple[str, str, Any]] = [
    ("GET", "/subjects/a/versions/latest", None), ("POST", "/subjects/a", {"schema": A}),
    ("POST", "/subjects/a/versions", {"schema": A}), ("POST", "/subjects/a/versions", {"schema": A}),
    ("POST", "/subjects/b/versions", {"schema": A}), ("POST", "/subjects/a/versions", {"schema": B}),
    ("POST", "/subjects/a", {"schema": B}), ("POST", "/subjects/b", {"schema": B}),
    ("GET", "/subjects/a/versions/1", None), ("GET", "/subjects/a/versions/-1", None),
    ("GET", "/subjects/a/versions/3", None), ("GET", "/subjects/nothing/versions/1", None),
    ("POST", "/subjects/j/versions", {"schema": OBJECT, "schemaType": "JSON"}), ("GET", "/subjects/j/versions/1", None),
    ("POST", "/subjects/c/versions", {"schema": B, "references": [{**TO_A[0], "version": 9}]}),
    ("POST", "/subjects/c/versions", {"schema": '{"type": "array", "items": "A"}', "references": TO_A}),
    ("GET", "/subjects/c/versions/1", None), ("DELETE", "/subjects/a/versions/1", None),
    ("DELETE", "/subjects/a/versions/2", None), ("GET", "/subjects/a/versions/2", None),
    ("GET", "/subjects/a/versions/2?deleted=true", None), ("GET", "/subjects/a/versions/latest", None),
    ("POST", "/subjects/a", {"schema": B}), ("POST", "/subjects/a/versions", {"schema": B}),
    ("GET", "/subjects/a/versions/latest", None), ("GET", f"/schemas/ids/{2**31 - 1}", None),
    ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000001", None),
]  # fmt: skip


def asked(url: str) -> list[tuple[int, Any]]:
    """The status of each answer, and what of it does not depend on other subjects or on words."""
    at = urlsplit(url)
    answers = []
    for method, path, body in DIALOGUE:
        connection = http.client.HTTPConnection(at.netloc, timeout=30)
        data = None if body is None else json.dumps(body)
        connection.request(method, at.path + path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        said: Any = json.loads(response.read())
        connection.close()
        if isinstance(said, dict):
            said = {name: one for name, one in said.items() if name not in ("id", "message")}
        answers.append((response.status, said))
    return answers


def test_the_stand_in_of_other_tests_answers_as_this_registry(tmp_path_factory: pytest.TempPathFactory) -> None:
    with small_registry() as stand_in, apicurio(tmp_path_factory.mktemp("other")) as real:
        stand_in.has_guids = False
        answers = zip(DIALOGUE, asked(stand_in.url), asked(real.url), strict=True)
        assert [each for each in answers if each[1] != each[2]] == []
    assert isinstance(stand_in, SmallRegistry)

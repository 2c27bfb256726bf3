"""Requests to a schema registry, their order, and errors: subject and version, no secret. Spark: integration."""

import base64
import functools
import gzip
import json
import re
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.sql import types as T

from http_endpoints import INCOMPATIBLE, RawAnswer, registry_stand_in
from kafka_sink import errors
from kafka_sink.errors import ColumnNotInSchema, DuplicateColumn, MissingColumn, TypeNotMapped
from kafka_sink.registry import avro, column, registering
from kafka_sink.registry.column import serialized
from kafka_sink.registry.registering import Registry, record_name, subject_name
from scripted_peers import drips, peer

TEXT = '{"type": "record", "name": "r", "fields": []}'
SCHEMA = Schema(TEXT, "AVRO")
REGISTER = ("POST", "/subjects/orders-value/versions")
LOOK_UP = ("POST", "/subjects/orders-value")
LATEST = ("GET", "/subjects/orders-value/versions/latest")
FOUND = (200, {"id": 9, "version": 3, "subject": "orders-value", "schema": TEXT, "schemaType": "AVRO"})
QUICK = {"max.retries": "0", "timeout": "5"}
OAUTH = {"bearer_auth_credentials_source": "OAUTHBEARER", "bearer_auth_scope": "registry",
         "bearer_auth_logical_cluster": "x", "bearer_auth_issuer_endpoint_url": "http://there/token"}  # fmt: skip
UNUSABLE = "it is not what a schema registry answers"
ID = T.StructType([T.StructField("id", T.LongType())])
ID_AND_NAME = T.StructType([*ID.fields, T.StructField("name", T.StringType())])
TWICE = T.StructType([*ID.fields, *ID.fields])
GIVEN = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": ["null", "long"]}]})  # fmt: skip


@pytest.mark.parametrize(
    ("message", "latest", "version"),
    [
        (INCOMPATIBLE, None, "7"), ("not compatible", FOUND, "3"),
        ("not compatible", (500, {"error_code": 1, "message": ""}), "unknown"),
    ],
)  # fmt: skip
def test_an_incompatible_schema_is_said_with_its_subject_and_version(message: str, latest: Any, version: str) -> None:
    """A refusal that names no version means the latest."""
    refusal = {REGISTER: (409, {"error_code": 409, "message": message}), LATEST: latest}
    with registry_stand_in(refusal) as stand_in, pytest.raises(errors.SchemaIncompatible) as refused:
        of(stand_in.url).schema_id("orders-value", SCHEMA)
    assert (refused.value.subject, refused.value.version) == ("orders-value", version)
    if message is INCOMPATIBLE:
        for said in ("version 7 of subject 'orders-value'", "The field 'price'", "No row of this write was sent"):
            assert said in str(refused.value)


def test_a_schema_is_looked_up_where_it_is_not_to_be_registered() -> None:
    with registry_stand_in({LOOK_UP: FOUND}) as stand_in:
        assert of(stand_in.url, auto_register_schemas="false").schema_id("orders-value", SCHEMA) == 9
    assert [asked[:2] for asked in stand_in.asked] == [LOOK_UP]
    with registry_stand_in({}) as stand_in, pytest.raises(errors.SchemaNotRegistered, match="nothing at"):
        of(stand_in.url, auto_register_schemas="false").schema_id("orders-value", SCHEMA)


def said_of(error: errors.RegistryError) -> str:
    """Whatever of it may be in a log."""
    assert error.__cause__ is None and error.__suppress_context__
    return f"{error} {vars(error)}"


def of(url: str, **conf: str) -> Registry:
    return Registry.of({"url": url, **QUICK, **{name.replace("_", "."): text for name, text in conf.items()}})


@pytest.mark.parametrize("status", [401, 403, 422, 500])
def test_no_refusal_shows_a_secret(status: int) -> None:
    echoed = {"error_code": status * 100, "message": "wrong: alice:hunter2, that is hunter2"}
    with registry_stand_in({REGISTER: (status, echoed)}) as stand_in, pytest.raises(errors.RegistryRefused) as refused:
        of(stand_in.url, basic_auth_user_info="alice:hunter2").schema_id("orders-value", SCHEMA)
    assert refused.value.status == status
    assert "hunter2" not in said_of(refused.value)
    assert "wrong: ***, that is ***" in str(refused.value)


def test_no_refusal_shows_a_secret_as_it_was_sent() -> None:
    """A proxy may answer with the headers of the request."""
    sent = base64.b64encode(b"alice:hunt/er2").decode()
    for user_info, at in (("alice:hunt/er2", ""), (None, "alice:hunt%2Fer2@")):
        more = {} if user_info is None else {"basic_auth_user_info": user_info}
        echoed = {"error_code": 40101, "message": f"no: Authorization: Basic {sent}, hunt/er2, hunt%2Fer2"}
        with registry_stand_in({LATEST: (401, echoed)}) as stand_in, pytest.raises(errors.RegistryRefused) as refused:
            of(stand_in.url.replace("//", f"//{at}"), **more).latest("orders-value")
        assert not re.search(re.escape(sent) + "|hunt/er2" + ("|hunt%2Fer2" if at else ""), said_of(refused.value))


def test_a_given_clients_secrets_are_hidden_too() -> None:
    with registry_stand_in({LATEST: (403, {"error_code": 40301, "message": "not for hunter2"})}) as stand_in:
        client = SchemaRegistryClient({"url": stand_in.url, "basic.auth.user.info": "alice:hunter2"})
        with pytest.raises(errors.RegistryRefused, match=r"not for \*\*\*") as refused:
            Registry.of(client).latest("orders-value")
    assert "hunter2" not in said_of(refused.value)


def test_no_refusal_shows_what_bearer_auth_sends() -> None:
    """Neither what the conf has, nor a token that a function of the user makes."""
    token = "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"

    def made(config: dict[str, str]) -> dict[str, str]:
        return {"bearer.auth.token": f"opaque-{config['from']}", "bearer.auth.logical.cluster": "x"}

    custom: Any = {
        "bearer.auth.credentials.source": "CUSTOM", "bearer.auth.custom.provider.function": made,
        "bearer.auth.custom.provider.config": {"from": "hunter2"},
    }  # fmt: skip
    echoed = {"error_code": 40101, "message": f"no: Authorization: Bearer opaque-hunter2, {token}, from hunter2"}
    with registry_stand_in({LATEST: (401, echoed)}) as stand_in, pytest.raises(errors.RegistryRefused) as refused:
        Registry.of({"url": stand_in.url, **QUICK, **custom}).latest("orders-value")
    assert "no: Authorization: Bearer *** ***, from ***" in str(refused.value)
    assert not re.search("hunter2|eyJ", said_of(refused.value))
    client = base64.b64encode(b"alice:hunter2").decode()
    secrets = of("http://there", bearer_auth_client_id="alice", bearer_auth_client_secret="hunter2", **OAUTH).secrets
    assert {"hunter2", client} <= set(secrets)


def test_a_refusal_without_words_has_none_of_the_clients_own() -> None:
    for answer in (RawAnswer(b""), {"status": 401}):
        with registry_stand_in({REGISTER: (403, answer)}) as stand_in, pytest.raises(errors.RegistryRefused) as refused:
            of(stand_in.url).schema_id("orders-value", SCHEMA)
        said = "with status 403: no reason was given. No row of this write was sent. Allow this user to read and write"
        assert said in str(refused.value)


@pytest.mark.parametrize(("message", "said"), [("It is shut.", "It is shut"), ("", "no reason was given")])
def test_a_refusals_words_end_in_one_full_stop(message: str, said: str) -> None:
    refusal = {LATEST: (500, {"error_code": 500, "message": message})}
    expected = pytest.raises(errors.RegistryRefused, match=f"code 500: {said}\\. No row")
    with registry_stand_in(refusal) as stand_in, expected:
        of(stand_in.url).latest("orders-value")


def test_a_transport_error_without_words_is_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise TimeoutError

    registry = of("http://127.0.0.1:1")
    monkeypatch.setattr(registry.client, "get_latest_version", fails)
    with pytest.raises(errors.RegistryUnreachable, match=r"could not be asked: TimeoutError\. No row"):
        registry.latest("orders-value")


@pytest.mark.parametrize("status", [404, 422])
@pytest.mark.parametrize("answer", [{}, {"error_code": "40401", "message": ["a"]}, {"error_code": None, "message": 7}])
def test_a_refusal_that_is_no_registrys_is_an_error_of_ours(status: int, answer: Any) -> None:
    with registry_stand_in({LATEST: (status, answer)}) as stand_in, pytest.raises(errors.RegistryRefused) as refused:
        of(stand_in.url).latest("orders-value")
    assert (refused.value.status, refused.value.error_code) == (status, -1)


@pytest.mark.parametrize(
    ("url", "shown", "reason"),
    [
        ("http://alice:hunter2@127.0.0.1:{free}", "http://127.0.0.1:{free}", ""),
        ("http://127.0.0.1:8O81", "http://127.0.0.1:***", "InvalidURL: Invalid port: ***"),
        ("http://alice:hunter2@127.0.0.1:8O81/sr", "http://127.0.0.1:***/sr", "InvalidURL: Invalid port: ***"),
        ("http://alice:hunter2", "http://alice:***", "InvalidURL: Invalid port: ***"),
        ("http://alice:hunt/er2@there", "http://there", "InvalidURL: Invalid port: ***"),
        ("http://a..b:8081", "http://a..b:8081", "Unicode"),  # UnicodeEncodeError from Python 3.14 on
    ],
)
def test_an_unreached_registry_is_named_without_what_may_be_a_password(url: str, shown: str, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with pytest.raises(errors.RegistryUnreachable, match="Check the url" if reason else None) as refused:
        of(url.format(free=free)).schema_id("orders-value", SCHEMA)
    assert refused.value.url == shown.format(free=free)
    assert refused.value.reason.startswith(reason)
    assert not re.search("hunt|er2|8O81", said_of(refused.value))


def test_a_url_is_shown_without_its_user() -> None:
    for url, shown in (
        ("https://alice:hunter2@there:8081/sr?key=hunter2", "https://there:8081/sr"),
        ("http://[::1]", "http://[::1]"),
        ("http://alice:hunter2@[::1]:8081", "http://[::1]:8081"),
        ("http://one:8081, http://alice:hunter2@two", "http://one:8081,http://two"),
    ):
        registry = of(url)
        assert registry.url == shown
        assert ("hunter2" in registry.secrets) is ("hunter2@" in url) and "hunter2" not in f"{registry} {registry!r}"
        registry = of("http://there", basic_auth_user_info="a:hunter2")
        assert "hunter2" in registry.secrets and "hunter2" not in f"{registry} {registry!r}"


def test_a_conf_that_the_client_does_not_take_is_an_option_that_is_wrong() -> None:
    for conf in (
        {},
        {"url": "ftp://alice:hunter2@there"},
        {"url": "http://there", "ssl.key.password": "hunter2"},
        {"url": "http://there", "basic.auth.user.info": "hunter2"},
        {"url": "http://there", "timeout": "hunter2"},
        {"url": "http://there", "no.such.key": "hunter2"},
        {"url": "http://there", "ssl.ca.location": "/hunter2"},
    ):
        with pytest.raises(errors.InvalidOption, match="option 'registry'") as refused:
            Registry.of(conf)
        assert all(key in str(refused.value) for key in conf)
        assert "hunter2" not in str(refused.value) and refused.value.__suppress_context__


def test_keys_that_the_client_misses_are_named() -> None:
    for conf, named in (
        (OAUTH, "Missing required OAuth configuration properties: bearer.auth.client.id, bearer.auth.client.secret"),
        ({"no_such_key": "hunter2"}, "Unrecognized properties: no.such.key"),
    ):
        with pytest.raises(errors.InvalidOption) as refused:
            of("http://there", **conf)
        assert f"url). {named}. No row" in str(refused.value) and "hunter2" not in str(refused.value)


def deep(levels: int) -> str:
    return '{"type": "array", "items": ' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        *(({**FOUND[1], "id": number}, "its id is")
          for number in (None, "9", -1, 2**31, 2**64, 1.5, True, [], "x" * 10_000)),
        *(({**FOUND[1], "schema": schema}, "it has no schema") for schema in (None, {"type": "int"})),
        ({**FOUND[1], "schema": deep(201)}, "nested more than 200 levels deep"),
        ({**FOUND[1], "schema": "[" * 100_000}, "nested more than 200 levels deep"),
        ({**FOUND[1], "schema": "x" * (17 * 1024 * 1024)}, "larger than 16777216 bytes"),
        ([FOUND[1]], UNUSABLE), ("canary", UNUSABLE), ({"metadata": 7}, UNUSABLE),
        # Neither is a compressed answer opened, nor is one taken that no parser reads.
        (RawAnswer(gzip.compress(b" " * 20 * 1024 * 1024), {"Content-Encoding": "gzip"}), "compressed"),
        (RawAnswer(b"[" * 200_000), "RecursionError"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_an_error_with_its_reason(answer: Any, reason: str) -> None:
    with registry_stand_in({LATEST: (200, answer), LOOK_UP: (200, answer)}) as stand_in:
        registry = of(stand_in.url, use_latest_version="true")
        with pytest.raises(errors.RegistryAnswerUnusable) as refused:
            registry.latest("orders-value")
    assert reason in refused.value.reason and len(str(refused.value)) < 600
    assert stand_in.url in str(refused.value) and "'orders-value'" in str(refused.value)
    assert "canary" not in said_of(refused.value) if refused.value.__suppress_context__ else True


@pytest.mark.parametrize("number", [0, 1, 2**31 - 1, None, "9", -1, 2**31, True])
def test_an_id_that_fits_the_frame_is_taken_and_no_other(number: Any) -> None:
    """And a schema as deep as is allowed."""
    answer = {**FOUND[1], "id": number, "schema": deep(200)}
    with registry_stand_in({REGISTER: (200, {"id": number}), LATEST: (200, answer)}) as stand_in:
        registry = of(stand_in.url)
        if number in (0, 1, 2**31 - 1) and number is not True:
            assert registry.schema_id("orders-value", SCHEMA) == registry.latest("orders-value").schema_id == number
            assert registry.latest("orders-value").text == deep(200)
        else:
            with pytest.raises(errors.RegistryAnswerUnusable, match="its id is"):
                registry.schema_id("orders-value", SCHEMA)


def test_a_client_may_be_given_and_nothing_else() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    assert Registry.of(client).schema_id("orders-value", SCHEMA) == 1
    with pytest.raises(TypeError, match="a mapping with a url"):
        Registry.of("http://there")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="expected true or false"):
        Registry.of({"url": "http://there", "use.latest.version": "yes"})
    with registry_stand_in({}) as stand_in:
        assert of(stand_in.url).latest_or_none("orders-value") is None


@pytest.mark.parametrize("timeout", [{}, {"timeout": "5"}], ids=["none", "of one recv"])
def test_a_registry_of_single_bytes_is_not_waited_for(timeout: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "ASK_TIMEOUT_S", 0.5)
    begun = time.monotonic()
    with peer(drips(b"HTTP/1.1 200 OK\r\n")) as port, pytest.raises(errors.RegistryUnreachable, match=r"within 0\.5 s"):
        Registry.of({"url": f"http://127.0.0.1:{port}", "max.retries": "0", **timeout}).schema_id("s", SCHEMA)
    assert time.monotonic() - begun < 60


def register_at(subject: str) -> tuple[str, str]:
    return "POST", f"/subjects/{subject}/versions"


def frame_of(columns: T.StructType) -> Any:
    """What of a DataFrame is looked at before Spark is needed."""
    return SimpleNamespace(schema=columns)


def pinned(
    form: str, registry: Any, columns: T.StructType = ID, *, subject: str = "topic", is_key: bool = False,
    schema: Any = None,
) -> tuple[Any, int]:  # fmt: skip
    names = functools.partial(subject_name, subject, "orders", is_key=is_key)
    name = record_name("orders", is_key)
    return column.pinned_schema(column.FORMS[form], columns, name, Registry.of(registry), names, schema)


@pytest.mark.parametrize(
    ("subject", "is_key", "asked", "given"),
    [
        ("topic", False, "orders-value", None), ("topic", True, "orders-key", None),
        ("record", False, "orders_value", None), ("record", True, "orders_key", None),
        ("topic-record", False, "orders-orders_value", None), ("record", False, "shop.Order", GIVEN),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_schema_is_registered_once(form: str, subject: str, is_key: bool, asked: str, given: str | None) -> None:
    if given is not None and form == "json":
        return
    with registry_stand_in({register_at(asked): (200, {"id": 9})}) as stand_in:
        conf = {"url": stand_in.url, **QUICK}
        encoding, schema_id = pinned(form, conf, subject=subject, is_key=is_key, schema=given)
    ((*request, body),) = stand_in.asked
    assert (tuple(request), schema_id) == (register_at(asked), 9)
    # Avro is what a registry takes a schema for that names no type.
    assert body.get("schemaType", "AVRO") == form.upper()
    assert body["schema"] == encoding.text == (given or encoding.text)
    name = json.loads(body["schema"])["name" if form == "avro" else "title"]
    assert name == ("Order" if given else "orders_key" if is_key else "orders_value")


def test_a_protobuf_schema_keeps_the_numbers_of_the_subjects_latest() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    _, first_id = pinned("protobuf", client, ID)
    reversed_columns = T.StructType(ID_AND_NAME.fields[::-1])
    encoding, second_id = pinned("protobuf", client, reversed_columns)
    (message,) = FileDescriptorProto.FromString(base64.b64decode(encoding.text)).message_type
    assert {field.name: field.number for field in message.field} == {"id": 1, "name": 2}
    assert first_id != second_id
    assert pinned("protobuf", client, ID_AND_NAME)[1] == second_id


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
    ("frame", "changed", "error", "said"),
    [
        (ID, {"form": "xml"}, ValueError, "form is one of avro, json, protobuf, not 'xml'"),
        (ID, {"subject": "table"}, ValueError, "subject is one of topic, record, topic-record, not 'table'"),
        (ID, {"schema": "{}"}, ValueError, "two schemas"),
        (ID, {"columns": "id"}, ValueError, "names of one or more columns"),
        (ID, {"columns": []}, ValueError, "names of one or more columns"),
        (ID, {"columns": ["id", "name"]}, MissingColumn, "name"), (ID, {"columns": ["id.x"]}, MissingColumn, "id.x"),
        (TWICE, {}, DuplicateColumn, "id"), (ID, {"columns": ["id", "id"]}, DuplicateColumn, "id"),
    ],
)  # fmt: skip
def test_arguments_and_columns_that_are_none_are_refused_before_a_registry_is_asked(
    frame: T.StructType, changed: dict[str, Any], error: type[Exception], said: str
) -> None:
    with registry_stand_in({}) as stand_in:
        latest = {"url": stand_in.url, "use.latest.version": "true", **QUICK}
        arguments = {"columns": ["id"], "topic": "orders", "form": "avro", "registry": latest, **changed}
        with pytest.raises(error, match=said if error is ValueError else None) as refused:
            serialized(frame_of(frame), **arguments)
    assert stand_in.asked == [] and getattr(refused.value, "column", said) == said
    assert column.fields_of(frame_of(ID_AND_NAME), ["name", "id"]).names == ["name", "id"]


def test_a_derived_record_has_a_name_that_every_form_allows() -> None:
    names = {"orders": "orders_value", "shop.orders-eu": "shop_orders_eu_value", "1st": "_1st_value"}
    assert {topic: record_name(topic, is_key=False) for topic in names} == names
    assert record_name("1st", is_key=True) == "_1st_key"

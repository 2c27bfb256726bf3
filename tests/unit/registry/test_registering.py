"""HTTP requests to a schema registry, and its errors as the user sees them: subject and version, but no secret."""

from __future__ import annotations

import gzip
import re
import socket
import time
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_sink import errors
from kafka_sink.registry import registering
from kafka_sink.registry.registering import Registry, depth_of
from registry_stand_in import INCOMPATIBLE, RawAnswer, registry_stand_in
from scripted_peers import drips, peer

TEXT = '{"type": "record", "name": "r", "fields": []}'
SCHEMA = Schema(TEXT, "AVRO")
REGISTER = ("POST", "/subjects/orders-value/versions")
LOOK_UP = ("POST", "/subjects/orders-value")
LATEST = ("GET", "/subjects/orders-value/versions/latest")
FOUND = (200, {"id": 9, "version": 3, "subject": "orders-value", "schema": TEXT, "schemaType": "AVRO"})
QUICK = {"max.retries": "0", "timeout": "5"}


def test_a_schema_that_is_not_compatible_is_said_with_its_subject_and_version() -> None:
    refusal = {REGISTER: (409, {"error_code": 409, "message": INCOMPATIBLE})}
    with registry_stand_in(refusal) as stand_in, pytest.raises(errors.SchemaIncompatible) as refused:
        of(stand_in.url).schema_id("orders-value", SCHEMA)
    assert (refused.value.subject, refused.value.version) == ("orders-value", "7")
    for said in ("version 7 of subject 'orders-value'", "The field 'price'", "No row of this write was sent"):
        assert said in str(refused.value)


@pytest.mark.parametrize(("latest", "version"), [(FOUND, "3"), ((500, {"error_code": 1, "message": ""}), "unknown")])
def test_a_refusal_that_names_no_version_means_the_latest(latest: Any, version: str) -> None:
    refusal = {REGISTER: (409, {"error_code": 409, "message": "not compatible"}), LATEST: latest}
    with registry_stand_in(refusal) as stand_in, pytest.raises(errors.SchemaIncompatible) as refused:
        of(stand_in.url).schema_id("orders-value", SCHEMA)
    assert refused.value.version == version


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


def test_a_registry_that_cannot_be_reached_is_named_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    registry = of(f"http://alice:hunter2@127.0.0.1:{port}")
    with pytest.raises(errors.RegistryUnreachable) as refused:
        registry.schema_id("orders-value", SCHEMA)
    assert refused.value.url == f"http://127.0.0.1:{port}"
    assert "hunter2" not in said_of(refused.value)


@pytest.mark.parametrize(
    ("url", "shown", "reason"),
    [
        ("http://127.0.0.1:8O81", "http://127.0.0.1:***", "InvalidURL: Invalid port: ***"),
        ("http://alice:hunter2@127.0.0.1:8O81/sr", "http://127.0.0.1:***/sr", "InvalidURL: Invalid port: ***"),
        ("http://alice:hunter2", "http://alice:***", "InvalidURL: Invalid port: ***"),
        ("http://alice:hunt/er2@there", "http://there", "InvalidURL: Invalid port: ***"),
        ("http://a..b:8081", "http://a..b:8081", "UnicodeError: "),
    ],
)
def test_a_url_that_is_none_is_said_without_what_may_be_a_password(url: str, shown: str, reason: str) -> None:
    registry = of(url)
    with pytest.raises(errors.RegistryUnreachable, match="Check the url") as refused:
        registry.schema_id("orders-value", SCHEMA)
    assert refused.value.url == shown
    assert refused.value.reason.startswith(reason)
    assert not re.search("hunt|er2|8O81", said_of(refused.value))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://alice:hunter2@there:8081/sr?key=hunter2", "https://there:8081/sr"),
        ("http://[::1]", "http://[::1]"),
        ("http://alice:hunter2@[::1]:8081", "http://[::1]:8081"),
        ("http://one:8081, http://alice:hunter2@two", "http://one:8081,http://two"),
    ],
)
def test_a_url_is_shown_without_its_user(url: str, shown: str) -> None:
    assert of(url).url == shown


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"url": "ftp://alice:hunter2@there"},
        {"url": "http://there", "ssl.key.password": "hunter2"},
        {"url": "http://there", "basic.auth.user.info": "hunter2"},
        {"url": "http://there", "timeout": "hunter2"},
        {"url": "http://there", "no.such.key": "hunter2"},
        {"url": "http://there", "ssl.ca.location": "/hunter2"},
    ],
)
def test_a_conf_that_the_client_does_not_take_is_an_option_that_is_wrong(conf: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidOption, match="option 'registry'") as refused:
        Registry.of(conf)
    assert all(key in str(refused.value) for key in conf)
    assert "hunter2" not in str(refused.value) and refused.value.__suppress_context__


def deep(levels: int) -> str:
    return '{"type": "array", "items": ' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        *(
            ({**FOUND[1], "id": number}, "its id is")
            for number in (None, "9", -1, 2**31, 2**64, 1.5, True, [], "x" * 10_000)
        ),
        ({**FOUND[1], "schema": None}, "it has no schema"),
        ({**FOUND[1], "schema": {"type": "int"}}, "it has no schema"),
        ({**FOUND[1], "schema": deep(201)}, "nested more than 200 levels deep"),
        ({**FOUND[1], "schema": "[" * 100_000}, "nested more than 200 levels deep"),
        ({**FOUND[1], "schema": "x" * (17 * 1024 * 1024)}, "larger than 16777216 bytes"),
        ([FOUND[1]], "it is not what a schema registry answers"),
        ("canary", "it is not what a schema registry answers"),
        ({"metadata": 7}, "it is not what a schema registry answers"),
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
    with registry_stand_in({REGISTER: (200, {"id": number}), LATEST: (200, {**FOUND[1], "id": number})}) as stand_in:
        registry = of(stand_in.url)
        if number in (0, 1, 2**31 - 1) and number is not True:
            assert registry.schema_id("orders-value", SCHEMA) == registry.latest("orders-value").schema_id == number
        else:
            with pytest.raises(errors.RegistryAnswerUnusable, match="its id is"):
                registry.schema_id("orders-value", SCHEMA)


COMPRESSED = RawAnswer(gzip.compress(b" " * 20 * 1024 * 1024), {"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("answer", "words"), [(COMPRESSED, "compressed"), (RawAnswer(b"[" * 200_000), "RecursionError")]
)
def test_a_compressed_answer_is_not_opened_nor_one_that_no_parser_reads(answer: RawAnswer, words: str) -> None:
    with (
        registry_stand_in({LATEST: (200, answer)}) as stand_in,
        pytest.raises(errors.RegistryAnswerUnusable, match=words),
    ):
        of(stand_in.url).latest("orders-value")


def test_schemas_as_deep_as_is_allowed_are_taken() -> None:
    with registry_stand_in({LATEST: (200, {**FOUND[1], "schema": deep(200)})}) as stand_in:
        assert of(stand_in.url).latest("orders-value").text == deep(200)
    assert depth_of('{"a": "[[[[\\"[", "b": [[]]}') == 3
    assert depth_of('syntax = "proto3"; message M {}') == 1


def test_a_registry_does_not_show_its_secrets() -> None:
    for conf in ({"url": "http://alice:hunter2@there"}, {"url": "http://there", "basic.auth.user.info": "a:hunter2"}):
        registry = Registry.of({**conf, **QUICK})
        assert "hunter2" in registry.secrets
        assert "hunter2" not in f"{registry} {registry!r}"


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
def test_a_registry_that_answers_a_byte_at_a_time_is_not_waited_for(
    timeout: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registering, "ASK_TIMEOUT_S", 0.5)
    begun = time.monotonic()
    with peer(drips(b"HTTP/1.1 200 OK\r\n")) as port, pytest.raises(errors.RegistryUnreachable, match=r"within 0\.5 s"):
        Registry.of({"url": f"http://127.0.0.1:{port}", "max.retries": "0", **timeout}).schema_id("s", SCHEMA)
    assert time.monotonic() - begun < 60

"""What executors do with framed records: find the schema's id, ask for it once, and say which record is bad and why."""

import base64
import json
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import ReadError, RecordUndecodable, RegistryRefused, RegistryUnreachable, SchemaIdsUnknown
from kafka_sink.records.kernel import fallback
from kafka_sink.registry import avro_program, decoding, json_reading, protobuf_reading, protoc, registering
from kafka_sink.registry.arrays import BadRecord
from kafka_sink.registry.avro_reading import Reader
from kafka_sink.registry.decoding import Batch, Reading, decoded, head_of
from kafka_sink.registry.references import Written
from scripted_peers import drips, peer
from small_registry import SmallRegistry, small_registry

ID = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
RENAMED = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "string"}]}'
QUICK = {"max.retries": "0", "timeout": "5"}


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry("alice:hunter2") as found:
        yield found


def reading(registry: SmallRegistry, *, schema: str = ID, null_if_bad: bool = False) -> Reading:
    conf = {"url": registry.url, "basic.auth.user.info": "alice:hunter2", **QUICK}
    return Reading(str(uuid.uuid4()), partial(Reader, Written(schema)), conf, "orders-value", null_if_bad)


def batch(records: list[bytes | None], headers: list[bytes | None] | None = None, place: bool = True) -> Batch:
    places = [("orders", 3, 100 + row) if place else (None, None, None) for row in range(len(records))]
    topic, partition, offset = (
        pa.array([one[i] for one in places], kind) for i, kind in enumerate((pa.string(), pa.int32(), pa.int64()))
    )
    headers = headers or [None] * len(records)
    return Batch(pa.array(records, pa.binary()), pa.array(headers, pa.binary()), (topic, partition, offset))


def framed(schema_id: int, number: int) -> bytes:
    """A record with one long, below 64."""
    return b"\0" + schema_id.to_bytes(4, "big") + bytes([number * 2])


def asked_ids(registry: SmallRegistry) -> list[str]:
    return [path for _, path in registry.asked if path.startswith("/schemas")]


def test_records_of_several_writers_are_read_in_their_order_and_each_schema_is_asked_for_once(
    registry: SmallRegistry,
) -> None:
    first, second = registry.add("orders-value", ID), registry.add("orders-value", RENAMED)
    records = [framed(first, 1), None, framed(second, 2) + b"\x02a", framed(first, 3), framed(second, 4) + b"\0"]
    of = reading(registry)
    for _ in range(3):
        assert decoded(of, batch(records)).to_pylist() == [{"id": 1}, None, {"id": 2}, {"id": 3}, {"id": 4}]
    assert asked_ids(registry) == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"]
    assert decoded(of, batch([None, None])).to_pylist() == [None, None]
    assert decoded(of, batch([])).to_pylist() == []


def test_the_id_may_be_a_guid_and_in_a_header_as_the_official_serializer_writes_it(registry: SmallRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "alice:hunter2"})
    conf = {"schema.id.serializer": header_schema_id_serializer}
    context = SerializationContext("orders", MessageField.VALUE, [])
    record = AvroSerializer(client, ID, conf=conf)({"id": 7}, context)
    ((name, header),) = context.headers
    assert (name, header, record) == ("__value_schema_id", b"\x01" + registry.guid(1).bytes, b"\x0e")
    in_record = b"\x01" + registry.guid(1).bytes + b"\x10"
    found = decoded(reading(registry), batch([record, in_record, framed(1, 9)], [header, None, None]))
    assert found.to_pylist() == [{"id": 7}, {"id": 8}, {"id": 9}]
    assert sorted(asked_ids(registry)) == [f"/schemas/guids/{registry.guid(1)}", "/schemas/ids/1"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "does not begin with a byte 0 or 1"), (b'{"id": 1}', "does not begin with a byte 0 or 1"),
        (b"\0\0\0\0", "shorter than the id"), (b"\x01" + bytes(15), "shorter than the id"),
        (framed(1, 1)[:5], "it ends too early"), (framed(1, 1) + b"secret", "6 bytes are left behind its end"),
        (framed(99, 1), "the schema registry has no schema with id 99"),
        (framed(2, 1), "schema with id 2 is of type JSON, not AVRO"),
        (framed(3, 1), "id: the writer has string there, and the reader long (schema with id 3)"),
        (framed(4, 1), "schema with id 4: its rule 'decrypt' of type ENCRYPT"),
        (framed(5, 1), "the writer's schema cannot be used"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_decoded_fails_with_its_place_or_is_null_with_the_reason(
    registry: SmallRegistry, record: bytes, reason: str
) -> None:
    registry.add("orders-value", ID)
    registry.add("orders-value", "{}", "JSON")
    registry.add("orders-value", ID.replace("long", "string"))
    rule = {"name": "decrypt", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    registry.schemas.append({"schema": ID, "schemaType": "AVRO", "ruleSet": {"domainRules": [rule]}})
    registry.add("orders-value", ID.replace('"long"', '["null", "r"]'))
    records = [framed(1, 1), None, record, framed(1, 2), record]
    with pytest.raises(RecordUndecodable, match=re.escape(reason)) as failed:
        decoded(reading(registry), batch(records))
    error = failed.value
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 102)
    assert "topic 'orders', partition 3, offset 102" in str(error) and "secret" not in str(error)
    with pytest.raises(RecordUndecodable, match="its place is unknown"):
        decoded(reading(registry), batch(records, place=False))
    found = decoded(reading(registry, null_if_bad=True), batch(records)).to_pylist()
    assert [one["value"] for one in found] == [{"id": 1}, None, None, {"id": 2}, None]
    assert [one["reason"] and reason in one["reason"] for one in found] == [None, None, True, None, True]


def test_a_value_that_does_not_fit_is_found_among_many(registry: SmallRegistry) -> None:
    """Columns are made of many records at once, and fail as a whole."""
    registry.add("orders-value", ID)
    wide = framed(1, 0)[:5] + b"\xff\xff\xff\xff\x7f"
    records = [wide if row in (17, 300) else framed(1, row % 64) for row in range(500)]
    of = reading(registry, schema=ID.replace("long", "int"), null_if_bad=True)
    registry.schemas[0]["schema"] = ID.replace("long", "int")
    found = decoded(of, batch(records)).to_pylist()
    assert [row for row, one in enumerate(found) if one["reason"]] == [17, 300]
    assert [one["value"]["id"] for one in found if one["value"]] == [r % 64 for r in range(500) if r not in (17, 300)]


@pytest.mark.parametrize("defect", [AttributeError, NameError, AssertionError, TypeError, KeyError, ZeroDivisionError])
@pytest.mark.parametrize("at", ["parse", "make"])
def test_a_defect_of_ours_fails_the_task_and_is_no_null(registry: SmallRegistry, defect: Any, at: str) -> None:
    schema_id = registry.add("orders-value", ID)

    class Defective(Reader):
        def writer(self, written: Written) -> Any:
            return replace(super().writer(written), program=None, **{at: self.fails})

        def fails(self, *_: Any) -> Any:
            raise defect

    of = replace(reading(registry, null_if_bad=True), reader=partial(Defective, Written(ID)))
    with pytest.raises(defect):
        decoded(of, batch([framed(schema_id, 1)]))


PROTO = """
    syntax = "proto3";
    import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto"; import "google/type/date.proto";
    message M {
        int32 a = 1; optional uint64 b = 2; string c = 3; google.protobuf.Struct d = 4; map<string, Inner> e = 5;
        google.protobuf.Timestamp f = 6; google.type.Date g = 7; repeated double h = 8; google.protobuf.Value i = 9;
        message Inner { sint64 x = 1; bytes y = 2; }
    }
"""
AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": f"f{i}", "type": one} for i, one in enumerate((
    "long", ["null", "string"], {"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "map", "values": "bytes"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, {"type": "array", "items": "int"},
    {"type": "fixed", "name": "F", "size": 2}, {"type": "int", "logicalType": "date"}, "double"))]})  # fmt: skip
JSON = json.dumps({"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": "string", "format": "date-time"}, "c": {"type": "string", "format": "date"},
    "d": {"type": "string", "contentEncoding": "base64"}, "e": {"type": "array", "items": {"type": "number"}}, "f": {},
    "g": {"type": "object", "additionalProperties": {"type": "boolean"}}}})  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([
        "2020-02-30", "0000-01-01", "2020-01-01T00:00:60Z", "9999-12-31T23:59:59-23:59", "aGk", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2), max_leaves=4,
)  # fmt: skip
PARTS = st.sampled_from([bytes([one]) for one in (0, 1, 2, 4, 6, 8, 10, 18, 34, 42, 50, 58, 65, 74, 97, 128, 255)]
                        + [b"\xff" * 9 + b"\1", b"\xff" * 11, b"\xff\xff\xff\xff\x0f", b"\x80\x80\1"])  # fmt: skip
HOSTILE = {
    "AVRO": (Reader, AVRO, st.binary(max_size=30) | st.lists(PARTS, max_size=14).map(b"".join)),
    "PROTOBUF": (protobuf_reading.Reader, PROTO, st.lists(PARTS, max_size=14).map(lambda one: b"\0" + b"".join(one))),
    "JSON": (json_reading.Reader, JSON, st.binary(max_size=9) | st.dictionaries(
        st.sampled_from("abcdefg"), VALUES).map(lambda value: json.dumps(value).encode())),
}  # fmt: skip


@pytest.mark.parametrize("form", HOSTILE)
def test_any_bytes_are_a_value_or_null_with_a_reason(
    registry: SmallRegistry, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error of a library but those that are taken for a bad record."""
    kind, text, payloads = HOSTILE[form]
    monkeypatch.setattr(avro_program, "KERNEL", fallback())
    text = base64.b64encode(protoc.compiled(text)).decode() if form == "PROTOBUF" else text
    head = b"\0" + registry.add("orders-value", text, form).to_bytes(4, "big")
    of = replace(reading(registry, null_if_bad=True), reader=partial(kind, Written(text)))

    @given(st.lists(payloads, min_size=1, max_size=20))
    def check(records: list[bytes]) -> None:
        for found in decoded(of, batch([head + one for one in records])).to_pylist():
            assert (found["value"] is None) is (found["reason"] is not None)

    check()


@pytest.mark.parametrize(
    ("form", "payload", "reason"),
    [
        ("AVRO", b"", "it ends too early"), ("AVRO", b"\x80", "IndexError"), ("AVRO", b"\0\2\2\xff", "not UTF-8"),
        ("AVRO", b"\0\6", "IndexError"), ("AVRO", b"\xff" * 10 + b"\1" + bytes(16), "more than 64 bits"),
        ("JSON", b"{", "it is not JSON, at character 1"), ("JSON", b"[" * 10**5, "nested too deep"),
        ("JSON", b"\xff", "not UTF-8"), ("JSON", b"9" * 10**4, "not of the schema that it was written with"),
        ("PROTOBUF", b"\0\x0a", "not of the schema that it was written with (DecodeError)"),
    ],
)  # fmt: skip
def test_what_libraries_raise_for_hostile_bytes_is_a_reason(
    registry: SmallRegistry, form: str, payload: bytes, reason: str
) -> None:
    kind, text, _ = HOSTILE[form]
    text = base64.b64encode(protoc.compiled(text)).decode() if form == "PROTOBUF" else text
    head = b"\0" + registry.add("orders-value", text, form).to_bytes(4, "big")
    of = replace(reading(registry, null_if_bad=True), reader=partial(kind, Written(text)))
    ((value, found),) = (tuple(one.values()) for one in decoded(of, batch([head + payload])).to_pylist())
    assert value is None and reason in found


def test_a_registry_that_knows_no_guids_has_no_schema_of_one(registry: SmallRegistry) -> None:
    """As Apicurio 2. A wrong url is still an error."""
    registry.has_guids = False
    of = reading(registry, null_if_bad=True)
    record = b"\x01" + uuid.UUID(int=7).bytes + b"\2"
    ((value, reason),) = (tuple(one.values()) for one in decoded(of, batch([record])).to_pylist())
    assert value is None and "has no schema with GUID 00000000-0000-0000-0000-000000000007" in reason
    elsewhere = replace(of, key="elsewhere", conf={**of.conf, "url": f"{registry.url}/elsewhere"})
    with pytest.raises(RegistryRefused, match="points to a schema registry"):
        decoded(elsewhere, batch([record]))


def test_records_are_decoded_in_chunks_and_a_larger_one_alone(
    registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add("orders-value", ID)
    monkeypatch.setattr(avro_program, "KERNEL", fallback())
    monkeypatch.setattr(decoding, "CHUNK_BYTES", 13)
    made: list[int] = []
    made_of = decoding._made
    monkeypatch.setattr(decoding, "_made", lambda *given: made.append(len(given[1])) or made_of(*given))
    assert decoded(reading(registry), batch([framed(1, row) for row in range(5)])).to_pylist() == [
        {"id": row} for row in range(5)
    ]
    assert made == [2, 2, 1]


def test_records_that_the_kernel_refuses_are_decoded_in_their_place(
    registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map with a key twice is for Python, and a bad record has the same reason, with and without the kernel."""
    fields = [{"name": "id", "type": "long"}, {"name": "m", "type": {"type": "map", "values": "long"}}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    registry.add("orders-value", schema)
    head = framed(1, 0)[:5]
    plain, twice = head + b"\2\2\2k\4\0", head + b"\4\4\2k\2\2k\4\0"
    records = [plain, twice, None, head, plain + b"\0", twice, plain]
    made: list[Any] = []
    for kernel in (avro_program.KERNEL, fallback()):
        monkeypatch.setattr(avro_program, "KERNEL", kernel)
        found = decoded(reading(registry, schema=schema, null_if_bad=True), batch(records))
        found.validate(full=True)
        made.append(found.to_pylist())
    assert made[0] == made[1]
    values = [one["value"] and (one["value"]["id"], one["value"]["m"]) for one in made[0]]
    assert values == [(1, [("k", 2)]), (2, [("k", 2)]), None, None, None, (2, [("k", 2)]), (1, [("k", 2)])]
    assert [one["reason"] is not None for one in made[0]] == [False, False, False, True, True, False, False]


def test_a_registry_that_is_down_fails_the_task_and_known_ids_go_on(registry: SmallRegistry) -> None:
    first, second = registry.add("orders-value", ID), registry.add("orders-value", RENAMED)
    for null_if_bad in (False, True):
        of = reading(registry, null_if_bad=null_if_bad)
        decoded(of, batch([framed(first, 1)]))
        registry.is_open = False
        assert len(decoded(of, batch([framed(first, 2)]))) == 1
        with pytest.raises(RegistryRefused, match="status 503"):
            decoded(of, batch([framed(first, 1), framed(second, 2) + b"\0"]))
        registry.is_open = True
        assert len(decoded(of, batch([framed(second, 2) + b"\0"]))) == 1
    gone = Reading("gone", of.reader, {"url": "http://127.0.0.1:1", **QUICK}, "orders-value", True)
    with pytest.raises(RegistryUnreachable):
        decoded(gone, batch([framed(first, 1)]))


def test_a_registry_that_answers_too_slowly_fails_the_task_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "ASK_TIMEOUT_S", 0.5)
    begun = time.monotonic()
    with peer(drips(b"HTTP/1.1 200 OK\r\n")) as port, pytest.raises(RegistryUnreachable, match=r"within 0\.5 s"):
        slow = Reading("slow", partial(Reader, Written(ID)), {"url": f"http://127.0.0.1:{port}", **QUICK}, "s", True)
        decoded(slow, batch([framed(1, 1)]))
    assert time.monotonic() - begun < 60


def test_a_wrong_url_or_password_is_no_bad_record(registry: SmallRegistry) -> None:
    for conf in ({"url": f"{registry.url}/elsewhere", "basic.auth.user.info": "alice:hunter2"},
                 {"url": registry.url, "basic.auth.user.info": "alice:wrong"}):  # fmt: skip
        of = Reading(str(uuid.uuid4()), partial(Reader, Written(ID)), {**conf, **QUICK}, "orders-value", True)
        with pytest.raises(RegistryRefused) as failed:
            decoded(of, batch([framed(1, 1)]))
        assert "hunter2" not in f"{failed.value} {vars(failed.value)} {of!r}"
        assert "wrong" not in f"{failed.value} {vars(failed.value)} {of!r}"


def test_ids_that_the_registry_does_not_know_have_a_bound(
    registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs a request, and bytes of other systems may be as many ids as there are records."""
    of = reading(registry, null_if_bad=True)
    unknown = [framed(1 + number, 1) for number in range(decoding.MOST_UNKNOWN)]
    for _ in range(2):
        found = decoded(of, batch(unknown)).to_pylist()
        assert all("has no schema with id" in one["reason"] for one in found)
    assert len(registry.asked) == decoding.MOST_UNKNOWN
    with pytest.raises(SchemaIdsUnknown) as failed:
        decoded(of, batch([framed(1000, 1)]))
    assert isinstance(failed.value, ReadError) and "orders-value" in str(failed.value)
    registry.add("orders-value", ID)
    later = time.monotonic_ns() // 1_000_000 + decoding.UNKNOWN_FOR_MS + 1_000
    monkeypatch.setattr(decoding, "monotonic_ms", lambda: later)
    assert decoded(of, batch([framed(1, 1)])).to_pylist() == [{"value": {"id": 1}, "reason": None}]


def test_what_a_worker_keeps_has_a_bound(registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [registry.add("orders-value", ID.replace('"r"', f'"r", "doc": "{number}"')) for number in range(3)]
    of = reading(registry)
    monkeypatch.setattr(decoding, "MOST_WRITERS", 2)
    for schema_id in (*ids, ids[0]):
        decoded(of, batch([framed(schema_id, 1)]))
    assert len(asked_ids(registry)) == 4
    monkeypatch.setattr(decoding, "MOST_WRITERS", 9)
    monkeypatch.setattr(decoding, "MOST_CHARACTERS", 100)
    for schema_id in ids * 2:
        decoded(of, batch([framed(schema_id, 1)]))
    assert len(asked_ids(registry)) > 8
    monkeypatch.setattr(decoding, "MOST_READERS", 2)
    for _ in range(3):
        decoded(reading(registry), batch([framed(ids[0], 1)]))
    assert len(decoding._KEPT) == 2


def test_a_schema_that_refers_to_others_is_read_with_them(registry: SmallRegistry) -> None:
    registry.add("place", '{"type": "record", "name": "shop.Place", "fields": [{"name": "lat", "type": "double"}]}')
    order: dict[str, Any] = {"type": "record", "name": "r", "fields": [{"name": "at", "type": "shop.Place"}]}
    reference = {"name": "shop.Place", "subject": "place", "version": 1}
    schema_id = registry.add("orders-value", json.dumps(order), references=[reference])
    order["fields"][0]["type"] = json.loads(registry.schemas[0]["schema"])
    of = reading(registry, schema=json.dumps(order))
    assert decoded(of, batch([framed(schema_id, 0) + bytes(7)])).to_pylist() == [{"at": {"lat": 0.0}}]


def test_a_schema_that_is_refused_is_asked_for_once_and_its_reason_is_short(registry: SmallRegistry) -> None:
    """The reason is in each row, and may quote names of a schema of 16 MiB."""
    registry.add("orders-value", "{}", "J\n" * 10_000)
    registry.add("orders-value", ID.replace('"r"', f'"{"r" * 10_000}"'))
    registry.add("orders-value", ID.replace('"long"', '["int", ["int"]]'))
    of = reading(registry, null_if_bad=True)
    for _ in range(3):
        found = decoded(of, batch([framed(number, 1) for number in (1, 2, 3)])).to_pylist()
        assert all(0 < len(one["reason"]) < 400 and one["reason"].isprintable() for one in found)
    assert asked_ids(registry) == [f"/schemas/ids/{number}" for number in (1, 2, 3)]


def test_a_schema_whose_references_are_missing_is_bad_until_it_is_asked_for_again(
    registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = registry.add("orders-value", ID)
    reference = {"name": "shop.Place", "subject": "place", "version": 1}
    broken = registry.add("orders-value", ID.replace("long", "shop.Place"), references=[reference])
    of = reading(registry, null_if_bad=True)
    for _ in range(2):
        first, second = decoded(of, batch([framed(good, 1), framed(broken, 1)])).to_pylist()
        assert first == {"value": {"id": 1}, "reason": None}
        assert f"schema with id {broken}: it refers to 'shop.Place'" in second["reason"]
    assert len(asked_ids(registry)) == 2
    registry.add("place", '{"type": "enum", "name": "shop.Place", "symbols": ["A"]}')
    later = time.monotonic_ns() // 1_000_000 + decoding.UNKNOWN_FOR_MS + 1_000
    monkeypatch.setattr(decoding, "monotonic_ms", lambda: later)
    (found,) = decoded(of, batch([framed(broken, 0)])).to_pylist()
    assert "id: the writer has enum there" in found["reason"]


def test_a_short_schema_of_many_types_counts_as_a_long_one(
    registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where named types are named again and again, a thousand texts of 1 KB would be gigabytes."""
    fields: list[Any] = [{"name": "f", "type": "int"}]
    for level in range(8):
        inner: Any = {"type": "record", "name": f"L{level}", "fields": fields}
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{level}"}]
    whole = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, *fields]}
    ids = [registry.add("orders-value", json.dumps({**whole, "doc": str(number)})) for number in range(3)]
    of = reading(registry)
    monkeypatch.setattr(decoding, "MOST_CHARACTERS", 100_000)
    for schema_id in ids * 2:
        assert decoded(of, batch([framed(schema_id, 1) + bytes(256)])).to_pylist() == [{"id": 1}]
    assert len(asked_ids(registry)) == 6


def test_a_record_of_another_message_is_refused(registry: SmallRegistry) -> None:
    text = 'syntax = "proto3"; package shop; message First { int32 a = 1; } message Other { int32 a = 1; }'
    file = base64.b64encode(protoc.compiled(text)).decode()
    schema_id = registry.add("orders-value", file, "PROTOBUF")
    conf = {"url": registry.url, "basic.auth.user.info": "alice:hunter2"}
    of = Reading(str(uuid.uuid4()), partial(protobuf_reading.Reader, Written(file)), conf, "orders-value", True)
    head = b"\0" + schema_id.to_bytes(4, "big")
    found = decoded(of, batch([head + b"\0\x08\x07", head + b"\x02\x02\x08\x07", head])).to_pylist()
    assert found[0] == {"value": {"a": 7}, "reason": None}
    assert [one["value"] for one in found[1:]] == [None, None]
    assert "its message is another one" in found[1]["reason"] and "ends within the indexes" in found[2]["reason"]


def test_the_path_to_a_message_is_read() -> None:
    for data, expected in (
        (b"\0\0\0\0\x01\0rest", ((1, (0,)), 6)), (b"\0\0\0\0\x01\x02\x06", ((1, (3,)), 7)),
        (b"\0\0\0\0\x01\x04\x02\x80\x01", ((1, (1, 64)), 9)),
    ):  # fmt: skip
        assert head_of(data, has_indexes=True) == expected
    for data in (
        b"\0\0\0\0\x01",
        b"\0\0\0\0\x01\x01\x02",
        b"\0\0\0\0\x01\xff\xff\xff\xff\xff\x01",
        b"\0\0\0\0\x01\xfe\x7f",
    ):
        with pytest.raises(BadRecord):
            head_of(data, has_indexes=True)

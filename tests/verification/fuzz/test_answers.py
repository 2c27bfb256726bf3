"""What a peer's answer may say, in every version of every API: its cost is bounded by what was asked; numbers that
become offsets, epochs, partitions or ids are ones that there can be; what was asked for is answered once; and a topic
of a cluster has a name that Kafka allows.
"""

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

import pytest

from fuzz import answers
from fuzz.answers import EXCHANGES, ORDERS, Exchange, Said, answer, largest_arrays
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol import message_reader
from kafka_sink.kafka.protocol.api import MAX_FRAME_BYTES, Request
from kafka_sink.kafka.protocol.apis.fetch import MAX_BATCH_BYTES, FetchRequest
from kafka_sink.kafka.protocol.apis.handshake import ApiVersionsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.offsets import EARLIEST, LATEST, AskedOffset, ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.topics import TopicConfigsRequest
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeTransactionsRequest
from kafka_sink.kafka.protocol.connection import MAX_HANDSHAKE_FRAME_BYTES, Connection, State
from kafka_sink.kafka.protocol.requests import decode_response

FRAME_BYTES = 300_000
FETCH = FetchRequest("orders", None, 2, 5, 7, IsolationLevel.READ_COMMITTED, 1_000, 1, 500)
LIST_OFFSETS = ListOffsetsRequest((AskedOffset("orders", 2, LATEST),), IsolationLevel.READ_COMMITTED, 1_000)


def decoded(request: Request, version: int, frame: bytes) -> int:
    """Return the most memory (bytes) that the answer took. It may be refused."""
    tracemalloc.start()
    try:
        decode_response(request, version, frame)
    except ProtocolError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    ("exchange", "version"),
    [(exchange, version) for exchange in EXCHANGES for version in exchange.versions()],
    ids=lambda each: f"{each.api.name}-{EXCHANGES.index(each)}" if isinstance(each, Exchange) else f"v{each}",
)
def test_an_array_of_many_small_elements_is_not_taken_apart(
    exchange: Exchange, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An element of 3 bytes takes 250 in memory. With a budget of 1,000 elements, an answer takes what its bytes do."""
    monkeypatch.setattr(message_reader, "MAX_ELEMENTS", 1_000)
    decoded(exchange.request, version, b"")
    for path, frame in largest_arrays(exchange.api, version, FRAME_BYTES):
        # A partition made of a number of 4 bytes takes 80.
        assert decoded(exchange.request, version, frame) < 24 * FRAME_BYTES, path


@pytest.mark.parametrize("request_", [FETCH, LIST_OFFSETS], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("array", ["topics", "partitions"])
def test_more_than_was_asked_is_refused_before_it_is_read(request_: Request, array: str) -> None:
    version = 12 if request_ is FETCH else 6
    of_topics = "responses" if request_ is FETCH else "topics"
    topic: dict[str, object] = {"partitions": [] if array == "topics" else [{}] * 5_000}
    fields = {of_topics: [topic] * (5_000 if array == "topics" else 1)}
    with pytest.raises(ProtocolError, match="has 5000 elements where at most 9 can answer"):
        decode_response(request_, version, answer(request_, version, fields))


METADATA = MetadataRequest(("orders",), allow_auto_topic_creation=False)
CONFIGS = TopicConfigsRequest(("orders",), ("retention.ms",))


@pytest.mark.parametrize(("request_", "version", "fields", "array", "most"), [
    (METADATA, 12, {"topics": [{"partitions": [{}] * 100_009}]}, "partitions", 100_008),
    (MetadataRequest((), False), 12, {"topics": [{"partitions": [{}] * 9}]}, "partitions", 8),
    (MetadataRequest(None, False), 12, {"brokers": [{}] * 10_009}, "brokers", 10_008),
    (CONFIGS, 4, {"results": [{"configs": [{}] * 10}]}, "configs", 9),
    (CONFIGS, 4, {"results": [{"configs": [{"synonyms": [{}] * 10}]}]}, "synonyms", 9),
    (DescribeTransactionsRequest(("s.0",)), 0,
     {"transaction_states": [{"topics": [{"partitions": [0] * 350_009}]}]}, "partitions", 350_008),
])  # fmt: skip
def test_parts_of_what_was_asked_are_as_many_as_there_can_be(
    request_: Request, version: int, fields: Said, array: str, most: int
) -> None:
    with pytest.raises(ProtocolError, match=f"{array} has {most + 1} elements where at most {most} can answer"):
        decode_response(request_, version, answer(request_, version, fields))


def test_a_string_is_no_longer_than_kafka_writes_one() -> None:
    """In flexible versions its length is a varint: one of 128 MiB became 512 MiB of text."""
    topic = {"name": "a" * 0x8000, "partitions": []}
    with pytest.raises(ProtocolError, match="a string has 32768 bytes; it may have 32767"):
        decode_response(METADATA, 12, answer(METADATA, 12, {"topics": [topic]}))


def test_tagged_fields_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag without bytes takes 2 bytes, and a frame of 128 MiB would have 64 million."""
    monkeypatch.setattr(message_reader, "MAX_ELEMENTS", 1_000)
    frame = answer(LIST_OFFSETS, 6, {"topics": []})
    assert frame.endswith(b"\0")
    with pytest.raises(ProtocolError, match="tagged fields has 8191 elements; a message may have 1000"):
        decode_response(LIST_OFFSETS, 6, frame[:-1] + b"\xff\x3f" + b"\x63\0" * 8_191)


def test_reading_an_answer_ends_at_its_deadline() -> None:
    frame = answer(EXCHANGES[1].request, 12, {"brokers": [{}] * 3_000, "topics": []})
    looks = itertools.count()
    with pytest.raises(ProtocolError, match="takes too long to read"):
        decode_response(EXCHANGES[1].request, 12, frame, lambda: next(looks) >= 2)
    assert next(looks) == 3


class TestFrames:
    @pytest.mark.parametrize(("request_", "largest"), [
        (FETCH, MAX_BATCH_BYTES + FETCH.max_bytes), (LIST_OFFSETS, MAX_FRAME_BYTES),
    ])  # fmt: skip
    def test_are_limited_by_the_request_that_waits(self, request_: Request, largest: int) -> None:
        for size, is_refused in ((largest, False), (largest + 1, True)):
            connection = opened()
            connection.send(request_)
            connection.sent()
            connection.receive(size.to_bytes(4, "big"))
            if is_refused:
                with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
                    connection.next_answer()
            else:
                assert connection.next_answer() is None

    def test_of_a_handshake_are_small(self) -> None:
        connection = started()
        connection.receive((MAX_HANDSHAKE_FRAME_BYTES + 1).to_bytes(4, "big"))
        with pytest.raises(ProtocolError, match="a frame of"):
            connection.next_answer()


SOFTWARE = ApiVersionsRequest("test", "1")


def started() -> Connection:
    connection = Connection(client_id="me", software=SOFTWARE, max_frame_bytes=2 * MAX_BATCH_BYTES)
    connection.start()
    connection.sent()
    return connection


def opened() -> Connection:
    connection = started()
    exchange = next(each for each in EXCHANGES if isinstance(each.request, ApiVersionsRequest))
    frame = next(exchange.frames(3))
    connection.receive(len(frame).to_bytes(4, "big") + frame)
    assert connection.next_answer() is None
    assert connection.state is State.OPEN
    return connection


# They are no offsets, epochs, partitions or ids: waits and times are bounded where they are used, and operations are
# bits.
OTHERS = {"throttle_time_ms", "error_code", "authorized_operations", "ranges", "finalized_features", "timeout_ms",
          "start_time_ms", "timestamp_ms", "session_lifetime_ms"}  # fmt: skip


def numbers(value: Any) -> Iterator[tuple[str, int]]:
    """Yield each number of a response with the name of its field."""
    for field in fields(value):
        if field.name not in OTHERS:
            yield from _numbers(field.name, getattr(value, field.name))


def _numbers(name: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, int):
        yield name, value
    elif is_dataclass(value):
        yield from numbers(value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _numbers(name, each)


@pytest.mark.parametrize("number", [-2, -(2**31)])
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: f"{each.api.name}-{EXCHANGES.index(each)}")
def test_a_number_that_cannot_be_is_not_believed(
    exchange: Exchange, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One field at a time, in all of its places. An answer with an error has no numbers that anybody uses."""
    something = answers._something
    damaged: list[str] = [""]
    seen: set[str] = set()

    def one_is_damaged(field: Field[Any]) -> Any:
        if field.metadata["kafka_type"] not in ("int32", "int64"):
            return something(field)
        seen.add(field.name)
        return number if field.name == damaged[0] else something(field)

    monkeypatch.setattr(answers, "_something", one_is_damaged)
    for version in exchange.versions():
        list(exchange.frames(version))
        for name in sorted(seen):
            damaged[0] = name
            try:
                response = decode_response(exchange.request, version, next(exchange.frames(version)))
            except (ProtocolError, OverflowError):
                continue
            finally:
                damaged[0] = ""
            assert [each for each in numbers(response) if each[1] < -1] == [], name


# Arrays that no request asks for by name: a cluster says what it has.
ANY_NUMBER = {
    "api_keys", "supported_features", "finalized_features", "mechanisms", "brokers", "replica_nodes", "isr_nodes",
    "offline_replicas", "transaction_states", "unknown_state_filters", "active_producers", "aborted_transactions",
    "preferred_read_replica", "configs", "synonyms", "members", "node_endpoints", "old_style_offsets", "record_errors",
    "eligible_leader_replicas", "last_known_elr",
}  # fmt: skip
# The only topic may be left out: where no record came in time, or where all topics of a cluster were asked for.
ALLOWED = {("Fetch", "fewer responses"), ("Fetch", "fewer partitions"), ("Metadata", "fewer topics")}


def with_fewer_or_more(entity: Any) -> Iterator[tuple[str, Any]]:
    """Yield kio's entity with the last element of one array left out, and with it twice, for each array."""
    for field in fields(entity):
        value = getattr(entity, field.name)
        if is_dataclass(value):
            yield from ((name, replace(entity, **{field.name: each})) for name, each in with_fewer_or_more(value))
        if not isinstance(value, tuple) or not value or field.name in ANY_NUMBER:
            continue
        yield f"fewer {field.name}", replace(entity, **{field.name: value[:-1]})
        yield f"more {field.name}", replace(entity, **{field.name: (*value, value[-1])})
        if is_dataclass(value[-1]):
            yield from (
                (name, replace(entity, **{field.name: (*value[:-1], each)}))
                for name, each in with_fewer_or_more(value[-1])
            )


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: f"{each.api.name}-{EXCHANGES.index(each)}")
def test_what_was_asked_for_is_answered_once(exchange: Exchange) -> None:
    """An API whose `check` is missing, or looks at less than it was asked for, fails here."""
    for version in exchange.versions():
        for name, damaged in with_fewer_or_more(answers.message(exchange.request, version, exchange.answers[0])):
            if (exchange.api.name, name) in ALLOWED:
                continue
            with pytest.raises(ProtocolError):
                decode_response(exchange.request, version, answers.frame(damaged))
                pytest.fail(f"version {version}: {name} are believed: {damaged}")


@pytest.mark.parametrize(("timestamp_ms", "offset"), [(LATEST, -1), (EARLIEST, -1), (5, -2), (LATEST, 2**63 - 1)])
def test_an_offset_that_no_log_has(timestamp_ms: int, offset: int) -> None:
    """A stream that believed -1 would put it into its checkpoint; a batch would succeed without rows."""
    request = ListOffsetsRequest((AskedOffset("orders", 0, timestamp_ms),), IsolationLevel.READ_COMMITTED, 1_000)
    for error_code, is_refused in ((0, True), (6, False)):
        partition = {"partition_index": 0, "error_code": error_code, "offset": offset}
        frame = answers.answer(request, 6, {"topics": [{"name": "orders", "partitions": [partition]}]})
        if is_refused:
            with pytest.raises(ProtocolError, match=f"a ListOffsets answer with offset {offset}"):
                decode_response(request, 6, frame)
        else:
            decode_response(request, 6, frame)


def test_a_time_may_have_no_record() -> None:
    request = ListOffsetsRequest((AskedOffset("orders", 0, 5),), IsolationLevel.READ_COMMITTED, 1_000)
    topic = {"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}
    decode_response(request, 6, answers.answer(request, 6, {"topics": [topic]}))


@pytest.mark.parametrize("name", ["\x1b[2J", "a\r\nb", "\u202eevil", "a" * 250, "..", "", "a/b"])
def test_a_topic_of_a_cluster_has_a_name_that_kafka_allows(name: str) -> None:
    request = MetadataRequest(None, allow_auto_topic_creation=False)
    topic: answers.Said = {"name": name, "topic_id": ORDERS, "partitions": [{"partition_index": 0}]}
    with pytest.raises(ProtocolError, match="a topic that no cluster can have") as refused:
        decode_response(request, 9, answers.answer(request, 9, {"topics": [topic]}))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_a_name_that_was_asked_for_may_be_refused_by_the_cluster() -> None:
    request = MetadataRequest(("a/b",), allow_auto_topic_creation=False)
    topic: answers.Said = {"name": "a/b", "topic_id": None, "partitions": [], "error_code": 17}
    decode_response(request, 9, answers.answer(request, 9, {"topics": [topic]}))

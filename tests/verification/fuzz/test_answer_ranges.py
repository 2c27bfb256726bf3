"""Numbers of an answer that become offsets, epochs, partitions or ids are ones that there can be, what was asked for is
answered once, and a topic of a cluster has a name that Kafka allows: in every version of every API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

import pytest

from fuzz import answers
from fuzz.answers import EXCHANGES, ORDERS, Exchange
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import EARLIEST, LATEST, AskedOffset, ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.requests import decode_response

# They are no offsets, epochs, partitions or ids: waits and times are bounded where they are used, and operations are
# bits.
OTHERS = {"throttle_time_ms", "error_code", "authorized_operations", "ranges", "finalized_features", "timeout_ms",
          "start_time_ms", "log_append_time_ms", "timestamp_ms", "session_lifetime_ms"}  # fmt: skip


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

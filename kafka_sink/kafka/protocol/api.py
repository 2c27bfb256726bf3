"""What all APIs share: the base of their requests, the limits of an answer, and its checks against the request."""

from __future__ import annotations

import enum
import functools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, TypeVar

from kafka_sink.errors import ProtocolError
from kafka_sink.errors.quoting import is_topic_name, quoted
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# A Metadata response is the largest without records. A partition takes about 45 bytes of it, so this suffices for
# 350,000 partitions. A frame is kept until it is complete, so this also limits the memory that a peer can use.
MAX_FRAME_BYTES = 16 * 1024 * 1024

# kio's message as a dict: field name -> value (`message_reader.py`).
Message = Mapping[str, Any]
# The lowest and the highest version that can carry a request.
Versions = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Api:
    """`min_version`, `max_version`: those that the client uses.
    `client_throttles_from`: the first version in which the client waits for the throttle time of a response. In earlier
    ones the broker has waited before it answered (KIP-219).
    """

    name: str
    key: int
    min_version: int
    max_version: int
    client_throttles_from: int = 0

    @property
    def kio_package(self) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)[1:]


class Response(Protocol):
    """What all responses have."""

    @property
    def throttle_time_ms(self) -> int: ...


class Request(ABC):
    """A request of `api`: how it is written, how its response is read, and what an answer to it may cost."""

    __slots__ = ()
    api: ClassVar[Api]

    def versions(self) -> Versions:
        """Return the versions in which the client can send the request."""
        return self.api.min_version, self.api.max_version

    @abstractmethod
    def to_kio(self, kio: Any, version: int) -> Any:
        """Return the request as kio's. `kio`: kio's module of the version."""

    @abstractmethod
    def response(self, message: Message) -> Response:
        """Return the response that `message` is. Raises ProtocolError."""

    def check(self, response: Any) -> None:  # noqa: B027 (some answers need no check)
        """Raise ProtocolError if `response` does not answer the request."""

    def most(self) -> Mapping[str, int]:
        """Return array of the response -> the most elements in all arrays of that name. The budget of the message
        limits the others (`message_reader.py`)."""
        return {}

    def largest_frame(self) -> int:
        """Return the most bytes of the response."""
        return MAX_FRAME_BYTES


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """The result of a request, returned to its sender exactly once: `response`, or `error` with the reason why there is
    none (org.apache.kafka.clients.ClientResponse).

    Both are None for a request that was sent and expects no response (acks=0). `latency_ms` counts from `send`.
    `node_id`: the id that the request was sent to. A bootstrap server may be known as a broker by now.
    """

    node_id: int
    request: Request
    token: object
    response: Response | None
    error: str | None
    latency_ms: int


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The response to requests that are only done or refused."""

    throttle_time_ms: int
    error_code: int


@dataclass(frozen=True, slots=True)
class PartitionResult:
    topic: str
    partition: int
    error_code: int


@dataclass(frozen=True, slots=True)
class PartitionsResponse:
    """The response to requests that are done or refused for each partition."""

    throttle_time_ms: int
    results: tuple[PartitionResult, ...]


T = TypeVar("T")


def read(of: type[T], message: Message, **known: Any) -> T:
    """Return the dataclass `of` with the fields of `message` that have the names of its fields, and with `known`. A
    field that the version of `message` lacks keeps its default."""
    found = {**message, **known}
    if "throttle_time" in message:
        found["throttle_time_ms"] = message["throttle_time"]
    return of(**{name: found[name] for name in _names(of) if name in found})  # type: ignore[arg-type]


@functools.cache
def _names(of: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(of))


def partitions_of(topics: Iterable[Message]) -> Iterator[Message]:
    """Yield the partitions of a response's `topics`, each with the fields `topic` and `partition`."""
    for topic in topics:
        for each in topic["partitions"]:
            yield {**each, "topic": topic["name"], "partition": each["partition_index"]}


def partition_results(topics: Iterable[Message]) -> tuple[PartitionResult, ...]:
    return tuple(read(PartitionResult, each) for each in partitions_of(topics))


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, tuple[int, ...]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return {topic: tuple(numbers) for topic, numbers in grouped.items()}


# --- what an answer may cost ------------------------------------------------------------------------------------------

# So many more elements than asked are read, so that `check_answered` can name them.
_TO_BE_NAMED = 8


def each_asked(count: int, *arrays: str) -> dict[str, int]:
    """Return the limit of `arrays` that have one element for each of `count` that were asked for. Topics have the limit
    of partitions: a broker may name a topic once for each."""
    return dict.fromkeys(arrays, count + _TO_BE_NAMED)


# More than any cluster has. A topic of 100,000 partitions has more than Kafka creates in ten requests (KRaft's limit is
# 10,000 each).
MOST_BROKERS = 10_000
MOST_PARTITIONS_OF_A_TOPIC = 100_000
MOST_PARTITIONS = 350_000


# --- checks -----------------------------------------------------------------------------------------------------------


def check_answered(api: str, asked: Iterable[Any], answered: Iterable[Any]) -> None:
    """Raise ProtocolError unless `answered` is `asked`, in any order."""
    # A mapping counts by its keys: Counter would take its values for counts.
    wanted, got = Counter(iter(asked)), Counter(iter(answered))
    if wanted == got:
        return
    missing, surplus = wanted - got, got - wanted
    raise ProtocolError(
        f"{_article(api)} {api} answer for something else than asked (missing: {first_of(missing)}; not asked for or "
        f"answered twice: {first_of(surplus)})"
    )


def check_partitions(api: str, asked: Iterable[tuple[str, int]], answered: Iterable[Any]) -> None:
    """As `check_answered`, for answers with a topic and a partition each."""
    check_answered(api, asked, ((each.topic, each.partition) for each in answered))


def first_of(elements: Counter[Any]) -> str:
    """Return the first element, as `topic-partition and 3 more`."""
    if not elements:
        return "none"
    element, *more = elements
    text = f"{element[0]}-{element[1]}" if isinstance(element, tuple) else repr(element)
    return text + (f" and {len(more)} more" if more else "")


# The number of nothing: no leader, no epoch, no offset.
NONE = -1
# A batch has fewer than 2^31 records, so its last record has a valid offset, too.
MAX_OFFSET = 2**63 - 2**31


def check_number(api: str, name: str, number: int, least: int = NONE) -> None:
    """Raise ProtocolError unless the number, which becomes an offset, an epoch, a partition or an id, can be one."""
    if not least <= number <= MAX_OFFSET:
        raise ProtocolError(f"{_article(api)} {api} answer with {name} {number}")


def check_topic_name(api: str, name: str) -> None:
    """Raise ProtocolError unless a topic can have the name, by Kafka's rule (`Topic.validate`)."""
    if not is_topic_name(name):
        raise ProtocolError(f"{_article(api)} {api} answer with a topic that no cluster can have: {quoted(name, 60)}")


def _article(api: str) -> str:
    return "an" if api[0] in "AEIO" else "a"


def only_partition(api: str, topic: str, partition: int, topics: Iterable[Message]) -> Message:
    """Return the part of a response's `topics` for the one requested partition."""
    return by_partition(api, topic, (partition,), topics)[partition]


def by_partition(api: str, topic: str, partitions: Sequence[int], topics: Iterable[Message]) -> dict[int, Message]:
    """Return the parts of a response's `topics` for the requested partitions of one topic."""
    answered = list(partitions_of(topics))
    asked = [(topic, partition) for partition in partitions]
    check_answered(api, asked, ((each["topic"], each["partition"]) for each in answered))
    return {each["partition"]: each for each in answered}


# --- allowed operations -----------------------------------------------------------------------------------------------

# Allowed operations (KIP-430) have one bit per operation code. This number means "not reported", not "none".
NOT_REPORTED = -(2**31)


class AclOperation(enum.IntEnum):
    """The operations that this project asks for, with Kafka's names and codes."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8


def allows(authorized_operations: int, operation: AclOperation) -> bool | None:
    """Return True if the operation is allowed, or None if the broker did not report it."""
    return None if authorized_operations == NOT_REPORTED else bool(authorized_operations >> operation & 1)

"""What all APIs share: the row that describes an API, and the checks of a response against its request."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.errors.quoting import is_topic_name, quoted
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


def _any_answer(request: Any, response: Any) -> None:
    pass


# A Metadata response is the largest without records. A partition takes about 45 bytes of it, so this suffices for
# 350,000 partitions. A frame is kept until it is complete, so this also limits the memory that a peer can use.
MAX_FRAME_BYTES = 16 * 1024 * 1024


def _largest_frame(request: Any) -> int:
    return MAX_FRAME_BYTES


def _as_many_as_fit(request: Any) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Api:
    """The row of one API.

    `to_kio`: converts a request to kio's (given kio's module of the version).
    `from_message`: converts kio's message to the response to a request.
    `check`: raises ProtocolError if a response does not answer its request.
    `versions_of`: the lowest and highest version for a request, if that depends on the request.
    `client_throttles_from`: the first version in which the client waits for the throttle time of a response. In earlier
    ones the broker has waited before it answered (KIP-219).
    `most`: array of a response -> the most elements that the answer to a request has in it, over all arrays of that
    name. An array without an entry is limited by the budget of the message (`message_reader.py`).
    `largest_frame`: the most bytes of the answer to a request.
    """

    name: str
    key: int
    min_version: int
    max_version: int
    request_type: type
    to_kio: Callable[[Any, int, Any], Any]
    from_message: Callable[[Any, Mapping[str, Any]], Any]
    check: Callable[[Any, Any], None] = _any_answer
    versions_of: Callable[[Any], Versions] | None = None
    client_throttles_from: int = 0
    most: Callable[[Any], Mapping[str, int]] = _as_many_as_fit
    largest_frame: Callable[[Any], int] = _largest_frame

    def versions(self, request: Any) -> Versions:
        """Return the lowest and the highest version in which the client can send `request`."""
        return self.versions_of(request) if self.versions_of else (self.min_version, self.max_version)

    @property
    def kio_package(self) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)[1:]


# The lowest and the highest version that can carry a request.
Versions = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of a request for one partition."""

    topic: str
    partition: int
    error_code: int


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, tuple[int, ...]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return {topic: tuple(numbers) for topic, numbers in grouped.items()}


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


def check_answered(api: str, asked: Iterable[Any], answered: Iterable[Any]) -> None:
    """Raise ProtocolError unless `answered` is `asked`, in any order."""
    # A mapping counts by its keys: Counter would take its values for counts.
    wanted, got = Counter(iter(asked)), Counter(iter(answered))
    if wanted == got:
        return
    missing, surplus = wanted - got, got - wanted
    raise ProtocolError(
        f"{_article(api)} {api} answer for something else than asked (missing: {_first(missing)}; not asked for or "
        f"answered twice: {_first(surplus)})"
    )


def _first(elements: Counter[Any]) -> str:
    if not elements:
        return "none"
    element, *more = elements
    text = f"{element[0]}-{element[1]}" if isinstance(element, tuple) else repr(element)
    return text + (f" and {len(more)} more" if more else "")


# The number of nothing: no leader, no epoch, no offset.
NONE = -1
# A batch has fewer than 2^31 records, so its last record has a valid offset, too.
MAX_OFFSET = 2**63 - 2**31


def check_number(api: str, name: str, number: int, least: int = NONE, most: int = MAX_OFFSET) -> None:
    """Raise ProtocolError unless the number, which becomes an offset, an epoch, a partition or an id, can be one."""
    if not least <= number <= most:
        raise ProtocolError(f"{_article(api)} {api} answer with {name} {number}")


def check_topic_name(api: str, name: str) -> None:
    """Raise ProtocolError unless a topic can have the name, by Kafka's rule (`Topic.validate`)."""
    if not is_topic_name(name):
        raise ProtocolError(f"{_article(api)} {api} answer with a topic that no cluster can have: {quoted(name, 60)}")


def _article(api: str) -> str:
    return "an" if api[0] in "AEIO" else "a"


def only_partition(api: str, topic: str, partition: int, topics: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the part of a response's `topics` for the one requested partition."""
    return by_partition(api, topic, (partition,), topics)[partition]


def by_partition(
    api: str, topic: str, partitions: Sequence[int], topics: Iterable[Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """Return the parts of a response's `topics` for the requested partitions of one topic."""
    answered = [((found["name"], each["partition_index"]), each) for found in topics for each in found["partitions"]]
    check_answered(api, [(topic, partition) for partition in partitions], (name for name, _ in answered))
    return {partition: each for (_, partition), each in answered}


# --- operations of a principal ----------------------------------------------------------------------------------------
# The operations that a principal may perform on a topic or group: one bit per operation code (KIP-430).

NOT_TOLD = -(2**31)


class AclOperation(enum.IntEnum):
    """The operations that this project asks for, with Kafka's names and codes."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8


def allows(authorized_operations: int, operation: AclOperation) -> bool | None:
    """Return True if the operation is allowed, or None if the broker did not report it."""
    return None if authorized_operations == NOT_TOLD else bool(authorized_operations >> operation & 1)

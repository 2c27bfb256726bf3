"""What a write or a read needs of its brokers: the requests of each guarantee, in the versions that keep what it
promises.

A broker answers ApiVersions with what it takes. `lacking` compares that with a table below, so a write ends before its
first row, with the names of what is missing. The tables of transactions are in `transaction_needs`, because only some
processes need them.

| Guarantee | Apache Kafka | Because of |
|---|---|---|
| at-least-once | 2.1 | Produce 7: every codec (KIP-110) |
| exactly-once | 3.0 | ListTransactions and DescribeTransactions (KIP-664) |
| reading | 2.3 | Fetch 11: the nearest replica (KIP-392) |

WriteTxnMarkers is no need: it only ends hanging transactions. Without it a write that meets one ends with
HangingTransaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.offsets import ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.apis.transactions import InitProducerIdRequest
from kafka_sink.kafka.protocol.requests import select_version


@dataclass(frozen=True, slots=True)
class Need:
    """`request`: any request of the kind, as it is sent. `since`: the first Apache Kafka release that takes it. `why`:
    what the write or the read does with it."""

    request: Request
    since: str
    why: str


@dataclass(frozen=True, slots=True)
class Guarantee:
    """`name`: as messages say it."""

    name: str
    needs: tuple[Need, ...]


def produce(transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(-1, 0, (ProducePartition("", 0, None, b""),), transactional_id, transaction_version=1)


AT_LEAST_ONCE = Guarantee(
    "at-least-once",
    (
        Need(MetadataRequest((), allow_auto_topic_creation=False), "1.0", "finds the leaders"),
        Need(produce(), "2.1", "writes rows"),
    ),
)
IDEMPOTENCE = Guarantee(
    "idempotence", (Need(InitProducerIdRequest(0), "0.11", "numbers batches, so that no retry doubles rows"),)
)
READING = Guarantee(
    "reading",
    (
        Need(MetadataRequest((), allow_auto_topic_creation=False), "1.0", "finds the leaders"),
        Need(ListOffsetsRequest((), IsolationLevel.READ_COMMITTED, 0), "2.1", "finds where partitions begin and end"),
        Need(FetchRequest("", None, 0, 0, 0, IsolationLevel.READ_COMMITTED, 0, 0, 0), "2.3", "reads records"),
    ),
)


def lacking(ranges: Mapping[int, tuple[int, int]], guarantee: Guarantee) -> tuple[str, ...]:
    """Return what a broker with `ranges` lacks for `guarantee`, in words, one for each request.

    `ranges`: API key -> (lowest, highest) version that the broker takes.
    """
    return tuple(_words(need, ranges) for need in guarantee.needs if select_version(need.request, ranges) is None)


def _words(need: Need, ranges: Mapping[int, tuple[int, int]]) -> str:
    api = need.request.api
    lowest, highest = need.request.versions()
    theirs = ranges.get(api.key)
    found = f"it takes versions {theirs[0]} to {theirs[1]}" if theirs else "it has none"
    return f"{api.name} {lowest} to {highest} (Kafka {need.since}; {need.why}): {found}"

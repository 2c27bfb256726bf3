"""What a write or a read needs of its brokers: the requests of each guarantee, in the versions that keep what it
promises.

A broker tells with ApiVersions what it takes. `lacking` compares that with a table below, so a write ends before its
first row, with the names of what is missing. Pure.

| Guarantee | Apache Kafka | Because of |
|---|---|---|
| at-least-once | 2.1 | Produce 7: every codec (KIP-110) |
| exactly-once | 3.0 | ListTransactions and DescribeTransactions (KIP-664) |
| reading | 2.3 | Fetch 11: the nearest replica (KIP-392) |

WriteTxnMarkers is no need: it only ends hanging transactions. Without it a write that meets one stops, and says so
(HangingTransaction).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_sink.kafka.protocol.apis.describe_producers import DescribeProducersRequest
from kafka_sink.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kafka_sink.kafka.protocol.apis.end_txn import EndTxnRequest
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from kafka_sink.kafka.protocol.apis.find_coordinator import CoordinatorKind, FindCoordinatorRequest
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.list_offsets import ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.offset_commit import OffsetCommitRequest
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from kafka_sink.kafka.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from kafka_sink.kafka.protocol.requests import Request, api_of, select_version


@dataclass(frozen=True, slots=True)
class Need:
    """`request`: any request of the kind, as the write sends it. `since`: the first Apache Kafka release that takes
    it. `why`: what the write does with it."""

    request: Request
    since: str
    why: str


@dataclass(frozen=True, slots=True)
class Guarantee:
    """`name`: as messages say it."""

    name: str
    needs: tuple[Need, ...]


def _produce(transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(-1, 0, (ProducePartition("", 0, None, b""),), transactional_id, transaction_version=1)


def _fetch() -> FetchRequest:
    return FetchRequest("", None, 0, 0, 0, IsolationLevel.READ_COMMITTED, 0, 0, 0)


AT_LEAST_ONCE = Guarantee(
    "at-least-once",
    (
        Need(MetadataRequest((), allow_auto_topic_creation=False), "1.0", "finds the leaders"),
        Need(_produce(), "2.1", "writes rows"),
    ),
)
IDEMPOTENCE = Guarantee(
    "idempotence", (Need(InitProducerIdRequest(0), "0.11", "numbers batches, so that no retry doubles rows"),)
)
# Version 1 of the transactions: brokers with version 2 (KIP-890) have these requests too.
EXACTLY_ONCE = Guarantee(
    "exactly-once",
    (
        Need(_produce(""), "2.1", "writes rows in a transaction"),
        Need(InitProducerIdRequest(0, ""), "2.5", "fences earlier runs (KIP-360)"),
        Need(FindCoordinatorRequest(CoordinatorKind.GROUP, ("",)), "0.11", "finds coordinators"),
        Need(AddPartitionsToTxnRequest("", 0, 0, ()), "0.11", "begins a transaction"),
        Need(AddOffsetsToTxnRequest("", 0, 0, ""), "0.11", "puts markers into a transaction"),
        Need(TxnOffsetCommitRequest("", "", 0, 0, "", 0, 0, "", 1), "2.5", "writes markers (KIP-447)"),
        Need(EndTxnRequest("", 0, 0, committed=True, transaction_version=1), "0.11", "commits"),
        Need(OffsetCommitRequest("", "", 0, 0, ""), "2.1", "proves that a marker is the latest"),
        Need(OffsetFetchRequest(("",), "", 0), "2.5", "reads markers, stable ones only (KIP-447)"),
        Need(ListTransactionsRequest(), "3.0", "finds what an earlier run left open (KIP-664)"),
        Need(DescribeTransactionsRequest(("",)), "3.0", "tells which slots are prepared (KIP-664)"),
        Need(DescribeProducersRequest(()), "2.8", "finds rows that a leader hides from readers (KIP-664)"),
    ),
)
READING = Guarantee(
    "reading",
    (
        Need(MetadataRequest((), allow_auto_topic_creation=False), "1.0", "finds the leaders"),
        Need(ListOffsetsRequest((), IsolationLevel.READ_COMMITTED, 0), "2.1", "finds where partitions begin and end"),
        Need(_fetch(), "2.3", "reads records"),
    ),
)
# No guarantee needs it: a write can only end hanging transactions with it.
REPAIR = Guarantee(
    "repair", (Need(WriteTxnMarkersRequest(0, 0, False, 0, ()), "1.1", "ends transactions that hang (KIP-664)"),)
)


def lacking(ranges: Mapping[int, tuple[int, int]], guarantee: Guarantee) -> tuple[str, ...]:
    """Return what a broker with `ranges` lacks for `guarantee`, in words, one for each request.

    `ranges`: API key -> (lowest, highest) version that the broker takes.
    """
    return tuple(_words(need, ranges) for need in guarantee.needs if select_version(need.request, ranges) is None)


def _words(need: Need, ranges: Mapping[int, tuple[int, int]]) -> str:
    api = api_of(need.request)
    lowest, highest = api.versions(need.request)
    theirs = ranges.get(api.key)
    found = f"it takes versions {theirs[0]} to {theirs[1]}" if theirs else "it has none"
    return f"{api.name} {lowest} to {highest} (Kafka {need.since}; {need.why}): {found}"

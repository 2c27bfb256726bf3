"""What exactly-once needs of its brokers; see `needs.py`."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.kafka.protocol.apis.groups import (
    CoordinatorKind,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafka_sink.kafka.protocol.apis.transaction_state import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka_sink.kafka.protocol.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka_sink.kafka.protocol.needs import Guarantee, Need, produce

# Version 1 of the transactions: brokers with version 2 (KIP-890) have these requests too.
EXACTLY_ONCE = Guarantee(
    "exactly-once",
    (
        Need(produce(""), "2.1", "writes rows in a transaction"),
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
# The records of such a topic are in an object store (KIP-1150; Aiven's Inkless).
DISKLESS = ("diskless.enable", "inkless.enable")
# No guarantee needs it: a write can only end hanging transactions with it.
REPAIR = Guarantee(
    "repair", (Need(WriteTxnMarkersRequest(0, 0, False, 0, ()), "1.1", "ends transactions that hang (KIP-664)"),)
)


def diskless(settings: Mapping[str, str]) -> str | None:
    """Return the setting that makes a topic diskless, None if none does. Brokers take no transaction for its rows."""
    return next((f"{name}=true" for name in DISKLESS if settings.get(name) == "true"), None)

"""The JSON document of `pykafka transactions --json`: the open transactions of a sink. Pure.

Field names are stable. Times are milliseconds since 1970. `null` means unknown or absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.commit.hanging import Hanging
from kafka_sink.commit.markers import Ids
from kafka_sink.commit.open_transactions import OpenTransaction, SinkTransactions
from kafka_sink.kafka.protocol.apis.transaction_state import TransactionDescription
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

NO_LEADER = "NO_LEADER"
Document = dict[str, Any]


def document_of(found: SinkTransactions) -> Document:
    """Return the document of one sink: its decision, its slots and its open transactions."""
    return {
        "sink": found.sink.names.sink,
        "commit_topic": found.sink.names.commit_topic,
        "transaction_version": found.sink.transaction_version,
        "decision": _decision(found),
        "decision_forgotten": found.is_forgotten,
        "slots": _slots(found),
        "open": [open_transaction(each) for each in found.open],
        "hanging": [
            *(hanging_transaction(each, committed=True) for each in found.hanging),
            *(hanging_transaction(each, committed=None) for each in found.unknown),
        ],
    }


def _decision(found: SinkTransactions) -> Document | None:
    decision = found.decision
    if decision is None:
        return None
    return {
        "micro_batch_id": decision.micro_batch_id,
        "query_id": decision.query_id,
        "decided_ms": decision.decided_ms,
        "generation": _ids(decision.generation),
        "slots": len(decision.pinned),
        "carried_out": not found.missing,
    }


def _slots(found: SinkTransactions) -> list[Document]:
    """Return the slots of the decision. `pinned` is null if the slot's rows were visible before the decision."""
    if found.decision is None:
        return []
    return [
        {
            "slot": slot,
            "pinned": None if ids is None else _ids(ids),
            "visible": _is_visible(found, slot),
            "marker_micro_batch_id": _marked(found, slot),
            "transaction": _now(found.transactions.get(found.sink.names.slot(slot))),
        }
        for slot, ids in enumerate(found.decision.pinned)
    ]


def _is_visible(found: SinkTransactions, slot: int) -> bool | None:
    if slot not in found.missing:
        return True
    return None if slot in found.lost else False


def _marked(found: SinkTransactions, slot: int) -> int | None:
    marker = found.markers.get(slot)
    return None if marker is None or marker.is_nothing else marker.micro_batch_id


def _now(description: TransactionDescription | None) -> Document | None:
    if description is None:
        return None
    ids = Ids(description.producer_id, description.producer_epoch)
    return {"state": description.state, **_ids(ids)}


def open_transaction(each: OpenTransaction) -> Document:
    """Return the document of an open transaction. `slot` is null for the driver's transaction."""
    return {
        "transactional_id": each.transactional_id,
        "slot": each.slot,
        **_ids(each.ids),
        "state": each.state,
        "prepared": each.is_prepared,
        "decided": each.is_decided,
        "start_time_ms": each.start_time_ms,
        "timeout_ms": each.timeout_ms,
        "holds": [
            {"topic": held.topic, "partition": held.partition, "start_offset": held.start_offset}
            for held in each.rows_held
        ],
    }


def hanging_transaction(each: Hanging, *, committed: bool | None) -> Document:
    """Return the document of a hanging transaction. `committed` is null if the outcome is unknown."""
    return {
        "transactional_id": each.transactional_id,
        **_ids(each.ids),
        "topic": each.topic,
        "partition": each.partition,
        "start_offset": each.start_offset,
        "committed": committed,
    }


def ended(description: TransactionDescription) -> Document:
    """Return the document of a transaction that was aborted."""
    return {
        "transactional_id": description.transactional_id,
        **_ids(Ids(description.producer_id, description.producer_epoch)),
        "start_time_ms": description.start_time_ms,
    }


def not_looked_at(leaderless: Iterable[TopicPartition], refused: Mapping[TopicPartition, str]) -> list[Document]:
    """Return the partitions that were not looked at, each with the reason."""
    why = {**dict.fromkeys(leaderless, NO_LEADER), **refused}
    return [{"topic": topic, "partition": partition, "why": text} for (topic, partition), text in sorted(why.items())]


def _ids(ids: Ids) -> Document:
    return {"producer_id": ids.producer_id, "producer_epoch": ids.producer_epoch}

"""What `pykafka transactions --json` prints for scripts: the documents of a sink, of sources and of receipts. Pure.

Field names are stable. Times are milliseconds since 1970. `null` means unknown or absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_sink.cli.checkpoint import Checkpoint, LastReceipt, SourceProgress, TopicProgress, compared
from kafka_sink.commit.hanging import Hanging
from kafka_sink.commit.markers import Decision, HasIds
from kafka_sink.commit.open_transactions import OpenTransaction, SinkTransactions
from kafka_sink.kafka.protocol.apis.transaction_state import TransactionDescription
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

NO_LEADER = "NO_LEADER"
Document = dict[str, Any]


def sink(found: SinkTransactions) -> Document:
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


def description(
    found: SinkTransactions,
    created_again: Mapping[str, tuple[str, str]],
    gone: Mapping[str, str],
    leaderless: Iterable[TopicPartition],
) -> Document:
    """Return the document of `describe`. `created_again` and `gone`: see `transactions.changed_topics`."""
    return sink(found) | {
        "topics_gone": list(gone),
        "topics_created_again": [
            {"topic": topic, "old_id": old_id, "new_id": new_id} for topic, (old_id, new_id) in created_again.items()
        ],
        "not_looked_at": not_looked_at(leaderless, found.refused),
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
    """Return the slots of the decision. `pinned` is null if a slot had no rows, or if they were visible before."""
    if found.decision is None:
        return []
    return [
        {
            "slot": slot,
            "pinned": None if ids is None or slot in found.decision.resting else _ids(ids),
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
    return None if description is None else {"state": description.state, **_ids(description)}


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
    return {
        "transactional_id": description.transactional_id,
        **_ids(description),
        "start_time_ms": description.start_time_ms,
    }


def not_looked_at(leaderless: Iterable[TopicPartition], refused: Mapping[TopicPartition, str]) -> list[Document]:
    """Return the partitions that were not looked at, each with the reason."""
    why = {**dict.fromkeys(leaderless, NO_LEADER), **refused}
    return [{"topic": topic, "partition": partition, "why": text} for (topic, partition), text in sorted(why.items())]


def _ids(ids: HasIds) -> Document:
    return {"producer_id": ids.producer_id, "producer_epoch": ids.producer_epoch}


# --- with a checkpoint ------------------------------------------------------------------------------------------------


def checkpoint(found: Checkpoint, decision: Decision | None) -> Document:
    return {
        "query_id": found.query_id,
        "planned": found.planned,
        "recorded": found.recorded,
        "compared": compared(found, decision),
    }


def receipt(last: LastReceipt | str | None) -> Document | None:
    """Return the document of a query's last receipt. `last` is a text if it is unknown: why."""
    if last is None or isinstance(last, str):
        return None if last is None else {"error": last}
    return {
        "micro_batch_id": last.micro_batch_id,
        "rows": last.rows,
        "record_batches": last.record_batches,
        "bytes": last.bytes,
        "acknowledged_ms": round(last.acknowledged.timestamp() * 1000),
    }


def sources(found: Sequence[SourceProgress] | str) -> Document:
    """Return the keys for the query's sources. `found` is a text if they are unknown: why."""
    if isinstance(found, str):
        return {"sources": None, "sources_error": found}
    return {"sources": [_source(each) for each in found], "sources_error": None}


def _source(source: SourceProgress) -> Document:
    return {
        "source": source.name,
        "micro_batch_id": source.micro_batch_id,
        "recorded": source.is_recorded,
        "topics": None if source.topics is None else [_topic(each) for each in source.topics],
    }


def _topic(topic: TopicProgress) -> Document:
    return {
        "topic": topic.topic,
        "behind": topic.behind,
        "planned": topic.planned,
        "partitions": [
            {
                "partition": each.partition, "position": each.position, "behind": each.behind, "planned": each.planned,
                "behind_open_transactions": each.unstable, "deleted": each.deleted, "ahead": each.ahead,
            }
            for each in topic.partitions
        ],
        "not_looked_at": list(topic.not_looked_at),
        "gone": list(topic.gone),
    }  # fmt: skip

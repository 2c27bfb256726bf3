"""What `pykafka transactions` prints for people: the decision, slots, open transactions, and what to do about them.

The text has facts that the JSON document lacks: a marker that is lost, or that records nothing, is `null` there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kafka_sink.cli.checkpoint import LastReceipt, SourceProgress, TopicProgress, notes_of
from kafka_sink.command_line import tell, terminal_width
from kafka_sink.commit.handover import command
from kafka_sink.commit.hanging import Hanging
from kafka_sink.commit.markers import Marker
from kafka_sink.commit.open_transactions import COMMITTED, OpenTransaction, Seen, SinkTransactions
from kafka_sink.doctor.report import table
from kafka_sink.errors.quoting import quoted, several
from kafka_sink.errors.redaction import redacted
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.protocol.apis.transaction_state import TransactionDescription
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.kinds import is_prefix


def tell_refused(seen: Seen) -> None:
    if seen.refused:
        why = ", ".join(sorted(set(seen.refused.values())))
        tell(f"Not looked at ({why}; this needs the ACL TOPIC READ): {several(map(named, seen.refused))}.")


def tell_decision(found: SinkTransactions) -> None:
    sink, decision = found.sink, found.decision
    tell(
        f"Sink {sink.names.sink}, commit topic {sink.names.commit_topic}, transactions of version "
        f"{sink.transaction_version}"
    )
    if found.is_forgotten:
        tell_forgotten(found)
        return
    if decision is None:
        tell("Decision: none; nothing was committed yet, or the decision has expired.")
        return
    tell(
        f"Decision: micro-batch {decision.micro_batch_id} of query {decision.query_id}, {len(decision.pinned)} slots, "
        f"made {at(decision.decided_ms)} UTC by generation {decision.generation}"
    )
    missing = found.missing
    if missing:
        tell(f"          not carried out: {several(f'slot {slot}' for slot in missing)} not visible")
    else:
        tell("          carried out: every slot is visible")


def tell_forgotten(found: SinkTransactions) -> None:
    names = found.sink.names
    slots = {name: each for name, each in found.transactions.items() if name != names.driver}
    others = [f"{name} ({each.state})" for name, each in slots.items() if each.state != COMMITTED]
    tell(
        "Decision: made, and no longer stored. It has expired (offsets.retention.minutes), or a batch write without "
        "txnAppId deleted it when all its rows were visible."
    )
    tell(
        f"          committed transactions of slots: {len(slots) - len(others)} of {len(slots)}"
        + (f"; not {several(others)}" if others else "")
    )


def tell_topics(created_again: Mapping[str, tuple[str, str]], gone: Mapping[str, str]) -> None:
    """Print the topics that were deleted with rows of the decision: topic -> old and new id, or the old id."""
    for topic, (old_id, new_id) in created_again.items():
        tell(
            f"Topic {topic} was deleted and created again after the decision (topic id {old_id} is now {new_id}). The "
            "rows of the old topic are lost. A restart does not write slots again that it finds visible."
        )
    for topic, old_id in gone.items():
        tell(f"Topic {topic} (topic id {old_id}) was deleted, with its rows.")


def tell_receipt(receipts_path: str, last: LastReceipt | str | None) -> None:
    """Print the query's last receipt. `last` is a text if it is unknown: why."""
    if last is None:
        tell(f"Receipts: none of this query in {redacted(receipts_path)}")
    elif isinstance(last, str):
        tell(f"Receipts: {redacted(receipts_path)} cannot be read: {last}")
    else:
        tell(
            f"Receipts: the last is for micro-batch {last.micro_batch_id}, {last.rows:,} rows in "
            f"{last.record_batches:,} record batches of {last.bytes:,} bytes, acknowledged "
            f"{last.acknowledged:%Y-%m-%d %H:%M:%S} UTC"
        )


def tell_sources(found: Sequence[SourceProgress] | str) -> None:
    """Print how far the query's sources are. `found` is a text if it is unknown: why."""
    if isinstance(found, str):
        tell(f"Sources: {found}")
        return
    for source in found:
        tell("", heading(source))
        topics = source.topics or ()
        if topics:
            rows = [
                (each.topic, *map("{:,}".format, (len(each.partitions), each.behind, each.planned)), furthest(each))
                for each in topics
            ]
            tell_table(("TOPIC", "PARTITIONS", "BEHIND", "PLANNED", "FURTHEST BEHIND"), rows)
        for topic in topics:
            tell(*notes_of(topic))


def tell_sink(found: SinkTransactions) -> None:
    if found.decision is not None:
        tell_slots(found)
    tell("")
    tell_open([found])
    tell_what_to_do(found)


def tell_sinks(found: Sequence[SinkTransactions]) -> None:
    """Print the last decision of each sink that has one."""
    rows = [
        (
            each.sink.names.sink, decision.query_id, str(decision.micro_batch_id), at(decision.decided_ms),
            str(len(decision.pinned)), "no" if each.missing else "yes",
        )
        for each in found
        if (decision := each.decision) is not None
    ]  # fmt: skip
    if rows:
        tell_table(("SINK", "QUERY", "MICRO-BATCH", "DECIDED (UTC)", "SLOTS", "VISIBLE"), rows)
        tell("")


def tell_slots(found: SinkTransactions) -> None:
    assert found.decision is not None
    rows = []
    for slot, ids in enumerate(found.decision.pinned):
        marker, now = found.markers.get(slot), found.transactions.get(found.sink.names.slot(slot))
        rows.append(
            (
                str(slot),
                "no rows" if slot in found.decision.resting else "visible before" if ids is None else str(ids),
                ("not known" if marker is None else "no") if slot in found.missing else "yes",
                marker_now(marker),
                "forgotten" if now is None else f"{now.state} {now.producer_id}:{now.producer_epoch}",
            )
        )
    tell("")
    tell_table(("SLOT", "PINNED", "VISIBLE", "MARKER", "TRANSACTION NOW"), rows)


def tell_open(surveys: Iterable[SinkTransactions]) -> None:
    rows = []
    for found in surveys:
        decided = "" if found.decision is None else f"micro-batch {found.decision.micro_batch_id}"
        for each in found.open:
            state = f"{each.state}, prepared" if each.is_prepared else each.state
            rows.append(
                (
                    each.transactional_id, state, at(each.start_time_ms), lasted(each.start_time_ms),
                    decided if each.is_decided else "no", held(each),
                )
            )  # fmt: skip
        for hanging, word in (*((each, "committed") for each in found.hanging), *((e, "?") for e in found.unknown)):
            where = f"{hanging.topic}-{hanging.partition} from offset {hanging.start_offset}"
            rows.append((hanging.transactional_id, "hangs", "", "", word, where))
    if rows:
        tell_table(("TRANSACTION", "STATE", "SINCE (UTC)", "FOR", "DECIDED", "READERS SEE NOTHING OF"), rows)
    else:
        tell("No transaction is open.")


def tell_what_to_do(found: SinkTransactions) -> None:
    sink, name = found.sink, quoted(found.sink.names.sink)
    if not is_prefix(sink.names.sink):
        tell("", f"{name}: another program's, because this is no valid transactionalIdPrefix. No command here ends it.")
        return
    if found.decided or found.hanging:
        tell(
            "",
            f"{name}: the decided micro-batch is not completely visible yet. A running query or its next start "
            "completes it. To complete it now:",
            f"    {command(sink, 'repair')}",
        )
    if found.undecided:
        timeout = lasted(0, max(each.timeout_ms for each in found.undecided))
        tell(
            "",
            f"{name}: open and not decided. This is normal while a query writes a micro-batch. If no query runs, its "
            f"next start aborts them, or the brokers do, {timeout} after they began. To abort them now:",
            f"    {command(sink, 'abort')}",
        )
    tell_unknown(found)


def tell_unknown(found: SinkTransactions) -> None:
    for each in found.unknown:
        tell(
            "",
            f"Not changed, because Kafka does not show if it was committed: {hanging_text(each)} hangs. Compare the "
            "rows that read_uncommitted readers find from that offset on with the rows that the query wrote. Only then "
            "end it with kafka-transactions.sh abort, which makes its rows invisible.",
        )


def tell_what_would_be_done(before: SinkTransactions) -> None:
    for each in before.decided:
        tell(f"Would commit {each.transactional_id} ({each.ids}).")
    for hanging in before.hanging:
        tell(f"Would end with COMMIT {hanging_text(hanging)}.")
    if not before.decided and not before.hanging:
        tell("Nothing to do.")


def tell_what_was_done(before: SinkTransactions, after: SinkTransactions) -> None:
    for each in before.decided:
        slot = "the decision" if each.slot is None else f"slot {each.slot}"
        tell(f"{each.transactional_id} ({each.ids}): {'not ' if each.slot in after.missing else ''}committed, {slot}.")
    for hanging in before.hanging:
        if hanging not in after.hanging:
            tell(f"Ended with COMMIT: {hanging_text(hanging)}.")


def tell_what_is_left(after: SinkTransactions, refused: Mapping[Hanging, str], *, done: bool) -> None:
    """Print what a repair left open, and why. `refused`: transactions that a leader did not end, with the reason.
    `done`: all decided slots are visible, and no transaction hangs."""
    for each, reason in refused.items():
        advice = " This needs the ACL CLUSTER ALTER." if "AUTHORIZATION" in reason else ""
        tell(f"Still hangs: {hanging_text(each)}: {reason}.{advice}")
    for each in after.hanging:
        if each not in refused:
            tell(f"Still hangs, although its leader accepted a marker: {hanging_text(each)}.")
    if after.lost:
        tell(
            f"Unknown if visible: {several(f'slot {slot}' for slot in after.lost)}. Their consumer groups were "
            "deleted or have expired. A restart of the query asks the brokers for their transactions. If the brokers "
            "do not remember them, the query stops before it writes any of these slots again."
        )
    over = [slot for slot in after.missing if slot not in after.lost]
    if over:
        tell(
            f"Not visible, and can no longer be committed: {several(f'slot {slot}' for slot in over)}. Their "
            "transactions timed out or were aborted. A restart of the query writes them again, if it has the same rows."
        )
    tell_unknown(after)
    if not done:
        return
    if not after.is_forgotten:
        tell("All decided slots are visible." if after.decision is not None else "Nothing was decided.")
    if after.undecided:
        tell(f"Open and not decided: {len(after.undecided)}. See", f"    {command(after.sink, 'describe')}")


def tell_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    tell(*table(heads, [tuple(map(quoted, row)) for row in rows], terminal_width()))


# --- words ------------------------------------------------------------------------------------------------------------


def heading(source: SourceProgress) -> str:
    if source.topics is None:
        return f"Source {source.name} is not Kafka. Only Spark knows how far it is."
    state = "recorded" if source.is_recorded else "planned, and none is recorded yet"
    return f"Source {source.name}, up to micro-batch {source.micro_batch_id}, which is {state}:"


def furthest(topic: TopicProgress) -> str:
    slowest = topic.slowest
    return "" if slowest is None else f"{topic.topic}-{slowest.partition}: {slowest.behind:,}"


def held(transaction: OpenTransaction) -> str:
    return several(
        f"{each.topic}-{each.partition}" + ("" if each.start_offset is None else f" from offset {each.start_offset}")
        for each in transaction.rows_held
    )


def hanging_text(hanging: Hanging) -> str:
    return (
        f"{quoted(hanging.transactional_id)} ({hanging.ids}) on {hanging.topic}-{hanging.partition} from offset "
        f"{hanging.start_offset}"
    )


def marker_now(marker: Marker | None) -> str:
    if marker is None:
        return "lost"
    return "none yet" if marker.is_nothing else f"micro-batch {marker.micro_batch_id}"


def named(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def aborted(each: TransactionDescription) -> str:
    ids = f"{each.producer_id}:{each.producer_epoch}"
    return f"Aborted {each.transactional_id} ({ids}), open since {at(each.start_time_ms)} UTC."


def at(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        # The time is outside the range of datetime.
        return f"{time_ms} ms"


def lasted(start_ms: int, end_ms: int | None = None) -> str:
    """Return the duration in one unit. `end_ms` is now if it is None."""
    seconds = max(0, (wall_clock_ms() if end_ms is None else end_ms) - start_ms) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"

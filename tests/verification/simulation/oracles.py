"""Rules that must hold after any run: each oracle takes an Outcome of a simulation and lists the violations.

The log is what the brokers have committed. `producer.py` and `network.py` check during the run what an Outcome cannot
show: a buffer that changed on the wire, a buffer returned twice, or other bytes under a sequence number already sent.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafka.partitioner.default import murmur2

from kafka_sink import errors
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.sender import EXPIRY_GRAIN_MS
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.waits import THROTTLED_LIMITS
from simulation.outcome import LogKey, Outcome, Record, Row, RowId, WriteOutcome

# Within this, everything that was begun must have ended after the last fault.
PROGRESS_MS = 60_000
_SEQUENCES_OF_ANOTHER_TOPIC = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def nothing_silent(outcome: Outcome) -> Iterable[str]:
    """Every write ended in time, either with acknowledgements or with an error."""
    for write in outcome.writes:
        if write.ended_ms is None:
            yield f"{write} has not ended {PROGRESS_MS} ms after the last fault"
        elif (write.acknowledgements is None) == (write.error is None):
            yield f"{write} ended without acknowledgements and without an error, or with both"


def progress(outcome: Outcome) -> Iterable[str]:
    """What was begun before the last fault ended within PROGRESS_MS after it; what is begun then succeeds."""
    deadline_ms = outcome.faults_end_ms + PROGRESS_MS
    failed_once = set()
    for write in outcome.writes:
        if write.started_ms < deadline_ms:
            if write.ended_ms is None or write.ended_ms <= deadline_ms:
                continue
            if not _waits_for_a_partition_that_is_gone(outcome, write):
                yield f"{write} ended {write.ended_ms - outcome.faults_end_ms} ms after the last fault"
        elif write.error is not None:
            if write.writer in failed_once or not _tells_of_a_topic_made_again(outcome, write):
                yield f"{write}, begun on a healthy cluster, failed: {write.error}"
            failed_once.add(write.writer)


def _waits_for_a_partition_that_is_gone(outcome: Outcome, write: WriteOutcome) -> bool:
    """The topic was made again with fewer partitions. Where topics go by name nothing tells that from a leader that has
    not heard of the partition yet, so a batch for it waits for its whole delivery timeout, as in Kafka's producer."""
    error = write.error
    return (
        outcome.names_topics_only
        and isinstance(error, errors.DeliveryTimeout)
        and error.topic in outcome.recreated
        and error.partition >= outcome.partition_counts[error.topic]
    )


def _tells_of_a_topic_made_again(outcome: Outcome, write: WriteOutcome) -> bool:
    """A producer that was kept from before says so, once. Where topics go by name it may have written to the new one
    under the old one's sequences: then its leader sees a gap, or before Kafka 2.5 a producer that it does not know."""
    if not outcome.recreated.keys() & write.topics:
        return False
    if isinstance(write.error, errors.ProduceRejected):
        return not outcome.topic_ids and write.error.code in _SEQUENCES_OF_ANOTHER_TOPIC
    return isinstance(write.error, errors.TopicRecreated)


def refusals_are_the_brokers_doing(outcome: Outcome) -> Iterable[str]:
    """No write ends with a code that no broker was made to answer with: sequences that a leader does not expect are a
    producer's own mistake."""
    for write in outcome.writes:
        if (
            not isinstance(write.error, errors.ProduceRejected | errors.ProducerIdRefused)
            or write.error.code in outcome.refusals
        ):
            continue
        if not _tells_of_a_topic_made_again(outcome, write):
            yield f"{write}: {write.error}"


def another_topic_is_one(outcome: Outcome) -> Iterable[str]:
    """A write ends with TopicRecreated only if that was done: a topic may get its id, or not be told it, meanwhile."""
    for write in outcome.writes:
        if isinstance(write.error, errors.TopicRecreated) and write.error.topic not in outcome.recreated:
            yield f"{write}: {write.error}"


def another_cluster_is_one(outcome: Outcome) -> Iterable[str]:
    """A write ends with ClusterChanged only if its cluster was replaced: a broker's address may be given away."""
    for write in outcome.writes:
        if isinstance(write.error, errors.ClusterChanged) and not outcome.replaced:
            yield f"{write}: {write.error}"


def quotas_end_nothing(outcome: Outcome) -> Iterable[str]:
    """A write that only quotas hold up ends well, within ten times `delivery.timeout.ms` of throttled time."""
    for write in outcome.writes:
        took_ms = (write.ended_ms or 0) - write.started_ms
        is_quota = isinstance(write.error, errors.DeliveryTimeout) and write.error.is_quota
        if is_quota and took_ms >= THROTTLED_LIMITS * write.delivery_timeout_ms:
            continue
        if outcome.only_quotas and isinstance(write.error, errors.DeliveryError | errors.ClusterError):
            yield f"{write}: {write.error}"


def flush_is_bounded(outcome: Outcome) -> Iterable[str]:
    """`delivery.timeout.ms` after the last row was placed, a write has ended; the Sender looks once a second, and
    for old batches not at each look. By name, brokers are then asked for up to `max.block.ms`. Time in which brokers
    throttle comes on top."""
    for write in outcome.writes:
        if write.flushed_ms is None or write.ended_ms is None:
            continue
        took_ms = write.ended_ms - write.flushed_ms
        budget_ms = write.delivery_timeout_ms + (0 if outcome.topic_ids else write.max_block_ms) + write.throttled_ms
        if took_ms > budget_ms + LONGEST_POLL_MS + EXPIRY_GRAIN_MS + outcome.pauses_ms:
            yield f"{write} took {took_ms} ms to flush, it has {budget_ms} ms"


def receipts_are_complete(outcome: Outcome) -> Iterable[str]:
    """The acknowledgements of a write that ended well count each row."""
    for write in outcome.writes:
        if write.acknowledgements is not None:
            acknowledged = sum(receipt.record_count for receipt in write.acknowledgements)
            if acknowledged != len(write.rows):
                yield f"{write}: {acknowledged} rows acknowledged"


def acknowledged_is_there(outcome: Outcome) -> Iterable[str]:
    """Each row of a write with acks=all that ended well is in the log of its partition."""
    found = _found(outcome)
    for write in _acknowledged(outcome):
        lost = [
            row_id
            for row_id, row in write.rows.items()
            if row_id not in found
            and row_id not in outcome.exposed
            and not _ran_at_any(write, outcome.recreated.get(row.topic, ()))
        ]
        if lost:
            yield f"{write}: {len(lost)} acknowledged rows are not in the log, the first is {lost[0]}"


def one_topic_a_write(outcome: Outcome) -> Iterable[str]:
    """No row of a write with acks=all that ended well is only in another topic of the name than the one that the write
    began with: the others would be gone with that. (A copy that the network held back may be in both.) Nobody can tell
    without topic ids."""
    if outcome.names_topics_only:
        return
    found = _found(outcome)
    for write in _acknowledged(outcome):
        for row_id, row in write.rows.items():
            topic_ids = {key.topic_id for key, _ in found.get(row_id, ())}
            if topic_ids and write.topic_ids[row.topic] not in topic_ids:
                yield f"{write} began with topic {write.topic_ids[row.topic]}, row {row_id} is in {topic_ids}"
                break


def nothing_twice(outcome: Outcome) -> Iterable[str]:
    """No row of an idempotent producer is in the log twice, even if its write failed."""
    idempotent = {(write.writer, write.write) for write in outcome.writes if write.idempotent}
    for row_id, places in _found(outcome).items():
        if len(places) > 1 and row_id[:2] in idempotent and not _may_be_in_both(outcome, places):
            where = ", ".join(f"{key.topic}-{key.partition} at {record.offset}" for key, record in places)
            yield f"row {row_id} is in the log {len(places)} times: {where}"


def _may_be_in_both(outcome: Outcome, places: Sequence[tuple[LogKey, Record]]) -> bool:
    """By its name, a batch whose answer was lost goes to the topic that was made again, too; and to the same topic of a
    cluster that was restored."""
    ids = {key.topic_id for key, _ in places}
    if len(ids) == 1 and len({key.era for key, _ in places}) == len(places):
        return True
    return not outcome.topic_ids and len(ids) == len(places)


def in_order(outcome: Outcome) -> Iterable[str]:
    """In each partition, the rows of a write are in the order in which they were written, and writes that ended well
    follow each other. A write that failed may come after the next one, if the network held it back; what comes twice,
    where that may be, counts the first time."""
    writes = {(write.writer, write.write): write for write in outcome.writes if write.keeps_order}
    for key, records in outcome.logs.items():
        last_of_write: dict[tuple[int, int], RowId] = {}
        last_good: dict[int, RowId] = {}
        seen: set[RowId] = set()
        for record in records:
            row_id = record.row_id
            if row_id is None or row_id[:2] not in writes or row_id in seen:
                continue
            seen.add(row_id)
            before = last_of_write.get(row_id[:2], row_id)
            write = writes[row_id[:2]]
            if write.idempotent and write.acknowledgements is not None:
                before = max(before, last_good.get(row_id.writer, before))
                last_good[row_id.writer] = row_id
            if row_id < before:
                yield f"{key.topic}-{key.partition}: row {row_id} at {record.offset} is behind {before}"
            last_of_write[row_id[:2]] = row_id


def without_holes(outcome: Outcome) -> Iterable[str]:
    """Of a failed write, too, a partition has the first rows that were to go there and none after one that is missing:
    its sequences left no other way."""
    present = {row_id for row_id, places in _found(outcome).items() if places}
    for write in outcome.writes:
        if not write.idempotent or outcome.recreated.keys() & write.topics or _ran_at_any(write, outcome.replaced):
            continue
        missing: dict[TopicPartition, RowId] = {}
        for row_id, destination in sorted(write.routed.items()):
            if row_id not in present:
                missing.setdefault(destination, row_id)
            elif destination in missing:
                yield f"{write}: {destination} has row {row_id} and not {missing[destination]}, which is before it"
                break


def bytes_are_equal(outcome: Outcome) -> Iterable[str]:
    """What the log has of a row is what was written: key, value, headers, timestamp."""
    written = {row_id: (write, row) for write in outcome.writes for row_id, row in write.rows.items()}
    for key, records in outcome.logs.items():
        for record in records:
            where = f"{key.topic}-{key.partition} at {record.offset}"
            if record.row_id not in written:
                yield f"{where} has a record that nobody wrote"
                continue
            write, row = written[record.row_id]
            difference = _difference(row, write.now_ms[row.row_id], record)
            if difference:
                yield f"{where}, row {row.row_id}: {difference} differs"


def _difference(row: Row, now_ms: int, record: Record) -> str:
    timestamp_ms = now_ms if row.timestamp_ms is None else row.timestamp_ms
    pairs = {
        "key": (row.key, record.key), "value": (row.value, record.value), "headers": (row.headers, record.headers),
        "timestamp": (timestamp_ms, record.timestamp_ms),
    }  # fmt: skip
    return ", ".join(name for name, (written, read) in pairs.items() if written != read)


def partition_is_right(outcome: Outcome) -> Iterable[str]:
    """A row is where it asked to be; one with a key where Java's partitioner puts it (kafka-python's murmur2)."""
    rows = {row_id: (write, row) for write in outcome.writes for row_id, row in write.rows.items()}
    for key, records in outcome.logs.items():
        for record in records:
            if record.row_id not in rows:
                continue
            write, row = rows[record.row_id]
            if row.partition is not None:
                expected = row.partition
            elif row.key is not None and write.partitioner == "murmur2":
                expected = (murmur2(row.key) & 0x7FFFFFFF) % write.key_partitions[row.topic]
            else:
                continue
            if (row.topic, expected) != (key.topic, key.partition):
                yield f"row {row.row_id} is in {key.topic}-{key.partition} and belongs to {row.topic}-{expected}"


def receipts_match_the_log(outcome: Outcome) -> Iterable[str]:
    """Count, first and last offset, batches and their bytes of each receipt are those of the write's records there,
    where none can be there twice."""
    logs: dict[TopicPartition, dict[tuple[int, int], list[Record]]] = defaultdict(lambda: defaultdict(list))
    for key, records in outcome.logs.items():
        for record in records:
            if record.row_id is not None:
                logs[TopicPartition(key.topic, key.partition)][record.row_id[:2]].append(record)
    for write in _acknowledged(outcome):
        for receipt in write.acknowledgements or ():
            if receipt.topic in outcome.recreated or not write.idempotent or _ran_at_any(write, outcome.replaced):
                continue
            records = logs[TopicPartition(receipt.topic, receipt.partition)][write.writer, write.write]
            expected = _receipt_of(receipt, records)
            if receipt != expected:
                yield f"{write}: {receipt}, and the log has {expected}"


def _receipt_of(receipt: PartitionOffsets, records: Sequence[Record]) -> PartitionOffsets:
    batches = {record.batch_offset: record.batch_bytes for record in records}
    offsets = [record.offset for record in records]
    return PartitionOffsets(
        topic=receipt.topic, partition=receipt.partition, record_count=len(records),
        first_offset=min(offsets, default=None), last_offset=max(offsets, default=None), batch_count=len(batches),
        batch_bytes=sum(batches.values()),
    )  # fmt: skip


def memory_is_bounded_and_returned(outcome: Outcome) -> Iterable[str]:
    """No producer ever had more than buffer.memory out, and in the end all of it is back."""
    for pool in outcome.pools:
        if pool.peak_bytes > pool.total_bytes:
            yield f"{pool.producer} had {pool.peak_bytes} of {pool.total_bytes} bytes out"
        if pool.available_bytes != pool.total_bytes or pool.out_bytes:
            yield f"{pool.producer} ended with {pool.out_bytes} bytes out, {pool.available_bytes} available"
        if pool.in_flight:
            yield f"{pool.producer} ended with requests in flight"


ORACLES: tuple[Callable[[Outcome], Iterable[str]], ...] = (
    nothing_silent, progress, refusals_are_the_brokers_doing, another_topic_is_one, another_cluster_is_one,
    quotas_end_nothing, flush_is_bounded, receipts_are_complete, acknowledged_is_there, one_topic_a_write,
    nothing_twice, in_order, without_holes, bytes_are_equal, partition_is_right, receipts_match_the_log,
    memory_is_bounded_and_returned,
)  # fmt: skip


def judge(outcome: Outcome) -> list[str]:
    return [f"{oracle.__name__}: {problem}" for oracle in ORACLES for problem in oracle(outcome)]


def _acknowledged(outcome: Outcome) -> Iterable[WriteOutcome]:
    return (write for write in outcome.writes if write.acknowledgements is not None and write.acks == "all")


def _found(outcome: Outcome) -> Mapping[RowId, list[tuple[LogKey, Record]]]:
    found: dict[RowId, list[tuple[LogKey, Record]]] = defaultdict(list)
    for key, records in outcome.logs.items():
        for record in records:
            if record.row_id is not None:
                found[record.row_id].append((key, record))
    return found


def _ran_at_any(write: WriteOutcome, times_ms: Sequence[int]) -> bool:
    """A topic deleted under a write takes what was acknowledged with it."""
    return any(
        write.started_ms <= at_ms + 2_000 and (write.ended_ms is None or write.ended_ms >= at_ms) for at_ms in times_ms
    )

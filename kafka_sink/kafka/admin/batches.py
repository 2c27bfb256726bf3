"""Fetches the batch that has an offset, from the leader: to see if it is the one that was there before.

Source: DefaultRecordBatch; RecordBatch of what LogCleaner keeps: offsets, producer, sequence.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kafka_sink.kafka.admin.calls import Call
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.leaders import by_leader
from kafka_sink.kafka.admin.log_ends import Logs
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.record_batch import HEADER_BYTES, MAGIC

# crc, attributes, last offset delta, base timestamp, max timestamp, producer id, epoch, sequence, count
_FIELDS = struct.Struct(">IhiqqqhiI")
_FIELDS_AT = 17
_MAGIC_AT = 16
_DELETE_HORIZON_BIT = 0x40


class StoredBatch(NamedTuple):
    """The header of a batch in a log."""

    base_offset: int
    last_offset: int
    crc: int
    attributes: int
    max_timestamp: int
    producer: tuple[int, int, int]
    record_count: int

    def may_become(self, other: StoredBatch) -> bool:
        """Return whether `other` may be the same batch, later. Compaction removes records, and keeps offsets and
        producers. A replica compacts on its own, so a new leader may have more records."""
        if self.crc == other.crc and self.base_offset == other.base_offset:
            return True
        if (self.base_offset, self.last_offset, self.producer) != (
            other.base_offset, other.last_offset, other.producer,
        ):  # fmt: skip
            return False
        is_cleaned = other.record_count != self.record_count
        return is_cleaned or bool((self.attributes | other.attributes) & _DELETE_HORIZON_BIT)


def stored_batches(
    client: AdminClient, logs: Logs, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, StoredBatch]:
    """Return the first batch that ends at the offset or later, for those partitions whose leader tells at once. A
    request for each. Raises BrokersUnreachable."""
    deadline_ms = client.caller.deadline_ms()
    led, _ = by_leader(offsets, logs.topics.values())
    leaders = {each: leader for leader, of_leader in led.items() for each in of_leader}
    calls = {each: Call(leader, _request(each, offsets[each], logs)) for each, leader in leaders.items()}
    client.caller.run(tuple(calls.values()), deadline_ms)
    found = {}
    for each, call in calls.items():
        if isinstance(call.response, FetchResponse) and call.response.error_code == ErrorCode.NONE:
            batch = _stored_batch(call.response.records)
            if batch is not None:
                found[each] = batch
    return found


def _request(partition: TopicPartition, offset: int, logs: Logs) -> FetchRequest:
    return FetchRequest(
        topic=partition.topic,
        topic_id=logs.topics[partition.topic].topic_id,
        partition=partition.partition,
        offset=offset,
        leader_epoch=logs.ends[partition].leader_epoch,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        # The first batch comes whole (KIP-74).
        max_bytes=1,
        min_bytes=1,
        max_wait_ms=0,
    )


def _stored_batch(records: memoryview) -> StoredBatch | None:
    if len(records) < HEADER_BYTES or records[_MAGIC_AT] != MAGIC:
        return None
    base_offset = int.from_bytes(records[:8], "big", signed=True)
    crc, attributes, delta, _, max_timestamp, *producer, count = _FIELDS.unpack_from(records, _FIELDS_AT)
    first, second, third = producer
    return StoredBatch(base_offset, base_offset + delta, crc, attributes, max_timestamp, (first, second, third), count)

"""Where a stream has read to, in the form that Spark keeps in a checkpoint.

It is the JSON of Spark's own Kafka source, {"orders": {"0": 23, "1": 5}}: for each partition the offset of the next
record. So a query can go on with the other source on the same checkpoint.

Source: org.apache.spark.sql.kafka010.KafkaSourceOffset, JsonUtils.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kafka_sink.kafka.protocol.topic_partition import TopicPartition

Positions: TypeAlias = Mapping[TopicPartition, int]
Checkpointed: TypeAlias = dict[str, dict[str, int]]


def positions_of(checkpointed: Checkpointed) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, by_number in checkpointed.items()
        for number, offset in by_number.items()
    }


def checkpointed(positions: Positions) -> Checkpointed:
    """Return the positions for a checkpoint, always in the same order: Spark compares texts."""
    found: Checkpointed = {}
    for each in sorted(positions):
        found.setdefault(each.topic, {})[str(each.partition)] = positions[each]
    return found

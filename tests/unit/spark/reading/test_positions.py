"""Positions in a checkpoint: Spark's own JSON, always the same text for the same positions."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.positions import checkpointed, positions_of

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "ä.b-c_d"]), st.integers(0, 200))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=30)


def test_they_are_those_of_sparks_source() -> None:
    positions = {TopicPartition("orders", 1): 5, TopicPartition("orders", 0): 23, TopicPartition("a", 0): 0}
    assert json.dumps(checkpointed(positions)) == '{"a": {"0": 0}, "orders": {"0": 23, "1": 5}}'
    assert positions_of({"orders": {"0": 23, "1": 5}, "a": {"0": 0}}) == positions


@given(POSITIONS)
def test_they_come_back_from_a_checkpoint(positions: dict[TopicPartition, int]) -> None:
    assert positions_of(json.loads(json.dumps(checkpointed(positions)))) == positions

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import routed


@given(st.lists(st.tuples(st.binary(max_size=30), st.integers(0, 6)), min_size=1, max_size=60))
def test_each_destination_is_a_run_in_the_order_of_the_rows(rows: list[tuple[bytes, int]]) -> None:
    values, partitions = zip(*rows, strict=True)
    timestamps = list(range(len(rows)))
    made = routed(values, partitions, timestamps)
    for destination, topic_partition in enumerate(made.destinations):
        run = range(made.next_row[destination], made.end_row[destination])
        expected = [i for i, partition in enumerate(partitions) if partition == topic_partition.partition]
        assert made.timestamp_ms(np.array(run, np.int64)).tolist() == expected
    assert made.unplaced_count() == len(rows)
    assert list(made.unplaced()) == sorted(set(partitions))
    made.next_row[:] = made.end_row
    assert made.unplaced_count() == 0
    assert not made.unplaced().size


def test_the_largest_row_and_where_it_goes() -> None:
    made = routed([b"x" * 10, b"x" * 500, b"x" * 20], [2, 0, 1])
    largest = made.largest()
    assert largest is not None
    assert largest[0] == TopicPartition("t", 0)
    assert largest[1] == max(made.lone_batch_bytes(np.arange(3))) > 561
    assert routed([], []).largest() is None


def test_needed_bytes_is_a_buffer_or_the_next_row_if_that_is_larger() -> None:
    made = routed([b"x" * 10, b"x" * 500], [0, 1])
    assert made.needed_bytes(1_000) == 1_000
    made.next_row[0] += 1
    assert made.needed_bytes(100) == made.lone_batch_bytes(np.array([1]))[0] > 500

"""Of which writes the rows can be placed before they are written. Where they go is in integration/test_export.py."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import InvalidArgument
from kafka_sink.exporting.co_partition import check, co_partitioned
from kafka_sink.options.config import SinkConfig, sink_config

KEYED = {"key": None, "value": None}


def config(**options: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", **options})


def test_rows_with_a_key_or_a_partition_can_be_placed_from_spark_4_1_on() -> None:
    check(config(), KEYED, ())
    check(config(), {"partition": None, "value": None}, ())
    frame: Any = object()
    with pytest.raises(InvalidArgument, match=r"needs Spark 4\.1"):
        co_partitioned(frame, {}, 3, ())


@pytest.mark.parametrize(
    ("options", "record", "told"),
    [
        ({}, {"value": None}, "key or a partition"),
        ({}, {**KEYED, "topic": None}, "one topic"),
        ({"partitioner": "fnv1a"}, KEYED, "murmur2"),
    ],
)
def test_what_cannot_be_placed_is_told(options: dict[str, str], record: dict[str, None], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        check(config(**options), record, ())


def test_rows_are_not_known_by_an_order_that_a_shuffle_does_not_keep() -> None:
    """`dedupe` would leave out rows that were written once."""
    with pytest.raises(InvalidArgument, match=r"order_by.*exactly_once") as refused:
        check(config(rowIdentity="true"), KEYED, ())
    assert refused.value.argument == "co_partition"
    check(config(rowIdentity="true"), KEYED, ("id",))
    check(config(rowIdentity="true", deliveryGuarantee="exactly-once"), KEYED, ())

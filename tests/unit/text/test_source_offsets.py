"""What is taken for the offsets of a Kafka source."""

from __future__ import annotations

import pytest

from kafka_sink.text.source_offsets import kafka_offsets


@pytest.mark.parametrize(
    "text", ['{"t":{"0":5,"12":7},"u":{"0":1}}', "{'t': {'0': 5, '12': 7}, 'u': {'0': 1}}"]
)  # fmt: skip
def test_offsets_are_by_topic_and_partition(text: str) -> None:
    assert kafka_offsets(text) == {"t": {0: 5, 12: 7}, "u": {0: 1}}


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "19", "null", "{}", '{"logOffset":3}', '{"t":{"0":true}}', '{"t":{"0":"5"}}', '{"t":{"-1":5}}',
        '{"t":{"\N{SUPERSCRIPT TWO}":5}}', '{"t":{"a":5}}', "[" * 100_000, "not an offset(",
    ],
)  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert kafka_offsets(text) is None

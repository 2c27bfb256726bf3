"""Which partitions did not go on where a stream had read, by offsets as Spark tells them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_sink.monitoring.broken_logs import broken_logs_of


@pytest.mark.parametrize(
    ("started", "ended", "broken"),
    [
        ('{"t":{"0":5,"1":0}}', '{"t":{"0":5,"1":9}}', {"0": 0}),
        # Created again, or truncated.
        ('{"t":{"0":5,"1":7}}', '{"t":{"0":0,"1":6}}', {"0": 2}),
        # Deleted.
        ('{"t":{"0":0},"u":{"0":0,"1":4}}', '{"t":{"0":0}}', {"0": 2}),
        # New.
        ('{"t":{"0":5}}', '{"t":{"0":5,"1":9},"u":{"0":1}}', {"0": 0}),
        ("null", '{"t":{"0":5}}', {}),
        ("18", "3", {}),
        ('{"logOffset":3}', '{"logOffset":2}', {}),
    ],
)
def test_a_log_is_broken_if_it_ends_before_it_begins(started: str, ended: str, broken: dict[str, int]) -> None:
    assert broken_logs_of([SimpleNamespace(startOffset=started, endOffset=ended)]) == broken

"""How far sources are behind, by offsets as Spark 4.1 to 4.3 tells them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_sink.monitoring.lag import lag_of, records_behind, source_metrics


def source(ended: str, latest: str) -> SimpleNamespace:
    return SimpleNamespace(endOffset=ended, latestOffset=latest)


@pytest.mark.parametrize(
    ("ended", "latest", "behind"),
    [
        ('{"t":{"0":5,"1":7}}', '{"t":{"0":8,"1":7}}', 3),
        ('{"t":{"0":5},"u":{"0":1}}', '{"t":{"0":6},"u":{"0":3}}', 3),
        ("{'t': {'0': 5}}", "{'t': {'0': 6}}", 1),
        ('{"t":{"0":5}}', '{"t":{"0":5}}', 0),
        # A topic that was made again has fewer; a partition that is new has none that it ended at.
        ('{"t":{"0":5}}', '{"t":{"0":2,"1":9}}', 0),
    ],
)
def test_a_kafka_source_is_behind_by_its_offsets(ended: str, latest: str, behind: int) -> None:
    assert records_behind(source(ended, latest)) == behind


def test_sources_are_named_by_their_place_in_the_query() -> None:
    kafka, files = source('{"t":{"0":5}}', '{"t":{"0":6}}'), source('{"logOffset":3}', "null")
    assert lag_of([files, kafka]) == {"1": 1}


@pytest.mark.parametrize(
    ("ended", "latest", "expected"),
    [
        ('{"t":{"0":5,"1":7}}', '{"t":{"0":8,"1":7}}', ("1.5", "3", "0")),
        ('{"t":{"0":5}}', '{"t":{"0":5}}', ("0.0", "0", "0")),
        ('{"t":{"0":5}}', '{"t":{}}', ()),
        ('{"logOffset":3}', "null", ()),
    ],
)  # fmt: skip
def test_metrics_have_the_keys_and_the_form_of_sparks_own_source(ended: str, latest: str, expected: object) -> None:
    assert tuple(source_metrics(source(ended, latest)).values()) == expected
    assert set(source_metrics(source(ended, latest))) <= {
        f"{kind}OffsetsBehindLatest" for kind in ("avg", "max", "min")
    }

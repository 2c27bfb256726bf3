"""The examination of a read, of scripted peers."""

from __future__ import annotations

import pytest

from kafka_sink.doctor.reading import examine_read
from kafka_sink.doctor.report import Status
from kafka_sink.doctor.steps import STEPS
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config


def config(**options: str) -> ReadConfig:
    return read_config(given_options({"kafka.bootstrap.servers": "nowhere.invalid:9092", **options}, table=READING))


@pytest.mark.parametrize(
    "options", [{"subscribe": "a,b"}, {"assign": '{"a": [0], "b": [1]}'}, {"subscribePattern": "a|b"}], ids=str
)
def test_all_that_needs_a_cluster_is_skipped_without_one(options: dict[str, str]) -> None:
    report = examine_read(config(**options, groupId="lag"))
    assert [failure.step for failure in report.failures] == ["dns"]
    assert {verdict.step for verdict in report.verdicts} <= set(STEPS)
    rest = [(verdict.step, verdict.where) for verdict in report.verdicts if verdict.status is Status.SKIPPED]
    topics = (
        [("topic", "subscribePattern")]
        if "subscribePattern" in options
        else [(step, f"topic {name}") for name in "ab" for step in ("topic", "read acl", "leaders")]
    )
    of_hosts = [("tcp", "nowhere.invalid:9092"), ("tls", "nowhere.invalid:9092")]
    of_hosts += [("api versions", "nowhere.invalid:9092"), ("sasl", "nowhere.invalid:9092")]
    assert [each for each in rest if each not in of_hosts] == [
        ("cluster", "cluster"), ("service", "cluster"), ("reading", "cluster"), *topics,
        ("group acl", "group lag"),
    ]  # fmt: skip
    assert "group acl" not in {verdict.step for verdict in examine_read(config(**options)).verdicts}

from __future__ import annotations

import pytest

import transform_kafka as job
from job_support import sink_options

NEEDED = ["--subscribe", "in", "--topic", "out", "--checkpoint", "c", "--available-now"]


def source(*arguments: str) -> dict[str, str]:
    args = job.parse([*NEEDED, *arguments])
    return job.source_options(args, sink_options(args))


def test_what_the_source_gets_unless_told_otherwise() -> None:
    args = job.parse(NEEDED)
    assert (args.key, args.value, args.where, args.headers, args.timestamp) == ("key", "value", None, None, None)
    told = ["--bootstrap-servers", "b:9092", "--option", "kafka.security.protocol=SSL", "--option", "kafka.acks=all"]
    told += ["--option", "kafka.client.rack=r", "--option", "kafka.request.timeout.ms=5000"]
    assert source(*told) == {
        "kafka.bootstrap.servers": "b:9092", "kafka.security.protocol": "SSL", "kafka.request.timeout.ms": "5000",
        "subscribe": "in",
    }  # fmt: skip


def test_arguments_win_over_the_sources_options_and_those_over_the_sinks() -> None:
    told = ["--bootstrap-servers", "new:9092", "--source-option", "kafka.Bootstrap.Servers=old:9092"]
    assert source(*told)["kafka.bootstrap.servers"] == "old:9092"
    told = ["--starting-offsets", "earliest", "--source-option", "startingOffsets=latest", "--headers", "headers"]
    assert source(*told) == {"subscribe": "in", "startingoffsets": "earliest", "includeheaders": "true"}


@pytest.mark.parametrize(
    ("told", "isolation_level"),
    [
        ([], None),
        (["--option", "deliveryGuarantee=at-least-once"], None),
        (["--option", "deliveryGuarantee=Exactly-Once"], "read_committed"),
        (["--option", "deliveryGuarantee=exactly-once", "--source-option", "kafka.isolation.level=read_uncommitted"],
         "read_uncommitted"),
    ],
)  # fmt: skip
def test_what_writes_exactly_once_reads_what_is_committed(told: list[str], isolation_level: str | None) -> None:
    assert source(*told).get("kafka.isolation.level") == isolation_level

from __future__ import annotations

import pytest

import export_to_kafka as job
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "one of --table, --query, --source and --format is needed"),
        (["--table", "t", "--query", "q"], "not allowed with argument"),
        (["--table", "t", "--format", "csv"], "go with --source, not with --table"),
        (["--query", "q", "--schema", "a INT"], "go with --source, not with --table"),
        (["--query", "q", "--source-option", "a=b"], "go with --source, not with --table"),
    ],
)
def test_and_not_two_of_them(capsys: pytest.CaptureFixture[str], source: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        job.parse([*source, "--topic", "t"])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


RECEIPTS = {
    TopicPartition("t", 10): PartitionOffsets("t", 10, 5, None, None, 1, 99),
    TopicPartition("t", 2): PartitionOffsets("t", 2, 12_345, 0, 12_400, 3, 1_250_000),
}


def test_the_summary_has_a_line_a_partition_in_order_and_a_total() -> None:
    assert job.summary(RECEIPTS) == [
        "topic  partition  records     offsets   bytes",
        "t              2   12,345  0 - 12,400  1.2 MB",
        "t             10        5     unknown    99 B",
        "total          2   12,350              1.3 MB",
    ]
    assert job.summary({})[-1].split() == ["total", "0", "0", "0", "B"]

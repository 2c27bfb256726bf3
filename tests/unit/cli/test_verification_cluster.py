"""Reading a partition with librdkafka, from a leader that hands out less than its log has."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafka_sink.cli.verification import cluster as librdkafka
from kafka_sink.cli.verification.cluster import ELECTED, PartitionReader
from kafka_sink.errors import RecordsUnreadable

NO_ERROR = None


class Elected:
    """A consumer of one partition. Its leader says that the log has `end` records, and hands out those before the first
    number of `handed_out`. With each seek to that one, the next number counts."""

    def __init__(self, end: int, *handed_out: int) -> None:
        self.end, self.handed_out, self.position = end, list(handed_out), 0
        self.refusals: list[int] = []

    def assign(self, partitions: list[TopicPartition]) -> None:
        if partitions[0].offset == self.handed_out[0] and len(self.handed_out) > 1:
            del self.handed_out[0]
        self.position = partitions[0].offset

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        if self.refusals:
            raise KafkaException(KafkaError(self.refusals.pop()))
        return 0, self.end

    def poll(self, timeout: float) -> Any:
        at = self.position
        if at == self.handed_out[0]:
            return SimpleNamespace(
                error=lambda: SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF), offset=lambda: at
            )
        self.position += 1
        return SimpleNamespace(
            error=lambda: NO_ERROR, offset=lambda: at, key=lambda: None, value=lambda: b"%d" % at, headers=lambda: None,
            timestamp=lambda: (1, 0),
        )  # fmt: skip


def read(consumer: Elected, first: int, last: int, timeout_s: float = 10) -> list[int]:
    cluster: Any = SimpleNamespace(consumer=lambda committed: consumer, timeout_s=timeout_s)
    reader = PartitionReader(cluster, TopicPartition("t", 0), committed=True, is_compacted=False)
    return [record.offset for record in reader.records(first, last)]


@pytest.mark.parametrize("handed_out", [(10,), (4, 10), (0, 4, 7, 10)])
def test_an_older_end_is_not_the_end(handed_out: tuple[int, ...]) -> None:
    assert read(Elected(10, *handed_out), 0, 9) == list(range(10))


def test_the_end_of_the_log_ends_the_records() -> None:
    assert read(Elected(4, 4), 0, 9) == [0, 1, 2, 3]


def test_a_leader_that_does_not_learn_of_its_end_is_an_error() -> None:
    with pytest.raises(RecordsUnreadable, match="no record from offset 4 on, and its log goes on"):
        read(Elected(10, 4), 0, 9, timeout_s=0.05)


def test_a_leader_that_does_not_know_its_end_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "POLL_S", 0.001)
    elected = Elected(10, 4, 10)
    elected.refusals = sorted(ELECTED)
    assert read(elected, 0, 9) == list(range(10))


def test_an_end_that_nobody_may_ask_for_is_an_error() -> None:
    refused = Elected(10, 4)
    refused.refusals = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(RecordsUnreadable, match="authorization failed"):
        read(refused, 0, 9)

"""A log that was restored from a snapshot under a running stream: the same ids and epochs, and other records."""

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_sink.errors import LogBroken
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.admin.offsets import StoredBatch
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading import stream_logs
from kafka_sink.spark.reading.positions import Positions
from record_sets import plain
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, Stream, connect_reads, serve

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@dataclass
class Cluster:
    """A topic of two partitions, whose batches have ten records each. `writer`: what the values say."""

    kafka: ScriptedKafka = field(default_factory=ScriptedKafka)
    logs: dict[tuple[str, int], ScriptedLog] = field(default_factory=dict)
    batches: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    fetched: list[tuple[TopicPartition, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.logs |= {A0: ScriptedLog(0, 0), A1: ScriptedLog(0, 0)}
        self.batches |= {A0: {}, A1: {}}
        serve(self.kafka, self.logs)
        self.kafka.topic_ids |= {"a": uuid.UUID(int=1)}
        self.kafka.always(FetchRequest, self._fetch)

    def write(self, partition: TopicPartition, count: int, writer: str = "before") -> None:
        log = self.logs[partition]
        for base in range(log.latest, log.latest + count, 10):
            values = (f"{writer} {base + i}".encode() for i in range(10))
            self.batches[partition][base] = bytes(plain(*values, base_offset=base))
        log.latest += count

    def restore(self, partition: TopicPartition, end: int, *, more: int) -> None:
        """As a snapshot had it, and `more` records behind that. Brokers have started again."""
        self.batches[partition] = {base: each for base, each in self.batches[partition].items() if base < end}
        self.logs[partition].latest = end
        self.write(partition, more, "after")

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        partition = TopicPartition(request.topic, request.partition)
        assert request.leader_epoch == self.logs[partition].leader_epoch
        self.fetched.append((partition, request.offset))
        behind = [each for base, each in sorted(self.batches[partition].items()) if base + 10 > request.offset]
        latest = self.logs[partition].latest
        return FetchResponse(0, 0, latest, latest, 0, records=memoryview(behind[0] if behind else b""))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(autouse=True)
def network(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(cluster.kafka, monkeypatch)


def restarted(network: ScriptedNetwork) -> None:
    network.handshakes += 1
    network.interruptions += 1


class Looking:
    """A stream from the earliest offset that has looked at its logs so many times, in micro-batches or idle."""

    def __init__(self, looks: int = 0, **options: str) -> None:
        self._stream = Stream(startingOffsets="earliest", **options)
        self.told, self.at = self._stream.told, self._stream.initial()
        for _ in range(looks):
            self.looks()

    def looks(self) -> Positions:
        self.at = self._stream.goes_on(self.at)
        return self.at


def test_a_log_that_does_not_tell_is_asked_once(cluster: Cluster) -> None:
    cluster.write(A0, 20)
    cluster.batches[A0].clear()
    Looking(4)
    assert cluster.fetched == [(A0, 19)]


def test_a_restored_log_that_has_grown_again_breaks_the_stream(cluster: Cluster, network: ScriptedNetwork) -> None:
    cluster.write(A0, 100)
    stream = Looking(1)
    assert stream.at[A0] == 100
    cluster.write(A0, 50)
    for _ in range(3):
        assert stream.looks()[A0] == 150
    cluster.restore(A0, 100, more=80)
    restarted(network)
    for _ in range(2):
        with pytest.raises(LogBroken, match=r"new checkpoint.*leaves out") as raised:
            stream.looks()
        error = raised.value
        assert (error.topic, error.partition, error.position, error.cause) == ("a", 0, 150, LossCause.RESTORED)


def test_without_fail_on_data_loss_a_stream_tells_it_and_goes_on(cluster: Cluster, network: ScriptedNetwork) -> None:
    cluster.write(A0, 150)
    stream = Looking(3, failOnDataLoss="false")
    cluster.restore(A0, 100, more=80)
    restarted(network)
    assert [stream.looks()[A0] for _ in range(3)] == [150, 180, 180]
    assert [type(each) for each in stream.told] == [LogBroken]


@pytest.mark.parametrize("left", [None, 0, 3])
def test_compaction_breaks_nothing(cluster: Cluster, network: ScriptedNetwork, left: int | None) -> None:
    """It may have removed the batch at the mark, or records of it. Without it, brokers start with the same log."""
    cluster.write(A0, 150)
    stream = Looking(3)
    if left:
        values = (f"before {140 + i}".encode() for i in range(left))
        cluster.batches[A0][140] = bytes(plain(*values, base_offset=140, last_offset_delta=9))
    elif left is not None:
        del cluster.batches[A0][140]
    cluster.write(A0, 10)
    restarted(network)
    assert (stream.looks()[A0], stream.told) == (160, [])


def test_a_mark_is_one_request_where_the_stream_rests(cluster: Cluster, network: ScriptedNetwork) -> None:
    cluster.write(A0, 100)
    stream = Looking(1)
    assert cluster.fetched == []
    for _ in range(6):
        stream.looks()
        assert cluster.fetched == [(A0, 99)]
    # A busy stream takes one a minute.
    for _ in range(5):
        cluster.write(A0, 10)
        stream.looks()
    assert cluster.fetched == [(A0, 99)]
    cluster.kafka.pass_time(stream_logs.MARK_AGE_MS)
    cluster.write(A0, 10)
    stream.looks()
    assert cluster.fetched == [(A0, 99), (A0, 149)]
    restarted(network)
    stream.looks()
    assert cluster.fetched[2:] == [(A0, 149)]
    stream.looks()
    assert cluster.fetched[3:] == [(A0, 159)]


def test_new_marks_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MOST_NEW_MARKS", 1)
    cluster.write(A0, 10)
    cluster.write(A1, 10)
    stream = Looking(2)
    assert len(cluster.fetched) == 1
    stream.looks()
    assert sorted(cluster.fetched) == [(A0, 9), (A1, 9)]


BATCH = StoredBatch(10, 19, 7, 0, 1_000, (5, 0, 3), 10)


@pytest.mark.parametrize(("changed", "may_become"), [
    ({}, True), ({"crc": 8}, False), ({"crc": 8, "record_count": 4}, True), ({"crc": 8, "attributes": 0x40}, True),
    ({"crc": 8, "record_count": 4, "producer": (6, 0, 3)}, False),
    ({"crc": 8, "record_count": 4, "last_offset": 18}, False), ({"base_offset": 11}, False),
])  # fmt: skip
def test_what_compaction_may_make_of_a_batch(changed: dict[str, Any], may_become: bool) -> None:
    assert BATCH.may_become(BATCH._replace(**changed)) == may_become


def test_a_new_leader_may_not_have_compacted_the_batch_yet() -> None:
    assert BATCH._replace(crc=8, record_count=4).may_become(BATCH)

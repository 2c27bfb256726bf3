"""The reader over scripted brokers: connections that are kept from range to range, and what is known of topics."""

import uuid
from unittest.mock import Mock

import pytest

from kafka_sink.errors import ClusterChanged, OffsetsLost, ReadStalled, TopicAuthorizationFailed
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka import reader as reader_module
from kafka_sink.kafka.config import ConsumerConfig, IsolationLevel
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss
from kafka_sink.kafka.consumer.fetcher import FetchSettings
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.reader import Fetch, Reader
from kafka_sink.kafka.waits import Contact
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.spark.kept_clients import lease_reader
from record_sets import plain
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, connect_reads, serve

DENIED = 29
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
END = 9


def config(**options: str) -> ConsumerConfig:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | options
    return read_config(given_options(given, table=READING)).consumer


CONFIG = config()


def records(request: FetchRequest) -> FetchResponse:
    """Three records from the wanted offset on."""
    values = [b"%d" % offset for offset in range(request.offset, request.offset + 3)]
    batch = bytes(plain(*values, base_offset=request.offset))
    return FetchResponse(0, 0, 100, 100, 0, records=memoryview(batch))


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, {("t", 0): ScriptedLog(0, 100), ("t", 1): ScriptedLog(0, 100)})
    made.topic_ids["t"] = OLD
    made.always(FetchRequest, records)
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(kafka, monkeypatch)


@pytest.fixture
def connect(network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Makes the network of each reader: always the same one."""
    made = Mock(return_value=network)
    monkeypatch.setattr(reader_module, "connect", made)
    return made


def fetch(
    reader: Reader, topic_id: uuid.UUID = OLD, *, topic: str = "t", partition: int = 0, lenient: bool = False,
    timeout_ms: int = 10_000, leader_epoch: int = -1,
) -> Fetch:  # fmt: skip
    range_ = FetchRange(topic, topic_id, partition, 0, END, leader_epoch=leader_epoch)
    settings = FetchSettings(
        config=reader.config, fail_on_data_loss=not lenient, reads_replacements=True, poll_timeout_ms=timeout_ms
    )
    return reader.fetch(range_, settings)


def offsets(found: Fetch) -> list[tuple[int, int]]:
    return [(record_set.offset, record_set.next_offset) for record_set in found]


WHOLE = [(0, 3), (3, 6), (6, 9)]


def test_an_outage_is_waited_for_and_told_once(
    kafka: ScriptedKafka, network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.down, network.contacts = {1, 2, 3}, Contact(began_ms=0, is_refused=True, is_unanswered=True)
    kafka.at = [(300_000, kafka.down.clear)]
    with lease_reader(CONFIG) as reader:
        assert offsets(fetch(reader, timeout_ms=360_000)) == WHOLE
    (said,) = caplog.messages
    assert said.startswith("no record of t-0 for ")
    assert "Connection refused. The task waits until " in said
    assert said.endswith(" UTC (kafkaConsumer.pollTimeoutMs = 360000 ms), then it fails.")


def test_a_range_is_read_with_the_settings_of_the_configuration(kafka: ScriptedKafka) -> None:
    asked = {
        "kafka.isolation.level": "read_committed", "kafka.max.partition.fetch.bytes": "4096",
        "kafka.fetch.min.bytes": "7", "kafka.fetch.max.wait.ms": "20", "kafka.client.rack": "r",
    }  # fmt: skip
    with lease_reader(config(**asked)) as reader:
        assert offsets(fetch(reader)) == WHOLE
    request = kafka.asked(FetchRequest)[0][1]
    assert (request.max_bytes, request.min_bytes, request.max_wait_ms, request.rack_id) == (4096, 7, 20, "r")
    assert request.isolation_level is IsolationLevel.READ_COMMITTED


def test_the_next_answer_is_asked_for_while_the_caller_has_a_record_set(kafka: ScriptedKafka) -> None:
    with lease_reader(CONFIG) as reader:
        found = fetch(reader)
        assert next(found).offset == 0
        assert [request.offset for _, request in kafka.asked(FetchRequest)] == [0, 3]
        # Its answer is taken, and no third one asked for: at most two record sets are in memory.
        for _ in range(5):
            found.prefetch()
        assert len(kafka.asked(FetchRequest)) == 2
        assert offsets(found) == WHOLE[1:]
        with pytest.raises(StopIteration):
            next(found)


def test_a_reader_keeps_its_connections_for_the_next_range(network: ScriptedNetwork, connect: Mock) -> None:
    for partition in (0, 1, 0):
        with lease_reader(CONFIG) as reader:
            assert offsets(fetch(reader, partition=partition)) == WHOLE
    assert (connect.call_count, network.closed) == (1, False)
    with lease_reader(config(**{"kafka.check.crcs": "false"})):
        assert connect.call_count == 2


def test_a_range_asks_for_no_leader_that_the_range_before_knew(kafka: ScriptedKafka) -> None:
    with lease_reader(CONFIG) as reader:
        assert offsets(fetch(reader)) == WHOLE
        asked = len(kafka.asked(MetadataRequest))
        assert asked
        for partition in (1, 0, 1):
            assert offsets(fetch(reader, partition=partition)) == WHOLE
        assert len(kafka.asked(MetadataRequest)) == asked
        with pytest.raises(ReadStalled):
            offsets(fetch(reader, leader_epoch=1_000, timeout_ms=1_000))
        assert len(kafka.asked(MetadataRequest)) > asked


def test_leaders_of_a_bounded_number_of_topics_are_kept(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "MOST_TOPICS", 2)
    serve(kafka, {(topic, 0): ScriptedLog(0, 100) for topic in "abc"})
    with lease_reader(CONFIG) as reader:
        asked = []
        for topic in "abcca":
            kafka.topic_ids[topic] = OLD
            offsets(fetch(reader, topic=topic))
            asked.append(len(kafka.asked(MetadataRequest)))
    assert asked[3] == asked[2]
    assert asked[4] > asked[3]


@pytest.mark.parametrize("lenient", [True, False])
def test_a_range_of_a_topic_that_was_made_again_before_its_plan_is_read(kafka: ScriptedKafka, lenient: bool) -> None:
    with lease_reader(CONFIG) as reader:
        assert offsets(fetch(reader, OLD)) == WHOLE
    kafka.topic_ids["t"] = NEW
    with lease_reader(CONFIG) as reader:
        found = fetch(reader, NEW, lenient=lenient)
        assert offsets(found) == WHOLE
    assert not found.losses


def test_a_range_of_a_topic_that_was_made_again_after_its_plan_is_lost(kafka: ScriptedKafka) -> None:
    kafka.topic_ids["t"] = NEW
    with pytest.raises(OffsetsLost, match=r"offsets 0 to 8 of t-0 .*created again"), lease_reader(CONFIG) as reader:
        offsets(fetch(reader, OLD))
    with lease_reader(CONFIG) as reader:
        found = fetch(reader, OLD, lenient=True)
        assert offsets(found) == []
    assert found.losses == [Loss(0, END, LossCause.TOPIC_RECREATED)]
    assert not kafka.asked(FetchRequest)


def test_a_range_without_progress_ends_in_time_and_its_client_is_not_kept(
    kafka: ScriptedKafka, network: ScriptedNetwork, connect: Mock
) -> None:

    def wait(request: FetchRequest) -> FetchResponse:
        kafka.pass_time(request.max_wait_ms)
        return FetchResponse(0, 0, 0, 0, 0)

    kafka.always(FetchRequest, wait)
    with pytest.raises(ReadStalled, match="within 10000 ms"), lease_reader(CONFIG) as reader:
        offsets(fetch(reader))
    assert 10_000 <= kafka.now_ms < 12_000
    assert network.closed
    with lease_reader(CONFIG):
        assert connect.call_count == 2


@pytest.mark.parametrize("ends", [GeneratorExit, ClusterChanged])
def test_a_range_that_ends_in_the_middle_leaves_no_answer_to_the_next(
    network: ScriptedNetwork, connect: Mock, ends: type[BaseException]
) -> None:
    with pytest.raises(ends), lease_reader(CONFIG) as reader:
        found = fetch(reader)
        assert next(found).offset == 0
        if ends is GeneratorExit:
            raise ends  # as Spark does after a limit
        network.failure = ClusterChanged(broker="broker 1", expected="c", found="d")
        next(found)
    assert network.closed
    with lease_reader(CONFIG):
        assert connect.call_count == 2


def test_a_denied_range_names_the_acl(kafka: ScriptedKafka) -> None:
    kafka.always(FetchRequest, FetchResponse(0, DENIED))
    denied = pytest.raises(TopicAuthorizationFailed, match=r"READ.* principal User:ANONYMOUS")
    with denied, lease_reader(CONFIG) as reader:
        offsets(fetch(reader))

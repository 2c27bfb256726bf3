"""The shell's own part, without a broker: the kept producers, what waiting ends with, and slices."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import kafka_sink
from kafka_sink import client
from kafka_sink.client import Producer, Write, lease
from kafka_sink.config import ProducerConfig, sink_config
from kafka_sink.errors import (
    AuthenticationFailed,
    BrokersUnreachable,
    BufferExhausted,
    MissingOption,
    PartitionOutOfRange,
    ProducerClosed,
    ProduceRejected,
    RecordTooLarge,
    TooManyBadRows,
    TopicAuthorizationFailed,
    TopicNameInvalid,
    TopicNotFound,
    TopicRecreated,
)
from kafka_sink.metrics import Metrics
from kafka_sink.producer.bad_row_tally import BadRowLimits, BadRowPolicy, BadRowReceipt
from kafka_sink.producer.metadata import MAX_IDLE_MS, TopicSnapshot
from kafka_sink.producer.receipts import Receipts
from kafka_sink.producer.routed_rows import RoutedRows
from kafka_sink.records.compression import codec_for
from kafka_sink.records.dead_letters import Origin
from kafka_sink.records.fingerprint import Fingerprint
from loopback_network import LoopbackNetwork, loopback
from producer_core import TOPIC, metadata_response, routed
from waiting import wait_until


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def config(port: int, **options: str) -> ProducerConfig:
    return sink_config(
        {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.max.block.ms": "300", **options}
    ).producer


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())})


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("kind", ["closed", "silent"])
def test_no_answer_within_max_block_ms_is_an_error_that_names_the_servers(kind: str, silent_port: int) -> None:
    port = silent_port if kind == "silent" else closed_port()
    started = time.monotonic()
    with pytest.raises(BrokersUnreachable) as failure, lease(config(port)) as producer:
        producer.begin(topic="t").append(rows(1))
    assert 0.299 <= time.monotonic() - started < 5
    assert failure.value.bootstrap_servers == f"127.0.0.1:{port}"
    assert failure.value.waited_ms == 300
    if kind == "closed":
        assert "Connection refused" in failure.value.last_error


def test_a_write_without_rows_needs_no_broker() -> None:
    with lease(config(closed_port())) as producer:
        write = producer.begin(topic="t")
        write.append(rows(0))
        assert write.finish() == ()


def test_a_producer_is_kept_by_process_and_configuration() -> None:
    one, other = config(closed_port()), config(closed_port(), **{"kafka.linger.ms": "7"})
    with lease(one) as first:
        pass
    with lease(other) as different:
        assert different is not first
    with lease(one) as again:
        assert again is first
    assert (os.getpid(), one) in client._kept


def test_an_idle_producer_is_closed_by_the_next_lease() -> None:
    settings = config(closed_port(), **{"kafka.connections.max.idle.ms": "1"})
    with lease(settings) as first:
        pass
    first.used_at_ms -= 10
    with lease(settings) as second:
        assert second is not first
    assert not first.usable


def test_a_producer_whose_write_raised_is_closed_and_its_thread_ends() -> None:
    settings = config(closed_port())
    with pytest.raises(ZeroDivisionError), lease(settings) as producer:
        raise ZeroDivisionError
    assert not producer.usable
    assert not producer._thread.is_alive()
    assert producer._accumulator.pool.available_bytes == settings.buffer_memory
    with pytest.raises(ProducerClosed):
        producer.begin(topic="t").append(rows(1))


def test_a_defect_of_the_sender_thread_reaches_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(config(closed_port(), **{"kafka.max.block.ms": "60000"}))
    reported = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())

    def broken(now_ms: int) -> int:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(producer._sender, "run_once", broken)
    with pytest.raises(ProducerClosed, match="a bug"):
        producer.begin(topic="t").append(rows(1))
    assert reported.wait(5)


def test_a_writer_that_waits_for_a_topic_is_told_that_its_producer_was_closed() -> None:
    producer = Producer(config(closed_port(), **{"kafka.max.block.ms": "60000"}))
    write = producer.begin(topic="t")
    thread, outcome = in_background(lambda: write.append(rows(1)))
    wait_until(lambda: producer._metadata._wanted, 5, "a writer that waits")
    producer.close()
    thread.join(10)
    assert isinstance(outcome[0], ProducerClosed)


def test_a_large_arrow_batch_is_routed_in_slices_that_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(config(closed_port()))
    try:
        write = producer.begin(topic="t")
        seen: list[pa.RecordBatch] = []
        monkeypatch.setattr(write, "_append_slice", seen.append)
        monkeypatch.setattr(client, "SLICE_BYTES", 1_000)
        batch = pa.record_batch({"value": pa.array([b"%06d" % n for n in range(5_000)])})
        write.append(batch)
        assert pa.Table.from_batches(seen) == pa.Table.from_batches([batch])
        assert max(part.nbytes for part in seen) <= 1_200
    finally:
        producer.close()


# --- with a broker that answers when it is told to --------------------------------------------------------------------


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> LoopbackNetwork:
    return loopback(client, monkeypatch)


@pytest.fixture
def producing(network: LoopbackNetwork) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def make(**options: object) -> Producer:
        made.append(Producer(replace(config(1, **{"kafka.linger.ms": "20000"}), **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for producer in made:
        producer.close()


Make = Callable[..., Producer]


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Runs `call` in a thread; what it returned or raised is in the list when the thread ends."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_what_no_retry_mends_ends_the_producer_at_once(producing: Make, network: LoopbackNetwork) -> None:
    """A password that is wrong, at the first connection or at a later one."""
    refused = AuthenticationFailed(broker="broker 0", mechanism="PLAIN", user="alice", reason="no")
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(3))
    network.hold()
    thread, outcome = in_background(write.finish)
    assert network.arrived.wait(5)
    network.failure = refused
    network.wakeup()
    thread.join(5)
    assert outcome == [refused]
    assert not producer.usable


def test_an_error_of_a_lease_says_who_needs_the_acl(network: LoopbackNetwork) -> None:
    network.topic_error = 29
    secure = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
    login = {"kafka.sasl.username": "bob", "kafka.sasl.password": "hunter2"}
    asking = lease(config(1, **secure, **login))
    with pytest.raises(TopicAuthorizationFailed, match="principal User:bob"), asking as producer:
        producer.begin(topic="t").append(rows(3))


def test_finish_sends_what_still_lingers_and_returns_only_when_it_is_acknowledged(
    producing: Make, network: LoopbackNetwork
) -> None:
    write = producing().begin(topic="t")
    network.hold()
    write.append(rows(3))
    thread, outcome = in_background(write.finish)
    assert network.arrived.wait(5)
    assert outcome == []
    network.release()
    thread.join(5)
    ((receipt,),) = outcome
    assert (receipt.record_count, receipt.first_offset) == (3, 100)
    assert write.record_count == 3


def test_finish_raises_what_the_broker_refused(producing: Make, network: LoopbackNetwork) -> None:
    network.produce_code = 87
    write = producing().begin(topic="t")
    write.append(rows(3))
    with pytest.raises(ProduceRejected):
        write.finish()


def test_rows_linger_again_after_a_flush(producing: Make, network: LoopbackNetwork) -> None:
    producer = producing()
    first, second = producer.begin(topic="t"), producer.begin(topic="t")
    first.append(rows(1))
    first.finish()
    second.append(rows(1))
    producer.begin(topic="other").append(rows(1))  # a whole turn of the sender thread, at the least
    assert len(network.produced) == 1


def test_rows_of_two_writes_do_not_share_a_batch(producing: Make, network: LoopbackNetwork) -> None:
    producer = producing()
    first, second = producer.begin(topic="t"), producer.begin(topic="t")
    first.append(rows(1))
    second.append(rows(2))
    assert [receipt.record_count for receipt in second.finish()] == [2]
    assert [receipt.record_count for receipt in first.finish()] == [1]


def refresh(producer: Producer, network: LoopbackNetwork) -> None:
    """Until the producer has the state that the network has now."""
    version = producer._metadata.snapshot.version
    with producer._changed:
        producer._metadata.request_update()
        network.wakeup()
        assert producer._changed.wait_for(lambda: producer._metadata.snapshot.version > version, 5)


def test_partitions_added_in_mid_write_do_not_move_its_keys(producing: Make, network: LoopbackNetwork) -> None:
    keyed = pa.record_batch({"key": pa.array([b"%d" % n for n in range(300)]), "value": pa.nulls(300, pa.binary())})
    producer = producing()
    write = producer.begin(topic="t")
    write.append(keyed)
    network.partitions = 8
    refresh(producer, network)
    write.append(keyed)
    assert {receipt.partition for receipt in write.finish()} == {0}
    after = producer.begin(topic="t")
    after.append(keyed)
    assert len(after.finish()) == 8


def test_a_topic_that_was_idle_for_long_in_mid_write_is_asked_for_again(
    producing: Make, network: LoopbackNetwork
) -> None:
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    producer.flush(write._receipts)
    with producer._changed:
        producer._metadata._used_ms["t"] -= MAX_IDLE_MS
    refresh(producer, network)
    assert "t" not in producer._metadata.snapshot.topics
    write.append(rows(1))
    assert sum(receipt.record_count for receipt in write.finish()) == 2


def test_a_topic_is_in_use_while_rows_for_it_come(producing: Make, network: LoopbackNetwork) -> None:
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    producer.flush(write._receipts)
    with producer._changed:
        producer._metadata._used_ms["t"] -= MAX_IDLE_MS
    write.append(rows(1))
    producer.flush(write._receipts)
    refresh(producer, network)
    assert "t" in producer._metadata.snapshot.topics


def test_a_topic_made_again_in_mid_write_gets_no_row_of_it(producing: Make, network: LoopbackNetwork) -> None:
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    producer.flush(write._receipts)
    old, network.topic_id = network.topic_id, uuid.uuid4()
    refresh(producer, network)
    with pytest.raises(TopicRecreated):
        write.append(rows(1))
        write.finish()
    assert {topic_id for topic_id, _ in network.produced} == {old}


@pytest.mark.parametrize("by_name", [True, False])
def test_brokers_that_know_topics_by_name_are_asked_at_the_end_whether_it_is_the_same(
    producing: Make, network: LoopbackNetwork, by_name: bool
) -> None:
    network.by_name = by_name
    write = producing().begin(topic="t")
    write.append(rows(1))
    first_id = str(network.topic_id)
    assert write.topic_ids == {"t": first_id}
    assert len(write.finish()) == 1
    write.append(rows(1))
    network.topic_id = uuid.uuid4()
    if by_name:
        with pytest.raises(TopicRecreated):
            write.finish()
    else:
        # They would have refused the batch.
        write.finish()


def test_brokers_that_do_not_say_which_topic_it_is_end_the_write_in_time(
    producing: Make, network: LoopbackNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.by_name = True
    producer = producing(max_block_ms=300)
    write = producer.begin(topic="t")
    write.append(rows(1))
    producer.flush(write._receipts)
    monkeypatch.setattr(network, "ready", lambda node_id, now_ms: False)
    started = time.monotonic()
    with pytest.raises(BrokersUnreachable):
        write.finish()
    assert producer.config.max_block_ms <= (time.monotonic() - started) * 1000 < 10_000


def test_a_new_partition_of_a_topic_made_again_in_mid_write_gets_no_row_of_it(
    producing: Make, network: LoopbackNetwork
) -> None:
    """The write knows nothing of that partition, so nothing in it says that it was another topic's row."""
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    producer.flush(write._receipts)
    old, network.topic_id, network.partitions = network.topic_id, uuid.uuid4(), 2
    refresh(producer, network)
    with pytest.raises(TopicRecreated):
        write.append(pa.record_batch({"value": pa.array([b"v"]), "partition": pa.array([1], pa.int32())}))
        write.finish()
    assert {topic_id for topic_id, _ in network.produced} == {old}


def test_a_write_begins_with_metadata_that_is_not_too_old_and_goes_on_with_what_it_has(
    producing: Make, network: LoopbackNetwork
) -> None:
    producer = producing(metadata_max_age_ms=1)
    for partitions in (1, 3):
        network.partitions = partitions
        write = producer.begin(topic="t")
        for _ in range(5):
            write.append(pa.record_batch({"key": pa.array([b"%d" % n for n in range(100)]), "value": pa.nulls(100)}))
        assert len(write.finish()) == partitions


def test_a_topic_that_was_deleted_meanwhile_is_not_found(producing: Make, network: LoopbackNetwork) -> None:
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    write.finish()
    network.topic_error = 3
    refresh(producer, network)
    with pytest.raises(TopicNotFound) as failure:
        producer.begin(topic="t").append(rows(1))
    assert failure.value.topic == "t"


@pytest.mark.parametrize(("code", "error"), [(29, TopicAuthorizationFailed), (17, TopicNameInvalid)])
def test_a_topic_that_waiting_does_not_bring_is_an_error_at_once(
    producing: Make, network: LoopbackNetwork, code: int, error: type[Exception]
) -> None:
    network.topic_error = code
    producer = producing(max_block_ms=60_000)
    with pytest.raises(error):
        producer.begin(topic="t").append(rows(1))


def test_partitions_are_counted_over_a_producer_that_is_closed_again(network: LoopbackNetwork) -> None:
    network.partitions = 7
    threads = threading.active_count()
    assert client.partition_count(config(1), "t") == 7
    network.topic_error = 29
    with pytest.raises(TopicAuthorizationFailed, match="for principal User:ANONYMOUS"):
        client.partition_count(config(1), "t")
    assert threading.active_count() == threads


def test_the_public_count_takes_the_sinks_options(network: LoopbackNetwork) -> None:
    network.partitions = 7
    options = {"kafka.bootstrap.servers": "localhost:1"}
    assert kafka_sink.partition_count({**options, "Topic": "t"}) == 7
    with pytest.raises(MissingOption, match="'topic' is required"):
        kafka_sink.partition_count(options)


def test_the_public_count_looks_up_in_the_sessions_conf_what_the_options_do_not_say(network: LoopbackNetwork) -> None:
    network.partitions = 7
    conf = {"spark.pykafka.kafka.bootstrap.servers": "localhost:1", "spark.pykafka.topic": "t", "spark.app.name": "x"}
    session = SimpleNamespace(conf=SimpleNamespace(getAll=conf))
    assert kafka_sink.partition_count({}, session) == 7  # type: ignore[arg-type]


def test_a_row_over_max_request_size_is_refused_before_any_row_of_its_slice(
    producing: Make, network: LoopbackNetwork
) -> None:
    write = producing(max_request_size=2_000).begin(topic="t")
    with pytest.raises(RecordTooLarge) as failure:
        write.append(pa.record_batch({"value": pa.array([b"small", bytes(2_000)])}))
    assert failure.value.size_bytes > 2_000
    assert write.finish() == ()


def test_a_full_pool_blocks_until_answers_come(producing: Make, network: LoopbackNetwork) -> None:
    write = producing(buffer_memory=8_192, batch_size=1_024, max_block_ms=20_000).begin(topic="t")
    network.hold()
    large = pa.record_batch({"value": pa.array([bytes(100)] * 500)})
    thread, outcome = in_background(lambda: write.append(large))
    assert network.arrived.wait(5)
    network.release()
    thread.join(10)
    assert outcome == [None]
    assert sum(receipt.record_count for receipt in write.finish()) == 500


def test_answers_between_a_refusal_of_memory_and_the_wait_for_it_are_not_missed(
    producing: Make, network: LoopbackNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producing(buffer_memory=8_192, batch_size=1_024, max_block_ms=60_000)
    write = producer.begin(topic="t")
    network.hold()
    try_append = producer._accumulator.try_append

    def slowly(*arguments: Any) -> bool:
        """Answers to all that is on the wire come in before the caller learns that memory is short."""
        placed_all = try_append(*arguments)
        if not placed_all:
            network.wakeup()
            assert network.arrived.wait(5)
            network.release()
            with producer._changed:
                assert producer._changed.wait_for(lambda: write._receipts.pending_batches == 0, 5)
        return placed_all

    monkeypatch.setattr(producer._accumulator, "try_append", slowly)
    thread, outcome = in_background(lambda: write.append(pa.record_batch({"value": pa.array([bytes(100)] * 100)})))
    thread.join(10)
    assert outcome == [None]


def test_a_full_pool_without_answers_is_an_error_after_max_block_ms(
    producing: Make, network: LoopbackNetwork
) -> None:
    producer = producing(buffer_memory=8_192, batch_size=1_024)
    write = producer.begin(topic="t")
    network.hold()
    with pytest.raises(BufferExhausted) as failure:
        write.append(pa.record_batch({"value": pa.array([bytes(100)] * 500)}))
    assert (failure.value.buffer_memory, failure.value.waited_ms) == (8_192, 300)


def test_a_writer_that_waits_for_memory_is_told_that_its_producer_was_closed(
    producing: Make, network: LoopbackNetwork
) -> None:
    producer = producing(buffer_memory=8_192, batch_size=1_024, max_block_ms=60_000)
    write = producer.begin(topic="t")
    network.hold()
    large = pa.record_batch({"value": pa.array([bytes(100)] * 500)})
    thread, outcome = in_background(lambda: write.append(large))
    assert network.arrived.wait(5)
    producer.close()
    thread.join(10)
    assert isinstance(outcome[0], ProducerClosed)
    assert producer._accumulator.pool.available_bytes == 8_192


def test_a_slow_broker_is_not_an_absent_one(producing: Make, network: LoopbackNetwork) -> None:
    """Each answer makes room for some rows; the whole append takes longer than max.block.ms."""
    producer = producing(buffer_memory=8_192, batch_size=4_096, max_request_size=4_096, max_block_ms=1_500)
    write = producer.begin(topic="t")
    network.hold()
    thread, outcome = in_background(lambda: write.append(pa.record_batch({"value": pa.array([bytes(100)] * 500)})))
    started = time.monotonic()
    while thread.is_alive() and time.monotonic() - started < 20:
        thread.join(0.3)  # a fifth of what would be too long
        network.release()
        network.hold()
    assert outcome == [None]
    assert time.monotonic() - started > 1.5
    network.release()
    assert sum(receipt.record_count for receipt in write.finish()) == 500


def test_a_sender_thread_that_dies_over_a_drained_batch_fails_the_write(
    producing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def no_memory(*_: object) -> None:
        raise MemoryError

    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    monkeypatch.setattr(producer._sender._codec, "compress", no_memory, raising=False)
    monkeypatch.setattr("kafka_sink.producer.producer_batch.ProducerBatch.close", no_memory)
    thread, outcome = in_background(write.finish)
    thread.join(5)
    assert isinstance(outcome[0], ProducerClosed)
    assert producer._accumulator.pool.available_bytes == producer.config.buffer_memory


def test_rows_whose_sender_thread_is_gone_without_a_word_are_not_delivered(
    producing: Make, network: LoopbackNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a forked child, which has the producer and not its thread."""
    network.hold()
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    with monkeypatch.context() as patch:
        patch.setattr(producer, "_thread", gone)
        with pytest.raises(ProducerClosed, match="is gone"):
            write.finish()


def test_a_network_that_cannot_be_closed_keeps_nobody_waiting(
    producing: Make, network: LoopbackNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def broken() -> None:
        raise KeyError("a bug")

    network.hold()
    producer = producing()
    write = producer.begin(topic="t")
    write.append(rows(1))
    thread, outcome = in_background(write.finish)
    assert network.arrived.wait(5)
    monkeypatch.setattr(network, "close", broken)
    producer.close()
    thread.join(5)
    assert isinstance(outcome[0], ProducerClosed)


def test_a_kept_producer_whose_thread_died_is_not_leased(network: LoopbackNetwork) -> None:
    settings = config(1)
    with lease(settings) as first:
        pass
    first.close()
    with lease(settings) as second:
        assert second is not first


def test_slices_are_cut_by_what_rows_take_without_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[pa.RecordBatch] = []
    write = write_to(GrowingTopic(1, then=1))
    monkeypatch.setattr(write, "_append_slice", seen.append)
    monkeypatch.setattr(client, "SLICE_BYTES", 100_000)
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), pa.array([bytes(10_000)]))
    write.append(pa.record_batch({"value": shared}))
    assert [part.num_rows for part in seen] == [10] * 100


class GrowingTopic:
    """Stands in for a Producer: a topic that had `first` partitions and, when asked again, has `then`."""

    def __init__(self, first: int, then: int) -> None:
        self.config = config(1)
        self.metrics = Metrics()
        self.partition_count, self._then = first, then
        self.asked_again = 0
        self.placed: list[int] = []

    def await_topics(
        self, names: frozenset[str], seen_before: object, started_ms: int, *, ask_again: bool = False
    ) -> dict[str, TopicSnapshot]:
        if ask_again:
            self.asked_again += 1
            self.partition_count = self._then
        leaders = (0,) * self.partition_count
        return {name: TopicSnapshot(name, None, leaders, leaders) for name in names}

    def place(self, rows: RoutedRows, receipts: object, codec: object, started_ms: int) -> None:
        for destination in rows.unplaced():
            count = int(rows.end_row[destination] - rows.next_row[destination])
            self.placed += [rows.destinations[destination].partition] * count


def explicit(*partitions: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"value": pa.array([b"v" * 100] * len(partitions)), "partition": pa.array(partitions, pa.int32())}
    )


def write_to(topic: GrowingTopic) -> Write:
    return Write(topic, topic="t", partitioner="murmur2", fingerprint=None)  # type: ignore[arg-type]


def test_a_partition_that_is_not_known_is_asked_about_before_the_row_is_bad() -> None:
    topic = GrowingTopic(2, then=4)
    write = write_to(topic)
    write.append(explicit(1, 3, 0))
    assert topic.placed == [0, 1, 3]
    write.append(explicit(2))
    assert topic.asked_again == 1
    with pytest.raises(PartitionOutOfRange) as failure:
        write.append(explicit(4))
    assert (failure.value.partition, failure.value.partition_count) == (4, 4)
    assert topic.asked_again == 2


def test_once_an_arrow_batch_whatever_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SLICE_BYTES", 1)
    topic = GrowingTopic(1, then=2)
    with pytest.raises(PartitionOutOfRange):
        write_to(topic).append(explicit(0, 1, 0, 9))  # in slices of a row
    assert topic.asked_again == 1
    assert topic.placed == [0, 1, 0]


def test_no_topic_will_ever_have_a_negative_partition() -> None:
    topic = GrowingTopic(2, then=4)
    with pytest.raises(PartitionOutOfRange):
        write_to(topic).append(explicit(0, -1))
    assert topic.asked_again == 0


def test_asking_again_ends_with_max_block_ms() -> None:
    producer = Producer(config(closed_port()))
    try:
        with producer._changed:
            producer._metadata.update(replace(metadata_response([0]), brokers=()), client.monotonic_ms())
        names, started_ms = frozenset({TOPIC}), client.monotonic_ms()
        assert producer.await_topics(names, names, started_ms)[TOPIC].partition_count == 1
        with pytest.raises(BrokersUnreachable):
            producer.await_topics(names, names, started_ms, ask_again=True)
        assert 300 <= client.monotonic_ms() - started_ms < 5_000
    finally:
        producer.close()


def test_a_write_has_the_figures_of_its_own_time(producing: Make) -> None:
    producer = producing()
    for rows in (3, 2):
        write = producer.begin(topic="t")
        write.append(pa.record_batch({"value": pa.array([bytes(50)] * rows)}))
        write.finish()
        figures = write.figures()
        assert figures.producer["record-send-total"] == figures.topics["t"]["record-send-total"] == rows
        assert figures.producer["record-size-max"] == 61 + 56 + 1
        assert figures.producer["flush-time-ns-total"] > 0
    assert figures.producer["metadata-age"] >= 0


def test_waiting_for_memory_is_counted(producing: Make, network: LoopbackNetwork) -> None:
    producer = producing(batch_size=1_024, buffer_memory=2_048, max_request_size=1_024)
    write = producer.begin(topic="t")
    network.hold()
    threading.Timer(0.05, network.release).start()
    write.append(pa.record_batch({"value": pa.array([bytes(900)] * 3)}))
    write.finish()
    assert write.figures().producer["bufferpool-wait-time-ns-total"] > 0


def test_memory_that_comes_back_begins_the_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that needs much of it waits while brokers answer, however slowly."""
    now, available = [0], [0]

    class Waiting:
        pool = SimpleNamespace(available_bytes=0, buffer_bytes=1_024)

        def try_append(self, *arguments: object) -> bool:
            now[0] += 40_000
            self.pool.available_bytes = min(available[0], 5_000)
            available[0] += 1_000
            return False

    monkeypatch.setattr(client, "monotonic_ms", lambda: now[0])
    producer = Producer.__new__(Producer)
    producer.config, producer._changes = replace(config(1), max_block_ms=60_000), 0
    producer._accumulator, producer._network = Waiting(), SimpleNamespace(wakeup=lambda: None)  # type: ignore[assignment]
    monkeypatch.setattr(producer, "_await_change", lambda seen, timeout_ms: None)
    rows = routed([bytes(100)], [0])
    with pytest.raises(BufferExhausted):
        producer.place(rows, Receipts(), codec_for("none"), 0)
    # Nothing at 40 s, five times more, and then not more for 80 s.
    assert now[0] == (1 + 5 + 2) * 40_000

# --- bad rows ---------------------------------------------------------------------------------------------------------


def sorting_write(
    topic: GrowingTopic,
    *,
    letters: str | None = None,
    limits: BadRowLimits | None = None,
    max_message_bytes: Mapping[str, int] | None = None,
) -> Write:
    policy = BadRowPolicy(
        letters, limits or BadRowLimits(), Origin(None, None, 0, "t"), lambda topics: max_message_bytes or {}
    )
    return Write(
        topic,  # type: ignore[arg-type]
        topic="t",
        partitioner="murmur2",
        fingerprint=Fingerprint(),
        bad_rows=policy,
    )


class Remembering(GrowingTopic):
    """Also by topic."""

    def __init__(self, first: int, then: int) -> None:
        super().__init__(first, then)
        self.by_topic: Counter[str] = Counter()

    def place(self, rows: RoutedRows, receipts: object, codec: object, started_ms: int) -> None:
        super().place(rows, receipts, codec, started_ms)
        for destination in rows.unplaced():
            placed = int(rows.end_row[destination] - rows.next_row[destination])
            self.by_topic[rows.destinations[destination].topic] += placed


def test_bad_rows_are_left_out_and_the_others_go_on() -> None:
    topic = Remembering(2, then=3)
    write = sorting_write(topic)
    write.append(explicit(1, -1, 2, 0, 7))
    assert topic.placed == [0, 1, 2]
    assert topic.asked_again == 1
    assert write.record_count == 5
    assert write.bad_rows.dropped == {"PartitionOutOfRange": 2}
    assert write.bad_rows.first_rows == ((0, 1), (0, 4))
    write.append(explicit(0, 9))
    assert write.bad_rows.first_rows == ((0, 1), (0, 4), (0, 6))


def test_a_negative_partition_before_one_that_may_be_new_does_not_hide_it() -> None:
    topic = Remembering(1, then=3)
    write = sorting_write(topic)
    write.append(explicit(-1, 2))
    assert (topic.placed, topic.asked_again) == ([2], 1)
    assert write.bad_rows.dropped == {"PartitionOutOfRange": 1}


def test_dead_letters_go_to_their_topic_in_the_same_write() -> None:
    topic = Remembering(1, then=1)
    write = sorting_write(topic, letters="letters")
    write.append(explicit(0, 5, 0, -5))
    assert topic.by_topic == {"t": 2, "letters": 2}
    assert write.bad_rows.dead_lettered == {"PartitionOutOfRange": 2}
    assert set(write.topic_ids) == {"t", "letters"}


def test_nothing_but_bad_rows() -> None:
    topic = Remembering(1, then=1)
    write = sorting_write(topic)
    write.append(explicit(-1, -2))
    assert (topic.placed, write.record_count, write.bad_rows.dropped_count) == ([], 2, 2)


def test_good_rows_are_not_judged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Write, "_append_sorted", None)
    topic = Remembering(2, then=2)
    write = sorting_write(topic, letters="letters", max_message_bytes={"t": 1_000})
    write.append(explicit(*[0, 1] * 500))
    assert len(topic.placed) == 1_000
    assert write.bad_rows == BadRowReceipt()


def test_a_row_that_its_topic_takes_when_it_is_compressed_is_good() -> None:
    topic = Remembering(1, then=1)
    write = sorting_write(topic, max_message_bytes={"t": 1_000})
    dense = random.Random(3).randbytes(2_000)
    write.append(pa.record_batch({"value": pa.array([bytes(2_000), dense, bytes(100)])}))
    assert topic.placed == [0, 0]
    assert write.bad_rows.dropped == {"RecordTooLarge": 1}
    assert write.bad_rows.first_rows == ((0, 1),)


def test_more_bad_rows_than_allowed_end_the_task_before_the_others_are_sent() -> None:
    topic = Remembering(1, then=1)
    write = sorting_write(topic, letters="letters", limits=BadRowLimits(max_rows=1))
    write.append(explicit(0, -1))
    assert topic.by_topic == {"t": 1, "letters": 1}
    with pytest.raises(TooManyBadRows):
        write.append(explicit(0, -1))
    assert topic.by_topic == {"t": 1, "letters": 1}


def test_the_fingerprint_is_of_all_rows_whatever_is_bad_about_them_now() -> None:
    digests = set()
    for partitions in (1, 3):
        write = sorting_write(Remembering(partitions, then=partitions))
        write.append(explicit(0, 2, -1))
        assert write.bad_rows.dropped_count == (2 if partitions == 1 else 1)
        assert write._fingerprint is not None
        digests.add(write._fingerprint.digest())
    assert len(digests) == 1


def test_what_a_leader_refused_is_no_bad_row_of_those_that_follow() -> None:
    """RecordTooLarge of an earlier row, by the time that the next ones are routed or placed."""
    for method in ("await_topics", "place"):
        topic = Remembering(1, then=1)
        refused = RecordTooLarge(topic="t", size_bytes=9, max_bytes=None, limit="max.message.bytes")

        def refuse(*_: object, error: Exception = refused, **__: object) -> None:
            raise error

        write = sorting_write(topic)
        setattr(topic, method, refuse)
        with pytest.raises(RecordTooLarge) as failure:
            write.append(explicit(0))
        assert failure.value is refused
        assert write.bad_rows == BadRowReceipt()


def test_a_dead_letter_that_cannot_be_written_at_all_is_not_lost_silently() -> None:
    topic = Remembering(1, then=1)
    write = sorting_write(topic, letters="letters", max_message_bytes={"letters": 70})
    with pytest.raises(RecordTooLarge, match="deadLetterTopic allows 70"):
        write.append(explicit(-1))
    assert topic.by_topic == {}

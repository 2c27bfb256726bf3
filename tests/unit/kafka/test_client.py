"""The shell's own part, without a broker: the kept producers, and what waiting ends with."""

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from kafka_sink import errors
from kafka_sink.doctor import dialogue
from kafka_sink.kafka import client, metadata
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.client import RESTED_MS, Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import MAX_IDLE_MS
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.producer import sender, throttling
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.waits import FIRST_LOG_MS, FIRST_MS, FIRST_PATIENCE_MS, Contact
from kafka_sink.kafka.write import Write
from kafka_sink.records.compression import codec_for
from kafka_sink.records.kernel import Loss, fallback
from kafka_sink.spark import kept_clients
from kafka_sink.spark.kept_clients import MOST, lease_producer, ramp_s
from producer_core import Live, config, in_background, let_wait, refresh, routed, rows
from scripted_kafka import HANG_UP, ScriptedNetwork, connect_clients
from waiting import wait_until


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


SHORT = {"kafka.max.block.ms": "300"}


no_memory = Mock(side_effect=MemoryError)


def begun(network: Live, count: int = 1, **options: Any) -> tuple[Producer, Write]:
    """A producer with these options, and a write that has `count` rows."""
    producer = network.producer(**options)
    write = Write(producer, topic="t")
    write.append(rows(count))
    return producer, write


def written(settings: ProducerConfig, cluster_id: str | None = None) -> Producer:
    """One that is leased, and kept, and has written a row."""
    with lease_producer(settings, cluster_id) as producer:
        write = Write(producer, topic="t")
        write.append(rows(1))
        write.finish()
    return producer


@pytest.mark.parametrize("kind", ["closed", "silent"])
def test_no_answer_within_max_block_ms_is_an_error_that_names_the_servers(
    kind: str, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", 0.5)
    port = silent_port if kind == "silent" else closed_port()
    started_ms = client.monotonic_ms()
    with pytest.raises(errors.BrokersUnreachable) as failure, lease_producer(config(port, **SHORT)) as producer:
        Write(producer, topic="t").append(rows(1))
    # And the doctor's look at a host that says nothing; not request.timeout.ms.
    assert 300 <= client.monotonic_ms() - started_ms < 25_000
    assert (failure.value.bootstrap_servers, failure.value.waited_ms) == (f"127.0.0.1:{port}", 300)
    assert "All steps, one by one: `pykafka check" in str(failure.value)
    if kind == "closed":
        assert "Connection refused" in failure.value.last_error


def away(ms: int, **more: bool) -> Contact:
    """No broker has answered for so long."""
    since_ms = client.monotonic_ms() - ms
    return Contact(began_ms=since_ms, away_since_ms=since_ms, **more)


@pytest.mark.parametrize(("contact", "waited_ms"), [
    ({"is_refused": True, "is_unanswered": True}, FIRST_MS),
    ({"is_unanswered": True}, FIRST_PATIENCE_MS),
    ({}, FIRST_PATIENCE_MS),
])  # fmt: skip
@pytest.mark.parametrize("has_batches", [True, False])
def test_a_first_write_without_an_answer_fails_early(
    network: Live, contact: dict[str, bool], waited_ms: int, has_batches: bool
) -> None:
    """Also where a bootstrap server tells the brokers, and none of these is reached."""
    network.hold()
    if not has_batches:
        network.kafka.down = {0, 1, 2, 3}
    write = Write(network.producer(), topic="t")
    network.contacts = away(waited_ms, **contact)
    with pytest.raises(errors.BrokersUnreachable, match="none has answered before") as failure:
        write.append(rows(1))
        write.finish()
    assert waited_ms <= failure.value.waited_ms < waited_ms + 30_000


@pytest.mark.parametrize("has_worked", [True, False])
def test_a_write_that_waits_says_so_once(network: Live, caplog: pytest.LogCaptureFixture, has_worked: bool) -> None:
    network.hold()
    network.contacts = away(0)
    producer = network.producer()
    producer.outage.has_worked = has_worked
    write = Write(producer, topic="t")
    write.append(rows(1))
    thread, outcome = in_background(write.finish)
    wait_until(network.arrived.is_set, 10, "the batch is sent")
    network.contacts = away(FIRST_LOG_MS)
    wait_until(lambda: caplog.messages, 10, "the wait is told")
    network.release()
    thread.join()
    assert len(outcome) == 1 and not isinstance(outcome[0], Exception)
    (said,) = caplog.messages
    assert "The write waits until " in said
    limit = f"kafka.delivery.timeout.ms = {producer.config.delivery_timeout_ms} ms"
    assert said.endswith(f"({limit if has_worked else 'no broker has answered before'}), then its task fails.")


def test_writes_without_the_compiled_kernel_log_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "KERNEL", replace(fallback(), loss=Loss("nobody built it", "build it")))
    for _ in range(2):
        with lease_producer(config(closed_port())) as producer:
            write = Write(producer, topic="t")
            write.append(rows(0))
            assert write.finish() == ()
    (warning,) = (message for message in caplog.messages if "kernel" in message)
    assert "nobody built it" in warning and "a sixth of the rows. To change that, build it." in warning


def test_a_producer_is_kept_by_process_and_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = config(closed_port()), config(closed_port(), **{"kafka.linger.ms": "7"})
    with lease_producer(one) as first:
        pass
    with lease_producer(other) as different:
        assert different is not first
    with lease_producer(one) as again:
        assert again is first
    # A forked child.
    monkeypatch.setattr(kept_clients.os, "getpid", lambda: -1)
    with lease_producer(one) as of_child:
        assert of_child is not first


def test_workers_that_start_together_connect_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task waits longer the more tasks are before it, and only for a client that is not connected yet."""
    waits: list[float] = []
    monkeypatch.setattr(kept_clients.time, "sleep", waits.append)
    settings = config(closed_port())
    for _ in range(2):
        with lease_producer(settings, spark_partition=3_000):
            pass
    assert len(waits) == 1 and 0 < waits[0] < 3
    assert ramp_s(0, 1) == 0
    assert (ramp_s(3_000, 0), ramp_s(3_000, 0.5), ramp_s(3_000, 1)) == (0, 1.5, 3)
    assert ramp_s(1_000_000, 1) == 5


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_producer_that_is_idle_or_whose_thread_ended_is_not_leased(is_idle: bool) -> None:
    settings = config(closed_port(), **{"kafka.connections.max.idle.ms": "1" if is_idle else "540000"})
    with lease_producer(settings) as first:
        pass
    first.used_at_ms -= 10
    if not is_idle:
        first.close()
    with lease_producer(settings) as second:
        assert second is not first
    assert not first.usable


def sender_threads(client_id: str) -> list[threading.Thread]:
    """Of producers with this client id, those that run."""
    return [thread for thread in threading.enumerate() if thread.name == f"pykafka-sender-{client_id}"]


def test_a_producer_whose_write_raised_is_closed_and_its_thread_ends(network: Live) -> None:
    settings = config(1, **{"kafka.client.id": "raising"})
    with pytest.raises(ZeroDivisionError), lease_producer(settings) as producer:
        Write(producer, topic="t").append(rows(1))
        raise ZeroDivisionError
    assert not producer.usable and not sender_threads("raising")
    assert network.sender.accumulator.pool.available_bytes == settings.buffer_memory
    with pytest.raises(errors.ProducerClosed):
        Write(producer, topic="t").append(rows(1))


Ends = list[socket.socket]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Both ends of each pair of sockets that wakes a selector."""
    made: Ends = []
    socketpair = socket.socketpair
    monkeypatch.setattr(socket, "socketpair", lambda: made.extend(ends := socketpair()) or ends)
    return made


def one_and_closed(opened: Ends) -> bool:
    return [end.fileno() for end in opened] == [-1, -1]


@pytest.mark.parametrize(("owner", "name", "error", "words"), [
    (threading.Thread, "start", RuntimeError("can't start new thread"), "threads: a thread could not be started"),
    (client, "Sender", MemoryError(), "memory: an allocation failed"),
])  # fmt: skip
def test_a_producer_without_a_thread_or_memory_leaves_no_socket(
    opened: Ends, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception, words: str
) -> None:
    settings = config(closed_port())
    monkeypatch.setattr(owner, name, Mock(side_effect=error))
    with pytest.raises(errors.WorkerExhausted, match=f"no more {words}") as raised, lease_producer(settings):
        pass
    assert raised.value.what == words.partition(":")[0]
    assert ("Raise the limit of processes and threads" in str(raised.value)) == (owner is threading.Thread)
    assert one_and_closed(opened)
    assert kept_clients.KEPT.take(Producer, settings) is None


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("malloc of size 9 failed")])
def test_a_write_without_memory_keeps_no_producer_thread_or_socket(opened: Ends, error: Exception) -> None:
    settings = config(closed_port(), **{"kafka.client.id": "hungry"})
    with pytest.raises(errors.WorkerExhausted, match="no more memory") as raised, lease_producer(settings):
        raise error
    assert raised.value.__cause__ is error
    assert not sender_threads("hungry")
    assert one_and_closed(opened)
    assert kept_clients.KEPT.take(Producer, settings) is None


def test_a_sender_thread_without_memory_tells_whoever_waits_and_ends_quietly(
    opened: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(config(closed_port(), **{"kafka.client.id": "quiet"}))
    (thread,) = sender_threads("quiet")
    monkeypatch.setattr(threading, "excepthook", lambda _: pytest.fail("a traceback for no defect"))
    monkeypatch.setattr(NetworkClient, "poll", no_memory)
    with pytest.raises(errors.WorkerExhausted, match="no more memory"):
        Write(producer, topic="t").append(rows(1))
    thread.join(30)
    assert (producer.usable, thread.is_alive(), one_and_closed(opened)) == (False, False, True)


def test_a_sender_thread_without_any_memory_closes_its_sockets(opened: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(sender.Sender, "fail", no_memory)
    monkeypatch.setattr(NetworkClient, "poll", no_memory)
    producer = Producer(config(closed_port(), **{"kafka.client.id": "starved"}))
    for thread in sender_threads("starved"):
        thread.join(30)
    assert (producer.usable, one_and_closed(opened)) == (False, True)


@pytest.mark.parametrize("what", ["a topic", "memory"])
def test_a_writer_that_waits_is_told_of_the_producers_end(network: Live, what: str) -> None:
    producer = network.producer(buffer_memory=8_192, batch_size=1_024)
    write = Write(producer, topic="t")
    if what == "a topic":
        network.kafka.silent = {0}
    network.hold()
    thread, outcome = in_background(lambda: write.append(LARGE))
    arrived = network.arrived.is_set if what == "memory" else lambda: network.kafka.asked(MetadataRequest)
    wait_until(arrived, 30, "a writer that waits")
    producer.close()
    thread.join(30)
    assert isinstance(outcome[0], errors.ProducerClosed)
    assert network.sender.accumulator.pool.available_bytes == 8_192


LARGE = pa.record_batch({"value": pa.array([bytes(100)] * 500)})


def test_finish_sends_what_still_lingers_and_returns_only_when_it_is_acknowledged(network: Live) -> None:
    network.hold()
    _, write = begun(network, 3)
    thread, outcome = in_background(write.finish)
    assert network.arrived.wait(30)
    assert outcome == []
    network.release()
    thread.join(30)
    ((receipt,),) = outcome
    assert (receipt.record_count, receipt.first_offset, write.record_count) == (3, 100, 3)


def test_finish_raises_what_the_broker_refused(network: Live) -> None:
    network.kafka.always(ProduceRequest, 87)
    with pytest.raises(errors.ProduceRejected):
        begun(network)[1].finish()
    # A pause is ended by it.
    producer, _ = begun(network, linger_ms=0)
    with pytest.raises(errors.ProduceRejected):
        producer.pause(client.monotonic_ms() + 10_000)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender thread does not look of its own accord."""
    monkeypatch.setattr(sender, "LONGEST_POLL_MS", 600_000)


@pytest.mark.usefixtures("patient")
def test_rows_go_out_when_they_have_lingered_and_nobody_flushes(network: Live) -> None:
    write = Write(network.producer(linger_ms=20), topic="t")
    for _ in range(5):
        before = len(network.kafka.produced)
        write.append(rows(1))
        wait_until(lambda before=before: len(network.kafka.produced) > before, 30, "a batch that has lingered")


@pytest.mark.usefixtures("patient")
def test_full_batches_go_out_and_nobody_flushes(network: Live) -> None:
    write = Write(network.producer(batch_size=1_024, linger_ms=60_000), topic="t")
    for count in range(1, 61):
        write.append(pa.record_batch({"value": pa.array([bytes(300)])}))
        # Three rows a batch; the last of them is full when there is a next row for it.
        wait_until(lambda full=(count - 1) // 3: len(network.kafka.produced) == full, 30, "full batches")


def test_rows_linger_again_after_a_flush(network: Live) -> None:
    producer, first = begun(network)
    first.finish()
    Write(producer, topic="t").append(rows(1))
    Write(producer, topic="other").append(rows(1))  # a whole turn of the sender thread, at the least
    assert len(network.kafka.produced) == 1


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The clock of producers jumps ahead by as many milliseconds."""
    monotonic_ms, passed = client.monotonic_ms, [0]
    monkeypatch.setattr(client, "monotonic_ms", lambda: monotonic_ms() + sum(passed))
    return passed.append


ID = uuid.UUID(int=1)


@pytest.mark.parametrize(("first", "second"), [(None, ID), (ID, None), (ID, ID)])
def test_a_topic_that_was_idle_for_long_in_mid_write_is_asked_for_again(
    network: Live, pass_time: Callable[[int], None],
    first: uuid.UUID | None, second: uuid.UUID | None,
) -> None:  # fmt: skip
    """It is no other topic if its id becomes known or is not told: brokers are upgraded from Kafka 2.7 or older."""
    network.kafka.by_name, network.kafka.topic_id = True, first
    producer, write = begun(network, metadata_max_age_ms=10 * MAX_IDLE_MS, max_block_ms=60_000)
    producer.flush(write.acknowledgements)
    pass_time(MAX_IDLE_MS)
    refresh(network)
    assert "t" not in network.sender.metadata.snapshot.topics
    network.kafka.topic_id = second
    write.append(rows(1))
    assert sum(receipt.record_count for receipt in write.finish()) == 2
    assert write.topic_ids == {"t": str(ID)}


def test_brokers_that_do_not_say_which_topic_it_is_end_the_write_in_time(
    network: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.kafka.by_name = True
    producer, write = begun(network)
    producer.flush(write.acknowledgements)
    monkeypatch.setattr(network, "ready", lambda node_id, now_ms: False)
    let_wait(producer, 300)
    started_ms = client.monotonic_ms()
    with pytest.raises(errors.BrokersUnreachable):
        write.finish()
    assert 300 <= client.monotonic_ms() - started_ms < 25_000


def test_a_write_begins_with_fresh_metadata_and_goes_on_with_what_it_has(network: Live) -> None:
    producer = network.producer(metadata_max_age_ms=1)
    for partitions in (1, 3):
        network.kafka.partitions = partitions
        write = Write(producer, topic="t")
        for _ in range(5):
            write.append(pa.record_batch({"key": pa.array([b"%d" % n for n in range(100)]), "value": pa.nulls(100)}))
        assert len(write.finish()) == partitions


@pytest.mark.parametrize("was_deleted", [True, False])
def test_a_topic_that_does_not_exist_is_not_waited_for_until_max_block_ms(
    network: Live, monkeypatch: pytest.MonkeyPatch, was_deleted: bool
) -> None:
    monkeypatch.setattr(metadata, "ABSENT_PATIENCE_MS", 200)
    if was_deleted:
        producer, write = begun(network, max_block_ms=60_000)
        write.finish()
    else:
        # Producers of one network take each other's answers: one is enough.
        producer = network.producer(max_block_ms=60_000)
    network.kafka.topic_error = 3
    if was_deleted:
        refresh(network)
    with pytest.raises(errors.TopicNotFound) as failure:
        Write(producer, topic="t").append(rows(1))
    assert failure.value.topic == "t"
    # The time counts from the first answer that says so, which may be one from before the write.
    assert 100 <= failure.value.waited_ms < 25_000


@pytest.mark.parametrize(("code", "error"), [(29, errors.TopicAuthorizationFailed), (17, errors.TopicNameInvalid)])
def test_a_topic_that_waiting_does_not_bring_is_an_error_at_once(
    network: Live, code: int, error: type[Exception]
) -> None:
    network.kafka.topic_error = code
    with pytest.raises(error):
        begun(network, max_block_ms=60_000)
    if code == 29:
        # An error of a lease says who needs the ACL.
        login = {"kafka.sasl.username": "bob", "kafka.sasl.password": "hunter2"}
        secure = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
        with pytest.raises(error, match="principal User:bob"):
            written(config(1, **secure, **login))


def test_a_full_pool_blocks_until_answers_come(network: Live) -> None:
    write = Write(network.producer(buffer_memory=8_192, batch_size=1_024), topic="t")
    network.hold()
    thread, outcome = in_background(lambda: write.append(LARGE))
    assert network.arrived.wait(30)
    assert thread.is_alive()
    network.release()
    thread.join(30)
    assert outcome == [None]
    assert sum(receipt.record_count for receipt in write.finish()) == 500


def test_answers_between_a_refusal_of_memory_and_the_wait_for_it_are_not_missed(
    network: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Write(network.producer(buffer_memory=8_192, batch_size=1_024, max_block_ms=60_000), topic="t")
    network.hold()
    try_append = network.sender.accumulator.try_append

    def slowly(*arguments: Any) -> bool:
        """Answers to all that is on the wire come in before the caller learns that memory is short."""
        placed_all = try_append(*arguments)
        if not placed_all:
            network.wakeup()
            assert network.arrived.wait(30)
            network.release()
            with network.lock:
                assert network.lock.wait_for(lambda: write.acknowledgements.pending_batches == 0, 30)
        return placed_all

    monkeypatch.setattr(network.sender.accumulator, "try_append", slowly)
    thread, outcome = in_background(lambda: write.append(LARGE))
    thread.join(30)
    assert outcome == [None]


def test_a_full_pool_without_answers_is_an_error_after_max_block_ms(network: Live) -> None:
    producer, write = begun(network, buffer_memory=8_192, batch_size=1_024)
    network.hold()
    let_wait(producer, 300)
    with pytest.raises(errors.BufferExhausted) as failure:
        write.append(LARGE)
    assert (failure.value.buffer_memory, failure.value.waited_ms) == (8_192, 300)


def test_a_sender_thread_that_dies_over_a_drained_batch_fails_the_write(
    network: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    producer, write = begun(network)
    monkeypatch.setattr("kafka_sink.kafka.producer.producer_batch.ProducerBatch.close", no_memory)
    thread, outcome = in_background(write.finish)
    thread.join(30)
    assert isinstance(outcome[0], errors.WorkerExhausted)
    assert network.sender.accumulator.pool.available_bytes == producer.config.buffer_memory


def test_rows_whose_sender_thread_is_gone_without_a_word_are_not_delivered(
    network: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a forked child, which has the producer and not its thread."""
    network.hold()
    _, write = begun(network)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "is_alive", lambda thread: False)
        with pytest.raises(errors.ProducerClosed, match="is gone"):
            write.finish()


def test_a_network_that_cannot_be_closed_keeps_nobody_waiting(network: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    network.hold()
    producer, write = begun(network)
    thread, outcome = in_background(write.finish)
    assert network.arrived.wait(30)
    monkeypatch.setattr(network, "close", Mock(side_effect=KeyError("a bug")))
    producer.close()
    thread.join(30)
    assert isinstance(outcome[0], errors.ProducerClosed)


def test_asking_again_ends_with_max_block_ms(network: Live) -> None:
    producer = network.producer()
    names = frozenset({"t"})
    producer.await_topics(names, (), client.monotonic_ms())
    network.kafka.silent = {0}
    let_wait(producer, 300)
    started_ms = client.monotonic_ms()
    assert producer.await_topics(names, names, started_ms)["t"].partition_count == 1
    with pytest.raises(errors.BrokersUnreachable):
        producer.await_topics(names, names, started_ms, ask_again=True)
    assert 300 <= client.monotonic_ms() - started_ms < 25_000


class ScriptedMemory:
    """As an accumulator: `append` says what becomes of rows. Brokers answer whenever it was asked, and at `answer`."""

    def __init__(self, network: Live, monkeypatch: pytest.MonkeyPatch, append: Callable[[], bool]) -> None:
        self.pool = SimpleNamespace(available_bytes=0, buffer_bytes=1_024, exhausted=False)
        self.asked = 0
        self._append = append
        self._answers = threading.Semaphore(0)
        idle: Any = SimpleNamespace(failure=None, run_once=lambda now_ms: 0, has_room=lambda now_ms: True)
        idle.handle = idle.throttling_report = idle.fail = lambda *_: None
        idle.accumulator, idle.metadata = self, None
        monkeypatch.setattr(client, "Sender", lambda *_, **__: idle)
        monkeypatch.setattr(network, "poll", self._poll)
        monkeypatch.setattr(network, "wakeup", self.answer)

    def try_append(self, *arguments: object) -> bool:
        self.asked += 1
        placed_all = self._append()
        self.answer()
        return placed_all

    def take_wakeup(self) -> bool:
        return False

    give_back_memory = take_wakeup

    def answer(self) -> None:
        self._answers.release()

    def _poll(self, wait_ms: int) -> list[object]:
        self._answers.acquire()
        return [SimpleNamespace(token=None)]


def place_a_row(producer: Producer) -> None:
    producer.place(routed([bytes(100)], [0]), Acknowledgements(), codec_for("none"), producer.waiting_clock_ms())


def test_memory_that_comes_back_begins_the_wait_anew(network: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that needs much of it waits while brokers answer, however slowly."""
    now, available = [0], [0]

    def append() -> bool:
        now[0] += 40_000
        memory.pool.available_bytes = min(available[0], 5_000)
        available[0] += 1_000
        return False

    memory = ScriptedMemory(network, monkeypatch, append)
    monkeypatch.setattr(client, "monotonic_ms", lambda: now[0])
    with pytest.raises(errors.BufferExhausted):
        place_a_row(network.producer(max_block_ms=60_000))
    # Nothing at 40 s, five times more, and then not more for 80 s.
    assert now[0] == (1 + 5 + 2) * 40_000


@pytest.mark.parametrize("gather_ms", [600_000, 0])
def test_who_waits_for_memory_goes_on_when_there_is_enough(
    network: Live, monkeypatch: pytest.MonkeyPatch, gather_ms: int
) -> None:
    monkeypatch.setattr(client, "GATHER_MS", gather_ms)
    memory = ScriptedMemory(network, monkeypatch, lambda: memory.asked > 1)
    memory.pool.exhausted = True
    producer = network.producer(max_block_ms=600_000)
    thread, outcome = in_background(lambda: place_a_row(producer))
    if gather_ms:
        wait_until(lambda: memory.asked == 1, 30, "the first look")
        thread.join(0.1)
        assert (outcome, memory.asked) == ([], 1)
        memory.pool.exhausted = False
        memory.answer()
    thread.join(30)
    assert (outcome, memory.asked) == ([None], 2)


def test_a_pause_ends_in_time_and_with_the_producer(network: Live) -> None:
    producer = network.producer()
    began_ms = client.monotonic_ms()
    producer.pause(began_ms + 50)
    assert 50 <= client.monotonic_ms() - began_ms < 25_000
    producer.pause(began_ms)
    thread, outcome = in_background(lambda: producer.pause(began_ms + 600_000))
    producer.close()
    thread.join(30)
    assert isinstance(outcome[0], errors.ProducerClosed)


@pytest.fixture
def rested(network: Live) -> Producer:
    """A kept producer that has written, and rested for longer than a cluster takes to be replaced."""
    network.connects = 1
    producer = written(config(1))
    producer.used_at_ms -= RESTED_MS + 1
    return producer


@pytest.mark.parametrize("has_rested", [True, False])
def test_a_kept_producer_goes_on_where_a_broker_answers(rested: Producer, network: Live, has_rested: bool) -> None:
    if not has_rested:
        rested.used_at_ms = client.monotonic_ms()
    asked = len(network.kafka.asked(MetadataRequest))
    with lease_producer(config(1), "c") as again:
        assert again is rested
    assert len(network.kafka.asked(MetadataRequest)) == asked + has_rested
    with lease_producer(config(1), "d") as other:
        assert other is not rested, "it is of another cluster"


def test_a_kept_producer_that_lost_all_connections_is_not_used_again(rested: Producer, network: Live) -> None:
    rested.used_at_ms = client.monotonic_ms()
    network.interruptions = 1
    assert written(config(1)) is not rested
    assert not rested.usable


@pytest.mark.parametrize("answers", ["none", "over another connection", "not in time"])
def test_a_kept_producer_whose_connections_only_look_open_is_not_used_again(
    rested: Producer, network: Live, monkeypatch: pytest.MonkeyPatch, answers: str
) -> None:
    """The host went without a word. Another connection may lead to what took its place."""

    def connect_anew(request: MetadataRequest) -> Any:
        network.connects += 1
        return HANG_UP if answers == "none" else 0

    if answers == "not in time":
        monkeypatch.setattr(client, "RESTED_MS", 50)
        network.kafka.silent = {0}
    else:
        network.kafka.script(MetadataRequest, connect_anew)
    with lease_producer(config(1)) as other:
        assert other is not rested


def test_a_few_producers_are_kept_and_the_least_recently_used_goes(
    network: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_clients(ScriptedNetwork(network.kafka), monkeypatch)
    used: list[Producer] = []
    for number in range(MOST + 2):
        with lease_producer(config(1, **{"kafka.client.id": f"kept-{number}"})) as producer:
            used.append(producer)
        with lease_producer(config(1, **{"kafka.client.id": "kept-0"})) as first:
            assert first is used[0]
    expected = [True, False, False, *[True] * (MOST - 1)]
    assert [producer.usable for producer in used] == expected
    assert [bool(sender_threads(f"kept-{number}")) for number in range(MOST + 2)] == expected
    # Clients that ask push out no producer: of each kind as many are kept.
    for number in range(MOST):
        with kept_clients.lease(AdminClient, config(1, **{"kafka.client.id": f"client-{number}"})):
            pass
    with lease_producer(config(1, **{"kafka.client.id": "kept-0"})) as first:
        assert first is used[0]


def test_a_producer_that_rests_gives_its_memory_back(network: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "IDLE_MEMORY_MS", -1)
    for _ in range(2):
        with lease_producer(config(1)) as producer:
            pool, write = network.sender.accumulator.pool, Write(producer, topic="t")
            memory = pool.memory
            write.append(rows(1))
            write.finish()
            assert pool.memory is memory
        wait_until(lambda pool=pool, memory=memory: pool.memory is not memory, 30, "the memory to go back")
        assert pool.available_bytes == producer.config.buffer_memory


def test_closing_a_kept_producer_does_not_hold_up_others(network: Live) -> None:
    """A sender thread may take seconds to end."""
    with lease_producer(config(1)) as producer:
        pass
    closing, may_end = threading.Event(), threading.Event()
    close = producer.close

    def slow() -> None:
        closing.set()
        assert may_end.wait(30)
        close()

    producer.close = slow  # type: ignore[method-assign]
    producer.used_at_ms -= producer.config.connections_max_idle_ms + 1
    thread, outcome = in_background(lambda: kept_clients.KEPT.take(Producer, config(1, **{"kafka.client.id": "other"})))
    assert closing.wait(30)
    assert kept_clients.KEPT.take(Producer, config(1, **{"kafka.client.id": "another"})) is None
    assert outcome == []
    may_end.set()
    thread.join(30)
    assert outcome == [None]


def throttle(network: Live, for_ms: int) -> None:
    """Begins now."""
    now_ms = client.monotonic_ms()
    network.kafka.throttled = {0: (now_ms, now_ms + for_ms)}


def test_a_topic_is_waited_for_while_a_broker_throttles(network: Live, pass_time: Callable[[int], None]) -> None:
    """Nobody may be asked: that is a broker's answer, of which max.block.ms counts a tenth."""
    producer = network.producer(max_block_ms=60_000)
    throttle(network, 200_000)
    thread, outcome = in_background(lambda: Write(producer, topic="t").append(rows(1)))
    pass_time(150_000)
    with network.lock:
        network.lock.notify_all()
    thread.join(0.05)
    assert outcome == []
    pass_time(50_000)
    wait_until(lambda: network.wakeup() or not thread.is_alive(), 20, "the topic")
    assert outcome == [None]


def await_no_room(network: Live) -> None:
    """Until the Sender has felt the throttle."""

    def has_no_room() -> bool:
        with network.lock:
            return not network.sender.has_room(client.monotonic_ms())

    network.wakeup()
    wait_until(has_no_room, 30, "a throttle that is felt")


def test_rows_wait_in_spark_while_a_broker_that_throttles_has_enough(
    network: Live, monkeypatch: pytest.MonkeyPatch, pass_time: Callable[[int], None]
) -> None:
    """What has been handed over goes at once, however long it would linger; then there is room again."""
    monkeypatch.setattr(throttling, "JUST_NOW_MS", 600_000)
    _, write = begun(network, linger_ms=6_000_000, delivery_timeout_ms=12_000_000)
    throttle(network, 600_000)
    await_no_room(network)
    thread, outcome = in_background(lambda: write.append(rows(1)))
    pass_time(600_000)
    network.wakeup()
    assert network.arrived.wait(30)
    thread.join(30)
    assert outcome == [None]
    assert sum(receipt.record_count for receipt in write.finish()) == 2


def test_a_write_that_is_throttled_says_so_on_its_way(
    network: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "FIRST_REPORT_MS", 100)
    monkeypatch.setattr(throttling, "REPORT_EVERY_MS", 200)
    monkeypatch.setattr(sender, "LONGEST_POLL_MS", 10)
    network.hold()
    _, write = begun(network, client_id="nightly")
    throttle(network, 600_000)
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        thread, _ = in_background(write.finish)
        wait_until(lambda: len(caplog.messages) >= 3, 30, "three lines")
    throttle(network, 0)
    network.release()
    thread.join(30)
    assert not thread.is_alive()
    assert "by a quota of its user or of client id 'nightly', for 0 s so far" in caplog.messages[0]
    assert "bytes for them, which need at least 600 s more" in caplog.messages[0]

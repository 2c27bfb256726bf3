"""Workers of one relay through kills and stops of the relay, of workers and of brokers: every row is compared."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import processes
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net.relay_search import find_relay
from kafka_sink.kafka.net.relay_transport import RelayTransport
from kafka_sink.kafka.net.shared_memory import RelayedMemory
from kafka_sink.kafka.net.transport import Address, Connected
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.requests import encode_request
from kafka_sink.options.config import sink_config
from read_back import read_topic
from record_sets import plain
from relay_app import DEADLINE_S
from relay_runs import (
    END_S,
    RelayRun,
    assert_rows,
    hurried,
    one_write,
    relays,
    resume_broker,
    shares_of,
    stop_broker,
    unread_bytes,
    waiting_for_relays,
)
from spark_writes import end_offset
from waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
# More than the sockets of both ends take.
LARGE_BYTES = 32 * 1024 * 1024
# Of Produce: the last versions name topics by id (KIP-516).
VERSION_WITH_NAMES = 9


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    """A broker that the test may kill or stop."""
    with LocalKafka(nodes=1) as cluster:
        yield cluster


def rows_in(kafka: LocalKafka, run: RelayRun) -> int:
    return sum(end_offset(kafka, run.plan.topic, partition) for partition in range(run.plan.partitions))


def wait_for_first_half(kafka: LocalKafka, run: RelayRun) -> None:
    """Wait until each partition has rows, while all workers are held or still write."""

    def there() -> bool:
        assert not [each for each in run.ended() if each.error], run.ended()
        return all(end_offset(kafka, run.plan.topic, partition) for partition in range(run.plan.partitions))

    wait_until(there, DEADLINE_S, "rows in each partition")


def test_a_relay_that_is_killed_with_requests_in_flight_costs_no_row(own_kafka: LocalKafka, tmp_path: Path) -> None:
    own_kafka.create_topic("t", 4)
    plan = one_write(hurried(own_kafka), "t", workers=3, rows=40_000, gate_after=20_000)
    with RelayRun(tmp_path, plan, held=True) as run:
        relay = run.relay()
        wait_for_first_half(own_kafka, run)
        # The broker takes what fits into its sockets: some requests are written in part, and none is answered.
        stop_broker(own_kafka)
        run.go_on()
        wait_until(lambda: unread_bytes(own_kafka) > 100_000, DEADLINE_S, "requests in flight")
        os.kill(relay.process_id, signal.SIGKILL)
        resume_broker(own_kafka)
        run.finish()
        assert "connects to brokers itself" not in run.stderr
    assert_rows(own_kafka, plan)


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_relay_that_was_stopped_and_goes_on_writes_no_row_to_another_partition(
    own_kafka: LocalKafka, tmp_path: Path, acks: str
) -> None:
    """When it goes on, it reads requests whose rows its workers have long sent again. With acks=1 rows may be there
    twice, and no leader checks sequence numbers."""
    own_kafka.create_topic("t", 4)
    plan = one_write(
        hurried(own_kafka, acks=acks, buffer_memory="4194304"), "t", workers=3, rows=80_000, gate_after=20_000
    )
    with RelayRun(tmp_path, plan, held=True) as run:
        relay = run.relay()
        wait_for_first_half(own_kafka, run)
        processes.stop(relay.process_id)
        run.go_on()
        # The workers give it up, take another one, and use the memory for other rows.
        wait_until(lambda: rows_in(own_kafka, run) > 120_000, DEADLINE_S, "a third of the other rows")
        processes.resume(relay.process_id)
        run.finish()
    assert_rows(own_kafka, plan, once=acks == "all")


def test_a_relay_that_stops_for_longer_than_a_request_may_take_is_used_again(
    own_kafka: LocalKafka, tmp_path: Path
) -> None:
    own_kafka.create_topic("t", 4)
    plan = one_write(hurried(own_kafka), "t", workers=3, rows=40_000, gate_after=20_000)
    with RelayRun(tmp_path, plan, held=True) as run:
        relay = run.relay()
        wait_for_first_half(own_kafka, run)
        processes.stop(relay.process_id)
        run.go_on()
        wait_until(lambda: waiting_for_relays() == 3, DEADLINE_S, "each worker asks the stopped relay again")
        processes.resume(relay.process_id)
        run.finish()
        assert "connects to brokers itself" not in run.stderr
    assert_rows(own_kafka, plan)


def test_a_worker_that_is_killed_leaves_the_others_and_the_relay_alone(own_kafka: LocalKafka, tmp_path: Path) -> None:
    own_kafka.create_topic("t", 4)
    plan = one_write(hurried(own_kafka), "t", workers=3, rows=40_000, gate_after=20_000)
    with RelayRun(tmp_path, plan, held=True) as run:
        relay = run.relay()
        wait_for_first_half(own_kafka, run)
        wait_until(lambda: len(shares_of(relay)) == 3, DEADLINE_S, "each worker has a share")
        stop_broker(own_kafka)
        run.go_on()
        wait_until(lambda: unread_bytes(own_kafka) > 100_000, DEADLINE_S, "requests in flight")
        assert len(shares_of(relay)) == 3
        os.kill(run.worker_pid(1), signal.SIGKILL)
        wait_until(lambda: len(shares_of(relay)) == 2, END_S, "the killed worker's share is free")
        resume_broker(own_kafka)
        assert run.relay().process_id == relay.process_id
        ended = run.end()
    assert {(each.worker, each.rows, each.error) for each in ended} == {(0, 40_000, None), (2, 40_000, None)}
    assert_rows(own_kafka, plan, workers=(0, 2))


def test_a_broker_that_is_killed_and_comes_back_costs_time_and_no_row(own_kafka: LocalKafka, tmp_path: Path) -> None:
    own_kafka.create_topic("t", 4)
    plan = one_write(hurried(own_kafka), "t", workers=3, rows=40_000, gate_after=20_000)
    with RelayRun(tmp_path, plan, held=True) as run:
        relay = run.relay()
        wait_for_first_half(own_kafka, run)
        stop_broker(own_kafka)
        run.go_on()
        wait_until(lambda: unread_bytes(own_kafka) > 100_000, DEADLINE_S, "requests in flight")
        own_kafka.kill(1)
        assert run.relay().process_id == relay.process_id
        own_kafka.start(1)
        run.finish()
    assert_rows(own_kafka, plan)


def test_a_request_that_is_written_in_part_is_written_to_its_end_with_its_own_bytes(own_kafka: LocalKafka) -> None:
    """Its worker has closed the stream, and uses the memory for other rows."""
    own_kafka.create_topic("t", 1, config={"max.message.bytes": str(LARGE_BYTES + 1_000)})
    config, memory = sink_config({**hurried(own_kafka), "topic": "t"}).producer, RelayedMemory(LARGE_BYTES + 4096)
    config = replace(config, request_timeout_ms=int(DEADLINE_S * 1_000))
    transport = RelayTransport(partial(find_relay, config), memory, Metrics())
    value = random.Random(1).randbytes(LARGE_BYTES)
    try:
        batch = bytes(plain(value))
        memory.shared.array[: len(batch)] = np.frombuffer(batch, np.uint8)
        records = memory.shared.array.data[: len(batch)]
        request = ProduceRequest(1, 30_000, (ProducePartition("t", 0, None, records),))
        address = Address(socket.AF_INET, config.bootstrap_servers[0], config.bootstrap_servers[0][0])
        transport.connect(1, address)
        wait_until(lambda: Connected(1) in transport.poll(100), DEADLINE_S, "a stream")
        stop_broker(own_kafka)
        frame = encode_request(request, version=VERSION_WITH_NAMES, correlation_id=1, client_id="")
        transport.send(1, frame, tell_at_once=False)
        transport.poll(0)
        wait_until(lambda: unread_bytes(own_kafka) > 100_000, DEADLINE_S, "a request in part")
        transport.close(1)
        assert not memory.is_tainted
        memory.shared.array[:] = 0
    finally:
        resume_broker(own_kafka)
        transport.close_all()
        memory.close()
    wait_until(lambda: end_offset(own_kafka, "t") == 1, DEADLINE_S, "the whole request")
    ((_, _, record),) = read_topic(own_kafka.bootstrap_servers, "t", DEADLINE_S)
    assert record.value == value
    own = [each for each in relays(processes.of_session(os.getsid(0))) if each.parent_id == os.getpid()]
    processes.send_signal(own, signal.SIGKILL)

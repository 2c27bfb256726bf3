"""The shell's own part, without a broker: the kept producers, what waiting ends with, and slices."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_sink import client
from kafka_sink.client import Producer, lease
from kafka_sink.config import ProducerConfig, sink_config
from kafka_sink.errors import BrokersUnreachable, ProducerClosed


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
    assert 0.3 <= time.monotonic() - started < 5
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

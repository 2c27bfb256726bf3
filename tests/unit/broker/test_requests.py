"""kafka_sink.broker.requests: what is made of a peer that is no broker. (Real answers: tests/integration.)"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_sink.broker import requests
from kafka_sink.broker.errors import LocalKafkaError
from scripted_peers import drips, peer


@contextmanager
def peer_that_answers(answer: bytes) -> Iterator[requests.Address]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0\0", b"\0\0\0\x08\0\0\0\x01", b"\0\0\0\x06\0\0\0\x01\0\0", b"\0\0\0\x0c\0\0\0\x01\0\0\0\0\0\0\0\x05"],
)
def test_an_answer_cut_short(answer: bytes) -> None:
    with peer_that_answers(answer) as address, pytest.raises(ConnectionError):
        requests.fetch_metadata(address, None, 5)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(OSError):
        requests.fetch_metadata(address, None, 5)


def test_a_peer_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        requests.fetch_metadata(server.getsockname(), None, 0.2)


def test_a_refusal_carries_the_brokers_words() -> None:
    # CreateTopics v3: correlation id, throttle time, one topic: name, error 36 TOPIC_ALREADY_EXISTS, message
    body = b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\x01t" + b"\0\x24" + b"\0\x06exists"
    refused = pytest.raises(LocalKafkaError, match="'t' was not created: error 36, exists")
    with peer_that_answers(len(body).to_bytes(4, "big") + body) as address, refused:
        requests.create_topic(address, "t", 1, 1, {}, 5)


def test_an_answer_that_says_enough_and_is_cut_short_all_the_same() -> None:
    body = b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\x01t" + b"\0\0" + b"\xff\xff"
    with peer_that_answers((len(body) + 1).to_bytes(4, "big") + body) as address, pytest.raises(ConnectionError):
        requests.create_topic(address, "t", 1, 1, {}, 5)


def test_an_answer_in_single_bytes_is_waited_for_as_long_as_none() -> None:
    begun = time.monotonic()
    with peer(drips(b"\0\0\4\0", b"\0")) as port, pytest.raises(TimeoutError):
        requests.fetch_metadata(("127.0.0.1", port), None, 0.3)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 2**31 - 1])
def test_a_size_that_no_answer_has_is_not_waited_for(size: int) -> None:
    begun = time.monotonic()
    with peer(drips(size.to_bytes(4, "big", signed=True))) as port, pytest.raises(ConnectionError, match="no broker"):
        requests.fetch_metadata(("127.0.0.1", port), None, 30)
    assert time.monotonic() - begun < 10

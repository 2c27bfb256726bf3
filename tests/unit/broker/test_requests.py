"""kafka_sink.broker.requests: what is made of a peer that is no broker. (Real answers: tests/integration.)"""

from __future__ import annotations

import socket
import time

import pytest

from kafka_sink.broker import requests
from kafka_sink.broker.errors import LocalKafkaError
from scripted_peers import Behaviour, drips, peer, says_nothing


def answers(answer: bytes) -> Behaviour:
    def behave(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(answer)
        sock.close()

    return behave


def sized(body: bytes, cut: int = 0) -> bytes:
    return (len(body) + cut).to_bytes(4, "big") + body


# CreateTopics v3: correlation id, throttle time, one topic: its name, and behind it error and message.
CREATED = b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\x01t"


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0\0", b"\0\0\0\x08\0\0\0\x01", b"\0\0\0\x06\0\0\0\x01\0\0", b"\0\0\0\x0c\0\0\0\x01\0\0\0\0\0\0\0\x05"],
)
def test_an_answer_cut_short(answer: bytes) -> None:
    with peer(answers(answer)) as port, pytest.raises(ConnectionError):
        requests.fetch_metadata(("127.0.0.1", port), None, 5)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (sized(CREATED + b"\0\x24" + b"\0\x06exists"), LocalKafkaError, "'t' was not created: error 36, exists"),
        # It says enough, and is cut short all the same.
        (sized(CREATED + b"\0\0" + b"\xff\xff", cut=1), ConnectionError, None),
    ],
)
def test_a_refusal_carries_the_brokers_words(answer: bytes, error: type[Exception], words: str | None) -> None:
    with peer(answers(answer)) as port, pytest.raises(error, match=words):
        requests.create_topic(("127.0.0.1", port), "t", 1, 1, {}, 5)


@pytest.mark.parametrize("behaviour", [says_nothing, drips(b"\0\0\4\0", b"\0")], ids=["silent", "single bytes"])
def test_an_answer_in_single_bytes_is_waited_for_as_long_as_none(behaviour: Behaviour) -> None:
    begun = time.monotonic()
    with peer(behaviour) as port, pytest.raises(TimeoutError):
        requests.fetch_metadata(("127.0.0.1", port), None, 0.3)
    assert time.monotonic() - begun < 60
    with pytest.raises(OSError):
        requests.fetch_metadata(("127.0.0.1", port), None, 5)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 2**31 - 1])
def test_a_size_that_no_answer_has_is_not_waited_for(size: int) -> None:
    begun = time.monotonic()
    with peer(drips(size.to_bytes(4, "big", signed=True))) as port, pytest.raises(ConnectionError, match="no broker"):
        requests.fetch_metadata(("127.0.0.1", port), None, 600)
    assert time.monotonic() - begun < 60

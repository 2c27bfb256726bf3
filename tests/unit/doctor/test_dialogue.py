"""One connection to peers that behave badly; real brokers are in tests/integration/test_doctor.py."""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
import time
from typing import Any

import pytest

from kafka_sink.doctor import dialogue
from kafka_sink.doctor.dialogue import Dialogue, NoAnswer, dial
from kafka_sink.doctor.reaching import Failure
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol import connection, requests
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kafka_sink.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from kafka_sink.kafka.protocol.requests import Buffer, Request
from kafka_sink.options.config import sink_config
from scripted_kafka import advertises, scripted
from scripted_peers import Behaviour, drips, hangs_up, peer, says_nothing, silent_host, speaks_http

STEP_TIMEOUT_S = 0.3
# Peers that send single bytes do so for 15 s, and a busy machine takes its time.
IN_TIME_S = 10


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", STEP_TIMEOUT_S)


def config(protocol: str = "PLAINTEXT") -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": protocol}).producer


def failure_of(behaviour: Behaviour, protocol: str = "PLAINTEXT") -> Failure:
    with peer(behaviour) as port:
        attempt, opened = dial("127.0.0.1", port, config(protocol))
    assert opened is None
    assert attempt.failure is not None
    assert attempt.connected_to == f"127.0.0.1:{port}"
    return attempt.failure


def test_a_broker_that_answers() -> None:
    with peer(advertises("kafka-7", 9092)) as port:
        attempt, opened = dial("127.0.0.1", port, config())
        assert attempt.failure is None
        assert isinstance(opened, Dialogue)
        assert opened.cluster is not None
        assert [(each.node_id, each.host, each.port) for each in opened.cluster.brokers] == [(7, "kafka-7", 9092)]
        assert isinstance(opened.ask(MetadataRequest((), False)), MetadataResponse)
        opened.close()
    assert attempt.addresses == ("127.0.0.1",)
    assert "Produce 13 of 7 to 13" in attempt.versions


def test_the_time_to_encode_a_request_is_not_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process imports kio for its first one, which takes seconds on a machine without a processor to spare."""

    def encode_request(request: Request, **how: Any) -> list[Buffer]:
        threading.Event().wait(1.5 * STEP_TIMEOUT_S)
        return requests.encode_request(request, **how)

    monkeypatch.setattr(connection, "encode_request", encode_request)
    with peer(advertises("kafka-7", 9092)) as port:
        attempt, opened = dial("127.0.0.1", port, config())
        assert attempt.failure is None and opened is not None
        opened.close()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize(
    "behaviour",
    [says_nothing, speaks_http, hangs_up, *(drips(sent, b"\0") for sent in (b"", b"\0\0\1\0", b"\x16\3\3\x40\0"))],
    ids=["silent", "HTTP", "hangs up", "single bytes", "of an answer", "of a handshake"],
)
def test_peers_that_are_no_brokers(behaviour: Behaviour, protocol: str) -> None:
    """Each byte comes in a sixth of the step's time: one deadline for each `recv` would never be over."""
    started = time.monotonic()
    step = failure_of(behaviour, protocol).step
    assert time.monotonic() - started < IN_TIME_S
    assert step in (("api versions", "tls") if protocol == "PLAINTEXT" else ("tls",))


@pytest.mark.parametrize("drip", [b"", b"\0\1\0\0"], ids=["none to the question", "a byte at a time"])
def test_an_answer_that_is_none(drip: bytes) -> None:
    """To a question behind those that open the connection."""
    then = {"then": drips(drip, b"\0")} if drip else {}
    with peer(advertises("kafka-7", 9092, **then)) as port:
        _, opened = dial("127.0.0.1", port, config())
        assert opened is not None
        started = time.monotonic()
        with pytest.raises(NoAnswer, match=f"no answer to InitProducerId{': within' if drip else ''}"):
            opened.ask(InitProducerIdRequest(1))
        opened.close()
        assert time.monotonic() - started < IN_TIME_S


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look_up(*args: object, **named: object) -> list[object]:
        over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    started = time.monotonic()
    attempt, _ = dial("kafka-1", 9092, config())
    over.set()
    assert time.monotonic() - started < IN_TIME_S
    assert attempt.failure is not None
    assert (attempt.failure.step, "no name server answers" in attempt.failure.found) == ("dns", True)


def test_more_iterations_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may ask SCRAM for a million."""
    over = threading.Event()
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *of: over.wait(30) and bytes(32))
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: "nonce")
    challenge = b"r=noncemore,s=c2FsdA==,i=1000000"
    asks: list[tuple[Request, Any]] = [
        (SaslHandshakeRequest("SCRAM-SHA-256"), {"mechanisms": ["SCRAM-SHA-256"]}),
        (SaslAuthenticateRequest(b""), {"auth_bytes": challenge}),
    ]
    of_scram = {
        "kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.username": "u", "kafka.sasl.password": "hunter2",
    }  # fmt: skip
    with peer(scripted(asks)) as port:
        attempt, _ = dial("127.0.0.1", port, sink_config(of_scram).producer)
    over.set()
    assert attempt.failure is not None
    assert attempt.failure.step == "sasl"
    assert "too many iterations of SCRAM" in attempt.failure.found
    assert "kafka-configs.sh" in attempt.failure.remedy


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(advertises("kafka-7", 9092)) as port:
        two = [Address(socket.AF_INET, (number, port), "kafka-1") for number in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(dialogue, "resolve", lambda host, port, timeout_s: two)
        attempt, opened = dial("kafka-1", port, config())
        assert opened is not None
        opened.close()
    assert (attempt.addresses, attempt.connected_to) == (("127.0.0.2", "127.0.0.1"), f"127.0.0.1:{port}")


def test_several_addresses_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_host() as port:
        many = [Address(socket.AF_INET, ("127.0.0.1", port), "kafka-1")] * 100
        monkeypatch.setattr(dialogue, "resolve", lambda host, port, timeout_s: many)
        monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", 1)
        started = time.monotonic()
        attempt, _ = dial("kafka-1", port, config())
    assert time.monotonic() - started < IN_TIME_S
    assert attempt.failure is not None
    assert (attempt.failure.step, "does not answer at all" in attempt.failure.found) == ("tcp", True)

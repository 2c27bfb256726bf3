"""A real broker behind a listener that lets clients in as Amazon MSK does: TLS, OAUTHBEARER, a presigned URL as token.

The listener answers SaslHandshake and SaslAuthenticate itself, and hands all other requests to a plaintext listener of
the broker. Kafka's own validators take a JWT only. As brokers do (KIP-368), it ends a session with its token.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from aws_verifier import Refused, Verifier
from certificates import Authority
from fuzz.answers import answer
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kafka_sink.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from kafka_sink.kafka.protocol.requests import api_of
from scripted_peers import peer

LISTENER = "IAM"
_HANDSHAKE, _AUTHENTICATE = (api_of(each).key for each in (SaslHandshakeRequest("any"), SaslAuthenticateRequest(b"")))
_API_VERSIONS = 18
_UNSUPPORTED, _FAILED = 33, 58
CA = Authority()


@dataclass
class MskStandIn:
    """`principals`: of each authentication that was accepted. `longest_session_s`: connections.max.reauth.ms."""

    verifier: Verifier
    kafka: LocalKafka = field(init=False)
    port: int = 0
    principals: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    longest_session_s: float = 3600.0

    def options(self, **more: str) -> dict[str, str]:
        """The lines of AWS's documentation, with the address and the CA of this listener."""
        return {
            "kafka.bootstrap.servers": f"localhost:{self.port}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.certificates": CA.certificate,
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            **{f"kafka.{name.replace('_', '.')}": value for name, value in more.items()},
        }


@contextmanager
def msk_stand_in(verifier: Verifier) -> Iterator[MskStandIn]:
    msk = MskStandIn(verifier)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "broker.pem").write_text(CA.issue("broker").pem)
        context.load_cert_chain(Path(folder) / "broker.pem")

    def behave(sock: socket.socket) -> None:
        with (
            context.wrap_socket(sock, server_side=True) as client,
            socket.create_connection(_address(msk.kafka)) as broker,
            client.makefile("rb") as requests,
            broker.makefile("rb") as answers,
            # A client leaves in the middle of anything.
            suppress(OSError, _Over),
        ):
            _Session(msk, client, broker, answers).run(requests)

    with (
        peer(behave) as msk.port,
        LocalKafka(listeners={LISTENER: "PLAINTEXT"}, advertised={LISTENER: {1: msk.port}}) as msk.kafka,
    ):
        yield msk


def _address(kafka: LocalKafka) -> tuple[str, int]:
    host, _, port = kafka.addresses_of(LISTENER).rpartition(":")
    return host, int(port)


class _Over(Exception):
    """The connection ends here."""


class _Session:
    """One connection. Each request is answered before the next is read, so there is none with acks=0."""

    def __init__(self, msk: MskStandIn, client: socket.socket, broker: socket.socket, answers: BinaryIO) -> None:
        self._msk = msk
        self._client = client
        self._broker = broker
        self._answers = answers
        self._principal = ""
        self._until_s = 0.0
        self._refused: Refused | None = None

    def run(self, requests: BinaryIO) -> None:
        while frame := _frame(requests):
            api_key, version, correlation_id, id_length = struct.unpack(">hhih", frame[:10])
            match api_key:
                case _ if api_key == _HANDSHAKE:
                    wanted = frame[10 + max(0, id_length) :][2:].decode()
                    code = 0 if wanted == "OAUTHBEARER" else _UNSUPPORTED
                    said = {"error_code": code, "mechanisms": ["OAUTHBEARER"]}
                    self._say(answer(SaslHandshakeRequest("any"), version, said, correlation_id))
                case _ if api_key == _AUTHENTICATE:
                    self._authenticate(frame, version, correlation_id)
                case _:
                    if api_key != _API_VERSIONS and time.time() >= self._until_s:
                        raise _Over
                    self._forward(frame)

    def _authenticate(self, frame: bytes, version: int, correlation_id: int) -> None:
        said: dict[str, object] = {
            "error_code": 0,
            "auth_bytes": b"",
            "session_lifetime": timedelta(0),
            "error_message": None,
        }
        if self._refused is not None:
            # The client has answered the challenge that names the reason (RFC 7628, section 3.2.3).
            said |= {"error_code": _FAILED, "error_message": f"[0d0f2d7c]: Access denied ({self._refused})"}
            self._say(answer(SaslAuthenticateRequest(b""), version, said, correlation_id))
            raise _Over
        token = frame[frame.index(b"auth=Bearer ") + len("auth=Bearer ") :].partition(b"\x01")[0].decode()
        try:
            principal, expires_s = self._msk.verifier.verify(token)
            if self._principal not in ("", principal):
                raise Refused("Cannot change principals during re-authentication")
        except Refused as refused:
            self._refused = refused
            self._msk.refusals.append(str(refused))
            said["auth_bytes"] = json.dumps({"status": "invalid_token"}).encode()
        else:
            self._principal = principal
            self._msk.principals.append(principal)
            lifetime_s = min(expires_s - self._msk.verifier.now_s(), self._msk.longest_session_s)
            self._until_s = time.time() + lifetime_s
            said["session_lifetime"] = timedelta(milliseconds=int(lifetime_s * 1000))
        self._say(answer(SaslAuthenticateRequest(b""), version, said, correlation_id))

    def _forward(self, frame: bytes) -> None:
        self._broker.sendall(struct.pack(">i", len(frame)) + frame)
        self._say(_frame(self._answers))

    def _say(self, frame: bytes) -> None:
        self._client.sendall(struct.pack(">i", len(frame)) + frame)


def _frame(stream: BinaryIO) -> bytes:
    size = stream.read(4)
    return stream.read(struct.unpack(">i", size)[0]) if size else b""

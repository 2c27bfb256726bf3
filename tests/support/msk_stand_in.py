"""A real broker behind a listener that lets clients in as Amazon MSK does: TLS, OAUTHBEARER, a presigned URL as token.

The listener answers SaslHandshake and SaslAuthenticate itself, and hands all other requests to a plaintext listener of
the broker. Kafka's own validators take a JWT only. As brokers do (KIP-368), it ends a session with its token.
"""

import base64
import json
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

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


LONGEST_S = 900
SKEW_S = 300


class Refused(Exception):
    """A token that a broker refuses, and why."""


@dataclass
class Verifier:
    """Verifies tokens as MSK's brokers do: it computes the signature again from the URL in the token, with botocore,
    and shares no code with the sink's signer.

    `secrets`: access key -> (secret key, session token or None, the name of the principal). `now_s`: UTC."""

    region: str
    secrets: dict[str, tuple[str, str | None, str]]
    now_s: Callable[[], float]
    seen: list[str] = field(default_factory=list)

    def verify(self, token: str) -> tuple[str, float]:
        """Return the principal and when its token expires, in seconds since 1970. Raises Refused."""
        self.seen.append(token)
        url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
        parts, parameters = urlsplit(url), dict(parse_qsl(urlsplit(url).query, strict_parsing=True))
        self._check_what_is_asked(parts.scheme, parts.netloc, parts.path, parameters)
        access_key, _, scope = parameters["X-Amz-Credential"].partition("/")
        if scope != f"{parameters['X-Amz-Date'][:8]}/{self.region}/kafka-cluster/aws4_request":
            raise Refused(f"the scope is {scope}")
        if access_key not in self.secrets:
            raise Refused("nobody has this access key")
        secret, session_token, principal = self.secrets[access_key]
        if parameters.get("X-Amz-Security-Token") != session_token:
            raise Refused("the session token is another one")
        credentials = Credentials(access_key, secret, session_token)
        if self._signature(url, parameters, credentials) != parameters["X-Amz-Signature"]:
            raise Refused("the signature is wrong")
        return principal, self._expiry(parameters)

    def _check_what_is_asked(self, scheme: str, host: str, path: str, parameters: Mapping[str, str]) -> None:
        if (scheme, host, path) != ("https", f"kafka.{self.region}.amazonaws.com", "/"):
            raise Refused(f"the URL is for {scheme}://{host}{path}")
        wanted = {"Action": "kafka-cluster:Connect", "X-Amz-Algorithm": "AWS4-HMAC-SHA256"}
        for name, value in (wanted | {"X-Amz-SignedHeaders": "host"}).items():
            if parameters.get(name) != value:
                raise Refused(f"{name} is {parameters.get(name)}")
        if "User-Agent" not in parameters:
            raise Refused("no User-Agent")

    def _expiry(self, parameters: Mapping[str, str]) -> float:
        signed_s = datetime.strptime(parameters["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        lifetime_s = int(parameters["X-Amz-Expires"])
        if not 0 < lifetime_s <= LONGEST_S:
            raise Refused(f"it lives for {lifetime_s} s")
        if signed_s > self.now_s() + SKEW_S:
            raise Refused("it was signed in the future")
        if signed_s + lifetime_s <= self.now_s():
            raise Refused("it has expired")
        return signed_s + lifetime_s

    def _signature(self, url: str, parameters: Mapping[str, str], credentials: Credentials) -> str:
        signed = url[: url.index("&X-Amz-Signature=")]
        request = AWSRequest(method="GET", url=signed)
        request.context["timestamp"] = parameters["X-Amz-Date"]
        auth = SigV4QueryAuth(credentials, "kafka-cluster", self.region)
        return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))


@dataclass
class MskStandIn:
    """`principals`: of each authentication that was accepted."""

    verifier: Verifier
    kafka: LocalKafka = field(init=False)
    port: int = 0
    principals: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

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
        said: dict[str, object] = {"error_code": 0, "auth_bytes": b"", "error_message": None}
        said["session_lifetime"] = timedelta(0)
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
            lifetime_s = expires_s - self._msk.verifier.now_s()
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

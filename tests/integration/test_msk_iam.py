"""AWS MSK IAM against a real broker, whose listener verifies each token with botocore: what a user does, through Spark
too, and what a user sees who is turned away."""

import base64
import itertools
import json
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from unittest.mock import MagicMock
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from applications import run_application
from certificates import Authority
from code_blocks import run_python
from fuzz.answers import answer
from kafka_sink.broker import LocalKafka
from kafka_sink.doctor.examinations import examine
from kafka_sink.doctor.report import Status, Verdict
from kafka_sink.errors import AuthenticationFailed, KafkaSinkError
from kafka_sink.kafka.auth import security
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.apis.handshake import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from scripted_peers import peer
from spark_writes import count_in

LISTENER = "IAM"
_HANDSHAKE, _AUTHENTICATE = (each.api.key for each in (SaslHandshakeRequest("any"), SaslAuthenticateRequest(b"")))
_API_VERSIONS = 18
_UNSUPPORTED, _FAILED = 33, 58
CA = Authority()


LONGEST_S = 900
SKEW_S = 300


class Refused(Exception):
    """A token that a broker refuses, and why."""


@dataclass
class Verifier:
    """Verifies tokens as MSK's brokers do: it computes the signature again from the URL in the token.

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
    context = CA.issue("broker").server_context()

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


GUARANTEES = ("at-least-once", "exactly-once")
SECRET, SESSION = "canary-7c41/+=", "canary-session/+=" * 20
USER = {"AWS_ACCESS_KEY_ID": "AKALICE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-west-1"}
topic_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def msk() -> Iterator[MskStandIn]:
    secrets = {"AKALICE": (SECRET, None, "alice"), "AKROLE": (SECRET, SESSION, "role")}
    with msk_stand_in(Verifier("eu-west-1", secrets, time.time)) as made:
        yield made


@pytest.fixture
def topic(msk: MskStandIn) -> str:
    name = f"iam-{next(topic_numbers)}"
    msk.kafka.create_topic(name, 1)
    return name


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, msk: MskStandIn, tmp_path: Path) -> None:
    """Only what the test sets, and no tokens of another test."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Nobody is there: no test waits for the metadata of an instance.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(security, "_kept", {})
    msk.verifier.now_s = time.time
    msk.principals.clear()
    msk.refusals.clear()
    msk.verifier.seen.clear()


def use(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in {**USER, **variables}.items():
        monkeypatch.setenv(name, value)


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%08d" % n for n in range(count)])})


def write(options: dict[str, str], topic: str, count: int = 100) -> tuple[PartitionOffsets, ...]:
    with closing(Producer(sink_config(options).producer)) as producer:
        write = Write(producer, topic=topic)
        write.append(rows(count))
        return tuple(write.finish())


def failure_of(options: dict[str, str]) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as failure:
        write(options, "any")
    assert "canary" not in str(failure.value) + repr(failure.value) + repr(vars(failure.value))
    assert "AKALICE" not in str(failure.value)
    return failure.value


def test_the_keys_of_the_environment(msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    (receipt,) = write(msk.options(), topic)
    assert receipt.record_count == 100 == count_in(msk.kafka, topic)
    assert set(msk.principals) == {"alice"}
    assert len(set(msk.verifier.seen)) == 1, "one token for all connections of the process"


def test_a_profile_with_a_session(msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[team]\naws_access_key_id=AKROLE\naws_secret_access_key={SECRET}\naws_session_token={SESSION}\n"
    )
    of_profile = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="team";'
    write(msk.options(sasl_jaas_config=of_profile), topic)
    assert set(msk.principals) == {"role"}


@pytest.mark.long
def test_the_documented_way_through_spark(msk: MskStandIn, topic: str, tmp_path: Path) -> None:
    """The lines of the page, in an application of its own: the Python workers of its executors sign. Nothing that Spark
    leaves behind has a key or a token in it."""
    (tmp_path / "ca.pem").write_text(CA.certificate)
    event_log = tmp_path / "events"
    event_log.mkdir()
    protocol = '"kafka.security.protocol": "SASL_SSL",'
    replaced = {
        "b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com:9098": f"localhost:{msk.port}",
        protocol: f'{protocol} "kafka.ssl.truststore.location": "{tmp_path / "ca.pem"}",',
    }
    lines = run_python("docs/platforms.md", "IAM", 0, replaced, {"df": MagicMock()})
    writes = json.dumps([(topic, {**lines["msk"], "deliveryGuarantee": guarantee}) for guarantee in GUARANTEES])
    conf = {"enabled": "true", "compress": "false", "dir": f"file://{event_log}"}
    logged = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in conf.items())
    given = {**USER, "PYSPARK_SUBMIT_ARGS": f"--master local[2] {logged} pyspark-shell"}
    status, said = run_application("writes_app.py", writes, tmp_path, folder=tmp_path, **given)
    assert status == 0, said
    assert count_in(msk.kafka, topic) == 4_000
    assert set(msk.principals) == {"alice"}
    texts = [SECRET, *msk.verifier.seen]
    left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(map(len, left)) > 10_000
    assert not [text for text in texts if text in said or any(text.encode() in each for each in left)]


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "canary-wrong"}, "the signature is wrong"),
        ({"AWS_SESSION_TOKEN": "canary-wrong"}, "the session token is another one"),
        ({"AWS_REGION": "us-east-1"}, "the URL is for https://kafka.us-east-1.amazonaws.com/"),
    ],
)
def test_a_token_that_the_broker_refuses(
    msk: MskStandIn, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], why: str
) -> None:
    use(monkeypatch, **variables)
    failure = failure_of(msk.options())
    assert isinstance(failure, AuthenticationFailed)
    assert failure.mechanism == "AWS_MSK_IAM"
    assert "Access denied" in failure.reason
    assert why in failure.reason
    assert "the default credentials (env), signed for" in failure.user
    assert "kafka-cluster:Connect" in str(failure)


@pytest.mark.parametrize(("ahead_s", "why"), [(1000, "it has expired"), (-400, "it was signed in the future")])
def test_a_wrong_clock(msk: MskStandIn, monkeypatch: pytest.MonkeyPatch, ahead_s: float, why: str) -> None:
    """The error shows the time of signing, which a user compares with the right one."""
    use(monkeypatch)
    msk.verifier.now_s = lambda: time.time() + ahead_s
    failure = failure_of(msk.options())
    assert why in str(failure)
    assert time.strftime("%Y%m%dT%H", time.gmtime()) in str(failure)
    assert "the clock of this host" in str(failure)


def test_check_says_what_a_write_would(msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = msk.options() | {"topic": topic}

    def of_sasl() -> Verdict:
        # A check has tokens of its own, as each process has.
        monkeypatch.setattr(security, "_kept", {})
        return next(verdict for verdict in examine(sink_config(options)).verdicts if verdict.step == "sasl")

    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    none = of_sasl()
    assert (none.status, none.where) == (Status.FAILED, f"localhost:{msk.port}")
    assert "botocore found no credentials on this host" in none.finding.found
    assert "AWS_ACCESS_KEY_ID" in none.finding.remedy
    use(monkeypatch, AWS_SECRET_ACCESS_KEY="canary-wrong")
    refused = of_sasl()
    assert "Access denied" in refused.finding.found
    assert "signed for eu-west-1" in refused.finding.found
    assert "kafka-cluster:Connect" in refused.finding.remedy
    use(monkeypatch)
    monkeypatch.delenv("AWS_REGION")
    assert "spark.executorEnv.AWS_REGION" in of_sasl().finding.remedy
    use(monkeypatch)
    assert of_sasl().finding.found == "AWS_MSK_IAM, by a token"


def test_nothing_in_logs(
    msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(monkeypatch)
    write(msk.options(), topic)
    failure_of(msk.options(max_block_ms="1000") | {"kafka.bootstrap.servers": "localhost:1"})
    (token,) = set(msk.verifier.seen)
    assert not [record for record in caplog.records if token in record.getMessage() or "canary" in record.getMessage()]

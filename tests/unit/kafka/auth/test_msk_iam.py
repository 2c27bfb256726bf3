"""Tokens by botocore, with credentials of the environment, of files, and of endpoints that the test is: those of a
container, of an instance, and STS. The region of a cluster."""

import base64
import http.server
import itertools
import json
import logging
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.session import Session

from http_endpoints import http_server
from kafka_sink.errors import TokenUnavailable
from kafka_sink.kafka.auth import msk_iam
from kafka_sink.kafka.auth.msk_iam import IamLogin, Missing, MskIamSigner, region_in, region_of

CANARY = "canary-d00f"
DEFAULT = IamLogin()
PIECE = 64 * 1024
ROLE = IamLogin(role_arn="arn:aws:iam::123456789012:role/msk", role_external_id=f"{CANARY}-external")


def expiration(in_s: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=in_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Aws:
    """Answers every request by `answer`, and records paths and forms. `sent`: pieces of answers."""

    url: str = ""
    answer: Callable[[str], tuple[int, str]] = lambda path: (404, "")
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    sent: int = 0

    def container_gives(self, lifetime_s: float) -> None:
        keys = {"AccessKeyId": "AKROLE", "SecretAccessKey": CANARY, "Token": f"{CANARY}-t"}
        self.answer = lambda path: (200, json.dumps({**keys, "Expiration": expiration(lifetime_s)}))

    def sts_gives(self, lifetime_s: float) -> None:
        self.answer = lambda path: (200, _ASSUMED % (CANARY, expiration(lifetime_s), CANARY))

    def instance_gives(self, lifetime_s: float) -> None:
        keys = {"Code": "Success", "AccessKeyId": "AKINST", "SecretAccessKey": CANARY, "Token": "t", "LastUpdated": ""}
        answers = {
            "/latest/api/token": "imds-token",
            "/latest/meta-data/iam/security-credentials/": "role",
            "/latest/meta-data/iam/security-credentials/role": json.dumps(
                {**keys, "Expiration": expiration(lifetime_s)}
            ),
        }
        self.answer = lambda path: (200, answers[path])


_ASSUMED = """\
<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>AKASSUMED</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><Expiration>%s</Expiration>
<SessionToken>%s-t</SessionToken></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_DENIED = f"""\
<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>{CANARY} may not</Message></Error>
</ErrorResponse>"""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Aws]:
    """An environment of nothing but the endpoint, which botocore asks for an instance's role and for STS."""
    made = Aws()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())
            made.asked.append((self.path, form))
            status, said = made.answer(self.path)
            self.send_response(status)
            self.send_header("x-aws-ec2-metadata-token-ttl-seconds", "60")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            with suppress(ConnectionError):
                for at in range(0, len(said), PIECE):
                    self.wfile.write(said[at : at + PIECE].encode())
                    made.sent += 1

        do_POST = do_PUT = do_GET

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with http_server(Handler) as port:
        made.url = f"http://127.0.0.1:{port}"
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{made.url}/")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", made.url)
        # On a busy machine an answer may take longer than the second of botocore, which then asks in its older way.
        monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "30")
        yield made


@pytest.fixture
def container(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/role")
    return aws


@pytest.fixture(autouse=True)
def nothing_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """At DEBUG too, where botocore logs each answer of STS."""
    caplog.set_level(logging.DEBUG)
    yield
    # Not caplog.text, which is empty again once the test has ended.
    assert not [record for record in caplog.get_records("call") if CANARY in record.getMessage()]


MSK = "b-1.demo.x.c2.kafka.eu-west-1.amazonaws.com"


def signer(login: IamLogin = DEFAULT, host: str = MSK) -> MskIamSigner:
    return MskIamSigner(login, (host,), "pyspark-pykafka/0.1.0+local build")


def signed(made: MskIamSigner) -> dict[str, str]:
    """The parameters of a new token's URL."""
    token, lifetime_s = made.fetch()
    # RFC 6750: no padding, and none of the characters that end a pair of OAUTHBEARER.
    assert token.replace("-", "a").replace("_", "a").isalnum()
    parts = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    parameters = {name: value for name, (value,) in parse_qs(parts.query, strict_parsing=True).items()}
    assert parameters["Action"] == "kafka-cluster:Connect"
    assert parameters["User-Agent"] == "pyspark-pykafka/0.1.0+local build"
    assert int(parameters["X-Amz-Expires"]) - 2 < lifetime_s <= int(parameters["X-Amz-Expires"])
    assert made.described.endswith(f", signed for eu-west-1 at {parameters['X-Amz-Date']}")
    assert CANARY not in repr(made) + made.described
    return parameters


def key_of(made: MskIamSigner) -> str:
    return signed(made)["X-Amz-Credential"].partition("/")[0]


def own_keys(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": CANARY, **more}.items():
        monkeypatch.setenv(name, value)


def write_aws(home: Path, name: str, text: str) -> None:
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / name).write_text(text)


def test_keys_of_the_environment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    own_keys(monkeypatch, AWS_SESSION_TOKEN="session/+=")
    made = signer()
    parameters = signed(made)
    assert (parameters["X-Amz-Security-Token"], parameters["X-Amz-Expires"]) == ("session/+=", "900")
    assert made.described.startswith("the default credentials (env), ")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", expiration(60))
    assert 55 <= int(signed(signer())["X-Amz-Expires"]) <= 60


def test_a_containers_role(container: Aws) -> None:
    container.container_gives(3600)
    made = signer()
    assert key_of(made) == "AKROLE"
    assert made.described.startswith("the default credentials (container-role), ")
    # A token lives no longer than its credentials.
    container.container_gives(700)
    assert 600 < int(signed(signer())["X-Amz-Expires"]) <= 700


def test_a_profile(aws: Aws, tmp_path: Path) -> None:
    made = signer(IamLogin(profile="team"))
    # Keys that nobody renews are read again, for a user may have replaced them.
    for key in ("AK1", "AK2"):
        write_aws(tmp_path, "credentials", f"[team]\naws_access_key_id={key}\naws_secret_access_key={CANARY}\n")
        assert key_of(made) == key
    assert made.described.startswith("profile 'team' (shared-credentials-file), ")


def test_a_role_that_is_assumed_and_what_sts_answers_is_in_no_log(
    aws: Aws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_keys(monkeypatch)
    aws.sts_gives(3600)
    made = signer(ROLE)
    assert key_of(made) == "AKASSUMED"
    assert made.described.startswith("the role awsRoleArn (assume-role), ")
    ((_, form),) = aws.asked
    asked = [*form["RoleArn"], *form["ExternalId"], *form["RoleSessionName"]]
    assert asked == [ROLE.role_arn, ROLE.role_external_id, "aws-msk-iam-auth"]
    assert CANARY not in caplog.text


def test_a_principal_stays_the_same_for_the_life_of_a_process(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore names a session by its second, and brokers refuse another principal on the same connection."""
    seconds = itertools.count(1_800_000_000)
    monkeypatch.setattr("botocore.credentials.time", SimpleNamespace(time=lambda: next(seconds)))
    role = "[profile role]\nrole_arn=arn:aws:iam::123456789012:role/msk\nsource_profile=user\nregion=eu-west-1\n"
    write_aws(tmp_path, "config", f"{role}[profile user]\naws_access_key_id=AK\naws_secret_access_key={CANARY}\n")
    aws.sts_gives(120)  # botocore renews so young a session at each use
    made = signer(IamLogin(profile="role"))
    for _ in range(3):
        made.fetch()
    assert len(aws.asked) >= 3
    assert len({form["RoleSessionName"][0] for _, form in aws.asked}) == 1


def refused(login: IamLogin = DEFAULT, host: str = MSK) -> TokenUnavailable:
    with pytest.raises(TokenUnavailable, match="AWS_MSK_IAM") as failure:
        signer(login, host).fetch()
    error = failure.value
    assert CANARY not in "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    assert error.__context__ is None, "botocore's error may quote a secret"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    return error


def test_why_there_are_no_credentials(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused()
    assert "found no credentials on this host" in error.reason
    assert "AWS_ACCESS_KEY_ID" in str(error)
    assert refused(IamLogin(profile="none")).reason == "profile 'none': botocore raised ProfileNotFound"
    # A process that fails and says its secret.
    write_aws(tmp_path, "config", f"[profile p]\ncredential_process = sh -c 'echo {CANARY} >&2; exit 1'\n")
    assert "CredentialRetrievalError" in refused(IamLogin(profile="p")).reason
    own_keys(monkeypatch)
    aws.answer = lambda path: (403, _DENIED)
    assert refused(ROLE).reason == "the role awsRoleArn: botocore raised ClientError (AccessDenied)"


def answers_without_end(aws: Aws, path: str) -> None:
    """What botocore's own session would read: 4 GB in 5 s."""
    answer, aws.sent = aws.answer, 0
    aws.answer = lambda asked: (200, " " * PIECE * 1_000) if asked == path else answer(asked)
    assert "answered with more than 64 KiB" in refused().reason
    assert aws.sent < 500, "most of the answer is read"


@pytest.mark.parametrize("path", ["/latest/api/token", "/latest/meta-data/iam/security-credentials/role"])
def test_an_instance_that_answers_without_end(aws: Aws, path: str) -> None:
    aws.instance_gives(3600)
    assert key_of(signer()) == "AKINST"
    answers_without_end(aws, path)


def test_a_container_that_answers_without_end(container: Aws) -> None:
    container.container_gives(3600)
    answers_without_end(container, "/role")


def test_an_endpoint_that_does_not_answer_is_not_waited_for(container: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msk_iam, "TIMEOUT_S", 0.2)
    over = threading.Event()

    def answer(path: str) -> tuple[int, str]:
        over.wait(60)
        return 500, ""

    container.answer = answer
    try:
        assert refused().reason == "the default credentials: botocore found none within 0.2 s"
    finally:
        over.set()


@pytest.mark.parametrize(("given", "words"), [
    # A write as another user than the one that is half given would be a surprise.
    ({"AWS_ACCESS_KEY_ID": "AKENV"}, "one half of the keys, AWS_ACCESS_KEY_ID"),
    ({"AWS_SECRET_ACCESS_KEY": CANARY}, "one half of the keys, AWS_SECRET_ACCESS_KEY"),
    ({"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": CANARY, "AWS_CREDENTIAL_EXPIRATION": expiration(-5)},
     "those of the default credentials (env) have expired"),
])  # fmt: skip
def test_keys_of_the_environment_that_cannot_be_used(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], words: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert words in refused().reason


def test_without_botocore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    own_keys(monkeypatch)
    monkeypatch.setitem(sys.modules, "botocore", None)
    error = refused()
    assert error.reason == "botocore is not installed"
    assert "pip install 'pyspark-pykafka[aws]'" in str(error)


# --- the region of a cluster ------------------------------------------------------------------------------------------

CUSTOM = ("kafka.eu-west-1.example.com", "10.0.0.1", "localhost")


@pytest.mark.parametrize(("host", "region"), [
    (MSK, "eu-west-1"),
    ("B-1.DEMO.xxxxxx.c2.kafka.EU-WEST-1.amazonaws.com.", "eu-west-1"),
    ("b-1-public.demo.xxxxxx.c2.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
    ("boot-abcdef.c1.kafka-serverless.us-east-1.amazonaws.com", "us-east-1"),
    ("b-1.iam.demo.xxxxxx.c2.kafka.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
    ("b-1.demo.xxxxxx.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ("vpce-0a1b-us-east-1a.vpce-svc-0a1b.us-east-1.vpce.amazonaws.com", "us-east-1"),
    # A cluster that is called like a region.
    ("b-1.us-west-2.xxxxxx.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
    *((host, None) for host in ("amazonaws.com", "b-1.eu-west-1.notamazonaws.com", *CUSTOM)),
])  # fmt: skip
def test_a_host_of_aws_shows_its_region(host: str, region: str | None) -> None:
    assert region_in(host) == region


def region(hosts: tuple[str, ...] = CUSTOM, profile: str | None = None) -> str:
    return region_of(hosts, Session(profile=profile))


def test_a_name_of_ones_own_leaves_the_region_to_the_environment_and_the_profile(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_aws(tmp_path, "config", "[default]\nregion = eu-north-1\n[profile other]\nregion=sa-east-1\n")
    assert region() == "eu-north-1"
    assert region(profile="other") == "sa-east-1"
    for variable, value, expected in (
        ("AWS_PROFILE", "other", "sa-east-1"),
        ("AWS_DEFAULT_REGION", "us-west-1", "us-west-1"),
        ("AWS_REGION", "us-west-2", "us-west-2"),
    ):
        monkeypatch.setenv(variable, value)
        assert region() == expected
    # A host of AWS is right: the region of an application is often another one than that of its cluster.
    assert region((*CUSTOM, MSK)) == "eu-west-1"


@pytest.mark.parametrize("text", ["evil.example/?", "eu-west-1.evil.example", "EU-WEST-1", "eu-west-1\n", "Ireland"])
def test_what_is_no_region_reaches_no_url(aws: Aws, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    error = refused(host="localhost")
    assert "does not show the cluster's region" in error.reason
    assert "spark.executorEnv.AWS_REGION" in str(error)
    monkeypatch.setenv("AWS_REGION", text)
    with pytest.raises(Missing, match=r"AWS_REGION, .*, which is no region"):
        region()

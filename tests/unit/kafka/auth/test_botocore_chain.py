"""Credentials by botocore itself, of endpoints that the test is: a container's, an instance's, and STS."""

import http.server
import itertools
import json
import logging
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest

from http_endpoints import http_server
from kafka_sink.errors import TokenUnavailable
from kafka_sink.kafka.auth import botocore_chain
from kafka_sink.kafka.auth.botocore_chain import BotocoreChain, installed
from kafka_sink.kafka.auth.msk_iam import IamLogin, Keys, Missing, MskIamSigner

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


@contextmanager
def served(aws: Aws) -> Iterator[Aws]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())
            aws.asked.append((self.path, form))
            status, said = aws.answer(self.path)
            self.send_response(status)
            self.send_header("x-aws-ec2-metadata-token-ttl-seconds", "60")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            with suppress(ConnectionError):
                for at in range(0, len(said), PIECE):
                    self.wfile.write(said[at : at + PIECE].encode())
                    aws.sent += 1

        do_POST = do_PUT = do_GET

    with http_server(Handler) as port:
        aws.url = f"http://127.0.0.1:{port}"
        yield aws


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Aws]:
    """An environment of nothing but the endpoint, which botocore asks for an instance's role and for STS."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with served(Aws()) as made:
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


def keys_of(made: BotocoreChain, login: IamLogin = DEFAULT) -> Keys:
    return made.credentials(login, "eu-west-1").keys


def own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)


def write_aws(home: Path, name: str, text: str) -> None:
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / name).write_text(text)


def test_a_containers_role_by_botocore_which_is_optional(container: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    container.container_gives(3600)
    found = BotocoreChain().credentials(IamLogin(), "eu-west-1")
    assert found.keys == Keys("AKROLE", CANARY, f"{CANARY}-t")
    assert found.source == "the default credentials (container-role)"
    assert found.remaining_s == 900, "more is of no interest"
    assert installed() is not None
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    assert installed() is None


def test_a_profile(aws: Aws, tmp_path: Path) -> None:
    made = BotocoreChain()
    # Keys that nobody renews are read again, for a user may have replaced them.
    for key in ("AK1", "AK2"):
        write_aws(tmp_path, "credentials", f"[team]\naws_access_key_id={key}\naws_secret_access_key={CANARY}\n")
        found = made.credentials(IamLogin(profile="team"), "eu-west-1")
        assert (found.keys.access_key, found.remaining_s) == (key, None)
        assert found.source == "profile 'team' (shared-credentials-file)"


def test_a_role_that_is_assumed_and_what_sts_answers_is_in_no_log(
    aws: Aws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_keys(monkeypatch)
    aws.sts_gives(3600)
    found = BotocoreChain().credentials(ROLE, "eu-west-1")
    assert found.keys == Keys("AKASSUMED", CANARY, f"{CANARY}-t")
    assert found.source == "the role awsRoleArn (assume-role)"
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
    made = BotocoreChain()
    for _ in range(3):
        keys_of(made, IamLogin(profile="role"))
    assert len(aws.asked) >= 3
    assert len({form["RoleSessionName"][0] for _, form in aws.asked}) == 1


def signer(login: IamLogin = DEFAULT) -> MskIamSigner:
    hosts = ("b-1.demo.x.c2.kafka.eu-west-1.amazonaws.com",)
    return MskIamSigner(login, hosts, os.environ, wall_clock_s=time.time, user_agent="test", chain=installed)


def test_a_token_lives_no_longer_than_its_credentials(container: Aws) -> None:
    container.container_gives(700)
    _, lifetime_s = signer().fetch()
    assert 600 < lifetime_s <= 700


def refused(login: IamLogin = DEFAULT) -> Missing:
    with pytest.raises(Missing) as failure:
        BotocoreChain().credentials(login, "eu-west-1")
    error = failure.value
    assert CANARY not in "".join(traceback.format_exception(error)) + repr(error) + error.advice
    return error


def test_why_there_are_no_credentials(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused()
    assert "found no credentials on this host" in error.reason
    assert "AWS_ACCESS_KEY_ID" in error.advice
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
    with pytest.raises(Missing, match="answered with more than 64 KiB"):
        keys_of(BotocoreChain())
    assert aws.sent < 500, "most of the answer is read"


@pytest.mark.parametrize("path", ["/latest/api/token", "/latest/meta-data/iam/security-credentials/role"])
def test_an_instance_that_answers_without_end(aws: Aws, path: str) -> None:
    aws.instance_gives(3600)
    assert keys_of(BotocoreChain()).access_key == "AKINST"
    answers_without_end(aws, path)


def test_a_container_that_answers_without_end(container: Aws) -> None:
    container.container_gives(3600)
    answers_without_end(container, "/role")


def test_an_endpoint_that_does_not_answer_is_not_waited_for(container: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore_chain, "TIMEOUT_S", 0.2)
    over = threading.Event()

    def answer(path: str) -> tuple[int, str]:
        over.wait(60)
        return 500, ""

    container.answer = answer
    try:
        assert refused().reason == "the default credentials: botocore found none within 0.2 s"
    finally:
        over.set()


def test_the_error_of_a_write_pickles_without_a_secret(aws: Aws) -> None:
    with pytest.raises(TokenUnavailable, match="AWS_MSK_IAM") as failure:
        signer(IamLogin(profile="none")).fetch()
    assert "ProfileNotFound" in str(pickle.loads(pickle.dumps(failure.value)))
    assert failure.value.__context__ is None

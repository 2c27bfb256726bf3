"""Credentials without botocore: of the environment and of AWS's files."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from kafka_sink.kafka.aws.credentials import Chain, Credentials, IamLogin, find
from kafka_sink.kafka.aws.missing import Missing
from kafka_sink.kafka.aws.sigv4 import Keys

CANARY = "canary-93fe"
NOW_S = 1_769_903_999.5
DEFAULT = IamLogin()
CREDENTIALS = f"""\
[default]
aws_access_key_id = AKDEFAULT
aws_secret_access_key = {CANARY}-default=%(x)s;#
[team a]
aws_access_key_id=AKTEAM
aws_secret_access_key={CANARY}-team
aws_session_token={CANARY}-session
[both]
aws_access_key_id=AKBOTH
aws_secret_access_key={CANARY}-credentials
"""
CONFIG = f"""\
[default]
region = eu-north-1
[profile both]
aws_secret_access_key = {CANARY}-config
[profile 'in config']
aws_access_key_id=AKCONFIG
aws_secret_access_key={CANARY}-config
[profile role]
role_arn = arn:aws:iam::1:role/{CANARY}
source_profile = default
[profile sso]
sso_session = corp
[profile process]
credential_process = /bin/secret-tool
[sso-session corp]
sso_region = us-east-1
[half]
aws_access_key_id=AKHALF
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


def found(environment: dict[str, str], login: IamLogin = DEFAULT, chain: Chain | None = None) -> Credentials:
    return find(login, "eu-west-1", environment, NOW_S, lambda: chain)


def missing(environment: dict[str, str], login: IamLogin = DEFAULT) -> Missing:
    with pytest.raises(Missing) as failure:
        found(environment, login)
    assert CANARY not in "".join(traceback.format_exception(failure.value)) + failure.value.advice
    return failure.value


IN_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": CANARY}


def test_of_the_environment(environment: dict[str, str]) -> None:
    assert found(environment | IN_ENVIRONMENT) == Credentials(Keys("AKENV", CANARY), "the environment")
    of_a_role = environment | IN_ENVIRONMENT | {"AWS_SESSION_TOKEN": f"{CANARY}-s"}
    assert found(of_a_role).keys == Keys("AKENV", CANARY, f"{CANARY}-s")
    assert found(of_a_role | {"AWS_SESSION_TOKEN": ""}).keys.session_token is None


@pytest.mark.parametrize("text", ["2026-02-01T00:00:59Z", "2026-02-01T01:00:59+01:00", "2026-02-01T00:00:59"])
def test_of_the_environment_until_they_expire(environment: dict[str, str], text: str) -> None:
    assert found(environment | IN_ENVIRONMENT | {"AWS_CREDENTIAL_EXPIRATION": text}).remaining_s == 59.5


@pytest.mark.parametrize(
    ("login", "given", "words"),
    [
        # Half of the keys: a write as another user than the one that is half given would be a surprise.
        (DEFAULT, {"AWS_ACCESS_KEY_ID": "AKENV"}, "no AWS_SECRET_ACCESS_KEY"),
        (DEFAULT, {"AWS_SECRET_ACCESS_KEY": CANARY}, "no AWS_ACCESS_KEY_ID"),
        (DEFAULT, IN_ENVIRONMENT | {"AWS_CREDENTIAL_EXPIRATION": "soon"}, "AWS_CREDENTIAL_EXPIRATION"),
        (IamLogin(role_arn="arn"), IN_ENVIRONMENT, "awsRoleArn needs botocore"),
        (DEFAULT, {"HOME": "/nonexistent"}, "neither the environment nor profile 'default' has keys"),
    ],
)
def test_what_is_missing_is_named_and_no_profile_taken_instead(
    environment: dict[str, str], login: IamLogin, given: dict[str, str], words: str
) -> None:
    error = missing(environment | given, login)
    assert words in error.reason
    if "HOME" in given:
        assert "AWS_ACCESS_KEY_ID" in error.advice and "pyspark-pykafka[aws]" in error.advice


def test_of_the_profile_that_is_named(environment: dict[str, str]) -> None:
    assert found(environment) == Credentials(Keys("AKDEFAULT", f"{CANARY}-default=%(x)s;#"), "profile 'default'")
    team = Keys("AKTEAM", f"{CANARY}-team", f"{CANARY}-session")
    assert found(environment | {"AWS_PROFILE": "team a"}).keys == team
    # Named in the options, it goes before keys of the environment.
    assert found(environment | IN_ENVIRONMENT, IamLogin(profile="team a")).keys == team
    assert found(environment | IN_ENVIRONMENT | {"AWS_PROFILE": "team a"}).keys.access_key == "AKENV"
    assert found(environment, IamLogin(profile="in config")).keys == Keys("AKCONFIG", f"{CANARY}-config")
    # The file of credentials goes before that of config.
    assert found(environment, IamLogin(profile="both")).keys == Keys("AKBOTH", f"{CANARY}-credentials")


def test_of_files_elsewhere(environment: dict[str, str], tmp_path: Path) -> None:
    for variable, name in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        environment[variable] = str((tmp_path / ".aws" / name).rename(tmp_path / name))
    environment["HOME"] = "/nonexistent"
    assert found(environment).keys.access_key == "AKDEFAULT"
    assert found(environment, IamLogin(profile="in config")).keys.access_key == "AKCONFIG"
    environment["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / "none")
    assert "neither the environment nor profile 'default' has keys" in missing(environment).reason


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("none", "'none' is in neither"),
        # In the file of config this section is no profile.
        ("half", "'half' is in neither"),
        ("corp", "'corp' is in neither"),
        ("role", "'role' has role_arn, which needs botocore"),
        ("sso", "'sso' has sso_session, which needs botocore"),
        ("process", "'process' has credential_process, which needs botocore"),
    ],
)
def test_a_profile_without_keys(environment: dict[str, str], profile: str, words: str) -> None:
    for error in (missing(environment, IamLogin(profile=profile)), missing(environment | {"AWS_PROFILE": profile})):
        assert words in error.reason
        assert "pyspark-pykafka[aws]" in error.advice


@pytest.mark.parametrize(
    "text", [f"aws_secret_access_key={CANARY}", f"[a]\nx=1\n[a]\nx={CANARY}", f"[{CANARY}\nx", "\xff"]
)
def test_a_file_that_is_none_of_aws(environment: dict[str, str], tmp_path: Path, text: str) -> None:
    (tmp_path / ".aws" / "credentials").write_bytes(text.encode("latin-1"))
    error = missing(environment)
    assert "is not a file of profiles" in error.reason
    assert error.__context__ is None, "the parser's message quotes a line of the file"
    (tmp_path / ".aws" / "credentials").unlink()
    (tmp_path / ".aws" / "credentials").mkdir()
    assert "cannot be read: Is a directory" in missing(environment).reason


class Everything:
    def credentials(self, login: IamLogin, region: str) -> Credentials:
        return Credentials(Keys("AKCHAIN", CANARY), f"{login.profile}, {login.role_arn}, {region}")


def test_botocore_is_asked_for_all_but_the_environments_keys(environment: dict[str, str]) -> None:
    for login in (IamLogin(), IamLogin(profile="team a"), IamLogin(role_arn="arn")):
        assert found(environment, login, Everything()).source == f"{login.profile}, {login.role_arn}, eu-west-1"
    assert found(environment | IN_ENVIRONMENT, IamLogin(role_arn="arn"), Everything()).keys.access_key == "AKCHAIN"
    # It is not even imported for those.
    own = find(DEFAULT, "eu-west-1", environment | IN_ENVIRONMENT, NOW_S, lambda: pytest.fail("botocore"))
    assert own.keys.access_key == "AKENV"
    assert CANARY not in repr(own) and "AKENV" not in repr(own)

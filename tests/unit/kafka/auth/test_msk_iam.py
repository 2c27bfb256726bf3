"""AWS without botocore: keys of the environment and of files, the region, and signed URLs as botocore signs them."""

import base64
import traceback
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import botocore.credentials
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.auth.msk_iam import (
    MAX_LIFETIME_S,
    Chain,
    Credentials,
    IamLogin,
    Keys,
    Missing,
    MskIamSigner,
    find,
    moment,
    region_in,
    region_of,
    signed_token,
)

NOW_S = 1_769_903_999  # 2026-01-31T23:59:59Z
USER_AGENT = "pyspark-pykafka/0.1.0+local build"
REGIONS = ("eu-west-1", "us-east-1", "ap-southeast-2", "us-gov-west-1", "cn-north-1", "us-iso-east-1", "mx-central-1")


def by_botocore(keys: Keys, region: str, expires_s: int, now_s: int, user_agent: str) -> str:
    """The token as AWS's own signer for Python makes it, line by line."""
    credentials = botocore.credentials.Credentials(keys.access_key, keys.secret_key, keys.session_token)
    signer = SigV4QueryAuth(credentials, "kafka-cluster", region, expires=expires_s)
    request = AWSRequest(
        method="GET", url=f"https://kafka.{region}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(now_s, UTC))
        signer.add_auth(request)
    request.params = {"User-Agent": user_agent}
    return base64.urlsafe_b64encode(request.prepare().url.encode()).decode().rstrip("=")


def ours(keys: Keys, region: str, expires_s: int = 900, now_s: int = NOW_S, user_agent: str = USER_AGENT) -> str:
    return signed_token(keys, region, signed_at_s=now_s, expires_s=expires_s, user_agent=user_agent)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("session_token", [None, "IQoJb3JpZ2luX2Vj//+8=" * 60])
def test_as_botocore_in_every_region(region: str, session_token: str | None) -> None:
    keys = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session_token)
    assert ours(keys, region) == by_botocore(keys, region, 900, NOW_S, USER_AGENT)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)


@given(TEXT, TEXT, st.none() | TEXT, st.integers(1, 900), st.integers(0, 4_102_444_800), TEXT)
def test_as_botocore_whatever_is_in_the_keys(
    access_key: str, secret_key: str, session_token: str | None, expires_s: int, now_s: int, user_agent: str
) -> None:
    to_sign = Keys(access_key, secret_key, session_token), "eu-west-1", expires_s, now_s, user_agent
    assert ours(*to_sign) == by_botocore(*to_sign)


def test_a_token_is_one_of_sasl() -> None:
    """RFC 6750: no padding, and none of the characters that end a pair of OAUTHBEARER."""
    for length in range(1, 9):
        assert ours(Keys("A" * length, "s"), "eu-west-1").replace("-", "a").replace("_", "a").isalnum()
    assert "canary" not in repr(Keys("canary-a", "canary-s", "canary-t"))


MSK = "b-1.demo.x.c2.kafka.eu-west-1.amazonaws.com"
CUSTOM = ("kafka.eu-west-1.example.com", "10.0.0.1", "localhost")


@pytest.mark.parametrize("skew_s", [3_600, 0, -3_600])
def test_a_signature_for_aws_has_our_time_however_wrong_it_is(skew_s: int) -> None:
    """AWS compares it with its own, and the client waits for no other clock."""
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    signer = MskIamSigner(
        IamLogin(), (MSK,), keys, wall_clock_s=lambda: NOW_S + skew_s, user_agent="test", chain=lambda: None
    )
    signed, lifetime_s = signer.fetch()
    url = base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4)).decode()
    assert (parse_qs(urlsplit(url).query)["X-Amz-Date"], lifetime_s) == ([moment(NOW_S + skew_s)], MAX_LIFETIME_S)


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


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n[profile other]\nregion=sa-east-1\n")
    return {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}


def test_a_name_of_ones_own_leaves_the_region_to_the_environment_and_the_profile(environment: dict[str, str]) -> None:
    assert region_of(CUSTOM, None, environment) == "eu-north-1"
    assert region_of(CUSTOM, "other", environment) == "sa-east-1"
    for variable, value, region in (
        ("AWS_PROFILE", "other", "sa-east-1"),
        ("AWS_DEFAULT_REGION", "us-west-1", "us-west-1"),
        ("AWS_REGION", "us-west-2", "us-west-2"),
    ):
        environment[variable] = value
        assert region_of(CUSTOM, None, environment) == region
    # A host of AWS is right: the region of an application is often another one than that of its cluster.
    assert region_of((*CUSTOM, MSK), None, environment) == "eu-west-1"


@pytest.mark.parametrize("text", ["evil.example/?", "eu-west-1.evil.example", "EU-WEST-1", "eu-west-1\n", "Ireland"])
def test_what_is_no_region_reaches_no_url(environment: dict[str, str], text: str) -> None:
    with pytest.raises(Missing, match=r"AWS_REGION is .*, which is no region"):
        region_of(CUSTOM, None, {**environment, "AWS_REGION": text})
    with pytest.raises(Missing, match="does not show the cluster's region") as missing:
        region_of(CUSTOM, None, {"HOME": "/nonexistent"})
    assert "spark.executorEnv.AWS_REGION" in missing.value.advice


CANARY = "canary-93fe"
FOUND_AT_S = 1_769_903_999.5
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
def aws_home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


def found(aws_home: dict[str, str], login: IamLogin = DEFAULT, chain: Chain | None = None) -> Credentials:
    return find(login, "eu-west-1", aws_home, FOUND_AT_S, lambda: chain)


def missing(aws_home: dict[str, str], login: IamLogin = DEFAULT) -> Missing:
    with pytest.raises(Missing) as failure:
        found(aws_home, login)
    assert CANARY not in "".join(traceback.format_exception(failure.value)) + failure.value.advice
    return failure.value


IN_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": CANARY}


def test_of_the_environment(aws_home: dict[str, str]) -> None:
    assert found(aws_home | IN_ENVIRONMENT) == Credentials(Keys("AKENV", CANARY), "the environment")
    of_a_role = aws_home | IN_ENVIRONMENT | {"AWS_SESSION_TOKEN": f"{CANARY}-s"}
    assert found(of_a_role).keys == Keys("AKENV", CANARY, f"{CANARY}-s")
    assert found(of_a_role | {"AWS_SESSION_TOKEN": ""}).keys.session_token is None


@pytest.mark.parametrize("text", ["2026-02-01T00:00:59Z", "2026-02-01T01:00:59+01:00", "2026-02-01T00:00:59"])
def test_of_the_environment_until_they_expire(aws_home: dict[str, str], text: str) -> None:
    assert found(aws_home | IN_ENVIRONMENT | {"AWS_CREDENTIAL_EXPIRATION": text}).remaining_s == 59.5


@pytest.mark.parametrize(("login", "given", "words"), [
    # Half of the keys: a write as another user than the one that is half given would be a surprise.
    (DEFAULT, {"AWS_ACCESS_KEY_ID": "AKENV"}, "no AWS_SECRET_ACCESS_KEY"),
    (DEFAULT, {"AWS_SECRET_ACCESS_KEY": CANARY}, "no AWS_ACCESS_KEY_ID"),
    (DEFAULT, IN_ENVIRONMENT | {"AWS_CREDENTIAL_EXPIRATION": "soon"}, "AWS_CREDENTIAL_EXPIRATION"),
    (IamLogin(role_arn="arn"), IN_ENVIRONMENT, "awsRoleArn needs botocore"),
    (DEFAULT, {"HOME": "/nonexistent"}, "neither the environment nor profile 'default' has keys"),
])  # fmt: skip
def test_what_is_missing_is_named_and_no_profile_taken_instead(
    aws_home: dict[str, str], login: IamLogin, given: dict[str, str], words: str
) -> None:
    error = missing(aws_home | given, login)
    assert words in error.reason
    if "HOME" in given:
        assert "AWS_ACCESS_KEY_ID" in error.advice and "pyspark-pykafka[aws]" in error.advice


def test_of_the_profile_that_is_named(aws_home: dict[str, str]) -> None:
    assert found(aws_home) == Credentials(Keys("AKDEFAULT", f"{CANARY}-default=%(x)s;#"), "profile 'default'")
    team = Keys("AKTEAM", f"{CANARY}-team", f"{CANARY}-session")
    assert found(aws_home | {"AWS_PROFILE": "team a"}).keys == team
    # Named in the options, it goes before keys of the environment.
    assert found(aws_home | IN_ENVIRONMENT, IamLogin(profile="team a")).keys == team
    assert found(aws_home | IN_ENVIRONMENT | {"AWS_PROFILE": "team a"}).keys.access_key == "AKENV"
    assert found(aws_home, IamLogin(profile="in config")).keys == Keys("AKCONFIG", f"{CANARY}-config")
    # The file of credentials goes before that of config.
    assert found(aws_home, IamLogin(profile="both")).keys == Keys("AKBOTH", f"{CANARY}-credentials")


def test_of_files_elsewhere(aws_home: dict[str, str], tmp_path: Path) -> None:
    for variable, name in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        aws_home[variable] = str((tmp_path / ".aws" / name).rename(tmp_path / name))
    aws_home["HOME"] = "/nonexistent"
    assert found(aws_home).keys.access_key == "AKDEFAULT"
    assert found(aws_home, IamLogin(profile="in config")).keys.access_key == "AKCONFIG"
    aws_home["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / "none")
    assert "neither the environment nor profile 'default' has keys" in missing(aws_home).reason


@pytest.mark.parametrize(("profile", "words"), [
    ("none", "'none' is in neither"),
    # In the file of config this section is no profile.
    ("half", "'half' is in neither"),
    ("corp", "'corp' is in neither"),
    ("role", "'role' has role_arn, which needs botocore"),
    ("sso", "'sso' has sso_session, which needs botocore"),
    ("process", "'process' has credential_process, which needs botocore"),
])  # fmt: skip
def test_a_profile_without_keys(aws_home: dict[str, str], profile: str, words: str) -> None:
    for error in (missing(aws_home, IamLogin(profile=profile)), missing(aws_home | {"AWS_PROFILE": profile})):
        assert words in error.reason
        assert "pyspark-pykafka[aws]" in error.advice


@pytest.mark.parametrize(
    "text", [f"aws_secret_access_key={CANARY}", f"[a]\nx=1\n[a]\nx={CANARY}", f"[{CANARY}\nx", "\xff"]
)
def test_a_file_that_is_none_of_aws(aws_home: dict[str, str], tmp_path: Path, text: str) -> None:
    (tmp_path / ".aws" / "credentials").write_bytes(text.encode("latin-1"))
    error = missing(aws_home)
    assert "is not a file of profiles" in error.reason
    assert error.__context__ is None, "the parser's message quotes a line of the file"
    (tmp_path / ".aws" / "credentials").unlink()
    (tmp_path / ".aws" / "credentials").mkdir()
    assert "cannot be read: Is a directory" in missing(aws_home).reason


class Everything:
    def credentials(self, login: IamLogin, region: str) -> Credentials:
        return Credentials(Keys("AKCHAIN", CANARY), f"{login.profile}, {login.role_arn}, {region}")


def test_botocore_is_asked_for_all_but_the_environments_keys(aws_home: dict[str, str]) -> None:
    for login in (IamLogin(), IamLogin(profile="team a"), IamLogin(role_arn="arn")):
        assert found(aws_home, login, Everything()).source == f"{login.profile}, {login.role_arn}, eu-west-1"
    assert found(aws_home | IN_ENVIRONMENT, IamLogin(role_arn="arn"), Everything()).keys.access_key == "AKCHAIN"
    # It is not even imported for those.
    own = find(DEFAULT, "eu-west-1", aws_home | IN_ENVIRONMENT, FOUND_AT_S, lambda: pytest.fail("botocore"))
    assert own.keys.access_key == "AKENV"
    assert CANARY not in repr(own) and "AKENV" not in repr(own)

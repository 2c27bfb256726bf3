"""JAAS texts as in client.properties, and the errors for texts that cannot be used."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.jaas import EXTENSION, MODULES, JaasProblem, parse_jaas
from kafka_sink.kafka.jaas_kerberos import IBM, ORACLE

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
CANARY = "canary-4d2a"


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required username="alice" password="hunter2";',
        f"{PLAIN} required username='alice' password='hunter2' ;",
        f"{PLAIN}   REQUIRED\n  username = alice // who\n  password=hunter2 /* what\n */ ; ",
        f'{PLAIN} sufficient password="hunter2" username="alice";',
        f'kafkashaded.{PLAIN} required username="alice" password="hunter2";',
        f'{PLAIN} required username="\\141lice" password="h\\unter2";',
    ],
)
def test_one_login_in_many_writings(text: str) -> None:
    login = parse_jaas(text)
    assert login.mechanisms == ("PLAIN",)
    assert (login.get("username"), login.get("password"), login.get("scope")) == ("alice", "hunter2", None)


@pytest.mark.parametrize(("module", "mechanisms"), list(MODULES.items()))
def test_every_module_stands_for_its_mechanisms(module: str, mechanisms: tuple[str, ...]) -> None:
    options = {ORACLE: "useTicketCache=true", IBM: "useDefaultCcache=true"}.get(module, "")
    assert parse_jaas(f"{module} required {options};").mechanisms == mechanisms


@given(st.text())
def test_any_password_survives_its_quotes_and_is_not_shown(password: str) -> None:
    escaped = f"{password}{CANARY}".replace("\\", "\\\\").replace('"', '\\"')
    login = parse_jaas(f'{SCRAM} required username="a" password="{escaped}";')
    assert login.get("password") == f"{password}{CANARY}"
    assert CANARY not in repr(login)


def test_extensions_of_a_token() -> None:
    login = parse_jaas(f'{OAUTH} required clientId="app" clientSecret="s" scope="a b" extension_logicalCluster="lkc";')
    assert dict(login.options)[f"{EXTENSION}logicalCluster"] == "lkc"
    assert login.get("scope") == "a b"
    login = parse_jaas(f'{OAUTH} required extension_note="~!#, a\\tb=c";')
    assert login.get(f"{EXTENSION}note") == "~!#, a\tb=c"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "login module is none"),
        (CANARY, "login module is none"),
        (f'com.example.{CANARY} required password="{CANARY}";', "login module is none"),
        (f'not{PLAIN} required password="{CANARY}";', "login module is none"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "keyTab is missing"),
        (f'{IAM} required awsRoleSecretAccessKey="{CANARY}";', "awsRoleSecretAccessKey: the options hold no AWS keys"),
        (f'{IAM} required awsRoleArn="a" awsRoleAccessKeyId="{CANARY}";', "no AWS keys"),
        (f"{IAM} required awsMskRegionProvider={CANARY};", "AWS_REGION"),
        (f"{IAM} required awsShouldUseFips=true;", "AWS_USE_FIPS_ENDPOINT"),
        (f'{IAM} required awsRoleArn="a" awsAddDefaultProviders="true";', "awsAddDefaultProviders is not false"),
        (f'{IAM} required awsRoleArn="a" awsProfileName="{CANARY}";', "use one of them"),
        (f'{IAM} required aws{CANARY}="x";', "option number 1 is none of awsDebugCreds"),
        (f'{PLAIN} username="{CANARY}" password="x";', "a flag"),
        (f'{PLAIN} required username="{CANARY}"', "semicolon"),
        (f'{PLAIN} required username="{CANARY};', "quote"),
        (f'{PLAIN} required username="alice" password=;', "option number 2"),
        (f'{PLAIN} required username="alice" {CANARY};', "option number 2"),
        (f'{PLAIN} required username="alice" = "{CANARY}";', "option number 2"),
        (f'{PLAIN} required username="alice" user_{CANARY}="x";', "option number 2 is none of password, username"),
        (f'{PLAIN} required username="a"; {PLAIN} required password="{CANARY}";', "more than one"),
        (f'{OAUTH} required unsecuredLoginStringClaim_sub="{CANARY}";', "option number 1 is none of clientId"),
        (f'{PLAIN} required password="{CANARY * 10_000}";', "characters"),
        (f'{OAUTH} required extension_auth="{CANARY}";', "extension_auth is the token's own place"),
        (f'{OAUTH} required extension_="{CANARY}";', "the extension 'extension_' is not letters"),
        (f'{OAUTH} required extension_lkc-1="{CANARY}";', "the extension 'extension_lkc-1' is not letters"),
        (f'{OAUTH} required extension_\u00e9="{CANARY}";', "the extension 'extension_\u00e9' is not letters"),
        (f'{OAUTH} required extension_tenant="{CANARY}\u00e9";', "the value of extension_tenant"),
        (f'{OAUTH} required extension_tenant="{CANARY}\x01auth=Bearer x";', "the value of extension_tenant"),
        (f'{OAUTH} required clientSecret="{CANARY}" extension_tenant="";', "the value of extension_tenant is empty"),
    ],
)
def test_what_cannot_be_used_is_said_without_showing_it(text: str, words: str) -> None:
    with pytest.raises(JaasProblem, match=words) as problem:
        parse_jaas(text)
    assert CANARY not in str(problem.value)


@given(st.text(alphabet=f'{PLAIN[:5]} =;"\\/*\n', max_size=60))
def test_any_text_is_a_login_or_a_problem(text: str) -> None:
    for whole in (text, f"{PLAIN} required {text}"):
        try:
            parse_jaas(whole)
        except JaasProblem as problem:
            assert str(problem)


def test_comments_without_an_end_are_read_at_once() -> None:
    text = f"{next(iter(MODULES))} required {' '.join(f'a{number}=/*' for number in range(7_000))}"
    started = time.process_time()
    with pytest.raises(JaasProblem):
        parse_jaas(text)
    # Each was looked for to the end of the text, which took six seconds.
    assert time.process_time() - started < 1


# Krb5LoginModule, as JVM users paste it.
KEYTAB, OF_KEYTAB = {"keyTab": "/k.keytab", "principal": "app/host@R"}, 'keyTab="/k.keytab" principal="app/host@R"'


def read_kerberos(options: str, module: str = ORACLE) -> dict[str, str]:
    login = parse_jaas(f"{module} required {options};")
    assert login.mechanisms == ("GSSAPI",)
    return dict(login.options)


NO_MORE = "doNotPrompt=true debug=false useTicketCache=false refreshKrb5Config=true serviceName=kafka isInitiator=true"


@pytest.mark.parametrize(
    ("module", "options", "found"),
    [
        (ORACLE, f"useKeyTab=true {OF_KEYTAB}", KEYTAB),
        (ORACLE, f"useKeyTab=TRUE storeKey=true {OF_KEYTAB} {NO_MORE}", {**KEYTAB, "serviceName": "kafka"}),
        # Java looks into the cache first; the keytab does not expire.
        (ORACLE, f"useTicketCache=true renewTGT=true useKeyTab=true {OF_KEYTAB}", KEYTAB),
        (f"kafkashaded.{ORACLE}", "useTicketCache=true", {}),
        (
            ORACLE,
            'useTicketCache=true ticketCache="/tmp/krb5cc_0" principal="app@R" doNotPrompt=true renewTGT=false',
            {"ticketCache": "/tmp/krb5cc_0", "principal": "app@R"},
        ),
        (IBM, 'useKeytab="file:/k.keytab" principal="app/host@R" credsType=both', KEYTAB),
        (IBM, 'credsType=initiator useCcache="file:/tmp/cc" renewable=true', {"ticketCache": "/tmp/cc"}),
        (IBM, "useDefaultCcache=true serviceName=kafka", {"serviceName": "kafka"}),
    ],
)
def test_what_a_java_reads_is_read(module: str, options: str, found: dict[str, str]) -> None:
    assert read_kerberos(options, module) == found


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (ORACLE, "", "it names no Kerberos credentials; set useKeyTab=true"),
        (ORACLE, "useKeyTab=false useTicketCache=false", "names no Kerberos credentials"),
        (ORACLE, f'useKeyTab=true principal="{CANARY}"', "keyTab is missing"),
        (ORACLE, f'useKeyTab=true keyTab="{CANARY}"', "principal is missing"),
        (ORACLE, f'useKeyTab=true keyTab="{CANARY}" principal="*"', "is for servers"),
        (ORACLE, f'keyTab="{CANARY}" useTicketCache=true', "only with useKeyTab=true"),
        (ORACLE, f'ticketCache="{CANARY}" useKeyTab=true', "only with useTicketCache=true"),
        (ORACLE, "useTicketCache=true renewTGT=true", "kinit -R"),
        (ORACLE, "useTicketCache=true isInitiator=false", "isInitiator=false is for servers"),
        (ORACLE, f"useTicketCache=true {CANARY}=true", "option number 2 is none of"),
        (ORACLE, f"useTicketCache={CANARY}", "useTicketCache is neither true nor false"),
        (IBM, f'useKeytab="{CANARY}" principal=a credsType=acceptor', "credsType=initiator"),
        (IBM, "useDefaultKeytab=true principal=a", "useKeytab="),
        (IBM, f'useKeyTab=true keyTab="{CANARY}"', "option number 1 is none of"),
        (IBM, "credsType=initiator", "names no Kerberos credentials"),
    ],
)
def test_what_kerberos_cannot_do_is_said_with_what_to_do(module: str, options: str, words: str) -> None:
    with pytest.raises(JaasProblem, match=words) as problem:
        read_kerberos(options, module)
    assert CANARY not in str(problem.value)

"""Krb5LoginModule, as JVM users paste it."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.jaas import JaasProblem, parse_jaas
from kafka_sink.kafka.jaas_kerberos import IBM, ORACLE

KEYTAB = {"keyTab": "/k.keytab", "principal": "app/host@R"}
CANARY = "canary-4d2a"


def read(options: str, module: str = ORACLE) -> dict[str, str]:
    login = parse_jaas(f"{module} required {options};")
    assert login.mechanisms == ("GSSAPI",)
    return dict(login.options)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('useKeyTab=true keyTab="/k.keytab" principal="app/host@R"', KEYTAB),
        (
            'useKeyTab=TRUE storeKey=true keyTab="/k.keytab" principal="app/host@R" doNotPrompt=true debug=false '
            "useTicketCache=false refreshKrb5Config=true serviceName=kafka isInitiator=true",
            {**KEYTAB, "serviceName": "kafka"},
        ),
        # Java looks into the cache first; the keytab does not expire.
        ('useTicketCache=true renewTGT=true useKeyTab=true keyTab="/k.keytab" principal="app/host@R"', KEYTAB),
        ("useTicketCache=true", {}),
        (
            'useTicketCache=true ticketCache="/tmp/krb5cc_0" principal="app@R" doNotPrompt=true renewTGT=false',
            {"ticketCache": "/tmp/krb5cc_0", "principal": "app@R"},
        ),
    ],
)
def test_what_java_reads_is_read(options: str, found: dict[str, str]) -> None:
    assert read(options) == found
    assert read(options, f"kafkashaded.{ORACLE}") == found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('useKeytab="file:/k.keytab" principal="app/host@R" credsType=both', KEYTAB),
        ('credsType=initiator useCcache="file:/tmp/cc" renewable=true', {"ticketCache": "/tmp/cc"}),
        ("useDefaultCcache=true serviceName=kafka", {"serviceName": "kafka"}),
    ],
)
def test_what_ibms_java_reads_is_read(options: str, found: dict[str, str]) -> None:
    assert read(options, IBM) == found


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
def test_what_cannot_be_done_is_said_with_what_to_do(module: str, options: str, words: str) -> None:
    with pytest.raises(JaasProblem, match=words) as problem:
        read(options, module)
    assert CANARY not in str(problem.value)

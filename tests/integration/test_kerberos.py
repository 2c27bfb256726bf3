"""Kerberos with MIT's KDC, real brokers and real Spark: each way in, each way to be turned away, and long queries."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import MagicMock, patch

import pyarrow as pa
import pytest

from applications import SUPPORT
from code_blocks import run_python
from kafka_sink.doctor.engine import examine_hosts, first_failure
from kafka_sink.errors import AuthenticationFailed, BrokersUnreachable, KafkaSinkError
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_producer
from kerberized_kafka import (
    END,
    HOST,
    NAME,
    OFFER,
    REPLY,
    SESSION_MS,
    Acceptor,
    KerberizedKafka,
    Lie,
    kerberized_kafka,
    lying_broker,
    of_cache,
    of_keytab,
    program,
)
from read_back import read_topic
from scripted_peers import peer
from secure_kafka import CA
from spark_writes import count_in
from standalone_spark import SPARK_HOME, bare_environment, standalone_spark
from waiting import wait_until

pytestmark = pytest.mark.kerberos

ERROR_S = 20
DEADLINE_S = 60
SPARK_S = 240
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberizedKafka]:
    with kerberized_kafka(tmp_path_factory.mktemp("realm")) as cluster:
        yield cluster


@pytest.fixture
def topic(kerberized: KerberizedKafka) -> str:
    name = f"rows-{next(numbers)}"
    kerberized.kafka.create_topic(name, 1)
    return name


@pytest.fixture
def cache(kerberized: KerberizedKafka, tmp_path: Path) -> Path:
    return kerberized.realm.kinit(kerberized.keytab, "alice", tmp_path / "tickets")


def write(options: dict[str, str], topic: str, **more: str) -> None:
    # Not a kept producer: its connections would be those of another test.
    config = sink_config({**options, "kafka.client.id": f"client-{next(numbers)}", **more}).producer
    with lease_producer(config) as producer:
        append(producer, topic)
    producer.close()


def append(producer: Producer, topic: str) -> None:
    write = Write(producer, topic=topic)
    write.append(pa.record_batch({"value": pa.array([b"%08d" % n for n in range(100)])}))
    write.finish()


@pytest.mark.parametrize("listener", ["KRB", "KRBTLS"])
def test_a_keytab_and_a_ticket_cache_let_in(
    kerberized: KerberizedKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    default = tmp_path / "default"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{default}")
    write(kerberized.by_keytab(listener), topic)
    assert not default.exists(), "a keytab leaves the default cache alone"
    kerberized.realm.kinit(kerberized.keytab, "alice", default)
    write(kerberized.by_cache(default, listener), topic)
    # kinit's ticket needs no JAAS text.
    write(kerberized.options(None, listener), topic)
    assert count_in(kerberized.kafka, topic) == 300


def test_connections_of_a_process_share_a_ticket(kerberized: KerberizedKafka, topic: str) -> None:
    keytab = kerberized.realm.keytab("shared")
    for _ in range(3):
        write(kerberized.options(of_keytab(keytab, "shared")), topic)
    assert kerberized.realm.tickets_issued("shared") == 1


def run_spark(folder: Path, environ: dict[str, str], writes: object, *streams: str, options: Sequence[str]) -> None:
    """In processes of its own: its workers get the environment that its JVM began with."""
    done = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), *options, SUPPORT / "writes_app.py", json.dumps(writes), *streams],
        env=environ, cwd=folder, capture_output=True, text=True, timeout=SPARK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_spark_writes_batches_and_streams(kerberized: KerberizedKafka, cache: Path, tmp_path: Path) -> None:
    writes = []
    for way in (kerberized.by_keytab(), kerberized.by_cache(cache)):
        for guarantee in ("at-least-once", "exactly-once"):
            kerberized.kafka.create_topic(name := f"rows-{next(numbers)}", 1)
            writes.append((name, {**way, "deliveryGuarantee": guarantee}))
    run_spark(tmp_path, dict(os.environ), writes, str(tmp_path), options=("--master", "local[2]"))
    for name, _ in writes:
        found = read_topic(kerberized.kafka.bootstrap_servers, name, DEADLINE_S)
        assert sorted(int(record.value or b"") for _, _, record in found) == sorted([*range(1_000)] * 2)


@pytest.mark.long
def test_a_keytab_goes_to_executors_with_files(kerberized: KerberizedKafka, topic: str, tmp_path: Path) -> None:
    keytab, driver = tmp_path / "app.keytab", tmp_path / "driver"
    keytab.write_bytes(kerberized.keytab.read_bytes())
    options = kerberized.options(of_keytab(keytab.name, "alice"))
    (tmp_path / "cluster").mkdir()
    driver.mkdir()
    environ = bare_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    # Given to executors by the option that the documentation names, and to nobody else.
    for name in ("KRB5_CONFIG", "KRB5CCNAME"):
        environ.pop(name, None)
    conf = f"spark.executorEnv.KRB5_CONFIG={kerberized.realm.krb5_conf}"
    with patch.dict(os.environ):
        del os.environ["KRB5_CONFIG"]
        with standalone_spark(tmp_path / "cluster") as cluster:
            shipped = ("--master", cluster.master, "--files", str(keytab), "--conf", conf)
            run_spark(driver, environ, [(topic, options)], options=shipped)
    assert count_in(kerberized.kafka, topic) == 1_000


def told(frame: MagicMock) -> dict[str, str]:
    """The options of the writes of a DataFrame that writes nothing."""
    options = {}
    for name, arguments, by_name in frame.mock_calls:
        options |= by_name | (dict([arguments]) if name.endswith(".option") else {})
    return options


def test_the_documented_lines(
    kerberized: KerberizedKafka, topic: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    (tmp_path / "ca.pem").write_text(CA.certificate)
    frame = MagicMock()
    replaced = {
        "broker.example:9093": kerberized.kafka.addresses_of("KRBTLS"), "/etc/pki/ca.pem": str(tmp_path / "ca.pem"),
        "app.keytab": str(kerberized.keytab), "app@EXAMPLE.COM": f"alice@{NAME}", '"orders"': f'"{topic}"',
    }  # fmt: skip
    found = run_python("docs/security.md", "Kerberos", 0, replaced, {"df": frame})
    write(told(frame), topic)
    assert told(frame)["topic"] == topic
    frame.reset_mock()
    run_python("docs/security.md", "Kerberos", 1, {'"orders"': f'"{topic}"'}, {"df": frame, **found})
    write(told(frame), topic)
    assert "useTicketCache" in told(frame)["kafka.sasl.jaas.config"]
    assert count_in(kerberized.kafka, topic) == 200


@pytest.mark.long
def test_sessions_and_tickets_are_renewed_while_a_producer_lives(kerberized: KerberizedKafka, topic: str) -> None:
    """Sessions end after 2 s (KIP-368), tickets after 12 s."""
    realm = kerberized.realm
    keytab = realm.keytab("brief", None, "-maxlife", "12 seconds")
    options = kerberized.options(of_keytab(keytab, "brief"), "KRBSHORT")
    written = 0
    with lease_producer(sink_config(options).producer) as producer:
        append(producer, topic)
        first, began_s = realm.tickets_issued("brief"), time.monotonic()
        # Longer than a ticket lives.
        while time.monotonic() < began_s + 15:
            append(producer, topic)
            written += 100
        assert realm.tickets_issued("brief") > first
    producer.close()
    assert count_in(kerberized.kafka, topic) == 100 + written


@pytest.mark.long
def test_a_ticket_cache_is_read_again_when_it_changes(kerberized: KerberizedKafka, topic: str, tmp_path: Path) -> None:
    realm, cache = kerberized.realm, tmp_path / "tickets"
    options = kerberized.by_cache(realm.kinit(kerberized.keytab, "alice", cache, "-l", "5s"), "KRBSHORT")
    with lease_producer(sink_config(options).producer) as producer:
        append(producer, topic)
        until_s = time.monotonic() + 5 + SESSION_MS / 1_000
        realm.kinit(kerberized.keytab, "alice", cache)
        # The first ticket has expired, and sessions that began with it have ended.
        while time.monotonic() < until_s + 1:
            append(producer, topic)
    producer.close()


@pytest.mark.long
def test_a_producer_outlives_a_kdc_that_is_away(kerberized: KerberizedKafka, topic: str) -> None:
    """Tickets for the broker are kept, so new sessions do not need the KDC."""
    with lease_producer(sink_config(kerberized.by_keytab("KRBSHORT")).producer) as producer:
        append(producer, topic)
        kerberized.realm.stop()
        try:
            began_s = time.monotonic()
            while time.monotonic() < began_s + 2 * SESSION_MS / 1_000:
                append(producer, topic)
        finally:
            kerberized.realm.start()
    producer.close()


def failure_of(options: dict[str, str], **more: str) -> KafkaSinkError:
    started = time.monotonic()
    with pytest.raises(KafkaSinkError) as failure:
        write(options, "any", **more)
    assert time.monotonic() - started < ERROR_S
    return failure.value


def finding_of(options: dict[str, str]) -> str:
    """Return what `pykafka check` says about the first step that fails: its name, cause and remedy; "" if none does."""
    verdict = first_failure(examine_hosts(sink_config(options).producer))
    return "" if verdict is None else f"{verdict.step}: {verdict.finding.found}. {verdict.finding.remedy}"


def assert_told(options: dict[str, str], *words: str) -> None:
    """The write ends at once, and the write and the check both say `words`."""
    failure = failure_of(options)
    assert isinstance(failure, AuthenticationFailed), failure
    found = finding_of(options)
    assert found.startswith("sasl: ")
    for word in words:
        assert word in str(failure)
        assert word in found


def test_a_principal_that_cannot_log_in(kerberized: KerberizedKafka) -> None:
    realm = kerberized.realm
    gone, locked, old = realm.keytab("gone"), realm.keytab("locked"), realm.keytab("changed", "changed-old")
    realm.admin("delprinc", "-force", "gone")
    realm.admin("modprinc", "-allow_tix", "locked")
    realm.keytab("changed", "changed-new")
    for keytab, principal, words in (
        (kerberized.keytab, "bob", ("has no key of this principal", f"bob@{NAME}", "klist -k")),
        (gone, "gone", ("the realm does not know this principal", f"Client 'gone@{NAME}' not found")),
        (locked, "locked", ("does not let this principal log in",)),
        (old, "changed", ("does not accept the key in the keytab", "export the keytab")),
    ):
        assert_told(kerberized.options(of_keytab(keytab, principal)), *words)


def test_a_keytab_or_a_ticket_cache_that_cannot_be_used(
    kerberized: KerberizedKafka, cache: Path, tmp_path: Path
) -> None:
    nowhere, text = tmp_path / "nowhere", tmp_path / "text"
    text.write_text("neither a keytab nor a ticket cache")
    for path, words in ((nowhere, "there is no keytab"), (tmp_path, "Is a directory"), (text, "is no keytab")):
        assert_told(kerberized.options(of_keytab(path, "alice")), words, str(path))
    assert_told(kerberized.by_cache(nowhere), "there is no ticket", str(nowhere), "run kinit")
    assert_told(kerberized.options(None), "there is no ticket in the default ticket cache", "no-tickets")
    of_bob = kerberized.options(f'{of_cache(cache)} principal="bob@{NAME}"')
    assert_told(of_bob, "belongs to another principal")
    assert_told(kerberized.by_cache(text), "is no ticket cache")
    brief = kerberized.by_cache(kerberized.realm.kinit(kerberized.keytab, "alice", tmp_path / "brief", "-l", "1s"))
    wait_until(lambda: "has expired" in finding_of(brief), DEADLINE_S, "the end of a ticket of one second")
    assert_told(brief, "has expired", "run kinit")


def test_a_service_that_the_realm_does_not_know_or_whose_key_is_out_of_date(kerberized: KerberizedKafka) -> None:
    assert_told(kerberized.by_keytab(service="kaffa"), "kaffa/127.0.0.1", "kafka.sasl.kerberos.service.name")
    elsewhere = kerberized.by_keytab()
    elsewhere["kafka.bootstrap.servers"] = elsewhere["kafka.bootstrap.servers"].replace("127.0.0.1", "localhost")
    assert_told(elsewhere, f"kafka/localhost@{NAME}", "advertise the host name")
    assert_told(kerberized.by_keytab("KRBSTALE", "stale"), "the broker refused", "current key of stale/127.0.0.1")


@pytest.mark.long
@pytest.mark.parametrize("offset", ["+10 minutes", "+1 hour", "-1 hour"])
def test_a_clock_that_is_off(kerberized: KerberizedKafka, cache: Path, offset: str) -> None:
    code = "import sys; from test_kerberos import finding_of; print(finding_of(eval(sys.argv[1])))"
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [program("faketime"), offset, sys.executable, "-c", code, repr(kerberized.by_cache(cache))],
        env={**kerberized.realm.environ, "PYTHONPATH": ":".join([str(Path(__file__).parent), *paths])},
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("sasl: "), done.stderr
    assert "the clocks differ too much" in done.stdout
    assert "compare the clocks of this machine, the broker and the KDC" in done.stdout


def test_a_kdc_that_is_away_ends_a_write_only_after_its_time(kerberized: KerberizedKafka, topic: str) -> None:
    keytab = kerberized.realm.keytab("early")
    options = kerberized.options(of_keytab(keytab, "early"))
    kerberized.realm.stop()
    try:
        failure = failure_of(options, **{"kafka.max.block.ms": "2000"})
    finally:
        kerberized.realm.start()
    assert isinstance(failure, BrokersUnreachable)
    assert failure.step == "sasl"
    for words in (f"Cannot contact any KDC for realm '{NAME}'", "the KDC cannot be reached", "krb5.conf"):
        assert words in str(failure)
    write(options, topic)


def test_a_krb5_conf_without_the_realm(
    kerberized: KerberizedKafka, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "krb5.conf").write_text(f"[libdefaults]\ndefault_realm = {NAME}\ndns_lookup_kdc = false\n")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    keytab = kerberized.realm.keytab("nowhere")
    assert_told(kerberized.options(of_keytab(keytab, "nowhere")), "does not say which realm or KDC", "KRB5_CONFIG")


# --- a broker with the real key of its principal, which lies once the client's ticket is accepted ---------------------

FORGED = "\x1b[2J\r\nERROR all is lost\u202e"
HONEST = b"\x01\x00\x00\x00"


def krb_error(text: bytes) -> bytes:
    """A KRB-ERROR (RFC 4120, 5.9.1) of `text`, as the token of a context."""

    def tlv(tag: int, content: bytes) -> bytes:
        size = len(content)
        length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
        return bytes([tag]) + length + content

    realm, name = tlv(0x1B, NAME.encode()), tlv(0x30, tlv(0xA0, b"\x02\x01\x01") + tlv(0xA1, tlv(0x30, b"")))
    fields = {0: b"\x02\x01\x05", 1: b"\x02\x01\x1e", 4: tlv(0x18, b"20260101000000Z"), 5: b"\x02\x01\x00",
              6: b"\x02\x01\x3c", 9: realm, 10: name, 11: tlv(0x1B, text)}  # fmt: skip
    error = tlv(0x7E, tlv(0x30, b"".join(tlv(0xA0 + number, value) for number, value in fields.items())))
    return tlv(0x60, bytes.fromhex("06092a864886f712010202") + b"\x03\x00" + error)


def flipped(message: bytes) -> bytes:
    return message[:-1] + bytes([message[-1] ^ 1])


def at(stage: int, change: Callable[[bytes, Acceptor], bytes]) -> Lie:
    return lambda now, honest, acceptor: change(honest, acceptor) if now == stage else honest


NOT_KERBEROS = "the peer's answer is not Kerberos' or was changed on the way"
LIES: dict[str, tuple[Lie, bytes, str]] = {
    "a reply with a bit changed": (at(REPLY, lambda said, _: flipped(said)), HONEST, "Decrypt integrity check failed"),
    "a reply with more behind it": (at(REPLY, lambda said, _: said + b"x" * 60_000), HONEST, NOT_KERBEROS),
    "a reply that is too long": (at(REPLY, lambda said, _: said + b"x" * 70_000), HONEST, "a token of 70"),
    "a length that lies": (at(REPLY, lambda said, _: b"\x60\x84\xff\xff\xff\xff" + said[2:]), HONEST, NOT_KERBEROS),
    "no reply": (at(REPLY, lambda *_: b""), HONEST, "it sends no token before the exchange is complete"),
    "an error with a hostile text": (at(REPLY, lambda *_: krb_error(FORGED.encode() * 300)), HONEST, "(Generic error"),
    "an offer that is not wrapped": (at(OFFER, lambda *_: HONEST), HONEST, NOT_KERBEROS),
    "no offer": (at(OFFER, lambda *_: b""), HONEST, "it sends no offer of security layers"),
    "an offer with a bit changed": (at(OFFER, lambda said, _: flipped(said)), HONEST, NOT_KERBEROS),
    "integrity only": (at(END, lambda said, _: said), b"\x02\x00\xff\xff", "use SASL_SSL"),
    "confidentiality only": (at(END, lambda said, _: said), b"\x06\xff\xff\xff", "use SASL_SSL"),
    "no layer at all": (at(END, lambda said, _: said), b"\x00\x00\x00\x00", "use SASL_SSL"),
    "an offer of three bytes": (at(END, lambda said, _: said), b"\x01\x00\x00", "layers has 3 bytes"),
    "an offer of 60,000 bytes": (at(END, lambda said, _: said), b"\x01" * 60_000, "layers has 60000 bytes"),
    "an offer that never ends": (at(END, lambda _, by: by.wrap(HONEST)), HONEST, "it goes on after its last message"),
}  # fmt: skip


def lied_to(
    kerberized: KerberizedKafka, monkeypatch: pytest.MonkeyPatch, lie: Lie, offer: bytes, write_too: bool = True
) -> tuple[KafkaSinkError | None, str, list[int | bytes]]:
    """What a write says, what the check finds, and what the broker was asked."""
    monkeypatch.setenv("KRB5_KTNAME", f"FILE:{kerberized.realm.dir}/kafka-{HOST}.keytab")
    asked: list[int | bytes] = []
    with peer(lying_broker(lie, offer, asked)) as port:
        options = kerberized.by_keytab() | {"kafka.bootstrap.servers": f"{HOST}:{port}"}
        return failure_of(options) if write_too else None, finding_of(options), asked


@pytest.mark.parametrize("lie", LIES)
def test_a_broker_that_has_the_key_and_lies_gets_no_rows_and_no_word_of_its_own(
    kerberized: KerberizedKafka, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    lied, offer, why = LIES[lie]
    failure, found, asked = lied_to(kerberized, monkeypatch, lied, offer)
    assert isinstance(failure, AuthenticationFailed) and found.startswith("sasl: ")
    for told in (str(failure), found):
        assert why in told and told.isprintable() and len(told) < 2_000
        assert "all is lost" not in told
    # ApiVersions, SaslHandshake, SaslAuthenticate, and the client's choice at most.
    assert {each for each in asked if isinstance(each, int)} == {18, 17, 36}


def test_sizes_of_layers_that_kafka_does_not_have_are_not_believed(
    kerberized: KerberizedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found, asked = lied_to(kerberized, monkeypatch, at(END, lambda said, _: said), b"\x07\xff\xff\xff", False)
    assert not found.startswith("sasl: ")
    assert HONEST in asked

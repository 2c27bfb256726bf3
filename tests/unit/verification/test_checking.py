"""Records against a receipt's runs, checksums of two encoders that share no code, and how the other client connects."""

import ssl
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer
from crc32c import crc32c
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from fuzz.java_stores import jks_file, protected_key
from kafka_sink.errors import RecordsUnreadable
from kafka_sink.options.config import sink_config
from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.verification.checking import Log, Record, Verdict, all_absent, check
from kafka_sink.verification.cluster import Cluster, client_settings
from kafka_sink.verification.encoding import RunChecksum
from kafka_sink.verification.receipts import Run
from record_cases import ROWS, Case, Row, cases, scalar_record

RECORDS = [Record(offset, b"k", b"v%d" % offset, (("h", None),), 1_000 + offset, False) for offset in range(10, 20)]
LOG = Log(start=0, visible_end=100, end=100, is_compacted=False)
CHANGES = {
    "key": lambda row: replace(row, key=b"" if row.key is None else row.key + b"."),
    "value": lambda row: replace(row, value=b"" if row.value is None else None),
    "header": lambda row: replace(row, headers=(*(row.headers or ()), (b"h", None))),
    "time": lambda row: replace(row, timestamp_ms=row.timestamp_ms + 1),
}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


def summed(records: list[Record]) -> int:
    checksum = RunChecksum(1_000)
    for record in records:
        checksum.add(record.key, record.value, record.headers, record.timestamp_ms)
    return checksum.crc


RUN = Run("file", "query", 4, False, "t", None, 0, 10, 10, summed(RECORDS), 1_000)


@pytest.mark.parametrize("change", [{"value": b"other"}, {"key": None}, {"headers": ()}, {"timestamp_ms": 5}])
def test_one_that_is_another(change: dict[str, object]) -> None:
    records = [*RECORDS[:4], RECORDS[4]._replace(**change), *RECORDS[5:]]  # type: ignore[arg-type]
    found = check(RUN, records, LOG)
    assert found.verdict is Verdict.ALTERED
    assert f"{RUN.checksum:08x} in the receipt" in found.why


def test_records_that_are_not_there_are_told_by_their_offsets() -> None:
    for is_compacted, verdict, why in (
        (False, Verdict.MISSING, "the log goes from 0 to 99 and has no records there"),
        (None, Verdict.MISSING, "could not be asked"), (True, Verdict.COMPACTED, "compacted"),
    ):  # fmt: skip
        log = replace(LOG, is_compacted=is_compacted)
        found = check(RUN, [record for record in RECORDS if record.offset not in (10, 14, 15, 19)], log)
        assert (found.verdict, found.absent, found.absent_count) == (verdict, ((10, 10), (14, 15), (19, 19)), 4)
        assert why in found.why
        whole, gone = check(RUN, RECORDS, log), all_absent(RUN, "gone")
        assert (whole.verdict, whole.absent, whole.absent_count) == (Verdict.EQUAL, (), 0)
        assert (gone.verdict, gone.absent, gone.absent_count) == (Verdict.MISSING, ((10, 19),), 10)


def test_why_they_are_not_there() -> None:
    for log, there, verdict in (
        (replace(LOG, start=15), range(15, 20), Verdict.DELETED),
        (replace(LOG, start=90), range(0), Verdict.DELETED),
        (replace(LOG, start=15), range(16, 20), Verdict.MISSING),  # 15 is within the log
        (replace(LOG, visible_end=15), range(10, 15), Verdict.HIDDEN),
        (replace(LOG, visible_end=5), range(0), Verdict.HIDDEN),
        (replace(LOG, visible_end=15), range(10, 14), Verdict.MISSING),
        (replace(LOG, visible_end=15, end=15), range(10, 15), Verdict.MISSING),
        (replace(LOG, visible_end=5, end=5), range(0), Verdict.MISSING),
    ):
        found = check(RUN, [record for record in RECORDS if record.offset in there], log)
        assert found.verdict is verdict
        assert found.absent_count == 10 - len(there)


def test_broker_times_are_only_counted_unless_all_rows_had_their_batchs_time() -> None:
    brokers = [record._replace(timestamp_ms=77_777, is_brokers_time=True) for record in RECORDS]
    assert check(RUN, brokers, LOG).verdict is Verdict.COUNTED
    of_one_time = replace(RUN, checksum=summed([record._replace(timestamp_ms=1_000) for record in RECORDS]))
    assert check(of_one_time, brokers, LOG).verdict is Verdict.EQUAL
    assert check(RUN, brokers[1:], LOG).verdict is Verdict.MISSING


def checksum(rows: list[Row], base_timestamp: int) -> int:
    found = RunChecksum(base_timestamp)
    for row in rows:
        headers = [(name.decode(), value) for name, value in row.headers or ()]
        found.add(row.key, row.value, headers, row.timestamp_ms)
    assert found.count == len(rows)
    return found.crc


@given(cases(), st.integers(0, 2**41))
def test_the_sinks_own_encoder_makes_the_same_records(case: Case, base_timestamp: int) -> None:
    count = len(case.rows)
    encoder = RecordEncoder(case.columns, np.arange(count))
    deltas = np.array([row.timestamp_ms - base_timestamp for row in case.rows], np.int64)
    data, _ = encoder.encode(slice(0, count), np.arange(count), deltas)
    assert checksum(case.rows, base_timestamp) == crc32c(data.tobytes())


@pytest.mark.parametrize("changed", CHANGES)
@given(rows=ROWS.filter(len), data=st.data())
def test_any_change_is_another_checksum(changed: str, rows: list[Row], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(rows) - 1))
    other = [CHANGES[changed](row) if number == which else row for number, row in enumerate(rows)]
    assert checksum(other, 0) != checksum(rows, 0)


def test_the_order_counts() -> None:
    one, other = Row(b"a", b"1", (), 5), Row(b"b", b"2", (), 5)
    assert checksum([one, other], 5) != checksum([other, one], 5)
    records = scalar_record(one, 0, 0) + scalar_record(other, 1, 0)
    assert checksum([one, other], 5) == crc32c(records)


def settings(**options: str) -> dict[str, object]:
    texts = {f"kafka.{name.replace('_', '.')}": text for name, text in options.items()}
    return client_settings(sink_config({"kafka.bootstrap.servers": "h:1,[::1]:2", **texts}).producer)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"security_protocol": "SSL", "ssl_truststore_location": "/ca.pem", "ssl_keystore_location": "/both.pem",
             "ssl_key_password": "secret"},
            {"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/both.pem", "ssl.key.location": "/both.pem",
             "ssl.key.password": "secret", "ssl.endpoint.identification.algorithm": "https"},
        ),
        (
            {"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN},
            {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p", "security.protocol": "SASL_SSL"},
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "u", "sasl_password": "p"},
            {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "https://i/t",
             "sasl_oauthbearer_client_credentials_client_id": "c",
             "sasl_oauthbearer_client_credentials_client_secret": "s"},
            {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "c",
             "sasl.oauthbearer.client.secret": "s", "sasl.oauthbearer.token.endpoint.url": "https://i/t"},
        ),
        (
            {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka",
             "sasl_jaas_config": f'{KRB5} required useKeyTab=true keyTab="/k" principal="app@R";'},
            {"sasl.mechanisms": "GSSAPI", "sasl.kerberos.service.name": "kafka", "sasl.kerberos.keytab": "/k",
             "sasl.kerberos.principal": "app@R"},
        ),
    ],
)  # fmt: skip
def test_the_sinks_options_in_librdkafkas_words(options: dict[str, str], expected: dict[str, str]) -> None:
    assert settings() == {
        "bootstrap.servers": "h:1,[::1]:2", "client.id": "pykafka", "log_level": 0, "security.protocol": "PLAINTEXT",
    }  # fmt: skip
    found = settings(**{"security_protocol": "SASL_SSL", **options})
    assert expected.items() <= found.items()
    assert None not in found.values()


def test_a_java_store_is_handed_on_as_pem(tmp_path: Path) -> None:
    ca, alice = Authority(), Authority().issue("alice")
    key = load_pem_private_key(alice.key.encode(), None)
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    trust, own = tmp_path / "trust.jks", tmp_path / "own.jks"
    trust.write_bytes(jks_file([ssl.PEM_cert_to_DER_cert(ca.certificate)]))
    own.write_bytes(jks_file([], [(protected_key(plain), [ssl.PEM_cert_to_DER_cert(alice.chain)])]))
    found = settings(
        security_protocol="SSL", ssl_truststore_location=str(trust), ssl_truststore_password="changeit",
        ssl_keystore_location=str(own), ssl_keystore_password="changeit", ssl_key_password="changeit",
    )  # fmt: skip
    assert found["ssl.ca.pem"] == ca.certificate
    assert found["ssl.certificate.pem"] == alice.chain
    assert "PRIVATE KEY" in str(found["ssl.key.pem"])
    assert not found.keys() & {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"}
    Consumer({"group.id": "g", **found}).close()


def test_a_client_without_kerberos_is_told_with_what_to_do() -> None:
    options = {
        "kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
    }  # fmt: skip
    with pytest.raises(RecordsUnreadable, match=r"--no-binary confluent-kafka.*another mechanism"):
        Cluster(sink_config(options).producer)

"""A folder of receipts, and files that are none, or hostile; records against a receipt's runs, checksums of two
encoders that share no code, and how the other client connects."""

import datetime
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from crc32c import crc32c
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from certificates import Authority
from fuzz.java_stores import jks_file, protected_key
from kafka_sink.cli.verification.checking import Log, Record, RunChecksum, Verdict, all_absent, check
from kafka_sink.cli.verification.cluster import Cluster, client_settings
from kafka_sink.cli.verification.receipts import Gap, Receipts, Run, gaps
from kafka_sink.errors import RecordsUnreadable
from kafka_sink.kafka.clock import within
from kafka_sink.options.config import sink_config
from kafka_sink.records import receipt_file
from kafka_sink.records.fallback.encoder import RecordEncoder
from kafka_sink.records.receipt_file import SCHEMA, filesystem_of, inflated_bytes, paths_in, read, relative_path
from record_cases import ROWS, Case, Row, cases, scalar_record

ROW = {
    "query_id": "q", "batch_id": 0, "kind": "stream", "guarantee": "at-least-once", "rows": 5, "slot": 0, "topic": "t",
    "partition": 0, "base_offset": 0, "record_count": 5, "checksum": 1, "base_timestamp": 0,
}  # fmt: skip
STARTED = {"started_at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "duration_ms": 5}
WITH_ONE = pa.Table.from_pylist([ROW | STARTED], SCHEMA)


def put(folder: Path, *rows: dict[str, Any]) -> Path:
    """One file of a micro-batch of `rows`, which say what differs from ROW."""
    every = [ROW | row for row in rows]
    file = folder / receipt_file.relative_path(every[0]["query_id"] or "", every[0]["batch_id"] or 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    total = sum(row["record_count"] for row in every)
    pq.write_table(receipt_file.columns_of([{"rows": total} | row for row in every]), file)
    return file


def receipts(folder: Path) -> Receipts:
    return Receipts(LocalFileSystem(), str(folder))


def test_runs_come_in_the_order_in_which_partitions_are_read(tmp_path: Path) -> None:
    put(tmp_path, {"base_offset": 50, "rows": 10}, {"partition": 1, "base_offset": 7, "rows": 10})
    put(tmp_path, {"batch_id": 1, "base_offset": 20})
    put(tmp_path, {"query_id": "p", "guarantee": "exactly-once", "base_offset": 60})
    put(tmp_path, {"query_id": "o", "topic": "s", "base_offset": 99})
    found = receipts(tmp_path)
    assert [(run.is_exactly_once, run.topic, run.partition, run.base_offset) for run in found.runs()] == [
        (False, "s", 0, 99), (False, "t", 0, 20), (False, "t", 0, 50), (False, "t", 1, 7), (True, "t", 0, 60),
    ]  # fmt: skip
    assert (found.files, found.run_count, found.row_count, found.topics) == (4, 5, 25, ["s", "t"])
    assert next(found.runs()).last_offset == 103
    assert (found.gaps, found.unreadable, found.unplaced()) == ([], [], [])


def test_records_without_offsets_are_told_apart_and_an_empty_micro_batch_has_none(tmp_path: Path) -> None:
    first = put(tmp_path, {"base_offset": None}, {"topic": None, "partition": None, "base_offset": None})
    table = receipt_file.read(LocalFileSystem(), str(first))
    position = table.schema.get_field_index("rows")
    pq.write_table(table.set_column(position, "rows", [[10, 10]]).cast(receipt_file.SCHEMA), first)
    put(tmp_path, {"batch_id": 1, "topic": None, "base_offset": None, "record_count": 0, "rows": 0})
    found = receipts(tmp_path)
    assert list(found.runs()) == []
    told = [(each.topic, each.partition, each.record_count) for each in found.unplaced()]
    assert told == [("t", 0, 5), (None, None, 5)]


def test_numbers_that_are_missing_are_a_streams_only(tmp_path: Path) -> None:
    for number in (3, 4, 7, 9):
        put(tmp_path, {"batch_id": number})
        put(tmp_path, {"batch_id": number, "query_id": "txnAppId:a", "kind": "version"})
    put(tmp_path, {"batch_id": 8, "query_id": "other"})
    assert receipts(tmp_path).gaps == [Gap("q", 5, 6), Gap("q", 8, 8)]
    assert gaps("q", [4]) == gaps("q", []) == []


@pytest.mark.parametrize(("row", "why"), [
    ({"rows": 6}, "5 records, but Spark delivered 6 rows"), ({"rows": 4}, "5 records, but Spark delivered 4 rows"),
    *(
        ({name: None}, f"its column {name!r} has nulls")
        for name in ("query_id", "batch_id", "kind", "guarantee", "checksum", "base_timestamp")
    ),
    ({"rows": 6, "dropped": 2}, "5 records and 2 that were left out, but Spark delivered 6 rows"),
])  # fmt: skip
def test_a_file_with_fewer_or_more_records_than_rows_is_no_proof(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    put(tmp_path, {"batch_id": 1})
    changed = put(tmp_path, row)
    found = receipts(tmp_path)
    ((file, said),) = found.unreadable
    assert (file, why in said) == (str(changed), True)
    assert [run.batch_id for run in found.runs()] == [1]


def test_rows_that_were_left_out_as_bad_are_accounted_for(tmp_path: Path) -> None:
    put(tmp_path, {"rows": 12, "dropped": 2}, {"rows": 12, "base_offset": 5})
    put(tmp_path, {"batch_id": 1, "rows": 3, "dropped": 3, "record_count": 0, "topic": None, "base_offset": None})
    found = receipts(tmp_path)
    assert (found.unreadable, found.unplaced(), found.row_count, found.dropped_count) == ([], [], 15, 5)
    assert [run.record_count for run in found.runs()] == [5, 5]


def test_a_file_that_is_none_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, {"batch_id": 1})
    (tmp_path / "query_id=q" / "cut.parquet").write_bytes(b"PAR1")
    pq.write_table(receipt_file.columns_of([ROW]).drop_columns(["checksum"]), tmp_path / "old.parquet")
    pq.write_table(receipt_file.SCHEMA.empty_table(), tmp_path / "empty.parquet")
    found = receipts(tmp_path)
    assert sorted(Path(file).name for file, _ in found.unreadable) == ["cut.parquet", "empty.parquet", "old.parquet"]
    assert dict(found.unreadable)[str(tmp_path / "old.parquet")] == "it has no column 'checksum'"
    assert [run.batch_id for run in found.runs()] == [1]


def test_names_sort_as_numbers_do_and_folders_are_hives() -> None:
    names = [relative_path("q", number) for number in (0, 9, 10, 2**63 - 1)]
    assert names == sorted(names)
    assert names[1] == "query_id=q/batch-00000000000000000009.parquet"
    assert relative_path("txnAppId:a/..", 0).startswith("query_id=txnAppId%3Aa%2F../")


def test_what_is_on_its_way_is_no_receipt(tmp_path: Path) -> None:
    for name in ("query_id=a/b.parquet", "query_id=a/_b.parquet.77", "query_id=a/_b.parquet", "c.parquet", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = paths_in(LocalFileSystem(), str(tmp_path))
    assert found == [str(tmp_path / "c.parquet"), str(tmp_path / "query_id=a" / "b.parquet")]
    assert paths_in(LocalFileSystem(), found[0]) == [found[0]]


def test_hadoops_name_of_s3_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    from_uri = SimpleNamespace(from_uri=lambda uri: asked.append(uri) or (LocalFileSystem(), "/"))
    monkeypatch.setattr("pyarrow.fs.FileSystem", from_uri)
    for path in ("s3a://b/x", "s3://b/x", "/x"):
        filesystem_of(path, within)
    assert asked == ["s3://b/x", "s3://b/x", "/x"]


@pytest.mark.parametrize("location", ["{}", "file://{}", "file:{}"])
def test_a_folder_of_receipts_may_have_any_character(tmp_path: Path, location: str) -> None:
    path = str(tmp_path / "mit Leerzeichen und ü")
    filesystem, folder = filesystem_of(location.format(path), within)
    assert (type(filesystem), folder) == (LocalFileSystem, path)
    # In a URI these are codes.
    assert filesystem_of("file:///a%20b", within)[1] == "/a b"
    assert filesystem_of("/a%20b", within)[1] == "/a%20b"


@pytest.mark.parametrize(("row_count", "text"), [(100_000, "x"), (1_000, "x" * 1_000)], ids=["rows", "texts"])
def test_a_small_file_of_many_equal_rows_is_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_count: int, text: str
) -> None:
    row = {field.name: text if pa.types.is_string(field.type) else 1 for field in SCHEMA}
    row["topic"] = "t"
    row["started_at"] = datetime.datetime.now(datetime.UTC)
    table = pa.Table.from_pylist([row], SCHEMA).take(pa.array([0] * row_count))
    file = str(tmp_path / "batch-1.parquet")
    pq.write_table(table, file)
    assert Path(file).stat().st_size < 100_000
    assert read(LocalFileSystem(), file).equals(table)
    monkeypatch.setattr(receipt_file, "MAX_BYTES", 1_000_000)
    with pytest.raises(pa.ArrowInvalid, match=r"its rows take [\d,]+ bytes in memory"):
        read(LocalFileSystem(), file)


def refusal_of(table: pa.Table, folder: Path, alter: Callable[[bytes], bytes] = bytes) -> str:
    file = folder / "batch-1.parquet"
    pq.write_table(table, file, compression="none")
    file.write_bytes(alter(file.read_bytes()))
    with pytest.raises(pa.ArrowInvalid) as refused:
        read(LocalFileSystem(), str(file))
    return str(refused.value)


@pytest.mark.parametrize(("name", "values", "more"), [
    ("slot", pa.array([[0] * 200_000]), {}), ("topic", pa.array([{"t": "x"}]), {}),
    ("topic", pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())), {}),
    ("slot", pa.array([{"a": 1, "b": 2}]), {}), ("topic", pa.array(["t"]), {"topic": pa.array(["u"])}),
    ("slot", pa.array([0], pa.int32()), {"slot.more": pa.array([0])}),
], ids=["list", "struct", "map", "struct of two", "twice", "a name that begins so"])  # fmt: skip
def test_columns_that_are_nested_or_there_twice_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, values: pa.Array, more: dict[str, pa.Array]
) -> None:
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    table = WITH_ONE.set_column(SCHEMA.get_field_index(name), name, values)
    for other, column in more.items():
        table = table.append_column(other, column)
    assert refusal_of(table, tmp_path) == f"its column {name!r} is nested or there twice"


def test_a_long_text_is_counted_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_file, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    long = WITH_ONE.set_column(SCHEMA.get_field_index("topic"), "topic", pa.array(["x" * 2_000_000]))
    assert "bytes in memory" in refusal_of(long, tmp_path)


def test_a_footer_that_says_fewer_rows_than_columns_hides_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_one_row(parquet: bytes) -> bytes:
        """The first 1,000 (a varint in zigzag) of the footer, which is the file's number of rows."""
        start = len(parquet) - 8 - int.from_bytes(parquet[-8:-4], "little")
        return parquet[:start] + parquet[start:].replace(b"\xd0\x0f", b"\x82\x00", 1)

    monkeypatch.setattr(receipt_file, "MAX_BYTES", 100_000)
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    every = WITH_ONE.take(pa.array([0] * 1_000))
    assert "bytes in memory" in refusal_of(every, tmp_path, with_one_row)
    assert pq.read_metadata(tmp_path / "batch-1.parquet").num_rows == 1


def test_a_page_that_is_larger_than_the_footer_says_is_counted_before_it_is_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """63 kB of such a file took 5.4 GB."""

    def of_a_megabyte(parquet: bytes) -> bytes:
        """Field 2 of the first page header, its uncompressed size; field 1 is in front of it."""
        place = parquet.index(b"\x15\x04\x15", 4) + 3
        return parquet[:place] + b"\xfe\xff\x7f" + parquet[place + 3 :]

    monkeypatch.setattr(receipt_file, "MAX_BYTES", 500_000)
    long = WITH_ONE.set_column(0, "query_id", pa.array(["q" * 10_000]))
    pq.write_table(long, tmp_path / "whole.parquet", compression="none")
    assert read(LocalFileSystem(), str(tmp_path / "whole.parquet")).equals(long)
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    assert "bytes in memory" in refusal_of(long, tmp_path, of_a_megabyte)


def test_a_footer_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_file, "MAX_FOOTER_BYTES", 20_000)
    wide = WITH_ONE
    for number in range(200):
        wide = wide.append_column(f"more-{number}", pa.array([number]))
    assert refusal_of(wide, tmp_path) == "its footer is larger than 20,000 bytes"


@given(st.binary(max_size=200))
def test_page_headers_are_sizes_or_an_error(data: bytes) -> None:
    with suppress(ValueError):
        assert inflated_bytes(memoryview(data)) >= 0


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_pages_inflate_to_what_arrow_wrote(tmp_path: Path, codec: str) -> None:
    table = pa.table({"a": [f"{number:040}" for number in range(50_000)], "b": [*range(49_999), None]})
    file = tmp_path / "x.parquet"
    pq.write_table(table, file, compression=codec, data_page_version="2.0", data_page_size=64_000, row_group_size=9_000)
    content, metadata = file.read_bytes(), pq.read_metadata(file)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(2)):
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            sizes = inflated_bytes(memoryview(content)[first : first + chunk.total_compressed_size])
            # The footer's size has the headers too.
            assert 0 < chunk.total_uncompressed_size - sizes < 0.02 * chunk.total_uncompressed_size


def test_values_that_the_sink_does_not_write_are_refused(tmp_path: Path) -> None:
    for changed, why in (
        ({"record_count": -5}, "'record_count' has a value that cannot be"),
        ({"record_count": 2**40, "base_offset": None}, "'record_count' has a value that cannot be"),
        ({"record_count": 2**32}, "'record_count' has a value that cannot be"),
        ({"base_offset": 2**63 - 1}, "'base_offset' has a value that cannot be"),
        ({"partition": -1}, "'partition' has a value that cannot be"),
        ({"base_timestamp": -(2**63)}, "'base_timestamp' has a value that cannot be"),
        ({"duration_ms": 2**62}, "'duration_ms' has a value that cannot be"), ({"rows": None}, "'rows' has nulls"),
        ({"topic": None}, "'topic' has nulls"), ({"partition": None}, "'partition' has nulls"),
        ({"topic": "\x1b[2J"}, "it names a topic as Kafka does not allow"),
    ):  # fmt: skip
        assert why in refusal_of(pa.Table.from_pylist([ROW | STARTED, ROW | STARTED | changed], SCHEMA), tmp_path)


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


@pytest.mark.parametrize(("options", "expected"), [
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
])  # fmt: skip
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

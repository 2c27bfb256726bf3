"""Compaction: fewer records in a batch, empty batches, and offsets that are nowhere."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from model.clients import READ_COMMITTED, ByteClient, client_of_topic, read_client, record_batch, transaction_client
from model.partition_log import without_records
from model.record_batches import HEADER, check_batch, decode_stored_records, parse_batch
from model.test_fetch import batches_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def varied_batch(codec: int = 0) -> bytes:
    """Four records, one a tombstone, one with headers."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=7, producer_epoch=3, base_sequence=11,
        batch_size=10**6,
    )  # fmt: skip
    for offset, (key, value, headers) in enumerate(
        [(b"a", b"1" * 100, []), (b"b", None, []), (None, b"", [("h", b"x"), ("n", None)]), (b"a", b"2", [])]
    ):
        builder.append(offset, timestamp=1_000 - 10 * offset, key=key, value=value, headers=headers)
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("delete_horizon_ms", [None, 90_000])
def test_the_records_that_are_left_keep_their_offsets(codec: int, delete_horizon_ms: int | None) -> None:
    batch = parse_batch(varied_batch(codec)).placed(100, 5)
    records = decode_stored_records(batch)
    for removed in ({100}, {101, 102}, {103}, {100, 101, 103}):
        left = without_records(batch, removed, delete_horizon_ms)
        assert decode_stored_records(left) == [record for record in records if record.offset not in removed]
        assert left.record_count == 4 - len(removed)
        assert (left.base_offset, left.next_offset, left.leader_epoch) == (100, 104, 5)
        assert (left.producer_id, left.producer_epoch, left.base_sequence, left.last_sequence) == (7, 3, 11, 14)
        assert left.max_timestamp == max(record.timestamp for record in decode_stored_records(left))
        assert (HEADER.unpack(left.data[: HEADER.size])[7] == 90_000) == (delete_horizon_ms is not None)
        assert_whole(left.data)


def assert_whole(data: bytes) -> None:
    """Its CRC is right; what else a leader checks, a compacted batch does not keep to."""
    batch = parse_batch(data)._replace(base_offset=0, record_count=1, last_offset_delta=0, attributes=1)
    check_batch(batch, 10**9)


def compacted(stays_empty: bool) -> ByteClient:
    """Offsets 0 to 6 in batches of 2, 3 and 2; left: 1 of the first, nothing of the second."""
    client = client_of_topic(1, 1, nodes=1)
    for count in (2, 3, 2):
        client.produce(0, {("t", 0): record_batch(*[b"v"] * count)})
    client.cluster.compact("t", 0, 0, {0, 2, 3, 4, 5, 6}, stays_empty=lambda batch: stays_empty)
    return client


def test_an_empty_batch_is_read_and_one_that_is_gone_is_passed_over() -> None:
    got = read_client(compacted(stays_empty=True)).fetch_one(0, "t", offset=3)
    assert [(batch.base_offset, batch.next_offset, batch.record_count) for batch in batches_of(got)] == [
        (2, 5, 0), (5, 7, 2)
    ]  # fmt: skip
    got = read_client(compacted(stays_empty=False)).fetch_one(0, "t", offset=3)
    assert [batch.base_offset for batch in batches_of(got)] == [5]


def aborted_and_committed() -> tuple[ByteClient, int]:
    """One producer: aborted at 0 (marker 1), committed at 2 (marker 3), and a row at 4 that stays."""
    client = client_of_topic(1, 1, nodes=1)
    transactions = transaction_client(client)
    producer = transactions.init("x")
    for is_commit in (False, True):
        transactions.write("x", producer, "t")
        following = transactions.end_surely("x", producer, is_commit).producer
        assert following is not None
        producer = following
        client.run(100)
    client.produce(0, {("t", 0): record_batch(b"row")})
    client.run(10)
    return client, producer.producer_id


def test_a_marker_goes_after_the_rows_of_its_transaction() -> None:
    client, producer_id = aborted_and_committed()
    reader = read_client(client)
    client.cluster.compact("t", 0, 0, {1, 3})
    got = reader.fetch_one(0, "t", isolation=READ_COMMITTED)
    assert ([batch.base_offset for batch in batches_of(got)], got.aborted) == ([0, 1, 2, 3, 4], ((producer_id, 0),))
    client.cluster.compact("t", 0, 0, {0})
    got = reader.fetch_one(0, "t", isolation=READ_COMMITTED)
    assert ([batch.base_offset for batch in batches_of(got)], got.aborted) == ([1, 2, 3, 4], ((producer_id, 0),))
    client.cluster.compact("t", 0, 0, {1})
    got = reader.fetch_one(0, "t", isolation=READ_COMMITTED)
    # An aborted transaction without its marker would hide the rows of the next one.
    assert ([batch.base_offset for batch in batches_of(got)], got.aborted) == ([2, 3, 4], ())

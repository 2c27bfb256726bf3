"""What a batch may become: bounds for headers and markers, and the timestamp that Spark cannot hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.records.aborted_transaction import AbortedTransaction
from kafka_sink.records.compression import codec_for
from kafka_sink.records.decoder import Limits, RecordSetDecoder
from kafka_sink.records.kernel import Kernel
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.undecodable import BatchTooLarge, CorruptBatch, TimestampOutOfRange, TooManyHeaders
from kernels import KERNELS
from record_sets import LOG_APPEND_TIME, NO_END, Batch, marker, plain, row, rows_of

BOTH = pytest.mark.parametrize("kernel", KERNELS)
HEADER = (b"k", b"v")


def decode(kernel: Kernel, *batches: Batch, columns: tuple[str, ...] = ("value", "headers"), **given: Any) -> list[Any]:
    records = b"".join(map(bytes, batches))
    given = {"first_offset": 0, "end_offset": NO_END} | given
    return rows_of(RecordSetDecoder(records, columns=columns, kernel=kernel, **given))


def with_headers(*counts: int, base_offset: int = 0, codec: str = "none") -> Batch:
    rows = [(number, row(b"v", None, 0, *[HEADER] * count)) for number, count in enumerate(counts)]
    return Batch(rows=rows, base_offset=base_offset, codec=codec)


@BOTH
@pytest.mark.parametrize("columns", [("value", "headers"), ("value",)])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_headers_of_a_batch_are_bounded(kernel: Kernel, columns: tuple[str, ...], codec: str) -> None:
    limits = Limits(most_headers=10)
    right = [with_headers(5, 5, base_offset=base, codec=codec) for base in (0, 2, 4)]
    assert len(decode(kernel, *right, columns=columns, limits=limits)) == 6
    for counts in ((11,), (5, 6), (0, 10, 1)):
        with pytest.raises(TooManyHeaders) as raised:
            decode(kernel, *right, with_headers(*counts, base_offset=6, codec=codec), columns=columns, limits=limits)
        error = raised.value
        assert (error.base_offset, error.next_offset, error.most_headers) == (6, 6 + len(counts), 10)


@BOTH
def test_a_batch_that_is_too_large_tells_where_the_next_one_begins(kernel: Kernel) -> None:
    with pytest.raises(BatchTooLarge) as raised:
        decode(kernel, plain(b"v" * 999, b"w", base_offset=7, codec="zstd"), limits=Limits(most_batch_bytes=900))
    assert (raised.value.base_offset, raised.value.next_offset, raised.value.most_bytes) == (7, 9, 900)


@BOTH
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_marker_is_not_decompressed_into_more_than_a_marker_has(kernel: Kernel, codec: str) -> None:
    """Nobody looks at it unless a transaction was aborted."""
    aborted = (AbortedTransaction(1, 0),)
    right = marker(0, 3, 1, codec=codec)
    assert decode(kernel, plain(b"a", base_offset=5), aborted=aborted) != []
    assert decode(kernel, right, plain(b"a", base_offset=5), aborted=aborted) != []
    records = bytes(marker(0, 3, 1))[HEADER_BYTES:] + bytes(1024 * 1024)
    bomb = replace(right, stored=bytes(codec_for(codec).compress(memoryview(records))))
    with pytest.raises(CorruptBatch) as raised:
        decode(kernel, bomb, plain(b"a", base_offset=5), aborted=aborted)
    assert (raised.value.base_offset, raised.value.next_offset) == (3, 4)


@BOTH
@pytest.mark.parametrize("nanoseconds", [1_714_564_800_000_000_000, -(2**62)])
def test_a_timestamp_that_spark_cannot_hold_is_named(kernel: Kernel, nanoseconds: int) -> None:
    values = [row(b"a", None, 1), row(b"b", None, nanoseconds), row(b"c", None, nanoseconds)]
    batch = Batch(rows=list(enumerate(values)), base_offset=40)
    for given in ({}, {"first_offset": 41}):
        with pytest.raises(TimestampOutOfRange) as raised:
            decode(kernel, plain(b"x", base_offset=30), batch, columns=("timestamp",), **given)
        assert (raised.value.offset, raised.value.timestamp_ms) == (41, nanoseconds)
    with pytest.raises(TimestampOutOfRange) as raised:
        decode(kernel, batch, columns=("timestamp",), first_offset=42)
    assert raised.value.offset == 42
    of_broker = replace(batch, attributes=LOG_APPEND_TIME, max_timestamp=nanoseconds)
    with pytest.raises(TimestampOutOfRange) as raised:
        decode(kernel, of_broker, columns=("timestamp",))
    assert (raised.value.offset, raised.value.timestamp_ms) == (40, nanoseconds)
    assert len(decode(kernel, batch, columns=("value", "offset"))) == 3

"""Reads the rows of ranges in a task: one record set after the other becomes Arrow batches."""

from __future__ import annotations

import logging
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_sink.errors import BatchOverLimit, MessageFormatTooOld, ReadError, RecordsCorrupt, TimestampNotReadable
from kafka_sink.errors.failures import of_read, told_to_spark
from kafka_sink.kafka.consumer.fetch_policy import Appetite
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import FetchSettings
from kafka_sink.kafka.statistics import ReadStatistics
from kafka_sink.options.reading import ReadConfig
from kafka_sink.records.batch_table import BatchTooLarge, OldFormat, TimestampOutOfRange, TooManyHeaders, Undecodable
from kafka_sink.records.decoder import DEFAULT_LIMITS, Limits, RecordSetDecoder
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.kept_clients import lease_reader
from kafka_sink.spark.task import Task

if TYPE_CHECKING:
    from kafka_sink.kafka.reader import Reader

log = logging.getLogger("kafka_sink")


class RangeReader:
    """`columns`: the names of those to read. `is_batch`: a batch reads what replaces the lost records of a truncated
    log, which in a stream is for the next micro-batch. And Spark may take only a few of its rows."""

    def __init__(
        self, config: ReadConfig, columns: tuple[str, ...], interceptors: Sequence[Interceptor] = (), *, is_batch: bool
    ) -> None:
        self._config = config
        self._columns = columns
        self._interceptors = interceptors
        self._settings = FetchSettings(
            config=config.consumer,
            fail_on_data_loss=config.fail_on_data_loss,
            reads_replacements=is_batch,
            poll_timeout_ms=config.poll_timeout_ms,
            begins_small=is_batch,
        )

    def rows(self, ranges: Sequence[FetchRange]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task's ranges. Raises a ReadError, ClusterError or WorkerExhausted."""
        with told_to_spark(), of_read():
            if self._config.max_partitions is not None and len(ranges) > 1:
                yield from _reported(self._rows_of_many(ranges), self._interceptors)
                return
            for each in ranges:
                yield from _reported(self._rows(each), self._interceptors)

    def _rows(self, range_: FetchRange) -> Generator[pa.RecordBatch, None, Sequence[ReadStatistics]]:
        row_count = byte_count = 0
        rows = Rows(self._columns, range_.topic, range_.partition)
        with self._lease() as reader:
            fetch = reader.fetch(range_, self._settings)
            for record_set in fetch:
                byte_count += record_set.records.nbytes
                for batch in rows.complete(self._decoded(record_set, range_, rows.decoded)):
                    row_count += batch.num_rows
                    yield batch
                    fetch.prefetch()
            _warn(range_, fetch.losses)
        left_out_count = sum(loss.end - loss.first for loss in fetch.losses)
        return [ReadStatistics(range_.topic, range_.partition, row_count, byte_count, left_out_count)]

    def _rows_of_many(
        self, ranges: Sequence[FetchRange]
    ) -> Generator[pa.RecordBatch, None, Sequence[ReadStatistics]]:  # fmt: skip
        read = {each: [0, 0, 0] for each in ranges}
        joined = Joined(begins_small=self._settings.begins_small)
        with self._lease() as reader:
            fetch = reader.fetch_all(ranges, self._settings)
            for range_, record_set in fetch:
                of_range = read[range_]
                of_range[1] += record_set.records.nbytes
                # Made anew, because of many partitions the constant columns would add up.
                rows = Rows(self._columns, range_.topic, range_.partition)
                for batch in rows.complete(self._decoded(record_set, range_, rows.decoded)):
                    of_range[0] += batch.num_rows
                    if (whole := joined.add(batch)) is not None:
                        yield whole
                        fetch.prefetch()
            if (rest := joined.rest()) is not None:
                yield rest
            for range_, loss in fetch.losses:
                _warn(range_, [loss])
                read[range_][2] += loss.end - loss.first
        return [ReadStatistics(each.topic, each.partition, *counts) for each, counts in read.items()]

    def _lease(self) -> AbstractContextManager[Reader]:
        return lease_reader(self._config.consumer, spark_partition=Task.current().slot)

    def _decoded(
        self, record_set: RecordSet, range_: FetchRange, columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Return the record set as Arrow batches. Raises the ReadError of a batch that cannot be decoded."""
        config = self._config
        decoder = RecordSetDecoder(
            record_set.records,
            first_offset=record_set.offset,
            end_offset=record_set.end,
            columns=columns,
            aborted=record_set.aborted_transactions,
            check_crcs=config.consumer.check_crcs,
            limits=Limits(most_batch_bytes=config.max_batch_bytes, most_headers=config.max_headers_per_batch),
        )
        try:
            yield from decoder
        except Undecodable as error:
            raise _read_error(error, range_.topic_partition._asdict()) from None


def _reported(
    rows: Generator[pa.RecordBatch, None, Sequence[ReadStatistics]], interceptors: Sequence[Interceptor]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges. Notify the interceptors when Spark asks for more than the last of them."""
    chain = InterceptorChain(interceptors)
    try:
        for statistics in (yield from rows):
            chain.on_read(statistics)
    finally:
        chain.close()


def _warn(range_: FetchRange, losses: Iterable[Loss]) -> None:
    for loss in losses:
        log.warning(
            "offsets %d to %d of %s-%d are left out: %s (failOnDataLoss is false)",
            loss.first, loss.end - 1, range_.topic, range_.partition, loss.cause,
        )  # fmt: skip


def _read_error(error: Undecodable, place: Mapping[str, Any]) -> ReadError:
    goes_on_at = -1 if error.next_offset is None else error.next_offset
    match error:
        case OldFormat(magic=magic):
            return MessageFormatTooOld(**place, offset=error.base_offset, magic=magic)
        case TimestampOutOfRange(offset=offset, timestamp_ms=timestamp_ms):
            return TimestampNotReadable(**place, offset=offset, timestamp_ms=timestamp_ms)
        case BatchTooLarge(most_bytes=limit):
            what, option = "bytes of records after decompression", "maxDecompressedBatchBytes"
        case TooManyHeaders(most_headers=limit):
            what, option = "headers", "maxHeadersPerBatch"
        case _:
            return RecordsCorrupt(**place, offset=error.base_offset, reason=error.reason, goes_on_at=goes_on_at)
    return BatchOverLimit(
        **place, offset=error.base_offset, what=what, limit=limit, option=option, goes_on_at=goes_on_at
    )  # fmt: skip


# --- Arrow batches ----------------------------------------------------------------------------------------------------

FIRST_JOINED_BYTES = 1024 * 1024
# Columns with the same value in all rows of a partition.
_CONSTANT = ("topic", "partition")


class Rows:
    """Completes decoded columns with those that are the same in a whole partition, in the order of `names`."""

    def __init__(self, names: tuple[str, ...], topic: str, partition: int) -> None:
        self._names = names
        # Made of buffers: `pa.scalar` imports pandas, which takes longer than all else before the first row.
        text = topic.encode()
        offsets = pa.py_buffer(struct.pack("=ii", 0, len(text)))
        self._topic = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(text)])[0]
        number = pa.py_buffer(struct.pack("=i", partition))
        self._partition = pa.Array.from_buffers(pa.int32(), 1, [None, number])[0]
        self._topics = self._partitions = pa.nulls(0)

    @property
    def decoded(self) -> tuple[str, ...]:
        """The names of the columns to decode. At least one, because it also tells how many rows there are."""
        return tuple(name for name in self._names if name not in _CONSTANT) or ("offset",)

    def complete(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the record batches with all columns."""
        for batch in batches:
            yield self._completed(batch)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        if len(self._topics) < rows:
            self._topics = pa.repeat(self._topic, rows)
            self._partitions = pa.repeat(self._partition, rows)
        constant = {"topic": self._topics.slice(0, rows), "partition": self._partitions.slice(0, rows)}
        return pa.RecordBatch.from_arrays(
            [constant[name] if name in constant else batch.column(name) for name in self._names], list(self._names)
        )


class Joined:
    """Joins record batches of many partitions into few, in their order: Spark takes each apart at a cost of its own.

    Until one is full it holds `most_rows` and `most_bytes` at most, and the same again while they are copied.
    `begins_small`: the first ones are smaller, as Spark may want only a few rows.
    """

    def __init__(
        self,
        most_rows: int = DEFAULT_LIMITS.most_rows,
        most_bytes: int = DEFAULT_LIMITS.most_bytes,
        *,
        begins_small: bool = False,
    ) -> None:
        self._most_rows = most_rows
        self._appetite = Appetite(most_bytes, FIRST_JOINED_BYTES if begins_small else most_bytes)
        self._parts: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Take a record batch. Return those before it as one, if it does not fit beside them."""
        rows, size_bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        full = None
        if rows > self._most_rows or size_bytes > self._appetite.bytes:
            full = self.rest()
            self._appetite.fed()
        self._parts.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        return full

    def rest(self) -> pa.RecordBatch | None:
        """Return what was taken and not returned yet."""
        parts, self._parts, self._rows, self._bytes = self._parts, [], 0, 0
        if len(parts) < 2:
            return parts[0] if parts else None
        (whole,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        return whole

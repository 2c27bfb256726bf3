"""The reader of a batch, which Spark makes on the driver and sends to each task.

Spark calls `pushFilters` if it pushes filters down, then `partitions` on the driver, and `read` in a worker for each
partition. A task that runs again reads the same range.

Source: pyspark/sql/worker/plan_data_source_read.py, data_source_pushdown_filters.py.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_sink.errors import KafkaSinkError, MessageFormatTooOld, RecordsCorrupt
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.statistics import ReadStatistics
from kafka_sink.kept import lease_admin_client, lease_reader
from kafka_sink.options.reading import ReadConfig
from kafka_sink.records.decoder import RecordSetDecoder
from kafka_sink.records.undecodable import OldFormat, Undecodable
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.reading.columns import Rows
from kafka_sink.spark.reading.filters import Wanted
from kafka_sink.spark.reading.plan import plan
from kafka_sink.spark.reading.reported import reported

log = logging.getLogger("kafka_sink")

# Spark up to 4.3 keeps the plan of a filtered read for every later query of the same DataFrame: a plan that leaves rows
# out would leave them out of those too. The Spark that keeps a plan for one query has `pushLimit` (SPARK-58551).
_IS_PLANNED_FOR_ONE_QUERY = hasattr(DataSourceReader, "pushLimit")


@contextmanager
def of_read() -> Iterator[None]:
    """Mark errors as those of a read: what they mean for the data is not what they mean for a write's."""
    try:
        yield
    except KafkaSinkError as error:
        raise error.of_read() from None


class RangePartition(InputPartition):
    """One range of offsets, which one task reads."""

    def __init__(self, range_: FetchRange) -> None:
        super().__init__(range_)
        self.range = range_


class _PushFilters:
    """The reader's `pushFilters`.

    Spark refuses to read with a reader that has its own `pushFilters` unless the session sets
    spark.sql.python.filterPushdown.enabled. It looks at `__func__`, and calls the method only with that setting. So
    this is a callable that has the `__func__` of the method that does nothing.
    """

    def __init__(self, reader: KafkaBatchReader) -> None:
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        if _IS_PLANNED_FOR_ONE_QUERY:
            self._reader.wanted = self._reader.wanted.narrowed(filters)
        # Spark applies each of them again.
        return filters


class KafkaBatchReader(DataSourceReader):
    """`wanted`: what filters leave of the read."""

    def __init__(self, config: ReadConfig, columns: tuple[str, ...], interceptors: Sequence[Interceptor] = ()) -> None:
        self._config = config
        self._columns = columns
        self._interceptors = tuple(interceptors)
        self.wanted = Wanted()

    @property
    def pushFilters(self) -> _PushFilters:
        return _PushFilters(self)

    @told_to_spark()
    def partitions(self) -> Sequence[RangePartition]:
        """Plan the read. Raises a ReadError, ClusterError or ConfigError."""
        with of_read(), lease_admin_client(self._config.consumer) as client:
            ranges = plan(client, self._config, self.wanted)
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range. Spark reads None if there is no range.

        Raises a ReadError, ClusterError or WorkerExhausted.
        """
        if not isinstance(partition, RangePartition):
            return
        with told_to_spark(), of_read():
            yield from reported(self._rows(partition.range), self._interceptors)

    def _rows(self, range_: FetchRange) -> Generator[pa.RecordBatch, None, ReadStatistics]:
        config = self._config
        row_count = byte_count = 0
        rows = Rows(self._columns, range_.topic, range_.partition)
        with lease_reader(config.consumer) as reader:
            fetch = reader.fetch(
                range_, fail_on_data_loss=config.fail_on_data_loss, poll_timeout_ms=config.poll_timeout_ms
            )
            for record_set in fetch:
                byte_count += record_set.records.nbytes
                decoder = RecordSetDecoder(
                    record_set.records,
                    first_offset=record_set.offset,
                    end_offset=range_.end,
                    columns=rows.decoded,
                    aborted=record_set.aborted_transactions,
                    check_crcs=config.consumer.check_crcs,
                )
                for batch in rows.complete(_decoded(decoder, range_)):
                    row_count += batch.num_rows
                    yield batch
                    fetch.go_on()
            for loss in fetch.losses:
                log.warning(
                    "offsets %d to %d of %s-%d are left out: %s (failOnDataLoss is false)",
                    loss.first, loss.end - 1, range_.topic, range_.partition, loss.cause,
                )  # fmt: skip
        left_out_count = sum(loss.end - loss.first for loss in fetch.losses)
        return ReadStatistics(range_.topic, range_.partition, row_count, byte_count, left_out_count)


def _decoded(decoder: RecordSetDecoder, range_: FetchRange) -> Iterator[pa.RecordBatch]:
    """Return the decoder's batches. Raises MessageFormatTooOld, RecordsCorrupt."""
    topic, partition = range_.topic, range_.partition
    try:
        yield from decoder
    except OldFormat as error:
        raise MessageFormatTooOld(
            topic=topic, partition=partition, offset=error.base_offset, magic=error.magic
        ) from None
    except Undecodable as error:
        raise RecordsCorrupt(topic=topic, partition=partition, offset=error.base_offset, reason=error.reason) from None

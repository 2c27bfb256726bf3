"""The reader of a stream. Spark plans with one of them as long as the query runs, and reads with others, in tasks.

Spark 4.2 tells the planner where a micro-batch begins, and how much to read of what is there. Earlier versions ask only
for the latest offsets.

Source: pyspark/sql/streaming/python_streaming_source_runner.py; PythonMicroBatchStream.scala.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kafka_sink.errors.failures import of_read, told_to_spark
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.reading.divide import RangePartition, advise, packed
from kafka_sink.spark.reading.group_progress import GroupProgress
from kafka_sink.spark.reading.positions import Checkpointed, Positions, checkpointed, positions_of
from kafka_sink.spark.reading.read_limits import StreamReader, is_limited, read_limit
from kafka_sink.spark.reading.stream_plan import StreamPlan


class KafkaStreamReader(StreamReader):
    def __init__(self, config: ReadConfig, columns: tuple[str, ...], interceptors: Sequence[Interceptor] = ()) -> None:
        self._config = config
        self._columns = columns
        self._interceptors = tuple(interceptors)
        self._plan = StreamPlan(config)
        self._progress = None if config.group_id is None else GroupProgress(config.consumer, config.group_id)
        # The cluster that the query reads, once that is known.
        self._cluster_id: str | None = None
        # Where the next micro-batch begins, for a Spark that does not say so.
        self._next: Checkpointed = {}
        # Once a query: of small tasks.
        self._is_advised = False

    def initialOffset(self) -> Checkpointed:
        with self._client(has_worked=False) as client:
            self._next = checkpointed(self._plan.initial(client))
        return self._next

    def latestOffset(self, start: Checkpointed | None = None, limit: Any = None) -> Checkpointed:
        """Return where the micro-batch ends that begins at `start`. Before Spark 4.2 there are no arguments."""
        begins = positions_of(self._next if start is None else start)
        self._show(begins)
        with self._client() as client:
            return checkpointed(self._plan.end(client, begins, is_limited=is_limited(limit)))

    def getDefaultReadLimit(self) -> Any:
        return read_limit(self._config)

    def reportLatestOffset(self) -> Checkpointed | None:
        return checkpointed(self._plan.latest) or None

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan.end_now()

    def partitions(self, start: Checkpointed, end: Checkpointed) -> Sequence[RangePartition]:
        self._next = end
        with self._client() as client:
            ranges = self._plan.ranges(client, positions_of(start), positions_of(end))
        tasks = packed(ranges, self._config.max_partitions)
        self._is_advised = self._is_advised or advise(tasks, self._config)
        return [RangePartition(each) for each in tasks]

    def commit(self, end: Checkpointed) -> None:
        """Note that Spark has recorded the micro-batch that ends at `end`."""
        self._plan.is_begun = True

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task. Raises a ReadError, ClusterError or WorkerExhausted."""
        from kafka_sink.spark.reading.range_reader import RangeReader

        return RangeReader(self._config, self._columns, self._interceptors, goes_on=False).rows(partition)

    def _show(self, begins: Positions) -> None:
        """Tell Kafka's own tools where the stream is.

        Spark calls `commit` only once it has planned the next micro-batch, so an idle stream would show a lag that it
        does not have. It asks for the end of a micro-batch as soon as the last one is done.
        """
        if self._progress is not None:
            self._progress.commit(begins)

    @contextmanager
    def _client(self, *, has_worked: bool = True) -> Iterator[AdminClient]:
        """Lease a client. Raises errors as those of a read. `has_worked`: Spark asks for the initial offset of a new
        query only. Every other offset comes from it, or from the checkpoint of an earlier run."""
        lease = lease_admin_client(self._config.consumer, self._cluster_id, has_worked=has_worked)
        with told_to_spark(), of_read(), lease as client:
            yield client
            self._cluster_id = client.cluster_id

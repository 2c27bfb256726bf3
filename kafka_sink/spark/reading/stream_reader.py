"""The reader of a stream. Spark plans with one of them as long as the query runs, and reads with others, in tasks.

Spark 4.2 tells the planner where a micro-batch begins, and how much to read of what is there. Earlier versions ask only
for the latest offsets. A Python source gets no limit that combines two, so the reader applies its options itself,
unless Spark asks for all that is there (trigger once).

Source: pyspark/sql/streaming/datasource.py, python_streaming_source_runner.py; PythonMicroBatchStream.scala.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafka_sink.errors import KafkaSinkError, RefusedOption
from kafka_sink.errors.failures import of_read, told_to_spark
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.group_offsets import commit_group_offsets
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ConsumerConfig
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import moves, option_of, text_of
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.kept_clients import lease_admin_client
from kafka_sink.spark.reading.divide import advise, packed
from kafka_sink.spark.reading.positions import Checkpointed, checkpointed, positions_of
from kafka_sink.spark.reading.stream_plan import StreamPlan

log = logging.getLogger("kafka_sink")

_limits: Any = None
if TYPE_CHECKING:
    StreamReader = DataSourceStreamReader
else:
    try:
        from pyspark.sql.streaming import datasource as _limits
    except ImportError:
        # Spark 4.0 and 4.1.
        StreamReader = DataSourceStreamReader
    else:

        class StreamReader(DataSourceStreamReader, _limits.SupportsTriggerAvailableNow):
            """The base of a reader that ends with trigger(availableNow=True)."""


def check_limits(config: ReadConfig) -> None:
    """Raise RefusedOption if the options limit a micro-batch and this Spark cannot."""
    if _limits is not None:
        return
    for option, value in (
        ("maxBytesPerTrigger", config.max_bytes_per_trigger),
        ("maxOffsetsPerTrigger", config.max_offsets_per_trigger),
        ("maxOffsetsPerPartitionPerTrigger", config.max_offsets_per_partition),
        ("minOffsetsPerTrigger", config.min_offsets_per_trigger),
    ):
        if value is not None:
            instead = f"it needs Spark 4.2, and this is {pyspark.__version__}: a micro-batch reads all that is there."
            raise RefusedOption(option=option, instead=instead)


class RangePartition(InputPartition):
    """The ranges of offsets that one task reads."""

    def __init__(self, ranges: Sequence[FetchRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


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
        # Spark asked for an end before it asked for the start.
        self._is_end_fixed = False
        # Once a query: of small tasks.
        self._is_advised = False

    @told_to_spark()
    def _check_order(self) -> None:
        """Raise RefusedOption if Spark has fixed the end of the first micro-batch before its start, which then is in no
        checkpoint: Spark before 4.2 with trigger availableNow."""
        starting = self._config.starting
        if self._is_end_fixed and moves(starting):
            instead = (
                f"with trigger(availableNow=True), {text_of(starting)} needs Spark 4.2, and this is "
                f"{pyspark.__version__}. Use another start or trigger."
            )
            raise RefusedOption(option=option_of(starting, "starting"), instead=instead).of_read()

    def initialOffset(self) -> Checkpointed:
        self._check_order()
        with self._client(has_worked=False) as client:
            self._next = checkpointed(self._plan.initial(client))
        return self._next

    def latestOffset(self, start: Checkpointed | None = None, limit: Any = None) -> Checkpointed:
        """Return where the micro-batch ends that begins at `start`. Before Spark 4.2 there are no arguments."""
        begins = positions_of(self._next if start is None else start)
        self._is_end_fixed = self._is_end_fixed or (start is None and not self._plan.is_new)
        if self._progress is not None:
            # Spark calls `commit` only once it has planned the next micro-batch, so an idle stream would show a lag
            # that it does not have. It asks for the end of a micro-batch as soon as the last one is done.
            self._progress.commit(begins)
        # `limit` is Spark's ReadLimit.
        is_limited = _limits is not None and limit is not None and not isinstance(limit, _limits.ReadAllAvailable)
        with self._client() as client:
            return checkpointed(self._plan.end(client, begins, is_limited=is_limited))

    def getDefaultReadLimit(self) -> Any:
        config = self._config
        if config.max_bytes_per_trigger is not None:
            return _limits.ReadMaxBytes(config.max_bytes_per_trigger)
        # Spark has no limit of a partition. Any limit but ReadAllAvailable stands for those of the options.
        most = config.max_offsets_per_trigger or config.max_offsets_per_partition
        if most is not None:
            return _limits.ReadMaxRows(most)
        if config.min_offsets_per_trigger is not None:
            return _limits.ReadMinRows(config.min_offsets_per_trigger)
        return _limits.ReadAllAvailable()

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
        """Return the rows of a task. Spark reads None if there is no range. Raises a ReadError, ClusterError or
        WorkerExhausted."""
        from kafka_sink.spark.reading.range_reader import RangeReader

        ranges = partition.ranges if isinstance(partition, RangePartition) else ()
        return RangeReader(self._config, self._columns, self._interceptors, is_batch=False).rows(ranges)

    @contextmanager
    def _client(self, *, has_worked: bool = True) -> Iterator[AdminClient]:
        """Lease a client. Raises errors as those of a read. `has_worked`: Spark asks for the initial offset of a new
        query only. Every other offset comes from it, or from the checkpoint of an earlier run."""
        lease = lease_admin_client(self._config.consumer, self._cluster_id, has_worked=has_worked)
        with told_to_spark(), of_read(), lease as client:
            yield client
            self._cluster_id = client.cluster_id


# --- progress in a consumer group -------------------------------------------------------------------------------------

# After a commit that failed, the stream leaves commits out for this many times as long as the commit took. So a group
# that cannot be committed to slows a stream down by a tenth at most.
PAUSE_FACTOR = 9
# An idle stream comes with the same offsets at each look at the logs, up to a hundred times a second. If they were
# refused, they are sent again after this time.
SAME_OFFSETS_PAUSE_MS = 5_000


class GroupProgress:
    """Commits the progress of one stream to the consumer group of the option groupId, so that Kafka's tools show its
    lag. On the driver, for one thread.

    The stream never reads the group: its own offsets are in Spark's checkpoint. So a failure is a warning. A commit
    that is left out loses nothing, because the next one has newer offsets.
    """

    def __init__(self, config: ConsumerConfig, group_id: str, *, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._config = config
        self._group_id = group_id
        self._clock_ms = clock_ms
        # What the last commit asked for, and until when the next is left out; None after a success.
        self._offsets: Mapping[TopicPartition, int] = {}
        self._not_before_ms: int | None = None
        # The last warning; empty while commits succeed.
        self._warning = ""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offset of the next record of each partition unless the group has it, or log why that failed."""
        began_ms = self._clock_ms()
        is_same = offsets == self._offsets
        if self._not_before_ms is None:
            if is_same:
                return
        elif began_ms < self._not_before_ms + (SAME_OFFSETS_PAUSE_MS if is_same else 0):
            return
        self._offsets = dict(offsets)
        try:
            with lease_admin_client(self._config) as client:
                commit_group_offsets(client, self._group_id, offsets)
        except KafkaSinkError as error:
            now_ms = self._clock_ms()
            self._not_before_ms = now_ms + PAUSE_FACTOR * (now_ms - began_ms)
            self._warn(error)
        else:
            self._not_before_ms = None
            if self._warning:
                self._warning = ""
                log.warning("groupId: the stream's progress is committed to consumer group %r again", self._group_id)

    def _warn(self, error: KafkaSinkError) -> None:
        """Log the error unless the last warning was the same: a stream may run ten micro-batches a second."""
        happened, _, advice = error.parts()
        warning = f"{happened} {advice}"
        if warning != self._warning:
            self._warning = warning
            log.warning("groupId: %s The stream reads on.", warning)

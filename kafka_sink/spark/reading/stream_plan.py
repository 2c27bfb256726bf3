"""Plans the micro-batches of a stream, in the one process that lives as long as its query.

    where it begins ─> where the logs end, and do they go on? (`stream_logs.py`) ─> how much of it ─> ranges of tasks

Non-obvious:

* Spark keeps no initial offsets for a Python source. If the first micro-batch fails, the next run asks for them again,
  and the latest offset is another one by then. So a partition that begins at its end has no row in the first
  micro-batch, which only records where it begins. JVM: KafkaSourceInitialOffsetWriter. Of a start that moves
  (`bounds.moves`) no partition has a row in it. Once it is recorded, the next run needs no start: that a start cannot
  be found is an error only when the first micro-batch is planned.
* A log that does not go on at the stream's position (`continuity.py`) fails the query. With failOnDataLoss=false the
  stream steps to where it goes on, in a micro-batch of its own without rows. So the step is in the checkpoint, and a
  run that starts later takes it too.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream (also rateLimit, delayBatch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from kafka_sink.errors import ReadError
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.apis.offsets import EARLIEST
from kafka_sink.kafka.protocol.needs import READING
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import moves
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.reading.continuity import Break, LogEnd, Losses, warn
from kafka_sink.spark.reading.divide import divide
from kafka_sink.spark.reading.plan import LogBounds, check_named, tell_instants
from kafka_sink.spark.reading.positions import Offsets, Positions, clipped
from kafka_sink.spark.reading.stream_logs import StreamLogs
from kafka_sink.spark.reading.topics import partitions_there, topics_to_read
from kafka_sink.spark.reading.weights import ByteLimit


class StreamPlan:
    """For one stream. Each method that asks the cluster raises a ReadError, ClusterError or ConfigError.

    `tell`: takes each loss that does not end the query.
    """

    def __init__(self, config: ReadConfig, tell: Callable[[ReadError], None] = warn) -> None:
        self._config = config
        self._losses = Losses(fail_on_data_loss=config.fail_on_data_loss, tell=tell)
        self._logs = StreamLogs(config, self._losses)
        self._delay = Delay(config.min_offsets_per_trigger or 0, config.max_trigger_delay_ms)
        most_bytes = config.max_bytes_per_trigger
        self._byte_limit = None if most_bytes is None else ByteLimit(most_bytes)
        # Where a new stream begins, until the first micro-batch records it, and of which partitions that one has no
        # row. None: the stream is not new. `_no_start`: why a start that moves cannot be found.
        self._begins: Positions | None = None
        self._only_recorded: Positions = {}
        self._moves = moves(config.starting)
        self._no_start: ReadError | None = None
        self.is_begun = False
        self._is_told = False
        self._ends_now = False
        self._target: Positions | None = None

    @property
    def latest(self) -> Positions:
        """Where the logs ended when they were last looked at."""
        return self._logs.latest

    @property
    def is_new(self) -> bool:
        """Whether Spark has asked where the stream begins."""
        return self._begins is not None

    def end_now(self) -> None:
        """Read no record that is newer than the next look at the logs (trigger availableNow)."""
        self._ends_now = True

    def initial(self, client: AdminClient) -> Positions:
        """Return where a new stream begins. A start that moves is looked for once."""
        if self._begins is None or not self._moves:
            self._config = self._config.at(wall_clock_ms())
            try:
                self._begins = self._starts(client)
            except ReadError as error:
                if not self._moves:
                    raise
                self._begins, self._no_start = {}, error
            known = self._logs.known
            at_end = {each: offset for each, offset in self._begins.items() if offset == known[each].offset}
            self._only_recorded = self._begins if self._moves else at_end
        return self._begins

    def _starts(self, client: AdminClient) -> Positions:
        config = self._config
        client.require(READING)
        topics = topics_to_read(client, config)
        partitions = partitions_there(topics, config)
        check_named(partitions, config.starting, "starting")
        bounds = LogBounds(client, config, partitions, self._losses)
        starting = bounds.starting_offsets()
        positions = {}
        for each in partitions:
            there = bounds.there(each)
            asked = Offsets(starting[each], max(starting[each], there.end))
            positions[each] = clipped(each, asked, there, fail_on_data_loss=config.fail_on_data_loss).first
            self._logs.known[each] = LogEnd(topics[each.topic].topic_id, there.end, bounds.latest[each].leader_epoch)
        return positions

    def end(self, client: AdminClient, start: Positions, *, is_limited: bool) -> Positions:
        """Return where the micro-batch ends that begins at `start`. `is_limited`: the limits of the options count."""
        if not self.is_begun and self._begins is not None:
            self._tell_start()
            if self._no_start is not None:
                raise self._no_start
        self._no_start = None
        ends, steps = self._logs.look(client, start)
        if self._ends_now:
            target = self._target = ends if self._target is None else self._target
            # A log may have been truncated since, or be another one.
            ends = {each: min(end, target[each]) for each, end in ends.items() if each in target}
        if not self.is_begun and self._begins is not None:
            # A partition that was added since then belongs to the next micro-batch, which reads it from its start.
            ends = {each: self._only_recorded.get(each, end) for each, end in ends.items() if each in self._begins}
        if steps:
            return _after(start, steps)
        return self._limited(client, start, ends) if is_limited else ends

    def ranges(self, client: AdminClient, start: Positions, end: Positions) -> list[FetchRange]:
        """Return the ranges of the micro-batch from `start` to `end`. Spark may plan a micro-batch several times, and
        again in a process that has just started: the same ranges, whoever leads, because an exactly-once sink compares
        the rows of each task with those of the attempt before."""
        self.is_begun = True
        if start == end or self._no_start is not None:
            return []
        self._logs.learn(client, end)
        begins = self._begins or {}
        # What begins now and is not in the first micro-batch, as it was recorded, is new since.
        for each in start.keys() - end.keys() - self._logs.steps.keys() - begins.keys():
            self._losses.log_broken(each, Break(start[each], LossCause.TOPIC_DELETED, None))
        ranges = []
        new = self._earliest(client, start, end)
        for each, stop in end.items():
            first = start.get(each, 0)
            if each in new and first < (earliest := new[each]):
                self._losses.offsets_lost(each, Offsets(first, earliest), LossCause.DELETED)
                first = min(earliest, stop)
            ranges.append(self._range(each, Offsets(first, stop)))
        config = self._config
        return divide(filter(None, ranges), config.min_partitions, config.max_records_per_partition)

    def _tell_start(self) -> None:
        """Log it once: Spark asks again for the end of a micro-batch that it did not record."""
        if not self._is_told:
            self._is_told = True
            tell_instants(self._config)

    def _limited(self, client: AdminClient, start: Positions, ends: Positions) -> Positions:
        config = self._config
        # With availableNow nothing would come that is worth waiting for.
        may_wait = config.min_offsets_per_trigger is not None and self._target is None
        if may_wait and self._delay.puts_off(start, ends, monotonic_ms()):
            return start
        if not config.limits_micro_batches:
            return ends
        begins = {**start, **self._earliest(client, start, ends)}
        if config.max_offsets_per_partition is not None:
            ends = capped(config.max_offsets_per_partition, begins, ends)
        if config.max_offsets_per_trigger is not None:
            ends = rate_limited(config.max_offsets_per_trigger, begins, ends)
        if self._byte_limit is not None:
            ends = self._byte_limit.limited(begins, ends, lambda places: self._logs.weigh(client, places))
        return ends

    def _earliest(self, client: AdminClient, start: Positions, ends: Positions) -> dict[TopicPartition, int]:
        """Return where the partitions begin that are new to the stream, if they are there."""
        asked = {each: EARLIEST for each in ends if each not in start and each in self._logs.known}
        listed = list_offsets(client, asked, self._config.consumer.isolation_level)
        return {each: found.offset for each, found in listed.items()}

    def _range(self, partition: TopicPartition, asked: Offsets) -> FetchRange | None:
        """Return the range, or None if it has no offsets. Raises LogBroken, OffsetsLost."""
        # The first micro-batch, as it was recorded, may end before the offset at which the stream begins by now.
        if partition in self._logs.steps or (self._begins or {}).get(partition) == asked.first >= asked.end:
            return None
        log_there = self._logs.known.get(partition)
        if log_there is None:
            self._losses.log_broken(partition, Break(asked.first, LossCause.TOPIC_DELETED, None))
            return None
        if asked.end < asked.first:
            self._losses.log_broken(partition, Break(asked.first, LossCause.TRUNCATED, asked.end))
            return None
        end = min(asked.end, log_there.offset)
        if end < asked.end:
            self._losses.offsets_lost(partition, Offsets(end, asked.end), LossCause.TRUNCATED)
            self._logs.cut(partition, Break(asked.end, LossCause.TRUNCATED, end))
        return FetchRange(
            topic=partition.topic,
            topic_id=log_there.topic_id,
            partition=partition.partition,
            first=asked.first,
            end=end,
            leader_epoch=log_there.leader_epoch,
            record_epoch=log_there.record_epoch,
            record_start=log_there.record_start,
        )


def _after(start: Positions, steps: Mapping[TopicPartition, Break]) -> Positions:
    """Return where a stream at `start` is after these steps."""
    moved = {each: step.goes_on_at for each, step in steps.items()}
    return {each: offset for each, at in start.items() if (offset := moved.get(each, at)) is not None}


# --- how much a micro-batch reads -------------------------------------------------------------------------------------


def capped(most: int, start: Positions, ends: Positions) -> Positions:
    """Return where a micro-batch ends that has at most so many offsets of each partition."""
    return {each: min(end, start[each] + most) for each, end in ends.items()}


def rate_limited(limit: int, start: Positions, ends: Positions) -> Positions:
    """Return where a micro-batch of about `limit` offsets ends: each partition in proportion to what it has.

    `limit`: maxOffsetsPerTrigger. `start`: of each partition of `ends`. Where that has no new offset, the end stays. A
    partition with new offsets gets one at least, so there may be more than `limit`.
    """
    sizes = {each: end - start[each] for each, end in ends.items() if end > start[each]}
    total = sum(sizes.values())
    if total <= limit:
        return ends
    return dict(ends) | {each: start[each] + min(size, _share(limit * (size / total))) for each, size in sizes.items()}


def _share(prorated: float) -> int:
    return math.ceil(prorated) if prorated < 1 else math.floor(prorated)


class Delay:
    """Puts a micro-batch off until there are `min_offsets` (minOffsetsPerTrigger), or `max_delay_ms` have passed since
    the last one (maxTriggerDelay)."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        # None: the first is never put off.
        self._last_ms: int | None = None

    def puts_off(self, start: Positions, ends: Positions, now_ms: int) -> bool:
        """Return whether to wait for more; if not, the micro-batch counts as begun. A partition without a start is
        new, and counts from 0."""
        is_due = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if not is_due and sum(end - start.get(each, 0) for each, end in ends.items()) < self._min_offsets:
            return True
        self._last_ms = now_ms
        return False

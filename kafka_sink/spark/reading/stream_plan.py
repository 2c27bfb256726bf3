"""Plans the micro-batches of a stream, in the one process that lives as long as its query.

    where it begins ─> where the logs end ─> do they go on? ─> how much of it ─> ranges of tasks

What is known of the logs stays from one micro-batch to the next: topic ids, leaders and leader epochs. A process that
starts with a checkpoint knows only its positions.

Non-obvious:

* Spark keeps no initial offsets for a Python source. If the first micro-batch fails, the next run asks for them again,
  and the latest offset is another one by then. So a partition that begins at its end has no row in the first
  micro-batch, which only records where it begins. JVM: KafkaSourceInitialOffsetWriter.
* A log that does not go on at the stream's position (`continuity.py`) fails the query. With failOnDataLoss=false the
  stream steps to where it goes on, in a micro-batch of its own without rows. So the step is in the checkpoint, and a
  run that starts later takes it too.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kafka_sink.errors import LeaderUnavailable, LogBroken, OffsetsLost, ReadError
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.log_ends import Logs, epoch_ends, log_ends
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.apis.list_offsets import EARLIEST, LATEST
from kafka_sink.kafka.protocol.needs import READING
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.reading.admission import Delay, rate_limited
from kafka_sink.spark.reading.clip import Offsets, clipped
from kafka_sink.spark.reading.continuity import Break, LogEnd, breaks, of_earlier_leaders, with_newer_leaders
from kafka_sink.spark.reading.divide import divide
from kafka_sink.spark.reading.plan import LogBounds, check_named
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.topics import (
    absences,
    check_readable,
    names_to_read,
    partitions_there,
    topics_to_read,
)

log = logging.getLogger("kafka_sink")


def warn(error: ReadError) -> None:
    log.warning("%s The stream goes on (failOnDataLoss is false).", error.parts().happened)


class StreamPlan:
    """For one stream. Each method that asks the cluster raises a ReadError, ClusterError or ConfigError.

    `tell`: takes each loss that does not end the query.
    """

    def __init__(self, config: ReadConfig, tell: Callable[[ReadError], None] = warn) -> None:
        self._config = config
        self._tell_user = tell
        self._delay = Delay(config.min_offsets_per_trigger or 0, config.max_trigger_delay_ms)
        # The last answers of the cluster, and what they say of each log.
        self._logs = Logs()
        self._known: dict[TopicPartition, LogEnd] = {}
        # Steps that were told, until the stream has taken them; with the log as it is there.
        self._steps: dict[TopicPartition, tuple[Break, LogEnd | None]] = {}
        # What the options name and is not there, once that was told.
        self._absent: set[TopicPartition | str] = set()
        # Where a new stream begins, and which of that is the end of a log, until the first micro-batch records it.
        self._begins: dict[TopicPartition, int] = {}
        self._begin_at_end: dict[TopicPartition, int] = {}
        self.is_begun = False
        self._ends_now = False
        self._target: Positions | None = None

    @property
    def latest(self) -> Positions:
        """Where the logs ended when they were last looked at."""
        return {each: end.offset for each, end in self._logs.ends.items()}

    def end_now(self) -> None:
        """Read no record that is newer than the next look at the logs (trigger availableNow)."""
        self._ends_now = True

    # --- what Spark asks ----------------------------------------------------------------------------------------------

    def initial(self, client: AdminClient) -> Positions:
        """Return where a new stream begins."""
        config = self._config
        client.require(READING)
        topics = topics_to_read(client, config)
        partitions = partitions_there(topics, config)
        check_named(partitions, config.starting, "starting")
        bounds = LogBounds(client, config, partitions)
        starting = bounds.starting_offsets()
        positions = {}
        for each in partitions:
            there = bounds.there(each)
            asked = Offsets(starting[each], max(starting[each], there.end))
            positions[each] = clipped(each, asked, there, fail_on_data_loss=config.fail_on_data_loss).first
            self._known[each] = LogEnd(topics[each.topic].topic_id, there.end, bounds.latest[each].leader_epoch)
        self._begins = positions
        self._begin_at_end = {each: offset for each, offset in positions.items() if offset == self._known[each].offset}
        return positions

    def end(self, client: AdminClient, start: Positions, *, is_limited: bool) -> Positions:
        """Return where the micro-batch ends that begins at `start`. `is_limited`: the limits of the options count."""
        self._finish_steps(start)
        ends, steps = self._look(client, start)
        if self._ends_now:
            target = self._target = ends if self._target is None else self._target
            # A log may have been truncated since, or be another one.
            ends = {each: min(end, target[each]) for each, end in ends.items() if each in target}
        if not self.is_begun:
            ends = dict(ends) | {each: offset for each, offset in self._begin_at_end.items() if each in ends}
        if steps:
            return _after(start, steps)
        return self._limited(client, start, ends) if is_limited else ends

    def ranges(self, client: AdminClient, start: Positions, end: Positions) -> list[FetchRange]:
        """Return the ranges of the micro-batch from `start` to `end`, one for each task. Spark may plan a micro-batch
        several times, and again in a process that has just started."""
        self.is_begun = True
        if start == end:
            return []
        unknown = {each: offset for each, offset in end.items() if each not in self._known | self._steps}
        if unknown:
            # Of the others only `_look` may note more: it compares them with what was known.
            ends = self._log_ends(client, unknown)
            self._known |= {each: ends[each] for each in unknown if each in ends}
        # What begins now and is not in the first micro-batch, as it was recorded, is new since.
        for each in start.keys() - end.keys() - self._steps.keys() - self._begins.keys():
            self._tell(each, Break(start[each], LossCause.TOPIC_DELETED, None))
        ranges = []
        new = self._earliest(client, [each for each in end if each not in start])
        for each, stop in end.items():
            first = start.get(each, 0)
            if each in new and first < (earliest := new[each]):
                self._tell_lost(each, Offsets(first, earliest), LossCause.DELETED)
                first = min(earliest, stop)
            ranges.append(self._range(each, Offsets(first, stop)))
        config = self._config
        return divide(filter(None, ranges), config.min_partitions, config.max_records_per_partition)

    # --- how much -----------------------------------------------------------------------------------------------------

    def _limited(self, client: AdminClient, start: Positions, ends: Positions) -> Positions:
        config = self._config
        # With availableNow nothing would come that is worth waiting for.
        may_wait = config.min_offsets_per_trigger is not None and self._target is None
        if may_wait and self._delay.puts_off(start, ends, monotonic_ms()):
            return start
        if config.max_offsets_per_trigger is None:
            return ends
        new = self._earliest(client, [each for each in ends if each not in start])
        return rate_limited(config.max_offsets_per_trigger, {**start, **new}, ends)

    def _earliest(self, client: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions begin that are new to the stream, if they are there."""
        asked = {each: EARLIEST for each in partitions if each in self._known}
        listed = list_offsets(client, asked, self._config.consumer.isolation_level)
        return {each: found.offset for each, found in listed.items()}

    def _range(self, partition: TopicPartition, asked: Offsets) -> FetchRange | None:
        """Return the range, or None if it has no offsets. Raises LogBroken, OffsetsLost."""
        # The first micro-batch, as it was recorded, may end before the offset at which the stream begins by now.
        if partition in self._steps or self._begins.get(partition) == asked.first >= asked.end:
            return None
        log_there = self._known.get(partition)
        if log_there is None:
            self._tell(partition, Break(asked.first, LossCause.TOPIC_DELETED, None))
            return None
        if asked.end < asked.first:
            self._tell(partition, Break(asked.first, LossCause.TRUNCATED, asked.end))
            return None
        end = min(asked.end, log_there.offset)
        if end < asked.end:
            self._tell_lost(partition, Offsets(end, asked.end), LossCause.TRUNCATED)
        return FetchRange(
            topic=partition.topic,
            topic_id=log_there.topic_id,
            partition=partition.partition,
            first=asked.first,
            end=end,
            leader_epoch=log_there.leader_epoch,
        )

    # --- do the logs go on? -------------------------------------------------------------------------------------------

    def _look(self, client: AdminClient, positions: Positions) -> tuple[Positions, Mapping[TopicPartition, Break]]:
        """Note where the logs end now. Return that, and where they do not go on at `positions`. Raises LogBroken."""
        ends, epochs = self._compared(client, positions)
        for error in self._new_absences(positions).values():
            self._raise_or_warn(error)
        self._absent = set(absences(self._logs.topics, self._config))
        broken = breaks(positions, self._known, ends, epochs)
        for each, found in broken.items():
            self._tell(each, found)
            self._steps[each] = found, ends.get(each)
        self._known |= {each: end for each, end in ends.items() if each not in broken}
        return {each: end.offset for each, end in ends.items()}, broken

    def _new_absences(self, positions: Positions) -> dict[TopicPartition | str, ReadError]:
        """Return an error for what the options name, is not there, and was not told. Where the stream has been is a
        break."""
        been = {*positions, *(each.topic for each in positions), *self._absent}
        return {each: error for each, error in absences(self._logs.topics, self._config).items() if each not in been}

    def _finish_steps(self, positions: Positions) -> None:
        """Forget the steps that the stream has taken."""
        for each, (step, log_there) in list(self._steps.items()):
            if positions.get(each) == step.goes_on_at:
                del self._steps[each]
                self._known.pop(each, None)
                if log_there is not None:
                    self._known[each] = log_there

    def _compared(
        self, client: AdminClient, positions: Positions
    ) -> tuple[dict[TopicPartition, LogEnd], Mapping[TopicPartition, int | None]]:
        """Return where the logs end, and where the known leader epochs end in the logs of newer leaders.

        Raises LeaderUnavailable.
        """
        deadline_ms = client.caller.deadline_ms()
        tries = 0
        while True:
            ends = self._log_ends(client, positions)
            newer = with_newer_leaders(positions, self._known, ends)
            asked = {each: self._known[each].leader_epoch for each in newer}
            epochs = epoch_ends(client, self._logs, asked)
            missing = asked.keys() - epochs.keys()
            if not missing:
                return ends, epochs
            tries += 1
            if not client.caller.pause(tries, deadline_ms):
                raise self._unavailable(client, min(missing), "it does not tell where the records before it end")

    def _unavailable(self, client: AdminClient, partition: TopicPartition, last_error: str) -> LeaderUnavailable:
        return LeaderUnavailable(
            **partition._asdict(),
            waited_ms=client.config.api_timeout_ms,
            timeout_option=client.config.api_timeout_option,
            last_error=last_error,
        )

    def _log_ends(self, client: AdminClient, positions: Positions) -> dict[TopicPartition, LogEnd]:
        """Return where the logs end. A broker that lags is no proof that anything is gone, so an answer that says so
        counts only if a request confirms it that was sent ABSENT_PATIENCE_MS later. The answer of an earlier leader
        never counts. Raises LeaderUnavailable."""
        deadline_ms = client.caller.deadline_ms() + ABSENT_PATIENCE_MS
        doubted_since_ms = None
        while True:
            sent_ms = monotonic_ms()
            ends = self._asked_ends(client, positions)
            stale = of_earlier_leaders(self._known, ends)
            doubtful = breaks(positions, self._known, ends, {})
            if stale:
                doubted_since_ms = None
            elif not doubtful and not self._new_absences(positions):
                return ends
            elif doubted_since_ms is None:
                doubted_since_ms = monotonic_ms()
            elif sent_ms - doubted_since_ms >= ABSENT_PATIENCE_MS:
                return ends
            if not client.caller.pause(1, deadline_ms):
                if unproven := {*stale, *doubtful}:
                    raise self._unavailable(client, min(unproven), "a broker answers that knows an older leader")
                return ends

    def _asked_ends(self, client: AdminClient, positions: Positions) -> dict[TopicPartition, LogEnd]:
        """Ask where the logs end."""
        config = self._config
        level = config.consumer.isolation_level
        self._logs = log_ends(
            client,
            names_to_read(config),
            lambda topics: partitions_there(topics, config),
            level,
            self._logs,
        )
        check_readable(self._logs.topics)
        ends = {
            each: LogEnd(self._logs.topics[each.topic].topic_id, end.offset, end.leader_epoch)
            for each, end in self._logs.ends.items()
        }
        if level is IsolationLevel.READ_COMMITTED:
            # A transaction is open again if a truncation took its end. DeleteRecords may delete the first part of one.
            # Both leave the last stable offset before the position, in a log that goes on there.
            behind = [each for each, position in positions.items() if each in ends and ends[each].offset < position]
            high_watermarks = list_offsets(client, dict.fromkeys(behind, LATEST), IsolationLevel.READ_UNCOMMITTED)
            for each, found in high_watermarks.items():
                ends[each] = replace(ends[each], offset=max(ends[each].offset, min(found.offset, positions[each])))
        return ends

    def _tell(self, partition: TopicPartition, found: Break) -> None:
        """Raise LogBroken, or log a warning with failOnDataLoss=false."""
        self._raise_or_warn(
            LogBroken(
                **partition._asdict(),
                position=found.position,
                cause=found.cause,
                goes_on_at=-1 if found.goes_on_at is None else found.goes_on_at,
            )
        )

    def _tell_lost(self, partition: TopicPartition, lost: Offsets, cause: LossCause) -> None:
        """Raise OffsetsLost, or log a warning with failOnDataLoss=false."""
        self._raise_or_warn(OffsetsLost(**partition._asdict(), first=lost.first, end=lost.end, cause=cause))

    def _raise_or_warn(self, error: ReadError) -> None:
        if self._config.fail_on_data_loss:
            raise error
        self._tell_user(error)


def _after(start: Positions, steps: Mapping[TopicPartition, Break]) -> Positions:
    """Return where a stream at `start` is after these steps."""
    moved = {each: step.goes_on_at for each, step in steps.items()}
    return {each: offset for each, at in start.items() if (offset := moved.get(each, at)) is not None}

"""What a stream knows of the logs that it reads, from one look at them to the next.

    where the logs end ─> is the answer to be believed? ─> do the logs go on at the stream's positions?

Of each log the topic id, the leader epoch and the end are kept, and a batch that was read (`Marks`). A process that
starts with a checkpoint knows only its positions. A log that does not go on at the stream's position
(`continuity.py`) is a break. The stream leaves it by a step to where the log goes on. Until it has taken that step, the
log counts as it was before the break.

A micro-batch whose end is recorded may find its log truncated before that end. Spark goes on at the recorded end all
the same, so the next look makes a step back to where the micro-batch ended in the log.

Source: KIP-320; org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_sink.errors import ReadError
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import (
    Logs,
    Place,
    Sample,
    StoredBatch,
    epoch_ends,
    log_ends,
    offsets_there,
    samples,
    stored_batches,
)
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, NO_EPOCH
from kafka_sink.kafka.protocol.apis.offsets import LATEST, OffsetForLeaderEpochResponse
from kafka_sink.kafka.protocol.error_codes import error_text
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.reading.continuity import (
    Break,
    LogEnd,
    LogEnds,
    Losses,
    breaks,
    earlier_of,
    of_earlier_leaders,
    with_newer_leaders,
)
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.topics import (
    absences,
    check_readable,
    expected_topics,
    inconclusive_topics,
    names_to_read,
    partitions_there,
    unavailable,
)


class StreamLogs:
    """For one stream. A method that asks the cluster raises a ReadError, ClusterError or ConfigError."""

    def __init__(self, config: ReadConfig, losses: Losses) -> None:
        self._config = config
        self._losses = losses
        # The last answers of the cluster, and what they say of each log.
        self._logs = Logs()
        self.known: dict[TopicPartition, LogEnd] = {}
        # Steps that were told, until the stream has taken them; with the log as it is there.
        self.steps: dict[TopicPartition, tuple[Break, LogEnd | None]] = {}
        self._marks = Marks()
        # Where the last micro-batch ended in logs that did not reach its recorded end.
        self._cuts: dict[TopicPartition, Break] = {}
        # What the options name and is not there, once that was told.
        self._absent: set[TopicPartition | str] = set()

    @property
    def latest(self) -> Positions:
        """Where the logs ended when they were last looked at."""
        return {each: end.offset for each, end in self._logs.ends.items()}

    def look(self, client: AdminClient, positions: Positions) -> tuple[Positions, Mapping[TopicPartition, Break]]:
        """Note where the logs end now. Return that, and where they do not go on at `positions`. Raises LogBroken."""
        self._finish_steps(positions)
        ends, parting = self._compared(client, positions)
        for error in self._new_absences(positions).values():
            self._losses.take(error)
        self._absent = set(absences(self._logs.topics, self._config))
        broken = breaks(positions, self.known, ends, parting)
        self._cuts = {each: cut for each, cut in self._cuts.items() if positions.get(each) == cut.position}
        broken |= {each: earlier_of(cut, broken.get(each)) for each, cut in self._cuts.items()}
        for each in self._marks.moved(client, self._logs, ends, positions) - broken.keys():
            broken[each] = Break(positions[each], LossCause.RESTORED, positions[each])
        for each, found in broken.items():
            self._losses.log_broken(each, found)
            self.steps[each] = found, ends.get(each)
        self.known |= {each: end for each, end in ends.items() if each not in broken}
        whole = {each: offset for each, offset in positions.items() if each not in broken}
        self._marks.take(client, self._logs, ends, whole, monotonic_ms())
        return {each: end.offset for each, end in ends.items()}, broken

    def learn(self, client: AdminClient, positions: Positions) -> None:
        """Ask for those logs of `positions` of which nothing is known. What is known, only `look` may compare with what
        is there now."""
        known = self.known | self.steps
        unknown = {each: offset for each, offset in positions.items() if each not in known}
        if unknown:
            ends = self._with_record_epochs(client, self._log_ends(client, unknown), {})
            self.known |= {each: ends[each] for each in unknown if each in ends}

    def weigh(self, client: AdminClient, places: Sequence[Place]) -> Mapping[Place, Sample]:
        """Return what batches weigh at offsets of the logs that were seen at the last look, where a leader answers."""
        return samples(client, self._logs, places)

    def cut(self, partition: TopicPartition, found: Break) -> None:
        """Note that a micro-batch with the recorded end `found.position` was read up to `found.goes_on_at`, where its
        log ended."""
        self._cuts[partition] = found

    def _finish_steps(self, positions: Positions) -> None:
        """Forget the steps that the stream has taken."""
        for each, (step, log_there) in list(self.steps.items()):
            if positions.get(each) == step.goes_on_at:
                del self.steps[each]
                self.known.pop(each, None)
                if log_there is not None:
                    self.known[each] = log_there

    def _new_absences(self, positions: Positions) -> dict[TopicPartition | str, ReadError]:
        """Return an error for what the options name, is not there, and was not told. Where the stream has been is a
        break."""
        been = {*positions, *(each.topic for each in positions), *self._absent}
        return {each: error for each, error in absences(self._logs.topics, self._config).items() if each not in been}

    # --- answers ------------------------------------------------------------------------------------------------------

    def _compared(
        self, client: AdminClient, positions: Positions
    ) -> tuple[dict[TopicPartition, LogEnd], Mapping[TopicPartition, int | None]]:
        """Return where the logs end, and up to where the logs of newer leaders have the known records.

        Raises LeaderUnavailable.
        """
        deadline_ms = client.caller.deadline_ms()
        tries = 0
        while True:
            ends = self._log_ends(client, positions)
            newer = with_newer_leaders(positions, self.known, ends)
            asked = {each: self.known[each].proof_epoch for each in newer}
            found = epoch_ends(client, self._logs, asked)
            missing = asked.keys() - found.keys()
            if not missing:
                parting = {
                    each: None if answer is None else self.known[each].parts_at(answer)
                    for each, answer in found.items()
                }
                # Most leaders follow the one that is known, so the same answer tells where their records begin.
                answers = {each: found[each] for each in asked if asked[each] == ends[each].leader_epoch - 1}
                return self._with_record_epochs(client, ends, answers), parting
            tries += 1
            if not client.caller.pause(tries, deadline_ms):
                raise unavailable(client, min(missing), "it does not tell where the records before it end")

    def _with_record_epochs(
        self,
        client: AdminClient,
        ends: Mapping[TopicPartition, LogEnd],
        answers: Mapping[TopicPartition, OffsetForLeaderEpochResponse | None],
    ) -> dict[TopicPartition, LogEnd]:
        """Return the ends with the leader epochs of their last records. Only new leaders are asked, and of these only
        those that are not in `answers`.

        A leader is asked about the epoch before its own. The answer is the last epoch that has records, and where those
        of the next one begin. If that is not before the end, no record is of the next one, and the same is asked of the
        epoch that was found.
        """
        found = {each: end.after(self.known.get(each)) for each, end in ends.items()}
        epochs = {
            each: (end.leader_epoch, sys.maxsize)
            for each, end in found.items()
            if end.epoch_start is None and end.leader_epoch > 0 and end.offset > 0
        }
        while epochs:
            asked = {each: epoch - 1 for each, (epoch, _) in epochs.items() if each not in answers}
            answers = {**answers, **epoch_ends(client, self._logs, asked)}
            before, epochs = epochs, {}
            for each, (epoch, next_start) in before.items():
                answer = answers.get(each)
                if answer is None:
                    continue
                found[each] = found[each].with_start(epoch, answer.end_offset)
                # Where the records before the end were deleted, the answer names no earlier start.
                if found[each].record_epoch != NO_EPOCH or answer.end_offset >= next_start:
                    continue
                if answer.leader_epoch > 0:
                    epochs[each] = answer.leader_epoch, answer.end_offset
                else:
                    found[each] = found[each].with_start(answer.leader_epoch, 0)
            answers = {}
        return found

    def _log_ends(self, client: AdminClient, positions: Positions) -> dict[TopicPartition, LogEnd]:
        """Return where the logs end. A broker that lags is no proof that anything is gone, so an answer that says so
        counts only if a request confirms it that was sent ABSENT_PATIENCE_MS later. The answer of an earlier leader, or
        with only an error for a topic, never counts. Raises LeaderUnavailable."""
        deadline_ms = client.caller.deadline_ms() + ABSENT_PATIENCE_MS
        doubted_since_ms = None
        while True:
            sent_ms = monotonic_ms()
            ends = self._asked_ends(client, positions)
            stale = of_earlier_leaders(self.known, ends)
            inconclusive = self._inconclusive(positions)
            doubtful = breaks(positions, self.known, ends, {})
            if stale or inconclusive:
                doubted_since_ms = None
            elif not doubtful and not self._new_absences(positions):
                return ends
            elif doubted_since_ms is None:
                doubted_since_ms = monotonic_ms()
            elif sent_ms - doubted_since_ms >= ABSENT_PATIENCE_MS:
                return ends
            if not client.caller.pause(1, deadline_ms):
                if inconclusive:
                    first = min(inconclusive)
                    raise unavailable(client, first, error_text(self._logs.topics[first.topic].error_code))
                if unproven := {*stale, *doubtful}:
                    raise unavailable(client, min(unproven), "a broker answers that knows an older leader")
                return ends

    def _inconclusive(self, positions: Positions) -> set[TopicPartition]:
        """Return the partitions of which the last answer neither has the topic nor says that it is gone."""
        topics = set(inconclusive_topics(self._logs.topics))
        return {each for each in positions if each.topic in topics}

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
            expected_topics({each.topic for each in positions}, config),
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
            high_watermarks = offsets_there(client, dict.fromkeys(behind, LATEST), IsolationLevel.READ_UNCOMMITTED)
            for each, found in high_watermarks.items():
                ends[each] = replace(ends[each], offset=max(ends[each].offset, min(found.offset, positions[each])))
        return ends


# --- marks ------------------------------------------------------------------------------------------------------------

# A stream that never rests takes a new mark after so long.
MARK_AGE_MS = 60_000
# In one look.
MOST_NEW_MARKS = 100


@dataclass(frozen=True, slots=True)
class Mark:
    topic_id: uuid.UUID | None
    leader_epoch: int
    offset: int
    batch: StoredBatch
    taken_at_ms: int


class Marks:
    """Marks of one stream in the logs that it reads: which batch was there, just before its position.

    A cluster that is restored from a snapshot has the same topic ids and leader epochs, and grows past the stream's
    position with other records. Only the records tell. So the planner keeps the header of one batch of each log. It
    compares them when its connections have ended since, as they do when brokers start again, or when a leader has
    changed.

        position moved, and the stream is idle or the mark is old  ->  one small Fetch: a new mark
        connections ended since the last look, or a new leader     ->  one small Fetch: is it still there?

    Non-obvious: a batch that is gone, or has fewer records, is no proof: compaction does that. A restarted query has no
    marks: Spark's checkpoint has offsets alone, in the form of format("kafka").
    """

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, Mark] = {}
        self._positions: Positions = {}
        # When a mark was asked for.
        self._tried_ms: dict[TopicPartition, int] = {}
        # The client of the last look, and how often its connections had begun and ended.
        self._connections: tuple[int, int, int] | None = None
        self._is_answered = True

    def moved(self, client: AdminClient, logs: Logs, ends: LogEnds, positions: Positions) -> set[TopicPartition]:
        """Return the partitions whose log has another record at a mark than before."""
        may_be_another = self._connections not in (None, _connections_of(client))
        asked = {
            each: mark
            for each, mark in self._marks.items()
            if each in positions
            and each in ends
            and mark.topic_id == ends[each].topic_id
            and mark.offset < ends[each].offset
            and (may_be_another or mark.leader_epoch != ends[each].leader_epoch)
        }
        if not asked:
            return set()
        found = stored_batches(client, logs, {each: mark.offset for each, mark in asked.items()})
        self._is_answered = asked.keys() <= found.keys()
        return {
            each
            for each, batch in found.items()
            if batch.base_offset <= asked[each].offset and not asked[each].batch.may_become(batch)
        }

    def take(self, client: AdminClient, logs: Logs, ends: LogEnds, positions: Positions, now_ms: int) -> None:
        """Take marks where the stream is, after a look whose breaks are told. `positions`: of whole logs."""
        self._marks = {each: mark for each, mark in self._marks.items() if each in positions}
        due = [each for each, position in positions.items() if self._is_due(each, position, ends.get(each), now_ms)]
        chosen = {each: positions[each] - 1 for each in due[:MOST_NEW_MARKS]}
        self._tried_ms |= dict.fromkeys(chosen, now_ms)
        for each, batch in (stored_batches(client, logs, chosen) if chosen else {}).items():
            if batch.base_offset <= chosen[each] <= batch.last_offset:
                end = ends[each]
                self._marks[each] = Mark(end.topic_id, end.leader_epoch, chosen[each], batch, now_ms)
        self._positions = dict(positions)
        if self._is_answered:
            self._connections = _connections_of(client)
        self._is_answered = True

    def _is_due(self, partition: TopicPartition, position: int, end: LogEnd | None, now_ms: int) -> bool:
        if end is None or not 0 < position <= end.offset:
            return False
        mark, rests = self._marks.get(partition), self._positions.get(partition) == position
        if mark is None or mark.topic_id != end.topic_id:
            return partition not in self._tried_ms or now_ms - self._tried_ms[partition] >= MARK_AGE_MS
        return mark.offset != position - 1 and (rests or now_ms - mark.taken_at_ms >= MARK_AGE_MS)


def _connections_of(client: AdminClient) -> tuple[int, int, int]:
    network = client.caller.network
    return client.number, network.handshakes, network.interruptions

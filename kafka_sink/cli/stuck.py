"""Why a stream is stuck: looks twice at its checkpoint and at the topics that it reads and writes, and names the cause.

The second look shows if positions move. Each finding is a verdict of a report; `cause` picks the one to begin with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from kafka_sink.cli.checkpoint import (
    Checkpoint,
    Log,
    SourceProgress,
    TopicProgress,
    logs_of,
    notes_of,
    progress_of,
    read_checkpoint,
    read_sources,
)
from kafka_sink.cli.transactions_text import lasted, named
from kafka_sink.commit import open_transactions
from kafka_sink.commit.open_transactions import Seen
from kafka_sink.commit.runner import run
from kafka_sink.doctor import interpreter
from kafka_sink.doctor.report import Finding, Report, Status, Verdict, failed, ok, warning
from kafka_sink.errors import KafkaSinkError
from kafka_sink.errors.quoting import several
from kafka_sink.errors.redaction import reason_for
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import SinkConfig

_AFTER_LOSS = (
    "a query whose offsets retention deleted goes on with failOnDataLoss=false. If a topic was created again or "
    "truncated, start with a new checkpoint: an old one leaves out new records. `pykafka explain OffsetsLost` and "
    "`pykafka explain LogBroken` say more"
)
# For the questions of one look.
LOOK_MS = 8_000
# A partition is hot if it has this many times the average of the topic's others, and at least so many records.
HOT_TIMES, HOT_RECORDS = 4, 1_000
# Which finding explains the most. Failures come before warnings.
ORDER = (
    interpreter.STEP, "checkpoint", "leaders", "sources", "data loss", "open transaction", "throttle", "hot partition",
    "lag", "micro-batch", "new records",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """`written`: the logs of the topic that the query writes to, None without leader. `holders`: which transaction
    holds readers of committed records back, in words, by partition."""

    checkpoint: Checkpoint
    sources: Sequence[SourceProgress]
    written: Mapping[TopicPartition, Log | None]
    holders: Mapping[TopicPartition, str]


def examine_stream(location: str, config: SinkConfig, wait_s: float) -> Report:
    """Look at the stream with the checkpoint at `location`, twice, `wait_s` apart, and at a worker of Spark."""
    worker = interpreter.look_at_worker()
    try:
        with closing(AdminClient(config.producer)) as client:
            before = _look(client, location, config)
            pause(wait_s)
            found = judged(before, _look(client, location, config), wait_s)
    except OSError as error:
        remedy = "name the query's checkpointLocation; if it is new, no micro-batch was planned yet"
        unread = failed(f"it cannot be read: {reason_for(location, error)}", remedy)
        found = [Verdict("checkpoint", location, unread)]
    except KafkaSinkError as error:
        parts = error.of_read().parts()
        found = [Verdict("sources", f"checkpoint {location}", failed(parts.happened, parts.advice.rstrip(".")))]
    return Report((worker, *found))


def cause(report: Report) -> Verdict | None:
    """Return the verdict to begin with: the first failure, or the warning that explains the most."""
    of_stream = [each for each in report.verdicts if each.step in ORDER]
    of_stream.sort(key=lambda each: ORDER.index(each.step))
    failures = [each for each in report.failures if each.step not in ORDER]
    failures += [each for each in of_stream if each.status is Status.FAILED]
    return next(iter((*failures, *(each for each in of_stream if each.status is Status.WARNING))), None)


# --- what is there ----------------------------------------------------------------------------------------------------


def _look(client: AdminClient, location: str, config: SinkConfig) -> Look:
    """Raises OSError, ClusterError."""
    checkpoint = read_checkpoint(location)
    with client.within(LOOK_MS):
        found = progress_of(client, checkpoint, read_sources(location, checkpoint))
        written = {} if config.topic is None else logs_of(client, [config.topic])
        held = {
            TopicPartition(topic.topic, each.partition)
            for source in found
            for topic in source.topics or ()
            for each in topic.partitions
            if each.unstable
        } | {each for each, log in written.items() if log is not None and log.stable < log.latest}
        return Look(checkpoint, found, written, _holders(client, sorted(held)))


def _holders(client: AdminClient, held: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    if not held:
        return {}
    try:
        seen = run(client, open_transactions.look("", held))
    except KafkaSinkError as error:
        return dict.fromkeys(held, f"an unknown transaction ({error.parts().happened})")
    first = {}
    for each in sorted(seen.producers, key=lambda each: each.start_offset, reverse=True):
        first[TopicPartition(each.topic, each.partition)] = _holder(each, seen)
    return {each: first.get(each, "an unknown transaction") for each in held}


def _holder(producer: open_transactions.OpenProducer, seen: Seen) -> str:
    of = next((each for each in seen.transactions.values() if each.producer_id == producer.ids.producer_id), None)
    if of is None:
        return f"the transaction of producer id {producer.ids.producer_id}, from offset {producer.start_offset}"
    return (
        f"transaction {of.transactional_id!r}, from offset {producer.start_offset}, {of.state} for "
        f"{lasted(of.start_time_ms)}, with a timeout of {lasted(0, of.timeout_ms)}"
    )


# --- what it means ----------------------------------------------------------------------------------------------------


def judged(before: Look, now: Look, wait_s: float) -> list[Verdict]:
    """Return the verdicts of two looks that are `wait_s` apart. Pure."""
    found = [Verdict("micro-batch", f"query {now.checkpoint.query_id}", _micro_batch(before, now, wait_s))]
    for number, source in enumerate(now.sources):
        where = f"source {source.name}"
        if source.topics is None:
            found.append(Verdict("new records", where, ok("it is not Kafka: only Spark knows how far it is")))
            continue
        found.append(_lag(before.sources[number : number + 1], source, where, wait_s))
        for topic in source.topics:
            found += _of_topic(topic, now.holders)
    hidden = [each for each, log in now.written.items() if log is not None and log.stable < log.latest]
    if hidden:
        what = "readers of committed records, downstream of the query, wait for"
        found.append(_held(hidden, now.holders, what, warning))
    return found


def _micro_batch(before: Look, now: Look, wait_s: float) -> Finding:
    planned, recorded, written_s = now.checkpoint.planned, now.checkpoint.recorded, now.checkpoint.written_s
    age = "" if written_s is None else f" {lasted(int(written_s * 1_000))} ago"
    restart = "look for the query's error (kafka_sink.error_of). If it has ended, start it with this checkpoint"
    if planned is None:
        return warning("none was planned yet", restart)
    if before.checkpoint != now.checkpoint:
        return ok(f"micro-batch {planned} was planned{age}, {'none' if recorded is None else recorded} recorded")
    if planned != recorded:
        return warning(
            f"micro-batch {planned} was planned{age} and is not recorded: it runs, or the query ended while it ran",
            f"{restart}. If it runs, Spark's UI shows which task does not end",
        )
    if any(topic.behind > sum(each.unstable for each in topic.partitions) for topic in _topics(now.sources)):
        return warning(
            f"micro-batch {planned} was recorded{age}, and within {wait_s:g} s none was planned although there are "
            "records",
            f"{restart}. If it runs, it waits for its trigger or for minOffsetsPerTrigger",
        )
    return ok(f"micro-batch {planned} was recorded{age}")


def _lag(before: Sequence[SourceProgress], source: SourceProgress, where: str, wait_s: float) -> Verdict:
    behind, planned, end = _totals([source])
    was_behind, _, was_end = _totals(before)
    if not behind and end == was_end:
        none = warning(
            f"none: the query has read all there is, and nothing came within {wait_s:g} s",
            "look at what writes to the topic. If records come and no row arrives downstream, the query itself leaves "
            "them out: a filter, a watermark",
        )
        return Verdict("new records", where, none)
    lag = f"{behind:,} records behind, {was_behind:,} some {wait_s:g} s before"
    if behind <= was_behind or behind <= planned:
        return Verdict("lag", where, ok(lag))
    grows = warning(
        f"it grows: {lag}",
        "the query reads less than is written, or has ended. Look again with --wait of some micro-batches. Then give "
        "it more cores or partitions (minPartitions), or raise maxOffsetsPerTrigger",
    )
    return Verdict("lag", where, grows)


def _totals(found: Iterable[SourceProgress]) -> tuple[int, int, int]:
    """Return how far the sources are behind, the part of it that is planned, and where the logs end."""
    topics = _topics(found)
    end = sum(each.position + each.behind - each.ahead for topic in topics for each in topic.partitions)
    return sum(topic.behind for topic in topics), sum(topic.planned for topic in topics), end


def _topics(found: Iterable[SourceProgress]) -> list[TopicProgress]:
    return [topic for source in found for topic in source.topics or ()]


def _of_topic(topic: TopicProgress, holders: Mapping[TopicPartition, str]) -> Iterator[Verdict]:
    where = f"topic {topic.topic}"
    if topic.not_looked_at:
        leaderless = several(named(TopicPartition(topic.topic, number)) for number in topic.not_looked_at)
        finding = failed(f"no leader for {leaderless}", "start the brokers that have their replicas")
        yield Verdict("leaders", where, finding)
    if topic.gone or any(each.deleted or each.ahead for each in topic.partitions):
        lost = " ".join(note for note in notes_of(topic) if "open transactions" not in note)
        yield Verdict("data loss", where, failed(lost, _AFTER_LOSS))
    held = [each for each in topic.partitions if each.unstable]
    if held:
        # A source with read_committed stops exactly where the transaction begins.
        waits = all(each.unstable == each.behind for each in held)
        what = "the query waits for" if waits else "a source with read_committed will wait for"
        partitions = [TopicPartition(topic.topic, each.partition) for each in held]
        yield _held(partitions, holders, what, failed if waits else warning)
    slowest, count = topic.slowest, len(topic.partitions)
    if slowest is None or count < 2:
        return
    others = (topic.behind - slowest.behind) / (count - 1)
    if slowest.behind >= HOT_RECORDS and slowest.behind > HOT_TIMES * others:
        finding = warning(
            f"it has {slowest.behind:,} of the {topic.behind:,} records behind, each of the others {others:,.0f}",
            "one key has most of the records, or one producer does not spread them: choose another key. Until then "
            "minPartitions or maxRecordsPerPartition gives several tasks a part of it",
        )
        yield Verdict("hot partition", f"{topic.topic}-{slowest.partition}", finding)


def _held(
    partitions: Sequence[TopicPartition],
    holders: Mapping[TopicPartition, str],
    what: str,
    severity: Callable[[str, str], Finding],
) -> Verdict:
    finding = severity(
        f"{what} {holders.get(partitions[0], 'an unknown transaction')}",
        "start its program again, which ends it, or wait for its timeout, when the brokers end it. For a sink of "
        "pykafka `pykafka transactions list` prints the command that ends it",
    )
    return Verdict("open transaction", several(map(named, partitions)), finding)


def pause(seconds: float) -> None:
    time.sleep(seconds)

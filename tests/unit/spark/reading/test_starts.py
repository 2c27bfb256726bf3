"""Starts that move: times before now, and the last offsets. A read finds them once, over scripted brokers."""

import logging
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink import errors
from kafka_sink.kafka.protocol.apis.offsets import ListOffsetsRequest
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading import stream_reader
from kafka_sink.spark.reading.batch_reader import KafkaBatchReader
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.source import KafkaDataSource
from kafka_sink.spark.task import Task
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, Stream, connect_reads, planned, serve, spans_of

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
MINUTE = 60_000
NOW_MS = 100 * MINUTE
LATEST_STRATEGY = {"startingOffsetsByTimestampStrategy": "latest"}
# One record a minute: offset n is of minute n, up to minute 99.
TIMES = {minute: minute * MINUTE for minute in range(100)}


@pytest.fixture
def logs() -> dict[tuple[str, int], ScriptedLog]:
    return {
        A0: ScriptedLog(0, 100, times=dict(TIMES)),
        A1: ScriptedLog(95, 98, times={n: TIMES[n] for n in (95, 96, 97)}),
    }


@pytest.fixture
def kafka(logs: dict[tuple[str, int], ScriptedLog]) -> ScriptedKafka:
    made = ScriptedKafka()
    made.now_ms = NOW_MS
    serve(made, logs)
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(kafka, monkeypatch)


def write(kafka: ScriptedKafka, logs: Any, count: int) -> None:
    """So many minutes pass, each with a record in each partition."""
    for log in logs.values():
        for minute in range(count):
            log.times[log.latest + minute] = kafka.now_ms + minute * MINUTE
        log.latest += count
    kafka.pass_time(count * MINUTE)


@pytest.mark.parametrize(("options", "spans"), [
    ({"startingTimestamp": "-10 minutes"}, [(0, 90, 100), (1, 95, 98)]),
    ({"startingTimestamp": "-4 minutes", "endingTimestamp": "-3 minutes"}, [(0, 96, 97), (1, 96, 97)]),
    ({"startingTimestamp": "1970-01-01T01:37:00Z"}, [(0, 97, 100), (1, 97, 98)]),
    ({"startingTimestamp": "-1 day", "endingTimestamp": "1970-01-01T00:02:00Z"}, [(0, 0, 2)]),
    ({"startingOffsets": "latest-2"}, [(0, 98, 100), (1, 96, 98)]),
    # The log is shorter.
    ({"startingOffsets": "latest-5"}, [(0, 95, 100), (1, 95, 98)]),
    ({"startingOffsets": "latest-4", "endingOffsets": '{"a": {"0": 97, "1": -1}}'}, [(0, 96, 97), (1, 95, 98)]),
])  # fmt: skip
def test_what_a_batch_covers(options: dict[str, str], spans: list[tuple[int, int, int]]) -> None:
    found = planned(now_ms=NOW_MS, **options, **LATEST_STRATEGY)
    assert [(each.partition, each.first, each.end) for each in found] == spans


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 100))
def test_the_last_offsets_are_as_many_as_are_there(earliest: int, size: int, count: int) -> None:
    kafka = ScriptedKafka()
    serve(kafka, {A0: ScriptedLog(earliest, earliest + size)})
    with pytest.MonkeyPatch.context() as patch:
        connect_reads(kafka, patch)
        found = planned(startingOffsets=f"latest-{count}")
    first = earliest + max(0, size - count)
    assert spans_of(found) == ([("a", 0, first, earliest + size)] if size else [])


def test_of_committed_records_the_last_offsets_are_before_the_open_transaction(logs: Any) -> None:
    logs[A0].stable = 50
    committed = {"kafka.isolation.level": "read_committed", "assign": '{"a": [0]}'}
    assert spans_of(planned(startingOffsets="latest-10", **committed)) == [("a", 0, 40, 50)]


def test_a_time_before_now_without_a_record_follows_the_strategy() -> None:
    with pytest.raises(errors.NoRecordSince, match=r"a-1 has no record from time 5940000 \(startingTimestamp\)"):
        planned(now_ms=NOW_MS, startingTimestamp="-1 minute")
    found = planned(now_ms=NOW_MS, startingTimestamp="-1 minute", **LATEST_STRATEGY)
    assert spans_of(found) == [("a", 0, 99, 100)]


# --- streams ----------------------------------------------------------------------------------------------------------

STARTS: dict[str, tuple[dict[str, str], Positions]] = {
    "a time before now": ({"startingTimestamp": "-10 minutes"}, {A0: 90, A1: 95}),
    "the last offsets": ({"startingOffsets": "latest-2"}, {A0: 98, A1: 96}),
}


each_start = pytest.mark.parametrize(("options", "positions"), STARTS.values(), ids=STARTS)


@each_start
def test_the_first_micro_batch_only_records_where_the_stream_begins(
    kafka: ScriptedKafka, logs: Any, options: dict[str, str], positions: Positions
) -> None:
    stream = Stream(**options)
    assert stream.initial() == positions
    write(kafka, logs, 3)
    # Spark asks for it again.
    assert stream.initial() == positions
    recorded = stream.end(stream.initial())
    assert recorded == positions
    assert stream.ranges(positions, recorded) == []
    end = stream.end(recorded)
    assert stream.spans(recorded, end) == [("a", 0, positions[A0], 103), ("a", 1, positions[A1], 101)]


@each_start
def test_a_stream_whose_first_micro_batch_failed_begins_where_that_was_recorded(
    kafka: ScriptedKafka, logs: Any, options: dict[str, str], positions: Positions
) -> None:
    stream = Stream(**options)
    recorded = stream.end(stream.initial())
    # The driver dies. Much later Spark runs the micro-batch that it has recorded, and asks again where it begins.
    write(kafka, logs, 50)
    again = Stream(**options)
    begins = again.initial()
    assert begins[A0] > recorded[A0]
    assert again.ranges(begins, recorded) == []
    assert again.spans(recorded, again.end(recorded)) == [("a", 0, positions[A0], 150), ("a", 1, positions[A1], 148)]


def test_where_a_stream_was_recorded_to_begin_needs_no_start(kafka: ScriptedKafka, logs: Any) -> None:
    """Nothing was written meanwhile, so no record is as new as the option says by now."""
    options = {"startingTimestamp": "-10 minutes"}
    stream = Stream(**options)
    recorded = stream.end(stream.initial())
    kafka.pass_time(60 * MINUTE)
    again = Stream(**options)
    assert again.ranges(again.initial(), recorded) == []
    end = again.end(recorded)
    assert again.spans(recorded, end) == [("a", 0, 90, 100), ("a", 1, 95, 98)]
    # A new query fails, when its first micro-batch is planned.
    new = Stream(**options)
    begins = new.initial()
    with pytest.raises(errors.NoRecordSince, match="a-0 has no record"):
        new.end(begins)
    # Of another start, before anything is planned.
    with pytest.raises(errors.NoRecordSince):
        Stream(startingTimestamp=str(kafka.now_ms)).initial()


def test_a_start_that_is_earlier_than_the_recorded_one_leaves_nothing_out(kafka: ScriptedKafka) -> None:
    """The options of the run that failed may have been others: a batch from the earliest offset was too large."""
    stream = Stream(startingOffsets="earliest")
    recorded = stream.end(stream.initial())
    again = Stream(startingTimestamp="-10 minutes")
    assert again.spans(again.initial(), recorded) == [("a", 0, 90, 100), ("a", 1, 95, 98)]


def test_partitions_that_are_added_are_read_from_their_start(kafka: ScriptedKafka, logs: Any) -> None:
    stream = Stream(startingOffsets="latest-2")
    start = stream.initial()
    logs[A2] = ScriptedLog(0, 50)
    kafka.leaders[A2] = min(kafka.brokers)
    recorded = stream.end(start)
    assert recorded == {A0: 98, A1: 96}
    stream.ranges(start, recorded)
    assert ("a", 2, 0, 50) in stream.spans(recorded, stream.end(recorded))


def test_available_now_reads_from_the_start_to_what_is_there(kafka: ScriptedKafka, logs: Any) -> None:
    stream = Stream(startingOffsets="latest-2")
    stream.plan.end_now()
    recorded = stream.goes_on(stream.initial())
    write(kafka, logs, 5)
    end = stream.end(recorded)
    assert stream.spans(recorded, end) == [("a", 0, 98, 100), ("a", 1, 96, 98)]
    assert stream.end(end) == end


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_the_log_tells_once_which_instant_a_time_is(kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture) -> None:
    for text, line in (
        ("-2 hours", "startingTimestamp=-2 hours is 1970-01-01T00:00:00.000Z (0), by the clock of this host"),
        ("-90 minutes", "startingTimestamp=-90 minutes is 1970-01-01T00:10:00.000Z (600000), by the clock of this"),
        ("1970-01-01T02:00:00+01:00", "startingTimestamp=1970-01-01T02:00:00+01:00 is 1970-01-01T01:00:00.000Z"),
    ):
        caplog.clear()
        stream = Stream(startingTimestamp=text)
        start = stream.initial()
        assert told(caplog) == [], "the checkpoint may have the first micro-batch"
        for _ in range(2):
            stream.end(start)
        (found,) = told(caplog)
        assert found.startswith(line)
    caplog.clear()
    Stream(startingTimestamp="5").goes_on(Stream(startingTimestamp="5").initial())
    assert told(caplog) == []


def stream_reader_of(**options: str) -> Any:
    source = KafkaDataSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a", **options})
    return source.streamReader(source.schema())


def test_before_spark_4_2_available_now_is_refused_a_start_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """There Spark fixes the end of the first micro-batch before it asks for the start, so that one is in no
    checkpoint."""
    monkeypatch.setattr(stream_reader, "_limits", None)
    made = stream_reader_of(startingOffsets="latest-2")
    made.latestOffset()
    with pytest.raises(errors.RefusedOption, match=r"'startingOffsets'.*availableNow.*latest-2 needs Spark 4\.2"):
        made.initialOffset()
    # Another trigger, a query that goes on, and a start that stays.
    made = stream_reader_of(startingOffsets="latest-2")
    start = made.initialOffset()
    assert made.latestOffset() == start
    made = stream_reader_of(startingOffsets="latest-2")
    assert made.partitions({"a": {"0": 97, "1": 98}}, made.latestOffset())[0].ranges[0].first == 97
    made = stream_reader_of(startingOffsets="earliest")
    made.latestOffset()
    assert made.initialOffset() == {"a": {"0": 0, "1": 95}}


# --- later actions on a batch -----------------------------------------------------------------------------------------

Action = Callable[[str], list[tuple[int, int, int]]]


@pytest.fixture
def action(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Action]]:
    """Makes a DataFrame, and what its tasks read in an action on it."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))

    def make(**options: str) -> Action:
        source = KafkaDataSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a", **options})
        made = source.reader(source.schema())
        assert isinstance(made, KafkaBatchReader)
        tasks = made.partitions()

        def act(execution: str) -> list[tuple[int, int, int]]:
            monkeypatch.setattr(Task, "current", lambda: Task(0, {"spark.sql.execution.id": execution}, 1))
            ranges = [each for task in tasks for each in made._ranges(task)]
            return [(each.partition, each.first, each.end) for each in ranges]

        return act

    yield make


@pytest.mark.parametrize(("options", "first"), [
    ({"startingTimestamp": "-10 minutes"}, [(0, 90, 100), (1, 95, 98)]),
    ({"startingOffsets": "latest-2"}, [(0, 98, 100), (1, 96, 98)]),
])  # fmt: skip
def test_a_later_action_begins_where_the_first_one_did(
    kafka: ScriptedKafka, logs: Any, action: Callable[..., Action], options: dict[str, str], first: Any
) -> None:
    act = action(**options)
    assert act("1") == first
    write(kafka, logs, 50)
    assert act("2") == [(number, begin, end + 50) for number, begin, end in first]
    # An end before now is the instant of the plan, too.
    ended = action(**options, endingTimestamp="-1 minute")
    before = ended("3")
    write(kafka, logs, 50)
    assert ended("4") == before


def test_a_partition_with_nothing_to_read_begins_where_the_plan_saw_its_end(
    kafka: ScriptedKafka, logs: Any, action: Callable[..., Action]
) -> None:
    logs[A1] = ScriptedLog(98, 98)
    act = action(startingOffsets="latest-2")
    assert act("1") == [(0, 98, 100)]
    logs[A2] = ScriptedLog(0, 3)
    kafka.leaders[A2] = min(kafka.brokers)
    write(kafka, logs, 50)
    # A partition that is new is read from its start.
    assert act("2") == [(0, 98, 150), (1, 98, 148), (2, 0, 53)]


def test_a_topic_that_was_created_again_is_read_whole_where_the_plan_had_nothing_to_read(
    kafka: ScriptedKafka, logs: Any, action: Callable[..., Action]
) -> None:
    """The end of the topic before says nothing of this one."""
    kafka.topic_ids["a"] = uuid.UUID(int=1)
    logs[A1] = ScriptedLog(98, 98)
    act = action(startingOffsets="latest-2")
    assert act("1") == [(0, 98, 100)]
    kafka.topic_ids["a"] = uuid.UUID(int=9)
    for size in (3, 120):
        logs[A1] = ScriptedLog(0, size)
        assert (1, 0, size) in act(f"of {size}")


STARTS = (
    {"startingOffsets": "latest-2"}, {"startingTimestamp": "-10 minutes"}, {"startingOffsets": "earliest"},
    {"startingTimestamp": "1970-01-01T01:30:00Z"},
)  # fmt: skip
DIVISIONS: tuple[dict[str, str], ...] = (
    {}, {"maxPartitions": "1"}, {"maxRecordsPerPartition": "3"}, {"minPartitions": "5", "maxPartitions": "5"},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_between_actions_each_has_what_is_there_once(
    seed: int, kafka: ScriptedKafka, logs: Any, action: Callable[..., Action]
) -> None:
    """From where the plan began; all of a partition that is new, or of a topic that was created again."""
    rng = random.Random(seed)
    kafka.topic_ids["a"] = uuid.UUID(int=1)
    for log in logs.values():
        log.earliest = rng.choice([log.earliest, log.latest])
    act = action(**rng.choice(STARTS), **rng.choice(DIVISIONS), **LATEST_STRATEGY)
    begins: dict[int, int] = {}
    for number in range(6):
        found = act(str(number))
        offsets = [(partition, offset) for partition, first, end in found for offset in range(first, end)]
        assert len(offsets) == len(set(offsets))
        if not number:
            begins = {each.partition: min(first, default=logs[each].latest) for each, first in _firsts(found, logs)}
        there = {(of, offset) for (_, of), log in logs.items() for offset in range(log.earliest, log.latest)}
        assert set(offsets) == {(of, offset) for of, offset in there if offset >= begins[of]}, number
        for _ in range(rng.randrange(3)):
            _happens(rng, kafka, logs, begins)


def _happens(rng: random.Random, kafka: ScriptedKafka, logs: Any, begins: dict[int, int]) -> None:
    log = logs[rng.choice(list(logs))]
    match rng.choice(["write", "write", "delete", "again", "add"]):
        case "write":
            write(kafka, logs, rng.choice([1, 7]))
        case "delete":
            log.earliest = rng.randint(log.earliest, log.latest)
        case "again":
            kafka.topic_ids["a"] = uuid.UUID(int=rng.getrandbits(64))
            for each in logs:
                logs[each] = ScriptedLog(0, 0)
                begins[each.partition] = 0
            write(kafka, logs, rng.choice([1, 5, 200]))
        case "add" if A2 not in logs:
            logs[A2] = ScriptedLog(0, 0)
            kafka.leaders[A2], begins[2] = min(kafka.brokers), 0


def _firsts(found: Any, logs: Any) -> Iterator[tuple[TopicPartition, list[int]]]:
    return ((each, [first for of, first, _ in found if of == each.partition]) for each in logs)


def test_a_plan_asks_for_the_ends_once(kafka: ScriptedKafka) -> None:
    """So the last offsets are before the end that the read has."""
    planned(startingOffsets="latest-2")
    assert len(kafka.asked(ListOffsetsRequest)) == 2

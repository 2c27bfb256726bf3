"""The advice of every error of a read, carried out literally: no row is lost or doubled, unless the advice says so.

A case is a situation, words of the advice that it follows, and which rows its user has after that.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_sink import errors
from kafka_sink.errors import KafkaSinkError, ReadError
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.range_reader import RangeReader
from record_sets import Batch, plain, row
from scripted_kafka import ScriptedKafka
from scripted_reads import ScriptedLog, Stream, asked, connect_reads, planned, serve

OUT_OF_RANGE, FENCED, UNKNOWN_TOPIC_ID, DENIED = 1, 74, 100, 29
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
TOO_LARGE = Batch(rows=[(0, row(b"large", None, 0, (b"1", b""), (b"2", b"")))])

# The advice is about brokers, ACLs, a transaction or a group, and a second run of the same read has all rows. What
# PlanReused advises is run with real Spark (integration/test_read_again.py), and what a registry's errors advise is in
# unit/registry/test_decoding.py.
NO_ROWS = {
    errors.ReadStalled, errors.FetchRefused, errors.GroupCommitFailed, errors.GroupNotReadable, errors.PlanReused,
    errors.PlanNotNoted, errors.RecordUndecodable, errors.SchemaIdsUnknown,
}  # fmt: skip


@dataclass
class World:
    """Two topics of one partition. Each batch has one record, and its value says by whom it was written."""

    kafka: ScriptedKafka = field(default_factory=ScriptedKafka)
    logs: dict[tuple[str, int], ScriptedLog] = field(default_factory=dict)
    batches: dict[tuple[str, int], dict[int, Batch]] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    network: Any = None

    def __post_init__(self) -> None:
        serve(self.kafka, self.logs)
        self.kafka.always(FetchRequest, self._fetch)
        for partition in (A, B):
            self.create(partition)
            self.write(partition, 10)

    def create(self, partition: TopicPartition) -> None:
        self.logs[partition], self.batches[partition] = ScriptedLog(0, 0, starts={0: 0}), {}
        self.kafka.leaders[partition] = min(self.kafka.brokers)
        self.kafka.topic_ids[partition.topic] = uuid.uuid4()

    def delete(self, partition: TopicPartition) -> None:
        del self.kafka.leaders[partition]

    def write(self, partition: TopicPartition, count: int, writer: str = "old") -> None:
        log = self.logs[partition]
        for offset in range(log.latest, log.latest + count):
            batch = plain(f"{writer} {partition.topic}{offset}".encode(), base_offset=offset)
            self.batches[partition][offset] = batch
            log.times = {**log.times, offset: 0}
        log.latest += count

    def put(self, partition: TopicPartition, batch: Batch) -> None:
        """At the end of the log."""
        self.batches[partition][self.logs[partition].latest] = batch
        self.logs[partition].latest += 1

    def retain(self, partition: TopicPartition, earliest: int) -> None:
        self.logs[partition].earliest = earliest

    def elect(self, partition: TopicPartition, end: int) -> None:
        """A leader that has the records before `end` alone."""
        log = self.logs[partition]
        log.leader_epoch += 1
        log.latest, log.starts = end, {**log.starts, log.leader_epoch: end}
        self.kafka.leader_epoch = max(each.leader_epoch for each in self.logs.values())
        for each in self.logs.values():
            each.leader_epoch = self.kafka.leader_epoch
        self._cut(partition, end)

    def restore(self, partition: TopicPartition, end: int) -> None:
        self.logs[partition].latest = end
        self._cut(partition, end)
        self.network.handshakes += 1
        self.network.interruptions += 1

    def _cut(self, partition: TopicPartition, end: int) -> None:
        self.batches[partition] = {at: each for at, each in self.batches[partition].items() if at < end}

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        partition = TopicPartition(request.topic, request.partition)
        log = self.logs[partition]
        if partition not in self.kafka.leaders or request.topic_id != self.kafka.topic_ids[request.topic]:
            return FetchResponse(0, UNKNOWN_TOPIC_ID)
        if request.leader_epoch < log.leader_epoch:
            return FetchResponse(0, FENCED)
        if not log.earliest <= request.offset <= log.latest:
            return FetchResponse(0, OUT_OF_RANGE)
        behind = (each for at, each in sorted(self.batches[partition].items()) if request.offset <= at)
        records = memoryview(b"".join(map(bytes, behind)))
        return FetchResponse(0, 0, log.latest, log.latest, log.earliest, records=records)

    def commit(self, group: str, *offsets: tuple[TopicPartition, int]) -> None:
        self.kafka.committed[group] = {partition: (offset, -1) for partition, offset in offsets}

    # --- what a user does ---------------------------------------------------------------------------------------------

    def batch(self, **options: str) -> None:
        columns = tuple(options.pop("schema", "value").split())
        self.read(asked(_given(options)), planned(**_given(options)), is_batch=True, columns=columns)

    def read(self, config: Any, ranges: Any, *, is_batch: bool, columns: tuple[str, ...] = ("value",)) -> None:
        """Raises an error, and then nobody has seen a row."""
        found: Counter[str] = Counter()
        for each in ranges:
            for batch in RangeReader(config, columns, is_batch=is_batch).rows([each]):
                found.update(value.decode() for value in batch.column("value").to_pylist())
        self.rows += found


def _given(options: Mapping[str, str]) -> dict[str, str]:
    named = {} if {"subscribe", "assign"} & options.keys() else {"subscribe": "a,b"}
    start = {} if "startingGroup" in options else {"startingOffsets": "earliest"}
    return {**start, **named, **options}


class Query:
    """A checkpoint, and the processes that use it one after the other."""

    def __init__(self, world: World, **options: str) -> None:
        self.world = world
        self.at: Positions | None = None
        self.logged: Positions | None = None
        self.start(**options)

    def start(self, **options: str) -> Query:
        """A process of its own, with these options alone."""
        self._stream = Stream(**_given(options))
        return self

    def run(self, before_tasks: Callable[[], None] | None = None) -> None:
        """Until nothing is new. `before_tasks`: happens once when a micro-batch is planned."""
        while True:
            begin = self._stream.initial() if self.at is None else self.at
            if self.logged is None:
                end = self._stream.end(begin, is_limited=False)
                if end == begin:
                    return
                self.logged = end
            if before_tasks is not None:
                before_tasks()
                before_tasks = None
            self.world.read(self._stream.config, self._stream.ranges(begin, self.logged), is_batch=False)
            self._stream.plan.is_begun = True
            self.at, self.logged = self.logged, None

    def rest(self) -> None:
        """It looks at its logs, and takes marks."""
        for _ in range(3):
            self.run()

    def anew(self, moved: Mapping[TopicPartition, int], **options: str) -> Query:
        """A new checkpoint, with the old one's offsets but for `moved`."""
        assert self.at is not None
        starting: dict[str, dict[str, int]] = {}
        for each, offset in {**self.at, **moved}.items():
            starting.setdefault(each.topic, {})[str(each.partition)] = offset
        return Query(self.world, startingOffsets=json.dumps(starting), **options)


Rows = tuple[str, TopicPartition, int, int]


def rows(*written: Rows) -> Counter[str]:
    return Counter(f"{writer} {of.topic}{at}" for writer, of, first, end in written for at in range(first, end))


OLD = rows(("old", A, 0, 10), ("old", B, 0, 10))
Case = Callable[[World], Iterator[Any]]


# --- streams ----------------------------------------------------------------------------------------------------------


def recreated(world: World) -> None:
    world.create(A)
    world.write(A, 20, "new")


def begun(world: World, **options: str) -> Query:
    """It has read what is there."""
    query = Query(world, **options)
    query.run()
    return query


def followed(query: Query, *, is_new: bool, at: int, words: str, anew: Rows, goes_on: Rows) -> Iterator[Any]:
    """A new checkpoint that begins `at` this offset of A, or the same one, which leaves out what it does not know."""
    read = query.world.rows.copy()
    if is_new:
        yield "new checkpoint", words
        query.anew({A: at}).run()
        yield read + rows(anew)
    else:
        yield "failOnDataLoss=false", "leaves out", f"at offset {goes_on[2]}"
        query.start(failOnDataLoss="false").run()
        yield read + rows(goes_on)


def made_again(world: World, *, is_new: bool, under_a_task: bool = False) -> Iterator[Any]:
    query = begun(world)
    if under_a_task:
        world.write(A, 5)
        yield errors.OffsetsLost, lambda: query.run(lambda: recreated(world))
    else:
        recreated(world)
        yield errors.LogBroken, query.run
    yield OLD
    new, rest = ("new", A, 0, 20), ("new", A, 10, 20)
    yield from followed(query, is_new=is_new, at=-2, words="-2", anew=new, goes_on=rest)


def deleted(world: World, *, follow: str) -> Iterator[Any]:
    query = begun(world)
    world.delete(A)
    yield errors.LogBroken, query.run
    yield "failOnDataLoss=false for one run", "from its start", "new checkpoint", "-2", "leaves out"
    if follow == "for one run":
        query.start(failOnDataLoss="false").run()
    recreated(world)
    if follow == "for one run":
        query.start().run()
    elif follow == "created before":
        query.anew({A: -2}).run()
    else:
        query.start(failOnDataLoss="false").run()
    yield OLD + rows(("new", A, 10 if follow == "restart" else 0, 20))


def left_out_for_a_while(world: World) -> Iterator[Any]:
    query = begun(world)
    query.start(subscribe="b")
    yield errors.LogBroken, query.run
    yield "failOnDataLoss=false for one run", "taken the topic out of the options", "twice"
    query.start(subscribe="b", failOnDataLoss="false").run()
    query.start().run()
    yield OLD + rows(("old", A, 0, 10))


def truncated(world: World, *, is_new: bool) -> Iterator[Any]:
    query = begun(world)
    world.elect(A, 7)
    world.write(A, 5, "new")
    yield errors.LogBroken, query.run
    yield OLD
    new, rest = ("new", A, 7, 12), ("new", A, 10, 12)
    yield from followed(query, is_new=is_new, at=7, words="startingOffsets 7", anew=new, goes_on=rest)


def truncated_and_restarted(world: World) -> Iterator[Any]:
    """A supervisor has started the query again, and the log is still shorter."""
    query = begun(world)
    world.elect(A, 7)
    world.write(A, 2, "new")
    yield errors.LogBroken, query.run
    yield "new checkpoint", "startingOffsets 7"
    query.start()
    yield errors.LogBroken, query.run
    yield "new checkpoint", "first such error", "take the offset of that one"
    query.anew({A: 7}).run()
    yield OLD + rows(("new", A, 7, 9))


def restored(world: World, *, is_new: bool) -> Iterator[Any]:
    query = Query(world)
    query.rest()
    world.write(A, 5, "gone")
    query.rest()
    world.restore(A, 10)
    world.write(A, 8, "new")
    yield errors.LogBroken, query.run
    yield OLD + rows(("gone", A, 10, 15))
    new, rest = ("new", A, 10, 18), ("new", A, 15, 18)
    yield from followed(query, is_new=is_new, at=10, words="where the snapshot ended", anew=new, goes_on=rest)


def overtaken(world: World) -> Iterator[Any]:
    query = begun(world)
    world.write(A, 10)
    yield errors.OffsetsLost, lambda: query.run(lambda: world.retain(A, 15))
    yield "failOnDataLoss=false"
    query.start(failOnDataLoss="false").run()
    yield OLD + rows(("old", A, 15, 20))


def truncated_under_a_task(world: World) -> Iterator[Any]:
    query = begun(world)
    world.write(A, 10)

    def truncate() -> None:
        world.elect(A, 12)
        world.write(A, 3, "new")

    yield errors.OffsetsLost, lambda: query.run(truncate)
    yield "failOnDataLoss=false", "leaves out"
    query.start(failOnDataLoss="false").run()
    yield OLD + rows(("old", A, 10, 12), ("new", A, 12, 15))


def deleted_under_a_task(world: World) -> Iterator[Any]:
    query = begun(world)
    world.write(A, 5)
    yield errors.OffsetsLost, lambda: query.run(lambda: world.delete(A))
    yield "Leave the topic out", "failOnDataLoss=false"
    query.logged = None
    query.start(subscribe="b", failOnDataLoss="false").run()
    world.write(B, 1)
    query.run()
    yield OLD + rows(("old", B, 10, 11))


def around(world: World, batch: Batch, error: type[ReadError], **options: str) -> Iterator[Any]:
    """The records before and behind a batch that cannot be read are read."""
    query = begun(world, **options)
    world.write(A, 3)
    world.put(A, batch)
    world.write(A, 2)
    yield error, query.run
    yield "offset 13 (endingOffsets)", "at offset 14", "batch read begins at the checkpoint's offsets", "new checkpoint"
    query.logged = None
    assert query.at is not None
    world.batch(
        assign='{"a": [0]}', startingOffsets=json.dumps({"a": {"0": query.at[A]}}), endingOffsets='{"a": {"0": 13}}',
        **options,
    )  # fmt: skip
    query.anew({A: 14}, **options).run()
    yield OLD + rows(("old", A, 10, 13), ("old", A, 14, 16))


def acl_missing(world: World) -> Iterator[Any]:
    query = begun(world)
    world.kafka.topic_codes["a"] = DENIED
    yield errors.TopicAuthorizationFailed, query.run
    yield "Add the ACL", "TOPIC a READ"
    del world.kafka.topic_codes["a"]
    world.write(A, 1)
    query.start().run()
    yield OLD + rows(("old", A, 10, 11))


# --- batches ----------------------------------------------------------------------------------------------------------


def batch(
    error: type[KafkaSinkError], asked: Mapping[str, str], words: str | tuple[str, ...], followed: Mapping[str, str],
    expected: Counter[str], prepare: Callable[[World], None] = lambda world: None,
) -> Case:  # fmt: skip
    """A batch that fails, and the one that its advice leads to."""

    def case(world: World) -> Iterator[Any]:
        prepare(world)
        yield error, lambda: world.batch(**asked)
        yield words
        world.batch(**followed)
        yield expected

    return case


def put(*batches: Batch, rows: int = 0) -> Callable[[World], None]:
    """At the end of A, and so many rows behind them."""

    def prepare(world: World) -> None:
        for each in batches:
            world.put(A, each)
        world.write(A, rows)

    return prepare


FAR = Batch(rows=[(0, row(b"far", None, 2**62))], base_offset=10, base_timestamp=2**62)
AFTER_ANCIENT = {"startingOffsets": '{"a": {"0": 11}, "b": {"0": -2}}'}
FROM_0 = {"startingOffsets": '{"a": {"0": 0}, "b": {"0": 0}}'}
TO_12, SINCE = {"endingOffsets": '{"a": {"0": 12}, "b": {"0": -1}}'}, {"startingTimestamp": "1000"}
LENIENT = {"failOnDataLoss": "false"}
BATCHES: dict[str, Case] = {
    "a batch over a limit, which is raised": batch(
        errors.BatchOverLimit, {"maxHeadersPerBatch": "1"}, "raise maxHeadersPerBatch", {"maxHeadersPerBatch": "2"},
        OLD + Counter(["large"]), put(replace(TOO_LARGE, base_offset=10))),
    "a timestamp that Spark cannot hold": batch(
        errors.TimestampNotReadable, {"schema": "value timestamp"},
        ("without the column timestamp", "reads all records"), {"schema": "value"}, OLD + Counter(["far"]), put(FAR)),
    "records in an old format": batch(
        errors.MessageFormatTooOld, {}, ("leave these records out", "begin after them"), AFTER_ANCIENT,
        rows(("old", A, 11, 13), ("old", B, 0, 10)), put(plain(b"ancient", base_offset=10, magic=1, crc=1), rows=2)),
    "offsets before the first": batch(
        errors.OffsetsLost, FROM_0, ("failOnDataLoss=false", "records that are there"), FROM_0 | LENIENT,
        rows(("old", A, 4, 10), ("old", B, 0, 10)), lambda world: world.retain(A, 4)),
    "offsets after the end": batch(
        errors.OffsetNotWritten, TO_12, ("failOnDataLoss=false", "ends where the partition ends"), TO_12 | LENIENT,
        OLD),
    "no record since": batch(
        errors.NoRecordSince, SINCE, ("startingOffsetsByTimestampStrategy=latest", "leaves out"),
        SINCE | {"startingOffsetsByTimestampStrategy": "latest"}, rows(("old", B, 0, 10)),
        lambda world: vars(world.logs[B]).update(times=dict.fromkeys(range(10), 2_000))),
    "a group that is misspelt": batch(
        errors.NoCommittedOffset, {"startingGroup": "G", "startingGroupStrategy": "latest"}, "Correct startingGroup",
        {"startingGroup": "g"}, OLD, lambda world: world.commit("g", (A, 0), (B, 0))),
    "a partition that a group has not read": batch(
        errors.NoCommittedOffset, {"startingGroup": "g"}, ("startingGroupStrategy", "earliest reads all"),
        {"startingGroup": "g", "startingGroupStrategy": "earliest"}, rows(("old", A, 4, 10), ("old", B, 0, 10)),
        lambda world: world.commit("g", (A, 4))),
    "a committed offset behind the end": batch(
        errors.CommittedOffsetGone, {"startingGroup": "g"}, ("failOnDataLoss=false", "begins at offset 10", "is lost"),
        {"startingGroup": "g"} | LENIENT, rows(("old", B, 4, 10)), lambda world: world.commit("g", (A, 12), (B, 4))),
    "a topic that is misspelt": batch(
        errors.TopicToReadMissing, {"subscribe": "a,c"}, "Correct subscribe", {"subscribe": "a,b"}, OLD),
    "a partition that is not there": batch(
        errors.PartitionToReadMissing, {"assign": '{"a": [0, 1], "b": [0]}'}, "Correct assign",
        {"assign": '{"a": [0], "b": [0]}'}, OLD),
}  # fmt: skip
CASES: dict[str, Case] = {
    "made again, and read from its start": lambda world: made_again(world, is_new=True),
    "made again, and gone on with": lambda world: made_again(world, is_new=False),
    "deleted, and made again after a run": lambda world: deleted(world, follow="for one run"),
    "deleted, and made again before a run": lambda world: deleted(world, follow="created before"),
    "deleted, made again, and gone on with": lambda world: deleted(world, follow="restart"),
    "left out of the options for a while": left_out_for_a_while,
    "truncated, and read from where the logs part": lambda world: truncated(world, is_new=True),
    "truncated, and gone on with": lambda world: truncated(world, is_new=False),
    "truncated, and restarted before anybody looked": truncated_and_restarted,
    "restored, and read from the snapshot on": lambda world: restored(world, is_new=True),
    "restored, and gone on with": lambda world: restored(world, is_new=False),
    "overtaken by retention": overtaken,
    "truncated under a task": truncated_under_a_task,
    "made again under a task, and read from its start": lambda world: made_again(world, is_new=True, under_a_task=True),
    "made again under a task, and gone on with": lambda world: made_again(world, is_new=False, under_a_task=True),
    "deleted under a task": deleted_under_a_task,
    "a damaged batch in a stream": lambda world: around(
        world, plain(b"harmed", base_offset=13, crc=1), errors.RecordsCorrupt
    ),
    "a batch over a limit in a stream": lambda world: around(
        world, replace(TOO_LARGE, base_offset=13), errors.BatchOverLimit, maxHeadersPerBatch="1"
    ),
    "an ACL that is missing": acl_missing,
} | BATCHES


def world_of(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    made.network = connect_reads(made.kafka, monkeypatch)
    return made


def _failure(run: Callable[[], None]) -> KafkaSinkError:
    """Of a read, as Spark shows it."""
    with pytest.raises(KafkaSinkError) as raised:
        run()
    return raised.value.of_read()


@pytest.mark.parametrize("name", CASES)
def test_advice_that_is_followed_literally_does_what_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, advice = world_of(monkeypatch), ""
    for step in CASES[name](world):
        match step:
            case (type() as error, run):
                failure = _failure(run)
                assert type(failure) is error, failure
                advice = failure.parts().advice
            case Counter():
                assert world.rows == step
            case str() | tuple():
                for words in (step,) if isinstance(step, str) else step:
                    assert words in advice
    assert "leave" in advice or "lost" in advice or not _are_missing(world)
    assert "twice" in advice or max(world.rows.values()) == 1


def _are_missing(world: World) -> bool:
    """Whether the logs have records now that nobody has read, and no failed read has named."""
    there = {
        bytes(each.rows[0][1].value or b"").decode()
        for partition, batches in world.batches.items()
        if partition in world.kafka.leaders
        for at, each in batches.items()
        if at >= world.logs[partition].earliest
    }
    return bool(there - world.rows.keys())


def test_the_advice_of_every_error_of_reads_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: set[Any] = set()
    causes: set[tuple[Any, str]] = set()
    for case in CASES.values():
        for step in case(world_of(monkeypatch)):
            if isinstance(step, tuple) and isinstance(step[0], type):
                failure = _failure(step[1])
                followed.add(type(failure))
                causes.add((type(failure), getattr(failure, "cause", "")))
    raised = {
        each
        for each in map(errors.__dict__.get, errors.__all__)
        if isinstance(each, type) and issubclass(each, ReadError) and each is not ReadError
    }
    assert raised - NO_ROWS == followed - {errors.TopicAuthorizationFailed}
    assert {cause for error, cause in causes if error is errors.LogBroken} == set(LossCause) - {LossCause.DELETED}
    assert {cause for error, cause in causes if error is errors.OffsetsLost} == set(LossCause) - {LossCause.RESTORED}

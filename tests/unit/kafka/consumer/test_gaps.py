"""Damage of what no CRC covers, in a segment file that a broker reads: rows are all there and right, or the read fails.

`DamagedLog` finds offsets as a broker does. The reader is the shipped fetcher with the shipped decoder.
"""

import itertools
import random
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

import apis
from kafka_sink.errors import FetchRefused, KafkaSinkError, ReadStalled, RecordsCorrupt
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.fetcher import Fetcher
from kafka_sink.records.batch_table import OldFormat, Undecodable
from kafka_sink.records.decoder import RecordSetDecoder
from record_sets import Batch, plain
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, read_settings, readers_metadata, serve

CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE = 2, 1
_UP_TO_MAGIC, _LENGTH_END, _LEAST_LENGTH = 17, 12, 14
TOPIC_ID = uuid.UUID(int=9)


@dataclass
class DamagedLog:
    """`batches` in the order of the file; `damage` flips bits: batch, byte, bit. `index_bytes`: between two entries of
    the index. `high_watermarks`: of the answers, the last one from then on."""

    batches: Sequence[bytes]
    damage: Sequence[tuple[int, int, int]] = ()
    index_bytes: int = 4096
    start_offset: int = 0
    high_watermarks: list[int] = field(default_factory=list)
    asked: list[apis.FetchRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._index = [(-1, 0)]
        at = indexed = 0
        for batch in self.batches:
            last = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")
            if at - indexed > self.index_bytes:
                self._index.append((last, at))
                indexed = at
            at += len(batch)
            self.end_offset = last + 1
        self.high_watermarks = self.high_watermarks or [self.end_offset]
        damaged = [bytearray(batch) for batch in self.batches]
        for batch_number, byte, bit in self.damage:
            damaged[batch_number][byte] ^= 1 << bit
        self.file = b"".join(damaged)

    def fetch(self, request: apis.FetchRequest) -> apis.FetchResponse:
        self.asked.append(request)
        high_watermark = self.high_watermarks.pop(0) if len(self.high_watermarks) > 1 else self.high_watermarks[0]
        bounds = (high_watermark, high_watermark, self.start_offset)
        if not self.start_offset <= request.offset <= self.end_offset:
            return apis.FetchResponse(0, OFFSET_OUT_OF_RANGE, *bounds)
        at = self._index[bisect_right(self._index, (request.offset, len(self.file))) - 1][1]
        while at < len(self.file) - _UP_TO_MAGIC:
            length = int.from_bytes(self.file[at + 8 : at + 12], "big", signed=True)
            if length < _LEAST_LENGTH:
                return apis.FetchResponse(0, CORRUPT_MESSAGE, *bounds)
            size = length + _LENGTH_END
            if at + size > len(self.file):
                break
            last = int.from_bytes(self.file[at : at + 8], "big", signed=True)
            if self.file[at + 16] not in (0, 1):
                last += int.from_bytes(self.file[at + 23 : at + 27], "big", signed=True)
            if last >= request.offset:
                records = self.file[at : at + max(size, request.max_bytes)]
                return apis.FetchResponse(0, 0, *bounds, records=memoryview(records))
            at += size
        return apis.FetchResponse(0, 0, *bounds)


@dataclass
class Reading:
    """What a reader has got. `error`: a KafkaSinkError of the fetcher, or an Undecodable of the decoder."""

    values: list[tuple[int, bytes]]
    error: KafkaSinkError | Undecodable | None
    fetches: int

    @property
    def is_damage(self) -> bool:
        """The reader was told that the log is damaged."""
        return isinstance(self.error, (RecordsCorrupt, Undecodable)) and not isinstance(self.error, OldFormat)


def read(
    log: DamagedLog,
    first: int,
    end: int,
    *,
    max_bytes: int = 1024 * 1024,
    level: IsolationLevel | None = None,
    answer_ms: int = 0,
) -> Reading:
    """Read `first` to before `end`, as a task does. `answer_ms`: what an answer takes."""
    settings = read_settings(isolation_level=level or IsolationLevel.READ_UNCOMMITTED, fetch_max_bytes=max_bytes)
    kafka = ScriptedKafka([1])
    kafka.topic_id, kafka.leader_epoch = TOPIC_ID, 7
    serve(kafka, {("t", 0): ScriptedLog(log.start_offset, log.end_offset)})
    kafka.always(apis.FetchRequest, log.fetch)
    network = ScriptedNetwork(kafka, last_error="")
    range_ = FetchRange("t", TOPIC_ID, 0, first, end, leader_epoch=7)
    metadata, rng = readers_metadata(), random.Random(2)
    fetcher = Fetcher(range_, settings=settings, network=network, metadata=metadata, rng=rng, now_ms=0)
    values: list[tuple[int, bytes]] = []
    while not fetcher.is_done:
        record_set = fetcher.take(kafka.now_ms)
        if record_set is not None:
            decoder = RecordSetDecoder(
                record_set.records, first_offset=record_set.offset, end_offset=record_set.end,
                columns=("offset", "value"), aborted=record_set.aborted_transactions,
            )  # fmt: skip
            try:
                for batch in decoder:
                    values += [(each["offset"], each["value"]) for each in batch.to_pylist()]
            except Undecodable as error:
                return Reading(values, error, len(log.asked))
            assert decoder.next_offset == min(record_set.next_offset, record_set.end)
        answers = network.poll(fetcher.run_once(kafka.now_ms))
        kafka.now_ms += answer_ms if answers else 0
        fetcher.handle(answers, kafka.now_ms)
    return Reading(values, fetcher.failure, len(log.asked))


FIELDS = {"base offset": range(8), "length": range(8, 12), "leader epoch": range(12, 16), "format": range(16, 17)}


# Of the first batch of a log. Nothing is before it to look at: brokers leave out a batch below 0, as after compaction,
# and hand out nothing if it is too long for the file.
UNSEEN = {(0, 0, 7), *((0, byte, bit) for byte in (8, 9, 10) for bit in range(8))}


def batches(sizes: list[int], base_offset: int = 0, value_bytes: int = 20) -> list[bytes]:
    made = []
    for size in sizes:
        values = (f"{base_offset + i}".encode().ljust(value_bytes) for i in range(size))
        made.append(bytes(plain(*values, base_offset=base_offset)))
        base_offset += size
    return made


def rows(first: int, end: int, value_bytes: int = 20) -> list[tuple[int, bytes]]:
    return [(offset, f"{offset}".encode().ljust(value_bytes)) for offset in range(first, end)]


def assert_told(found: Reading, expected: list[tuple[int, bytes]], what: str) -> None:
    """All rows, or an error. Of an error the broker's own is one, and a read that does not end is none."""
    if found.error is None:
        assert found.values == expected, what
    else:
        assert found.is_damage or isinstance(found.error, FetchRefused), (what, found.error)


@pytest.mark.parametrize("level", list(IsolationLevel))
@pytest.mark.parametrize("max_bytes", [1, 2_000, 1024 * 1024])
@pytest.mark.parametrize("field", FIELDS)
def test_a_bit_of_a_log_that_fits_into_one_answer(field: str, max_bytes: int, level: IsolationLevel) -> None:
    made = batches([20] * 5)
    for damage in itertools.product(range(len(made)), FIELDS[field], range(8)):
        if damage in UNSEEN:
            continue
        found = read(DamagedLog(made, [damage]), 0, 100, max_bytes=max_bytes, level=level)
        assert_told(found, rows(0, 100), f"{damage}")
        if field == "leader epoch":
            assert found.error is None


@pytest.mark.parametrize("index_bytes", [0, 400, 10**6])
@pytest.mark.parametrize("max_bytes", [1, 300, 700])
def test_a_bit_of_a_base_offset_where_each_answer_has_few_batches(max_bytes: int, index_bytes: int) -> None:
    """Batches of one record, so that each flip leads to where another batch begins."""
    made = batches([1] * 40, base_offset=1_000)
    bits = [(byte, bit) for byte in (0, 5, 6, 7) for bit in range(8)]
    for which, (byte, bit) in itertools.product((0, 1, 7, 8, 38, 39), bits):
        log = DamagedLog(made, [(which, byte, bit)], index_bytes=index_bytes, start_offset=1_000)
        found = read(log, 1_000, 1_040, max_bytes=max_bytes)
        if which == 0 and found.error is None:
            # Nothing is before it that could contradict a lower offset.
            continue
        assert_told(found, rows(1_000, 1_040), f"batch {which}, byte {byte}, bit {bit}")


@pytest.mark.parametrize("max_bytes", [1, 2_000])
def test_a_range_that_begins_and_ends_within_the_log(max_bytes: int) -> None:
    made = batches([10] * 30)
    for which, (byte, bit) in itertools.product(range(9, 21), [(6, 0), (7, 5), (7, 3), (7, 7), (0, 6), (8, 0)]):
        found = read(DamagedLog(made, [(which, byte, bit)], index_bytes=300), 100, 200, max_bytes=max_bytes)
        if which in (9, 20):
            # Behind a batch that is too long for the file a broker finds nothing.
            assert found.is_damage or (found.error is None) or (which, byte) == (9, 8)
            continue
        assert_told(found, rows(100, 200), f"batch {which}, byte {byte}, bit {bit}")


def test_an_offset_beyond_the_high_watermark_is_damage_only_if_a_later_answer_says_so() -> None:
    """A broker reads the high watermark before the records, so these may be newer."""
    made = batches([10] * 3)
    found = read(DamagedLog([made[0], made[2]], high_watermarks=[10, 30]), 0, 30)
    assert found.error is None
    assert found.values == [*rows(0, 10), *rows(20, 30)]
    found = read(DamagedLog(made[:2], [(1, 6, 0)], high_watermarks=[20]), 0, 20)
    assert isinstance(found.error, RecordsCorrupt)
    assert found.error.offset == 10
    assert "the high watermark is 20" in found.error.reason


def test_a_log_without_gaps_takes_no_look() -> None:
    found = read(DamagedLog(batches([10] * 30)), 5, 295, max_bytes=1)
    assert (found.error, found.values, found.fetches) == (None, rows(5, 295), 30)


@pytest.mark.parametrize("kept", [range(0, 30, 2), range(1, 30, 3), (0, 29), (13,), range(15, 30)])
@pytest.mark.parametrize("max_bytes", [1, 700, 1024 * 1024])
def test_gaps_of_compaction_are_no_damage(kept: range | tuple[int, ...], max_bytes: int) -> None:
    made = batches([10] * 30)
    left = sorted({*kept, 29})
    for index_bytes in (0, 10**6):
        log = DamagedLog([made[each] for each in left], index_bytes=index_bytes)
        found = read(log, 0, 300, max_bytes=max_bytes)
        assert found.error is None
        assert found.values == [each for number in left for each in rows(10 * number, 10 * number + 10)]
        assert found.fetches <= 3 * 30


def test_looks_are_small_and_few() -> None:
    """At a gap where two answers meet: one look for what is before it, and one for what is behind."""
    made = batches([10] * 30, value_bytes=300)
    log = DamagedLog([made[0], made[10], made[29]])
    assert read(log, 0, 300, max_bytes=1).error is None
    asked = [(request.offset, request.max_bytes) for request in log.asked]
    size = len(made[0]) + 61
    assert asked == [(0, 1), (10, 1), (9, size), (99, size), (110, 1), (109, size), (289, size)]
    log = DamagedLog([made[0], made[10], made[29]])
    assert read(log, 0, 300).error is None
    assert [request.offset for request in log.asked] == [0, 289]


def test_the_length_of_a_batch_that_the_broker_cannot_find_is_named() -> None:
    """A high byte: the batch seems to end behind the file, and the broker hands out nothing."""
    for which, max_bytes in itertools.product((2, 4), (1, 10**6)):
        found = read(DamagedLog(batches([20] * 5), [(which, 8, 1)]), 0, 100, max_bytes=max_bytes)
        assert isinstance(found.error, RecordsCorrupt)
        assert found.error.offset == 20 * which
        assert "claims 33" in found.error.reason


def test_a_first_batch_that_the_broker_cannot_find_is_waited_for() -> None:
    """Nothing before it is there to look at. Tiered storage looks the same."""
    found = read(DamagedLog(batches([20] * 5), [(0, 8, 1)]), 0, 100)
    assert isinstance(found.error, ReadStalled)
    assert "kafka-dump-log" in str(found.error)


def test_the_error_is_about_the_first_offset_that_is_not_read() -> None:
    found = read(DamagedLog(batches([1] * 40), [(20, 6, 1)], index_bytes=0), 0, 40, max_bytes=1)
    assert isinstance(found.error, RecordsCorrupt)
    assert found.error.offset == 20
    assert found.values[:20] == rows(0, 20)


class EmptyBatches(DamagedLog):
    """A broker that hands out one empty batch after the other."""

    def fetch(self, request: apis.FetchRequest) -> apis.FetchResponse:
        empty = memoryview(bytes(Batch(base_offset=request.offset)))
        self.asked.append(request)
        assert len(self.asked) < 1_000, "the reader has no patience"
        return apis.FetchResponse(0, 0, self.end_offset, self.end_offset, 0, records=empty)


def test_empty_batches_are_no_record_that_a_task_has_waited_for() -> None:
    """Each is an answer, and the range has 2^40 offsets. Each answer here takes a second."""
    found = read(EmptyBatches(batches([1], base_offset=2**40)), 0, 2**40, answer_ms=1_000)
    assert isinstance(found.error, ReadStalled)
    assert 115 < found.fetches < 125

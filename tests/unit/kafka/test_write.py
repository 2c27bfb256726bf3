"""Slices, what a write holds to of a topic, and bad rows: over a stand-in for the producer, and over a real one with a
broker that answers when it is told to."""

import random
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from given_rows import ALL, PLAIN_TYPES, Given, Letter, batch_of, with_letters
from kafka_sink import errors
from kafka_sink.kafka import write as write_module
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, RefusedRow
from kafka_sink.kafka.producer.bad_row_tally import BadRowCounts, BadRowLimits, BadRowPolicy
from kafka_sink.kafka.producer.router import RoutedRows, Router
from kafka_sink.kafka.producer.row_limits import TopicRules
from kafka_sink.kafka.producer.throttling import Rate, RateLimit
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.statistics import WriteStatistics
from kafka_sink.kafka.write import Write
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.dead_letters import Origin
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.records.row_identity import RowIdentity
from producer_core import Live, config, refresh, rows
from waiting import wait_until


class Topic:
    """Stands in for a Producer: its topics had `first` partitions and, when asked again, have `then`. What is flushed
    first finds that leaders have refused the rows `refused`."""

    def __init__(self, first: int = 1, then: int | None = None, refused: Sequence[RefusedRow] = ()) -> None:
        self.config = config(1)
        self.partition_count, self._then = first, then or first
        self._refused = refused
        self.asked_again = self.awaited = self.flushes = 0
        self.placed: list[int] = []
        self.by_topic: Counter[str] = Counter()
        self.pauses: list[int] = []
        self.pause = self.pauses.append
        self.begin = self.check_topics = lambda *_: None
        self.waiting_clock_ms = self.throttled_ms = lambda: 0

    def await_topics(
        self, names: frozenset[str], seen_before: object, started_ms: int, *, ask_again: bool = False
    ) -> dict[str, TopicSnapshot]:
        self.awaited += 1
        if ask_again:
            self.asked_again += 1
            self.partition_count = self._then
        leaders = (0,) * self.partition_count
        return {name: TopicSnapshot(name, None, leaders, leaders) for name in names}

    def place(self, rows: RoutedRows, acknowledgements: object, codec: object, started_ms: int) -> None:
        for destination in rows.unplaced():
            count = int(rows.end_row[destination] - rows.next_row[destination])
            self.placed += [rows.destinations[destination].partition] * count
            self.by_topic[rows.destinations[destination].topic] += count

    def flush(self, acknowledgements: Acknowledgements) -> None:
        self.flushes += 1
        if acknowledgements.refused is not None:
            acknowledgements.refused.extend(self._refused)
        self._refused = ()


def explicit(*partitions: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"value": pa.array([b"v" * 100] * len(partitions)), "partition": pa.array(partitions, pa.int32())}
    )


def write_to(topic: Topic, /, **how: Any) -> Write:
    return Write(topic, **{"topic": "t", "partitioner": "murmur2", "fingerprint": None, **how})  # type: ignore[arg-type]


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> list[RecordColumns]:
    """The rows that any write routes, slice by slice."""
    found: list[RecordColumns] = []
    route = Router.route

    def remember(router: Router, columns: RecordColumns, *others: Any) -> RoutedRows:
        found.append(columns)
        return route(router, columns, *others)

    monkeypatch.setattr(Router, "route", remember)
    return found


def test_a_large_arrow_batch_is_routed_in_slices_that_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, routed: list[RecordColumns]
) -> None:
    monkeypatch.setattr(write_module, "SLICE_BYTES", 1_000)
    values = pa.array([b"%06d" % n for n in range(5_000)])
    write_to(Topic()).append(pa.record_batch({"value": values}))
    assert [value for part in routed for value in part.value.to_pylist()] == values.to_pylist()
    assert max(part.value.nbytes for part in routed) <= 1_200
    # They count rows without a dictionary.
    routed.clear()
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array([bytes(100)]))
    write_to(Topic()).append(pa.record_batch({"value": shared}))
    assert [part.num_rows for part in routed] == [10] * 10


def test_a_row_over_max_request_size_is_refused_before_its_slice() -> None:
    topic = Topic()
    topic.config = replace(topic.config, max_request_size=200)
    with pytest.raises(errors.RecordTooLarge):
        write_to(topic).append(pa.record_batch({"value": pa.array([b"small", bytes(2_000)])}))
    assert topic.placed == []
    write_to(topic).append(explicit(0))
    # The bytes of an identity count.
    with pytest.raises(errors.RecordTooLarge):
        write_to(topic, row_identity=IDENTITY).append(explicit(0))


KEY = b"alice@example.com"
IDENTITY = RowIdentity("q", 3, 1, "t")


def failing(batch: pa.RecordBatch, *, topic: str | None = "t") -> errors.BadRow:
    """The error of a write that had 3 rows before."""
    write = write_to(Topic(2), topic=topic)
    write.append(pa.record_batch({"value": pa.array([b""] * 3), "topic": pa.array(["t"] * 3)}))
    with pytest.raises(errors.BadRow) as failure:
        write.append(batch)
    assert KEY.decode() not in str(failure.value)
    return failure.value


def test_the_largest_row_and_the_first_whose_partition_is_not_there_are_named() -> None:
    values, keys = [b"", bytes(2_000_000), bytes(3_000_000), b""], [None, b"k", KEY, None]
    error = failing(pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}))
    assert isinstance(error, errors.RecordTooLarge) and error.size_bytes > 3_000_000
    assert (error.row, error.topic, error.key_bytes) == (5, "t", len(KEY))
    said = "row 5 (from 0) of its task's input, with a key of 17 bytes: a row for topic 't' takes"
    assert str(error).startswith(said)
    error.in_spark_partition(7)
    assert str(error).startswith("row 5 (from 0) of Spark partition 7, with")
    assert error.spark_partition == 7 and "badRows=drop or deadLetter" in str(error)
    error = failing(explicit(1, 9, 0, 9))
    assert isinstance(error, errors.PartitionOutOfRange) and (error.row, error.key_bytes) == (4, None)
    assert "input, without a key: a row names partition 9" in str(error)


@pytest.mark.parametrize(("topic", "columns", "row", "named"), [
    ("t", {"timestamp": pa.array([None, 5, -1], pa.timestamp("us"))}, 2, "t"),
    (None, {"topic": pa.array(["t", None, "t"])}, 1, None),
    (None, {"topic": pa.array(["t", "no topic", ""])}, 1, None),
    (None, {"topic": pa.array(["t", "t", "u"]), "timestamp": pa.array([None, 5, -1], pa.timestamp("us"))}, 2, "u"),
])  # fmt: skip
def test_a_row_is_named_by_its_values(
    topic: str | None, columns: dict[str, pa.Array], row: int, named: str | None
) -> None:
    rows = {"value": pa.array([b"v"] * 3), "key": pa.array([b"a", b"bc", KEY]), **columns}
    error = failing(pa.record_batch(rows), topic=topic)
    assert (error.row, error.key_bytes) == (3 + row, [1, 2, len(KEY)][row])
    if named is not None:
        assert error.topic == named
        assert f"row 5 (from 0) of its task's input for topic {named!r}, with a key of 17 bytes: a row's" in str(error)


def test_a_cluster_that_does_not_answer_again_leaves_the_error_as_it_was() -> None:
    topic = Topic(2)
    write = write_to(topic)
    asked = iter([topic.await_topics])

    def once(*arguments: Any, **named: Any) -> Any:
        for answer in asked:
            return answer(*arguments, **named)
        raise errors.BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=1, last_error="")

    topic.await_topics = once  # type: ignore[method-assign]
    with pytest.raises(errors.PartitionOutOfRange, match=r"^a row names partition") as failure:
        write.append(explicit(0, -1))
    assert failure.value.row is None


def test_a_partition_that_is_not_known_is_asked_about_before_the_row_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(2, then=4)
    write = write_to(topic)
    # No topic will ever have a negative partition.
    with pytest.raises(errors.PartitionOutOfRange):
        write.append(explicit(0, -1))
    assert topic.asked_again == 0
    write.append(explicit(1, 3, 0))
    assert topic.placed == [0, 1, 3]
    write.append(explicit(2))
    assert topic.asked_again == 1
    with pytest.raises(errors.PartitionOutOfRange) as failure:
        write.append(explicit(4))
    assert (failure.value.partition, failure.value.partition_count, topic.asked_again) == (4, 4, 2)
    # Once an Arrow batch, whatever its slices.
    monkeypatch.setattr(write_module, "SLICE_BYTES", 1)
    topic = Topic(1, then=2)
    with pytest.raises(errors.PartitionOutOfRange):
        write_to(topic).append(explicit(0, 1, 0, 9))
    assert (topic.asked_again, topic.placed) == (1, [0, 1, 0])


def test_a_slow_write_goes_in_small_slices_each_when_it_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_module, "monotonic_ms", lambda: 1_000)
    topic = Topic()
    write = write_to(topic, rate_limit=RateLimit(Rate(rows_per_s=200), now_ms=1_000))
    write.append(rows(50))
    assert topic.pauses == [1_100, 1_200, 1_250]
    assert write.record_count == len(topic.placed) == 50
    # Bytes are those of keys, values and headers.
    monkeypatch.setattr(write_module, "monotonic_ms", lambda: 0)
    topic = Topic()
    headers = pa.array([[("h", b"12345")]] * 30, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    keys, values = pa.array(["k" * 14] * 30).dictionary_encode(), pa.array([bytes(80)] * 30, pa.binary_view())
    batch = pa.record_batch({"key": keys, "value": values, "headers": headers, "topic": pa.array(["t"] * 30)})
    write_to(topic, rate_limit=RateLimit(Rate(bytes_per_s=10_000), now_ms=0)).append(batch)
    assert topic.pauses == [100, 200, 300]


def test_partitions_added_in_mid_write_do_not_move_its_keys(network: Live) -> None:
    keyed = pa.record_batch({"key": pa.array([b"%d" % n for n in range(300)]), "value": pa.nulls(300, pa.binary())})
    producer = network.producer()
    write = Write(producer, topic="t")
    write.append(keyed)
    network.kafka.partitions = 8
    refresh(network)
    write.append(keyed)
    assert {receipt.partition for receipt in write.finish()} == {0}
    after = Write(producer, topic="t")
    after.append(keyed)
    assert len(after.finish()) == 8


@pytest.mark.parametrize("partition", [0, 1])
def test_a_topic_made_again_in_mid_write_gets_no_row(network: Live, partition: int) -> None:
    """The write knows nothing of a new partition, so nothing in it says that it was another topic's row."""
    producer = network.producer()
    write = Write(producer, topic="t")
    write.append(rows(1))
    producer.flush(write.acknowledgements)
    old, network.kafka.topic_id, network.kafka.partitions = network.kafka.topic_id, uuid.uuid4(), partition + 1
    refresh(network)
    with pytest.raises(errors.TopicRecreated):
        write.append(explicit(partition))
        write.finish()
    assert {topic_id for topic_id, _ in network.kafka.produced} == {old}


@pytest.mark.parametrize("by_name", [True, False])
def test_brokers_without_topic_ids_are_asked_at_the_end_whether_it_is_the_same(network: Live, by_name: bool) -> None:
    network.kafka.by_name = by_name
    write = Write(network.producer(), topic="t")
    write.append(rows(1))
    first_id = str(network.kafka.topic_id)
    assert (write.topic_ids, len(write.finish())) == ({"t": first_id}, 1)
    write.append(rows(1))
    network.kafka.topic_id = uuid.uuid4()
    # Others would have refused the batch.
    with pytest.raises(errors.TopicRecreated) if by_name else nullcontext():
        write.finish()


def test_a_write_tells_what_was_sent_again_and_how_long_it_was_held_back(network: Live) -> None:
    producer = network.producer(retry_backoff_ms=1, linger_ms=0)
    network.kafka.throttled = {0: (0, 400)}
    write = Write(producer, topic="t")
    network.kafka.throttled = {0: (0, 1_900)}
    network.hold()
    write.append(rows(3))
    assert network.arrived.wait(30)
    network.kafka.always(ProduceRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    network.release()
    wait_until(lambda: len(network.kafka.produced) >= 2, 30, "the batch to be sent again")
    network.kafka.always(ProduceRequest, 0)
    write.finish()
    took = write.statistics()
    assert took.retried["t"] >= 3 and took.retried["t"] % 3 == 0
    assert (took.throttled_ms, took.dropped, took.dead_lettered) == (1_500, {}, {})
    assert Write(producer, topic="t").statistics() == WriteStatistics()


NO_LIMITS = BadRowLimits()


def sorting_write(
    topic: Topic,
    /,
    letters: str | None = None,
    limits: BadRowLimits = NO_LIMITS,
    rules: Mapping[str, TopicRules] = MappingProxyType({}),
    **how: Any,
) -> Write:
    def told(topics: Collection[str]) -> Mapping[str, TopicRules]:
        return {topic: rules.get(topic, TopicRules()) for topic in topics}

    policy = BadRowPolicy(letters, limits, Origin(None, None, 0, how.get("topic", "t")), told)
    return write_to(topic, **{"bad_rows": policy, "fingerprint": Fingerprint(), **how})


@pytest.fixture
def dead_letters(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Those that any write makes; headers as pairs."""
    found: list[dict[str, Any]] = []
    made = write_module.dead_letters

    def remember(*given: Any) -> pa.RecordBatch:
        batch = made(*given)
        for letter in batch.to_pylist():
            found.append({**letter, "headers": [(each["key"], each["value"]) for each in letter["headers"]]})
        return batch

    monkeypatch.setattr(write_module, "dead_letters", remember)
    return found


def test_bad_rows_are_left_out_and_the_others_go_on() -> None:
    topic = Topic(2, then=3)
    write = sorting_write(topic)
    # A negative partition before one that may be new does not hide it.
    write.append(explicit(1, -1, 2, 0, 7))
    assert (topic.placed, topic.asked_again, write.record_count) == ([0, 1, 2], 1, 5)
    assert (write.bad_rows.dropped, write.bad_rows.first_rows) == ({"PartitionOutOfRange": 2}, ((0, 1), (0, 4)))
    write.append(explicit(-1, 9))
    assert write.bad_rows.first_rows == ((0, 1), (0, 4), (0, 5), (0, 6))
    assert (len(topic.placed), write.record_count, write.bad_rows.dropped_count) == (3, 7, 4)
    # Dead letters go to their topic in the same write.
    topic = Topic()
    write = sorting_write(topic, "letters")
    write.append(explicit(0, 5, 0, -5))
    assert (topic.by_topic, set(write.topic_ids)) == ({"t": 2, "letters": 2}, {"t", "letters"})
    assert write.bad_rows.dead_lettered == {"PartitionOutOfRange": 2}


@pytest.mark.parametrize("letters", ["letters", None])
def test_records_that_could_not_be_decoded_are_dead_letters_or_dropped(letters: str | None) -> None:
    rows = [Given(None, None, "t", None, None, None)] * 3
    topic = Topic()
    write = sorting_write(topic, letters)
    write.append(with_letters(batch_of(rows, PLAIN_TYPES, ALL), [None, Letter(b"v", b"k", None), None], PLAIN_TYPES))
    write.append(with_letters(batch_of(rows, PLAIN_TYPES, ALL), [None] * 3, PLAIN_TYPES))
    assert topic.by_topic == ({"t": 5} if letters is None else {"t": 5, "letters": 1})
    found = write.bad_rows.dropped if letters is None else write.bad_rows.dead_lettered
    assert (found, write.bad_rows.first_rows, write.record_count) == ({"RecordUndecodable": 1}, ((0, 1),), 6)


def test_texts_that_are_not_utf8_are_bad_rows_that_dead_letters_show(dead_letters: list[dict[str, Any]]) -> None:
    rows = [
        Given(b"a", None, "t", None, ((b"\xfd\xed", b"1"),), None),
        Given(b"b", None, b"\xfd\xed", None, None, None),
        Given(b"c", None, b"\xfd\xed", None, ((b"\xfd\xed", b"1"),), None),
        Given(b"d", None, "t\n", None, None, None),
        Given(b"e", None, "t", None, (("h", b"1"),), None),
    ]
    topic = Topic()
    write = sorting_write(topic, "letters", topic=None)
    write.append(batch_of(rows, PLAIN_TYPES, ALL))
    assert write.bad_rows.dead_lettered == {"HeaderKeyNotUtf8": 2, "TopicNameInvalid": 2}
    assert topic.by_topic == {"t": 1, "letters": 4}
    headers = [letter["headers"] for letter in dead_letters]
    assert [dict(each).get(b"pykafka.topic") for each in headers] == [b"t", rb"\xfd\xed", rb"\xfd\xed", b"t\n"]
    own = (b"pykafka.bytes.key.fded", b"1")
    assert [each[0] == own for each in headers] == [True, False, True, False]


def test_good_rows_are_not_judged_one_by_one() -> None:
    topic = Topic(2)
    write = sorting_write(topic, "letters", rules={"t": TopicRules(1_000)})
    write.append(explicit(*[0, 1] * 500))
    assert len(topic.placed) == 1_000
    assert topic.awaited == 1, "who judges rows asks again"
    assert write.bad_rows == BadRowCounts()


def test_a_row_that_its_topic_takes_when_it_is_compressed_is_good() -> None:
    topic = Topic()
    write = sorting_write(topic, rules={"t": TopicRules(1_000)})
    dense = random.Random(3).randbytes(2_000)
    write.append(pa.record_batch({"value": pa.array([bytes(2_000), dense, bytes(100)])}))
    assert topic.placed == [0, 0]
    assert (write.bad_rows.dropped, write.bad_rows.first_rows) == ({"RecordTooLarge": 1}, ((0, 1),))


NOW_MS = 1_000_000


def timed(*rows: tuple[str, bytes | None, int | None]) -> pa.RecordBatch:
    """Of a topic, a key, and a time as so many ms from now."""
    topics, keys, ages = zip(*rows, strict=True)
    times = [None if age is None else NOW_MS + age for age in ages]
    key, timestamp = pa.array(keys, pa.binary()), pa.array(times, pa.timestamp("ms"))
    return pa.record_batch({"value": pa.array([b"v"] * len(rows)), "topic": topics, "key": key, "timestamp": timestamp})


@pytest.mark.parametrize("letters", [None, "letters"])
def test_rows_that_only_their_topics_settings_refuse_are_bad_rows(
    monkeypatch: pytest.MonkeyPatch, letters: str | None
) -> None:
    monkeypatch.setattr(write_module, "wall_clock_ms", lambda: NOW_MS)
    topic = Topic()
    # What the dead letters' topic takes is no rule for rows.
    rules = {"t": TopicRules(needs_key=True), "u": TopicRules(before_max_ms=100, after_max_ms=10)}
    rules["letters"] = TopicRules(before_max_ms=0)
    write = sorting_write(topic, letters, topic=None, rules=rules)
    write.append(timed(("t", b"k", -500), ("t", None, 0), ("u", None, -100), ("u", None, -101)))
    write.append(timed(("u", None, 10), ("u", None, 11), ("u", None, None), ("v", None, 9_999)))
    bad = write.bad_rows.dropped if letters is None else write.bad_rows.dead_lettered
    assert (bad, write.bad_rows.first_rows) == ({"KeyNull": 1, "TimestampNotAllowed": 2}, ((0, 1), (0, 3), (0, 5)))
    assert topic.by_topic == {"t": 1, "u": 3, "v": 1} | ({} if letters is None else {"letters": 3})


REFUSED = RefusedRow(TopicPartition("t", 1), 5_000, b"\x02k\x01\x02\x02h\x04xy")


def test_rows_that_leaders_refuse_are_counted_and_become_dead_letters(dead_letters: list[dict[str, Any]]) -> None:
    topic = Topic(2, refused=[REFUSED, REFUSED])
    write = sorting_write(topic, "letters")
    write.append(explicit(0, 1, 1))
    write.finish()
    assert write.bad_rows.dead_lettered == {"RefusedByLeader": 2}
    assert (topic.by_topic["letters"], topic.flushes, write.record_count) == (2, 2, 3)
    letter = dead_letters[0]
    assert (letter["key"], letter["value"]) == (b"k", None)
    assert letter["headers"] == [
        (b"h", b"xy"), (b"pykafka.reason", b"RefusedByLeader"), (b"pykafka.slot", b"0"), (b"pykafka.topic", b"t"),
        (b"pykafka.partition", b"1"), (b"pykafka.timestamp", b"5000 ms"),
    ]  # fmt: skip


def test_rows_that_leaders_refuse_count_among_those_that_may_be_bad() -> None:
    write = sorting_write(Topic(2, refused=[REFUSED, REFUSED]), limits=BadRowLimits(max_rows=1))
    write.append(explicit(0, 1, 1))
    with pytest.raises(errors.TooManyBadRows, match=r"2 of 3 rows cannot be written to Kafka \(RefusedByLeader: 2\)"):
        write.finish()
    write = sorting_write(Topic(2, refused=[REFUSED]))
    write.append(explicit(0, 1, 1))
    write.finish()
    assert write.bad_rows.dropped == {"RefusedByLeader": 1}
    # Where a bad row ends the write leaders may refuse none.
    assert write_to(Topic()).acknowledgements.refused is None
    acknowledgements = sorting_write(Topic(), "letters").acknowledgements
    assert acknowledgements.leaves_out("t") and not acknowledgements.leaves_out("letters")


def test_headers_of_an_identity_are_not_in_the_dead_letter_of_a_refused_row(routed: list[RecordColumns]) -> None:
    body = b"\x01\x02v\x0c" + b"".join(b"\x02%c\x02x" % name for name in b"abcdef")
    sorting_write(Topic(refused=[REFUSED._replace(body=body)]), "letters", row_identity=IDENTITY).finish()
    (letter,) = routed
    assert letter.headers is not None
    assert letter.headers.key.to_pylist()[:2] == [b"a", b"pykafka.reason"]


def test_more_bad_rows_than_allowed_end_the_task_before_the_others_are_sent() -> None:
    topic = Topic()
    write = sorting_write(topic, "letters", limits=BadRowLimits(max_rows=1))
    write.append(explicit(0, -1))
    assert topic.by_topic == {"t": 1, "letters": 1}
    with pytest.raises(errors.TooManyBadRows):
        write.append(explicit(0, -1))
    assert topic.by_topic == {"t": 1, "letters": 1}


def test_the_fingerprint_is_of_all_rows_whatever_is_bad_about_them_now() -> None:
    plain = Fingerprint()
    plain.update(RecordColumns.from_arrow(explicit(0, 2, -1), now_ms=0))
    for partitions, identity in ((1, None), (3, None), (3, IDENTITY)):
        fingerprint = Fingerprint()
        write = sorting_write(Topic(partitions), fingerprint=fingerprint, row_identity=identity)
        write.append(explicit(0, 2, -1))
        assert write.bad_rows.dropped_count == (2 if partitions == 1 else 1)
        assert fingerprint.digest() == plain.digest()


def test_what_a_leader_refused_is_no_bad_row_of_those_that_follow() -> None:
    """RecordTooLarge of an earlier row, by the time that the next ones are routed or placed."""
    refused = errors.RecordTooLarge(topic="t", size_bytes=9, max_bytes=None, limit="max.message.bytes")

    def refuse(*_: object, **__: object) -> None:
        raise refused

    for method in ("await_topics", "place"):
        topic = Topic()
        write = sorting_write(topic)
        setattr(topic, method, refuse)
        with pytest.raises(errors.RecordTooLarge) as failure:
            write.append(explicit(0))
        assert failure.value is refused
        assert write.bad_rows == BadRowCounts()


def test_a_dead_letter_that_cannot_be_written_at_all_is_not_lost_silently() -> None:
    topic = Topic()
    write = sorting_write(topic, "letters", rules={"letters": TopicRules(70)})
    with pytest.raises(errors.RecordTooLarge, match="deadLetterTopic allows 70"):
        write.append(explicit(-1))
    assert topic.by_topic == {}


def rows_told(columns: RecordColumns) -> list[int]:
    assert columns.headers is not None
    entries = zip(columns.headers.key.to_pylist(), columns.headers.value.to_pylist(), strict=True)
    return [int(value) for key, value in entries if key == b"pykafka.row"]


def test_rows_are_numbered_as_spark_delivers_them(monkeypatch: pytest.MonkeyPatch, routed: list[RecordColumns]) -> None:
    write = sorting_write(Topic(2), "letters", row_identity=IDENTITY)
    write.append(explicit(0, 1))
    write.append(explicit(-1, 1, 7, 0))
    # Bad rows keep their numbers: the second time around what is good, then the dead letters.
    assert [rows_told(columns) for columns in routed[-2:]] == [[3, 5], [2, 4]]
    routed.clear()
    monkeypatch.setattr(write_module, "SLICE_BYTES", 250)
    write = write_to(Topic(2), row_identity=IDENTITY)
    write.append(explicit(1, 0, 1, 0, 1))
    write.append(explicit(0, 1))
    assert len(routed) > 3
    assert [row for columns in routed for row in rows_told(columns)] == list(range(7))

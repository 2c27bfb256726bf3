import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.producer.accumulator import LEAST_BUFFER_BYTES
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.producer_batch import BatchState, ProducerBatch, ProducerIdAndEpoch
from kafka_sink.kafka.producer.router import RoutedRows
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import Core, make_core, metadata_response, routed

Batches = list[ProducerBatch]


def drain(core: Core, node_id: int = 0, sequences: Sequences | None = None, max_in_flight: int = 5) -> Batches:
    """What a flush would send next."""
    core.accumulator.begin_flush()
    led = core.accumulator.ready(core.metadata.snapshot, core.now_ms).led.get(node_id, deque())
    drained = core.accumulator.drain(node_id, led, sequences or Sequences(), max_in_flight, core.now_ms)
    core.accumulator.end_flush()
    return drained


def ready(core: Core) -> set[int]:
    return set(core.accumulator.ready(core.metadata.snapshot, core.now_ms).led)


def next_check(core: Core) -> int | None:
    return core.accumulator.ready(core.metadata.snapshot, core.now_ms).next_check_ms


def partitions(batches: Batches) -> list[int]:
    return [batch.topic_partition.partition for batch in batches]


def rows_of(values: Sequence[bytes], partitions: Sequence[int] | None = None) -> RoutedRows:
    """Rows of partition 0 unless told otherwise."""
    return routed(values, partitions or [0] * len(values))


def put(core: Core, values: Sequence[bytes], partitions: Sequence[int] | None = None) -> bool:
    return core.append(rows_of(values, partitions))


def holding(rows: RoutedRows, **options: Any) -> Core:
    core = make_core(**options)
    core.append(rows)
    return core


def retried(core: Core) -> ProducerBatch:
    """A batch of partition 0 that may go again in 100 ms."""
    put(core, [b"a"])
    (batch,) = drain(core)
    batch.attempts, batch.retry_at_ms, batch.node_id = 1, core.now_ms + 100, 0
    core.accumulator.requeue(batch)
    return batch


def append_and(core: Core, rows: RoutedRows, meanwhile: Callable[[], object]) -> None:
    """Appends `rows`, with `meanwhile` called as they are written into their batches."""
    fill = rows.encoder.fill

    def interrupted(*given: Any) -> None:
        meanwhile()
        fill(*given)

    rows.encoder = cast(Any, SimpleNamespace(fill=interrupted, payload_sizes=rows.encoder.payload_sizes))
    assert core.append(rows)


def read_back(core: Core, batch: ProducerBatch) -> list[Any]:
    """The records of a batch as kafka-python reads them, CRC checked."""
    if batch.state is BatchState.OPEN:
        batch.close(core.codec)
    batch.number(ProducerIdAndEpoch(1, 0), 0)
    (record_batch,) = list(MemoryRecords(bytes(batch.wire_bytes)))
    assert record_batch.validate_crc()
    records = list(record_batch)
    assert record_batch.max_timestamp == max(record.timestamp for record in records)
    return records


Records = defaultdict[TopicPartition, list[Any]]


def drain_everything(core: Core, into: Records | None = None) -> Records:
    """Drains node 0 until nothing is left, giving memory back, and reads all records."""
    records = Records(list) if into is None else into
    while batches := drain(core):
        for batch in batches:
            records[batch.topic_partition] += read_back(core, batch)
            core.accumulator.deallocate(batch)
    return records


rows = st.lists(
    st.tuples(st.binary(max_size=900), st.integers(0, 4), st.integers(-(2**40), 2**40)), min_size=1, max_size=120
)


@given(rows=rows, memory=st.sampled_from([4_096, 20_000]), compression=st.sampled_from(["none", "zstd"]))
def test_every_row_once_in_order_within_the_memory_whatever_the_sizes(
    rows: list[tuple[bytes, int, int]], memory: int, compression: str
) -> None:
    c = make_core(leaders=[0] * 5, batch_size=1_024, buffer_memory=memory, compression_type=compression)
    waiting = routed(*zip(*rows, strict=True))
    got = Records(list)
    while not c.append(waiting):
        assert c.accumulator.pool.available_bytes < 1_024  # it gave up only for want of memory
        assert ready(c) == {0}  # and then every partition is ready
        drain_everything(c, got)
    drain_everything(c, got)
    for partition in range(5):
        expected = [(value, timestamp) for value, at, timestamp in rows if at == partition]
        assert [(r.value, r.timestamp) for r in got[TopicPartition("t", partition)]] == expected
    assert c.accumulator.pool.available_bytes == memory


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_row_larger_than_a_batch_gets_a_buffer_of_its_own_size(compression: str) -> None:
    c = make_core(batch_size=1_024, buffer_memory=100_000, compression_type=compression)
    assert c.append(routed([b"x" * 50_000, b"y"], [0, 0]))
    assert [r.value for r in drain_everything(c)[TopicPartition("t", 0)]] == [b"x" * 50_000, b"y"]


def test_ready_when_lingered_full_behind_another_or_flushed() -> None:
    c = holding(rows_of([b"a"]), linger_ms=100, batch_size=1_024)
    assert (ready(c), next_check(c)) == (set(), 100)
    c.now_ms += 100
    assert ready(c) == {0}
    c.now_ms -= 100
    c.accumulator.begin_flush()
    assert ready(c) == {0}
    c.accumulator.end_flush()
    assert ready(c) == set()
    c.append(routed([b"b" * 600, b"c" * 600], [0, 0]))
    assert ready(c) == {0}


def test_a_retry_is_ready_after_its_backoff_only_and_holds_up_no_other_partition() -> None:
    c = make_core(linger_ms=300_000)
    batch = retried(c)
    # Without a flush, too.
    assert (ready(c), next_check(c)) == (set(), 100)
    put(c, [b"b"], [1])
    assert partitions(drain(c)) == [1]
    assert drain(c) == []
    c.now_ms += 100
    assert ready(c) == {0}
    assert drain(c) == [batch]


def test_a_retry_goes_to_another_leader_at_once_and_back_after_its_backoff_only() -> None:
    """A broker that lags may name the old leader again before the new one takes the batch."""
    c = make_core(leaders=[0])
    batch = retried(c)
    led = {}
    for leader, epoch in ((1, 1), (0, 2)):
        c.metadata.update(metadata_response(leaders=[leader], leader_epoch=epoch), c.now_ms)
        led[leader] = c.accumulator.ready(c.metadata.snapshot, c.now_ms).led
    assert (set(led[1]), set(led[0]), next_check(c)) == ({1}, set(), 100)
    # A turn that found the new leader, and then finds its connection closed, may go on with the old one.
    assert c.accumulator.drain(0, led[1][1], Sequences(), 5, c.now_ms) == []
    c.now_ms += 100
    assert drain(c) == [batch]


def test_a_partition_without_a_leader_asks_for_metadata() -> None:
    c = holding(routed([b"a", b"b"], [0, 1]), leaders=[-1, 0], linger_ms=0)
    found = c.accumulator.ready(c.metadata.snapshot, c.now_ms)
    assert (found.leaderless, set(found.led)) == ({"t"}, {0})


def test_drain_takes_one_batch_a_partition_and_stays_under_max_request_size() -> None:
    c = holding(routed([bytes(900)] * 8, [0, 1, 2, 3] * 2), leaders=[0] * 4, batch_size=1_024, max_request_size=2_048)
    requests = []
    while batches := drain(c):
        requests.append(partitions(batches))
        assert sum(b.size_bytes for b in batches) <= 2_048
        assert len({b.topic_partition for b in batches}) == len(batches)
    # It goes on behind where it stopped, so that the last partition is not the one that always waits.
    assert requests == [[0, 1], [2, 3], [0, 1], [2, 3]]
    c = holding(routed([b"a", b"b"], [0, 1]), leaders=[0, 1])
    assert partitions(drain(c, node_id=1)) == [1]


def test_a_request_has_the_rows_of_open_batches_and_what_it_leaves_takes_more() -> None:
    c = holding(routed([bytes(900)] * 3, [0, 1, 2]), leaders=[0] * 3, max_request_size=2_048)
    first = drain(c)
    assert partitions(first) == [0, 1]
    assert [(b.record_count, b.size_bytes > 900) for b in first] == [(1, True)] * 2
    c.append(routed([b"more"], [2]))
    (left,) = drain(c)
    assert [len(r.value) for r in read_back(c, left)] == [900, 4]


def test_a_first_batch_over_max_request_size_goes_alone() -> None:
    c = holding(routed([bytes(5_000), b"b"], [0, 1]), batch_size=1_024, max_request_size=2_048)
    assert [partitions(drain(c)) for _ in range(2)] == [[0], [1]]


def test_a_partition_that_has_to_wait_for_an_answer_is_passed_over() -> None:
    c = make_core(leaders=[0] * 3, batch_size=1_024, max_request_size=2_048)
    sequences = Sequences(idempotent=False)

    def drained() -> list[int]:
        return partitions(drain(c, sequences=sequences, max_in_flight=1))

    c.append(routed([bytes(900)] * 6, [0, 1, 2] * 2))
    first = next(c.accumulator.queued())
    assert drained() == [0, 1]
    sequences.number(first)
    first.step("send")
    assert [drained() for _ in range(3)] == [[2, 1], [2], []]
    sequences.acknowledged(first, c.now_ms)
    assert drained() == [0]


def test_a_batch_being_filled_is_neither_ready_nor_drained() -> None:
    c = make_core(linger_ms=0)
    c.accumulator.begin_flush()

    def meanwhile() -> None:
        assert len(list(c.accumulator.queued())) == 1
        assert ready(c) == set()
        assert drain(c) == []

    append_and(c, routed([b"a"], [0]), meanwhile)
    assert ready(c) == {0}
    assert len(drain(c)) == 1


def test_requeued_batches_stand_in_sequence_order_before_new_ones() -> None:
    c = holding(rows_of([bytes(900)] * 4), batch_size=1_024)
    queue = list(c.accumulator.queued())
    # They were numbered where sequences wrap.
    for sequence, batch in enumerate(queue[:3]):
        assert drain(c) == [batch]
        batch.number(ProducerIdAndEpoch(1, 0), (2**31 - 1 + sequence) % 2**31)
    for index in (1, 2, 0):
        c.accumulator.requeue(queue[index])
    assert list(c.accumulator.queued()) == queue


def test_buffers_shrink_so_that_every_partition_can_have_two() -> None:
    memory = 64 * LEAST_BUFFER_BYTES
    for count, buffer_bytes in ((16, memory // (2 * 16)), (90, LEAST_BUFFER_BYTES)):
        c = make_core(leaders=[0] * count, batch_size=16 * LEAST_BUFFER_BYTES, buffer_memory=memory)
        for _ in range(2):
            waiting = routed([b"v"] * count, list(range(count)))
            while not c.append(waiting):
                drain_everything(c)
        assert c.accumulator.pool.buffer_bytes == buffer_bytes


@pytest.mark.parametrize("batch_size", [4 * LEAST_BUFFER_BYTES + 3, 4 * LEAST_BUFFER_BYTES + 2, 100_003])
def test_buffers_of_an_uneven_batch_size_shrink_without_sharing_a_byte(batch_size: int) -> None:
    c = make_core(leaders=[0] * 40, batch_size=batch_size, buffer_memory=64 * LEAST_BUFFER_BYTES)
    # Few partitions get whole buffers; what comes back of them is for several each.
    c.append(routed([b"v"] * 4, list(range(4))))
    assert {batch.buffer.size for batch in c.accumulator.queued()} == {c.accumulator.pool.buffer_bytes}
    drain_everything(c)
    assert c.append(routed([b"v"] * 40, list(range(40))))
    buffers = sorted((batch.buffer.start, batch.buffer.size) for batch in c.accumulator.queued())
    assert len(buffers) == 40
    assert all(start + size <= following for (start, size), (following, _) in pairwise(buffers))


def test_a_failed_producer_fails_queued_and_later_rows_and_frees_their_memory() -> None:
    c = holding(routed([b"a", b"b"], [0, 1]))
    error = ProducerClosed(reason="test")
    c.accumulator.fail(error)
    assert c.acknowledgements.failure is error
    assert c.is_free
    with pytest.raises(ProducerClosed):
        put(c, [b"c"])


def test_a_batch_whose_producer_fails_meanwhile_is_given_back_by_its_writer() -> None:
    c = make_core()
    batches: list[ProducerBatch] = []

    def meanwhile() -> None:
        batches.extend(c.accumulator.queued())
        c.accumulator.fail(ProducerClosed(reason="test"))
        assert [batch.state for batch in batches] == [BatchState.OPEN]

    append_and(c, routed([b"a"], [0]), meanwhile)
    assert [batch.state for batch in batches] == [BatchState.DONE]
    assert c.is_free


def test_writes_do_not_share_a_batch() -> None:
    """Each write's acknowledgements count its own rows, so its batches hold no others."""
    c = holding(rows_of([b"a"]))
    other = Acknowledgements()
    assert c.accumulator.try_append(routed([b"b", b"c"], [0, 0]), other, c.codec, c.now_ms)
    first, second = drain(c), drain(c)
    assert [(b.acknowledgements, b.record_count) for b in first + second] == [(c.acknowledgements, 1), (other, 2)]


def test_a_writer_that_begins_while_another_fills_gets_batches_of_its_own() -> None:
    c = make_core()
    other = Acknowledgements()

    def meanwhile() -> None:
        assert c.accumulator.try_append(routed([b"b"], [0]), other, c.codec, 0)
        first, second = c.accumulator.queued()
        assert (first.checked_out, first.acknowledgements, second.acknowledgements) == (True, c.acknowledgements, other)

    append_and(c, routed([b"a"], [0]), meanwhile)
    records = [[record.value for record in read_back(c, batch)] for batch in drain(c) + drain(c)]
    assert records == [[b"a"], [b"b"]]


def test_only_what_is_ready_is_drained() -> None:
    """A partition whose batch has neither filled up nor lingered waits for more rows, though its leader is sent to."""
    c = holding(routed([bytes(900)] * 2 + [b"waits"], [0, 0, 1]), linger_ms=100, batch_size=1_024)
    led = c.accumulator.ready(c.metadata.snapshot, c.now_ms).led[0]
    assert list(led) == [TopicPartition("t", 0)]
    assert len(c.accumulator.drain(0, led, Sequences(), 5, c.now_ms)) == 1
    # What is left of partition 0 has not lingered either.
    assert c.accumulator.drain(0, led, Sequences(), 5, c.now_ms) == []
    assert next_check(c) == 100


def test_a_batch_behind_another_lingers_as_long_as_any() -> None:
    c = holding(rows_of([bytes(900)]), linger_ms=100, batch_size=1_024)
    c.now_ms += 60
    put(c, [bytes(900)])  # the first is full now, and goes
    led = c.accumulator.ready(c.metadata.snapshot, c.now_ms).led[0]
    assert len(c.accumulator.drain(0, led, Sequences(), 5, c.now_ms)) == 1
    for later_ms, found in ((99, (set(), 1)), (1, ({0}, None))):
        c.now_ms += later_ms
        assert (ready(c), next_check(c)) == found


def test_news_is_a_batch_that_was_opened_or_had_no_memory_and_is_told_once() -> None:
    c = make_core(batch_size=1_024)
    assert not c.accumulator.take_wakeup()
    # Of the last one, a second batch is opened, as the first is full.
    for size, is_news in ((300, True), (300, False), (600, True)):
        put(c, [bytes(size)])
        assert c.accumulator.take_wakeup() == is_news
    assert not c.accumulator.take_wakeup()
    # Or there was no memory for one.
    c = make_core(leaders=[0, 0], batch_size=1_024, buffer_memory=1_024)
    for partition in (0, 1):
        assert put(c, [b"a"], [partition]) == (partition == 0)
        assert c.accumulator.take_wakeup()


def test_news_is_what_was_passed_over_as_rows_were_being_written_into_it() -> None:
    c = holding(rows_of([b"a"]), linger_ms=0)
    c.accumulator.take_wakeup()
    led = c.accumulator.ready(c.metadata.snapshot, c.now_ms).led[0]

    def meanwhile() -> None:
        assert not c.accumulator.take_wakeup()
        assert c.accumulator.drain(0, led, Sequences(), 5, c.now_ms) == []
        assert c.accumulator.take_wakeup()
        assert ready(c) == set()
        assert c.accumulator.take_wakeup()

    append_and(c, routed([b"b"], [0]), meanwhile)
    assert ready(c) == {0}
    assert not c.accumulator.take_wakeup()


def test_the_next_look_is_when_the_oldest_batch_has_lingered() -> None:
    c = holding(rows_of([bytes(400)]), leaders=[0, 1, 0], linger_ms=10, batch_size=1_024)
    assert next_check(c) == 10
    c.now_ms += 5
    put(c, [bytes(400)], [1])
    assert (ready(c), next_check(c)) == (set(), 5)
    put(c, [bytes(600)] * 2, [2, 2])  # its first batch is full
    assert (ready(c), next_check(c)) == ({0}, 5)
    c.now_ms += 5
    assert (ready(c), next_check(c)) == ({0}, 5)


def test_one_refusal_is_enough_for_all_rows_that_need_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    c = make_core(leaders=[0] * 9, batch_size=1_024, buffer_memory=4_096)
    asked: list[int] = []
    allocate = c.accumulator.pool.try_allocate
    monkeypatch.setattr(c.accumulator.pool, "try_allocate", lambda size: asked.append(size) or allocate(size))
    waiting = routed([bytes(900)] * 3 + [bytes(5_000)] * 5 + [b"small"], list(range(9)))
    assert not c.append(waiting)
    # Three, then one large row of five, then the small one, which needs less and finds it.
    assert len(asked[:5]) == 5 and asked[3] > 5_000 > asked[4]
    assert waiting.unplaced().tolist() == [3, 4, 5, 6, 7]


def test_nothing_lingers_while_memory_is_short() -> None:
    c = make_core(leaders=[0, 0, 0], linger_ms=300_000, batch_size=1_024, buffer_memory=2_048)
    assert c.append(routed([b"a", b"b"], [0, 1]))
    assert ready(c) == set()
    assert not c.append(routed([b"c"], [2]))
    assert [partition for _, partition in c.accumulator.ready(c.metadata.snapshot, 0).led[0]] == [0, 1]


def test_rows_that_find_no_memory_hold_up_no_others() -> None:
    c = holding(routed([b"a"], [1]), leaders=[0] * 2, batch_size=1_024, buffer_memory=2_048)
    put(c, [b"b"])
    waiting = routed([bytes(900)] * 2 + [b"c"], [0, 0, 1])
    assert not c.append(waiting)
    # One more fitted into partition 0; the other waits for memory, and partition 1's went into its open batch.
    assert waiting.unplaced().tolist() == [0] and waiting.unplaced_count() == 1
    assert not any(batch.checked_out for batch in c.accumulator.queued())  # what is there can be sent meanwhile
    got = drain_everything(c)
    assert [r.value for r in got[TopicPartition("t", 1)]] == [b"a", b"c"]
    assert c.append(waiting)
    assert [len(r.value) for r in drain_everything(c)[TopicPartition("t", 0)]] == [900]


def test_a_writer_and_a_sender_at_the_same_time_neither_lose_nor_reorder_a_row() -> None:
    """The lock is a real one here; the other tests have nobody to lock out."""
    lock = threading.Lock()
    c = make_core(leaders=[0] * 7, batch_size=1_024, buffer_memory=20_000, linger_ms=0, lock=lock)
    got: dict[int, list[int]] = {partition: [] for partition in range(7)}
    done = threading.Event()

    def send() -> None:
        while not done.is_set() or any(c.accumulator.queued()):
            with lock:
                led = c.accumulator.ready(c.metadata.snapshot, 0).led.get(0, deque())
                drained = c.accumulator.drain(0, led, Sequences(), 5, 0)
            for batch in drained:
                values = [int(record.value[:9]) for record in read_back(c, batch)]
                got[batch.topic_partition.partition] += values
                with lock:
                    c.accumulator.deallocate(batch)

    sender = threading.Thread(target=send)
    sender.start()
    rng = random.Random(1)
    expected: dict[int, list[int]] = {partition: [] for partition in range(7)}
    number = 0
    deadline = time.monotonic() + 250
    for _ in range(150):
        partitions = [rng.randrange(7) for _ in range(rng.randint(1, 40))]
        for partition in partitions:
            expected[partition].append(number)
            number += 1
        values = [b"%09d" % n + bytes(rng.choice([0, 50, 1_500])) for n in range(number - len(partitions), number)]
        rows = routed(values, partitions)
        while not c.append(rows):
            assert time.monotonic() < deadline
    done.set()
    sender.join(250)
    assert got == expected
    assert c.accumulator.pool.available_bytes == 20_000


def test_a_topic_whose_batches_were_refused_gets_smaller_ones() -> None:
    c = make_core(batch_size=4_096)
    assert (c.accumulator.limit_batches("t", 1_000), c.accumulator.limit_batches("t", 3_000)) == (1_000, 1_000)
    assert c.accumulator.limit_batches("u", 2_000) == 2_000
    assert c.append(routed([bytes(300)] * 10 + [bytes(5_000)], [0] * 11))
    batches = list(c.accumulator.queued())
    for batch in batches:
        batch.settle()
    assert [batch.record_count for batch in batches] == [3, 3, 3, 1, 1]
    # A row that is larger still gets its place: whether it is too large is for its leader to say.
    assert all(batch.size_bytes <= 1_000 for batch in batches[:-1])

"""Quotas: what a throttle tells of the rate, and the Sender whose brokers throttle."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import DeliveryTimeout, QuotaOutlastsTransaction, RateOutlastsTransaction
from kafka_sink.kafka.producer.sender import EXPIRY_GRAIN_MS
from kafka_sink.kafka.producer.throttling import (
    BURST_MS,
    FIRST_REPORT_MS,
    JUST_NOW_MS,
    REPORT_EVERY_MS,
    WINDOW_MS,
    OpenTransaction,
    Rate,
    RateLimit,
    Throttling,
)
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from producer_core import Core, make_core, routed
from scripted_kafka import Sent

MB = 1_000_000


def throttled(until_ms: int = 4_000, taken_bytes: int = MB) -> Throttling:
    """Node 1 takes so much at 0 ms, and then nothing until then."""
    throttling = Throttling()
    throttling.began(0)
    throttling.looked(0, 0, {1: until_ms})
    throttling.acknowledged(1, taken_bytes, 0)
    return throttling


def rest_ms(throttling: Throttling, waiting_bytes: int, now_ms: int) -> int:
    told = throttling.report({1: waiting_bytes}, now_ms)
    assert told is not None
    return told.rest_ms


def throttle_on(throttling: Throttling, times_ms: range) -> None:
    """Node 1 takes a megabyte every time, and then nothing until the next time."""
    for now_ms in times_ms:
        throttling.looked(now_ms, now_ms, {1: now_ms + times_ms.step})
        throttling.acknowledged(1, MB, now_ms)


class TestRate:
    def test_a_throttle_that_was_told_counts_at_once(self) -> None:
        told = throttled().report({1: 5 * MB}, 0)
        assert told is not None
        assert (told.bytes_per_s, told.rest_ms, told.waiting_bytes) == (250_000, 20_000, 5 * MB)
        # No less than the throttle itself; nothing where nothing waits.
        assert rest_ms(throttled(), 10, 1_000) == 3_000
        assert throttled().report({2: MB}, 0) is None

    def test_it_is_that_of_the_last_minutes(self) -> None:
        throttling = throttled()
        throttle_on(throttling, range(4_000, 40_000, 4_000))
        assert rest_ms(throttling, MB, 36_000) == 4_000
        throttle_on(throttling, range(40_000, 40_000 + 2 * WINDOW_MS + 40_001, 40_000))
        assert rest_ms(throttling, MB, 2 * WINDOW_MS + 80_000) == pytest.approx(40_000, rel=0.01)

    def test_of_each_node_its_own(self) -> None:
        throttling = throttled(until_ms=400_000)
        throttling.looked(0, 0, {1: 400_000, 2: 1_000})
        throttling.acknowledged(2, MB, 0)
        assert throttling.has_room({2: 10 * MB}, 0, 10_000)
        assert not throttling.has_room({1: MB, 2: 10 * MB}, 0, 10_000)
        assert throttling.outlasts(20_000, {2: 10 * MB}, 500, 0) is None
        assert throttling.outlasts(20_000, {1: 1}, 500, 0) is not None


@pytest.mark.parametrize(("taken", "waiting", "now_ms", "has_room"), [
    (MB, 2_500_000, 0, True),  # what goes in time
    (MB, 2_500_001, 0, False),
    (0, 1, 0, False),  # before anything was taken
    (0, 0, 0, True),
    (MB, 9 * MB, 4_000 + JUST_NOW_MS, False),
    (MB, 9 * MB, 4_001 + JUST_NOW_MS, True),  # nobody throttles any more
])  # fmt: skip
def test_there_is_room_for_what_goes_in_time(taken: int, waiting: int, now_ms: int, has_room: bool) -> None:
    assert throttled(taken_bytes=taken).has_room({1: waiting}, now_ms, 10_000) == has_room


class TestTelling:
    def test_after_a_while_and_then_every_so_often(self) -> None:
        throttling, told_at_ms = Throttling(), []
        throttling.began(7_000)  # of writes before
        for passed_ms in range(0, 70_000, 500):
            throttling.looked(passed_ms, 7_000 + passed_ms, {1: 900_000})
            if throttling.is_report_due():
                told = throttling.report({1: MB}, passed_ms)
                assert told is not None
                told_at_ms.append(told.throttled_ms)
        assert told_at_ms == [FIRST_REPORT_MS, FIRST_REPORT_MS + REPORT_EVERY_MS, FIRST_REPORT_MS + 2 * REPORT_EVERY_MS]

    def test_another_write_begins_anew(self) -> None:
        throttling = throttled()
        throttling.looked(4_000, 4_000, {1: 4_000})
        throttling.began(4_000)
        assert (throttling.is_felt, throttling.throttled_ms) == (False, 0)
        throttling.looked(5_000, 4_000, {1: 4_000})
        assert not throttling.is_felt


def sending(**options: Any) -> tuple[Core, Sent]:
    """A row is on its way to node 0; another is behind it, in a batch of its own."""
    c = make_core(batch_size=1_024, linger_ms=0, delivery_timeout_ms=40_000, request_timeout_ms=30_000, **options)
    c.sender.begin_write(0)
    c.append(routed([bytes(900)] * 2, [0, 0]))
    c.answer_producer_id()
    return c, c.network.take(ProduceRequest)


def throttle(c: Core, for_ms: int, node_id: int = 0) -> None:
    """Begins now, and with it what the node has taken."""
    since_ms, until_ms = c.kafka.throttled.get(node_id, (c.now_ms, c.now_ms))
    # As if the ones before had been one, without the time between them.
    c.kafka.throttled[node_id] = (since_ms + c.now_ms - until_ms, c.now_ms + for_ms)


def run_on(c: Core, for_ms: int) -> None:
    for _ in range(0, for_ms, 500):
        c.run(500)


def test_a_throttled_row_does_not_grow_old_in_its_queue() -> None:
    """Nearly ten times the delivery timeout, which is the most, and then the rest of it."""
    c, first = sending()
    throttle(c, 390_000)
    c.answer_produce(first)
    run_on(c, 390_000)
    (second,) = c.network.produce()
    c.network.sent.clear()
    run_on(c, 39_500)
    assert c.acknowledgements.failure is None
    c.run(500 + EXPIRY_GRAIN_MS)
    failure = c.failed(DeliveryTimeout)
    assert 40_000 <= failure.elapsed_ms <= 41_000
    assert failure.throttled_ms == 390_000 and not failure.is_quota
    assert "Brokers also throttled this write for 390000 ms, by a quota of its user or client id" in str(failure)
    assert second.request.partitions[0].partition == 0
    c, _ = sending()
    throttle(c, 10**9)
    run_on(c, 399_500)
    assert c.acknowledgements.failure is None
    run_on(c, 500 + EXPIRY_GRAIN_MS)
    failure = c.failed(DeliveryTimeout)
    assert failure.is_quota and failure.elapsed_ms < 40_000
    throttled = f"Brokers throttled this write for {failure.throttled_ms} ms, by a quota of its user or client id"
    assert str(failure).startswith(f"{throttled}, over ten times kafka.delivery.timeout.ms: 1 records for t-0 were not")
    assert "Raise the quota or kafka.delivery.timeout.ms." in str(failure) and "in-sync" not in str(failure)


def test_each_throttle_counts_and_the_time_between_them_does_not() -> None:
    c, _ = sending()
    for _ in range(20):
        throttle(c, 4_000)
        run_on(c, 5_000)
    assert c.acknowledgements.failure is None
    (batch,) = c.sender.sequences.unanswered()
    assert (batch.throttled_ms, batch.waited_ms(c.now_ms)) == (80_000, 20_000)


def test_a_broker_that_hangs_beside_one_that_throttles_is_found_in_time() -> None:
    c = make_core(leaders=[0, 1], batch_size=1_024, linger_ms=0, delivery_timeout_ms=40_000)
    c.sender.begin_write(0)
    c.append(routed([b"a", b"b"], [0, 1]))
    c.answer_producer_id()
    throttle(c, 1_000_000, node_id=0)
    run_on(c, 40_500)
    failure = c.failed(DeliveryTimeout)
    assert failure.partition == 1
    assert failure.elapsed_ms < 41_000
    assert "Brokers also throttled this write" in str(failure)


def test_batches_behind_a_throttling_former_leader_do_not_grow_old() -> None:
    """The partition has another leader, and its next batch waits for the answer about the one before."""
    c, first = sending(leaders=[0])
    c.network.sent.append(first)
    throttle(c, 200_000)
    c.run(200)
    c.learn(1, after_ms=0, leader_epoch=1)
    run_on(c, 150_000)
    assert c.acknowledgements.failure is None


def test_a_part_of_a_split_batch_keeps_what_its_batch_was_throttled() -> None:
    c = make_core(batch_size=4_096, max_request_size=4_096, linger_ms=0, delivery_timeout_ms=40_000)
    c.sender.begin_write(0)
    c.append(routed([bytes(900)] * 4, [0] * 4))
    c.answer_producer_id()
    throttle(c, 100_000)
    run_on(c, 110_000)
    c.answer_produce(c.only(), 10)
    assert {batch.throttled_ms for batch in c.sender.sequences.unanswered()} == {100_000}
    run_on(c, 20_000)
    assert c.acknowledgements.failure is None


def test_rows_may_come_as_fast_as_they_go() -> None:
    c, first = sending()
    assert c.sender.has_room(c.now_ms)
    c.answer_produce(first)
    c.run()
    throttle(c, 1_000)
    c.run()
    assert not c.sender.has_room(c.now_ms)
    c.answer_produce(c.only())
    assert c.sender.has_room(c.now_ms)
    c.append(routed([bytes(900)] * 5, [0] * 5))  # five times what goes in a second
    assert c.sender.has_room(c.now_ms)
    c.append(routed([bytes(900)] * 6, [0] * 6))  # 11 > 40 s / 4
    assert not c.sender.has_room(c.now_ms)


def in_transaction(timeout_ms: int | None) -> Core:
    c = make_core(leaders=[0], batch_size=1_024, linger_ms=0, delivery_timeout_ms=40_000, client_id="nightly")
    c.sender.begin_write(c.now_ms, Transaction("orders.0", 7000, 3, version=2, timeout_ms=timeout_ms))
    c.append(routed([bytes(900)] * 20, [0] * 20))
    c.run()
    return c


def feed(c: Core, every_ms: int) -> None:
    """The node takes a batch of 900 bytes, and then nothing for so long."""
    throttle(c, every_ms)
    c.answer_produce(c.network.take(ProduceRequest))
    run_on(c, every_ms)


def test_a_transaction_that_a_quota_outlasts_fails_before_its_time_is_up() -> None:
    c = in_transaction(timeout_ms=200_000)
    while c.acknowledgements.failure is None:
        feed(c, 20_000)
    failure = c.failed(QuotaOutlastsTransaction)
    assert c.now_ms <= 80_000  # as soon as the rate was measured, not at 200,000
    assert failure.left_ms >= 120_000
    assert failure.bytes_per_s == pytest.approx(50, rel=0.1)
    assert failure.rest_ms > failure.left_ms
    for words in ("client id 'nightly'", "'orders.0'", "transaction.max.timeout.ms", "kafka-configs.sh"):
        assert words in str(failure)


def test_one_that_is_told_to_wait_for_longer_than_it_has_fails_at_once() -> None:
    c = in_transaction(timeout_ms=200_000)
    throttle(c, 195_000)
    c.answer_produce(c.network.take(ProduceRequest))
    c.run(EXPIRY_GRAIN_MS)
    c.failed(QuotaOutlastsTransaction)


@pytest.mark.parametrize("timeout_ms", [500_000, None])
def test_one_that_lasts_long_enough_ends_well(timeout_ms: int | None) -> None:
    c = in_transaction(timeout_ms)
    for _ in range(19):
        feed(c, 20_000)
    c.answer_produce(c.network.take(ProduceRequest))
    assert c.is_written


def test_a_guess_does_not_end_a_transaction() -> None:
    """The first answers may be to many at once: only what was measured for a while is believed."""
    c = in_transaction(timeout_ms=200_000)
    feed(c, 20_000)
    assert c.acknowledgements.failure is None
    c.kafka.throttled.clear()
    while not c.acknowledgements.settled:
        c.answer_produce(c.network.take(ProduceRequest))
        c.run(1)
    assert c.acknowledgements.failure is None


def test_a_transaction_that_nobody_throttles_is_left_to_its_brokers() -> None:
    c = in_transaction(timeout_ms=10_000)
    c.run(10_000)
    assert c.acknowledgements.failure is None
    assert c.acknowledgements.pending_batches


def test_whose_batch_it_is_counts_for_the_rate() -> None:
    c = in_transaction(timeout_ms=None)
    feed(c, FIRST_REPORT_MS)
    told = c.sender.throttling_report(c.now_ms)
    assert told is not None and told.bytes_per_s is not None
    # One of twenty batches was taken, by the only node that leads.
    assert told.waiting_bytes == 19 * told.bytes_per_s * FIRST_REPORT_MS / 1_000 > 19 * 900


RATES = st.floats(0.05, 1e9)
# Rows, bytes, and for how long their source was slow.
SLICES = st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 10**7), st.integers(0, 5_000)), min_size=1)


def written(limit: RateLimit, slices: list[tuple[int, int, int]], began_ms: int) -> list[tuple[int, int, int]]:
    """When each slice went, and how many rows and bytes had gone by then, its own included."""
    now_ms, rows, octets, went = began_ms, 0, 0, []
    for row_count, byte_count, slow_ms in slices:
        now_ms = limit.take(row_count, byte_count, now_ms + slow_ms)
        rows, octets = rows + row_count, octets + byte_count
        went.append((now_ms, rows, octets))
    return went


@given(RATES, RATES, SLICES, st.integers(0, 10**9))
def test_it_is_never_faster_than_asked(rows_per_s: float, bytes_per_s: float, slices: list, began_ms: int) -> None:
    limit = RateLimit(Rate(rows_per_s, bytes_per_s), now_ms=began_ms)
    for at_ms, rows, octets in written(limit, slices, began_ms):
        elapsed_s = (at_ms - began_ms) / 1000
        assert rows <= rows_per_s * elapsed_s * (1 + 1e-9) + 1e-6
        assert octets <= bytes_per_s * elapsed_s * (1 + 1e-9) + 1e-6


@given(RATES, SLICES)
def test_a_source_that_is_fast_is_slowed_to_just_the_rate(rows_per_s: float, slices: list) -> None:
    limit = RateLimit(Rate(rows_per_s), now_ms=0)
    at_ms, rows, _ = written(limit, [(row_count, byte_count, 0) for row_count, byte_count, _ in slices], 0)[-1]
    # A millisecond is the clock's.
    assert at_ms <= rows * 1000 / rows_per_s * (1 + 1e-9) + 1


@given(RATES, SLICES)
def test_what_a_slow_source_missed_is_caught_up_with_by_one_burst(rows_per_s: float, slices: list) -> None:
    went = [(0, 0, 0), *written(RateLimit(Rate(rows_per_s), now_ms=0), slices, 0)]
    for (at_ms, before, _), (then_ms, after, _) in pairwise(went):
        assert after - before <= rows_per_s * (then_ms - at_ms + BURST_MS + 1) / 1000 * (1 + 1e-9) + 1e-6


@given(RATES, RATES, st.integers(1, 10**6), st.integers(0, 10**12))
def test_a_burst_is_a_tenth_of_a_seconds_worth_or_a_row(
    rows_per_s: float, bytes_per_s: float, row_count: int, byte_count: int
) -> None:
    at_once = RateLimit(Rate(rows_per_s, bytes_per_s), now_ms=0).rows_at_once(row_count, byte_count)
    assert 1 <= at_once <= row_count
    if at_once > 1:
        assert at_once <= rows_per_s * BURST_MS / 1000 + 1e-6
        assert at_once * byte_count / row_count <= bytes_per_s * BURST_MS / 1000 * (1 + 1e-9) + 1e-6


def test_a_row_that_is_more_than_a_burst_waits_until_it_is_paid_for() -> None:
    limit = RateLimit(Rate(bytes_per_s=1_000), now_ms=0)
    assert (limit.take(1, 5_000, 0), limit.take(1, 1_000, 5_000)) == (5_000, 6_000)


def test_the_slower_of_rows_and_bytes_decides() -> None:
    assert RateLimit(Rate(rows_per_s=10, bytes_per_s=1_000), now_ms=0).take(10, 100, 0) == 1_000
    assert RateLimit(Rate(rows_per_s=10, bytes_per_s=1_000), now_ms=0).take(10, 3_000, 0) == 3_000


def test_a_transaction_that_would_be_outlasted_is_told_before_it_is_waited_for() -> None:
    limit = RateLimit(Rate(rows_per_s=1), now_ms=500, transaction=OpenTransaction("orders.3", 10_000))
    now_ms = 500
    for _ in range(9):
        now_ms = limit.take(1, 0, now_ms)
    with pytest.raises(RateOutlastsTransaction, match=r"'orders\.3'.*ms 10000.*: 9 of them were sent") as raised:
        limit.take(1, 0, now_ms)
    assert (raised.value.timeout_ms, raised.value.row_count, now_ms) == (10_000, 9, 9_500)

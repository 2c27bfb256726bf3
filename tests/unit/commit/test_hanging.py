"""Leaders that did not hear of a COMMIT, or of an ABORT."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import apis
from exchange import REFUSALS, Exchange, after_decision, after_tasks, instead
from kafka_sink import errors
from kafka_sink.commit import planning
from kafka_sink.commit.handover import Facts, SlotPrepared
from kafka_sink.commit.hanging import PAUSES_MS, Hanging, check_leaders, write_commit_markers
from kafka_sink.commit.markers import Ids
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name


def nothing_on(partition: int, code: int = 0) -> apis.DescribeProducersResponse:
    return apis.DescribeProducersResponse(0, (apis.ProducersOfPartition("t", partition, code, None, ()),))


def open_on(partition: int, ids: Ids, offset: int = 17, last_sequence: int = -1) -> apis.DescribeProducersResponse:
    ids_of_both = ((ids.producer_id + 1000, ids.producer_epoch), (ids.producer_id, ids.producer_epoch))
    producers = tuple(apis.ActiveProducer(*each, offset, last_sequence=last_sequence) for each in ids_of_both)
    return apis.DescribeProducersResponse(0, (apis.ProducersOfPartition("t", partition, 0, None, producers),))


def hangs(exchange: Exchange, done: list[SlotPrepared], *codes: int) -> None:
    """The last slots' transactions are open to their leaders, which refuse markers with these codes."""
    first = 2 - len(codes)
    partitions = [open_on(n, done[n].ids).partitions[0] for n in range(first, 2)]

    def answer(request: Any) -> Any:
        if isinstance(request, apis.WriteTxnMarkersRequest):
            ((topic, partition),) = request.partitions
            return apis.PartitionsResponse(0, (apis.PartitionResult(topic, partition, codes[partition - first]),))
        is_look = isinstance(request, apis.DescribeProducersRequest)
        return apis.DescribeProducersResponse(0, tuple(partitions)) if is_look else None

    exchange.answer = answer


def in_turn(*answers: apis.DescribeProducersResponse) -> Callable[[Any], Any]:
    """What leaders answer first."""
    left = iter(answers)
    return lambda request: next(left, None) if isinstance(request, apis.DescribeProducersRequest) else None


def test_what_hangs_is_committed_on_the_leader_with_its_own_ids() -> None:
    exchange, found, done = after_tasks(2)
    exchange.kafka.lose_marker(1)
    exchange.commit(found, done)
    assert exchange.kafka.visible == ["0/0", "0/1"]
    # A coordinator that is slow is waited for first.
    assert exchange.pauses_ms == list(PAUSES_MS)
    assert (PAUSES_MS[0], PAUSES_MS[-1], sum(PAUSES_MS)) == (2, 16_384, 32_766)
    markers = [request for request in exchange.requests if isinstance(request, apis.WriteTxnMarkersRequest)]
    ids = done[1].ids
    assert markers == [apis.WriteTxnMarkersRequest(ids.producer_id, ids.producer_epoch, True, 0, (("t", 1),))]
    # A marker is of no earlier coordinator than the leader's last.
    exchange.run(write_commit_markers([Hanging("t", 0, "orders.0", done[0].ids, 17, coordinator_epoch=9)]))
    assert exchange.requests[-1].coordinator_epoch == 9


def test_what_ends_in_the_last_pause_gets_no_marker() -> None:
    exchange, found, done = after_tasks(1)
    exchange.answer = in_turn(*[open_on(0, done[0].ids)] * len(PAUSES_MS))
    exchange.commit(found, done)
    assert exchange.pauses_ms == list(PAUSES_MS)
    assert (exchange.asked["DescribeProducers"], exchange.asked["WriteTxnMarkers"]) == (len(PAUSES_MS) + 1, 0)


def test_what_hangs_since_an_earlier_run_of_the_micro_batch_is_found_by_its_replay() -> None:
    exchange = after_decision(2)
    # The next plan commits.
    exchange.kafka.lose_marker(1)
    found, done = exchange.tasks(2)
    assert exchange.kafka.hidden() == ["0/1"]
    exchange.commit(found, done)
    assert exchange.kafka.visible == ["0/0", "0/1"]


def test_what_was_pinned_and_did_not_become_visible_is_never_taken_for_committed() -> None:
    """The leader may not have heard of its abort either; its rows were written again."""
    exchange = after_decision(2)
    _, pinned = exchange.decision().pinned
    exchange.kafka.time_out("orders.1")
    found, again = exchange.tasks(2)
    assert pinned is not None
    exchange.answer = instead(apis.DescribeProducersRequest, open_on(1, pinned))
    exchange.commit(found, again)
    assert exchange.asked["WriteTxnMarkers"] == 0


REFUSED_MARKERS = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_PRODUCER_EPOCH]
REPAIR = (
    "pykafka transactions repair --bootstrap-servers HOST:PORT --prefix orders --commit-topic pykafka-commits --topic t"
)


@pytest.mark.parametrize("code", [*REFUSED_MARKERS, ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION])
def test_a_transaction_that_hangs_is_told_with_where_and_whose_and_what_ends_it(code: int) -> None:
    """Without WriteTxnMarkers the operators of the brokers must."""
    exchange, found, done = after_tasks(2)
    hangs(exchange, done, code)
    with pytest.raises(errors.HangingTransaction, match="Never abort") as raised:
        exchange.commit(found, done)
    error = raised.value
    assert (error.topic, error.partition, error.transactional_id) == ("t", 1, "orders.1")
    assert (error.producer_id, error.start_offset) == (done[1].ids.producer_id, 17)
    assert (error_name(code) in error.reason) == (code in REFUSED_MARKERS)
    assert error.command == ("" if code == ErrorCode.UNSUPPORTED_VERSION else REPAIR)
    for words in ("the brokers have no WriteTxnMarkers", "Ask the operators of these brokers to commit it"):
        assert (words in str(error)) == (code == ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize(("first_offsets", "visible", "words"), [
    (None, ["0/0"], "is committed, .*{name}"), ({("t", 0): 0}, [], r"was not committed.*TOPIC READ"),
])  # fmt: skip
@pytest.mark.parametrize("code", REFUSALS)
def test_a_partition_that_cannot_be_looked_at_is_not_one_where_nothing_is_open(
    code: int, first_offsets: Any, visible: list[str], words: str
) -> None:
    """Before the decision nothing is decided of it."""
    exchange, found, done = after_tasks(1)
    exchange.answer = instead(apis.DescribeProducersRequest, nothing_on(0, code))
    with pytest.raises(errors.VerificationRefused, match=words.format(name=error_name(code))) as raised:
        exchange.commit(found, [replace(done[0], first_offsets=first_offsets or done[0].first_offsets)])
    assert (raised.value.topic, raised.value.partition, raised.value.code) == ("t", 0, code)
    assert (exchange.kafka.visible, exchange.asked["EndTxn"] == 0) == (visible, not visible)


@pytest.mark.parametrize(("offset", "epochs_later"), [(17, 1), (-1, 0)])
def test_a_later_transaction_of_the_producer_and_none_are_not_ours_that_hangs(offset: int, epochs_later: int) -> None:
    exchange, found, done = after_tasks(1)
    ids = Ids(done[0].ids.producer_id, done[0].ids.producer_epoch + epochs_later)
    exchange.answer = instead(apis.DescribeProducersRequest, open_on(0, ids, offset))
    exchange.commit(found, done)
    assert exchange.pauses_ms == []


def where(error: Any) -> tuple[object, ...]:
    return error.topic, error.partition, error.transactional_id, error.open_since_offset, error.first_offset


def nothing_was_committed_and_the_next_run_is(exchange: Exchange, found: Facts) -> None:
    """Which first aborts, as Spark does when a commit fails."""
    assert (exchange.asked["EndTxn"], exchange.kafka.visible) == (0, [])
    exchange.answer = lambda request: None
    exchange.run(planning.abort(exchange.sink, found.generation))
    exchange.micro_batch(2)
    assert exchange.kafka.visible == ["0/0", "0/1"]


@pytest.mark.parametrize(("since", "first_offset"), [(17, 18), (17, None), (0, 1), (0, None)])
def test_a_transaction_that_is_open_since_before_its_rows_is_not_committed(
    since: int, first_offset: int | None
) -> None:
    exchange, found, done = after_tasks(2)
    exchange.answer = instead(apis.DescribeProducersRequest, open_on(1, done[1].ids, since))
    done[1] = replace(done[1], first_offsets={("t", 1): first_offset})
    with pytest.raises(errors.AbortedRowsOpen) as raised:
        exchange.commit(found, done)
    assert where(raised.value) == ("t", 1, "orders.1", since, first_offset)
    # Where the first row's offset is not known no other answer would help.
    assert exchange.pauses_ms == ([] if first_offset is None else list(PAUSES_MS))
    nothing_was_committed_and_the_next_run_is(exchange, found)


def test_what_begins_with_the_slots_own_row_is_committed_whatever_else_hangs() -> None:
    exchange, found, done = after_tasks(2)
    ids = done[1].ids
    answer = apis.DescribeProducersResponse(0, (*open_on(1, ids, 17).partitions, *open_on(0, ids, 3).partitions))
    exchange.answer = in_turn(answer)
    exchange.commit(found, [done[0], replace(done[1], first_offsets={("t", 1): 17})])
    assert exchange.kafka.visible == ["0/0", "0/1"]


# -1: the leader knows the producer, and has nothing of it open.
@pytest.mark.parametrize("since", [None, -1, 18])
def test_rows_that_are_in_no_transaction_any_more_are_not_taken_for_committed(since: int | None) -> None:
    """Their coordinator knows nothing of it."""
    exchange, found, done = after_tasks(2)
    answer = nothing_on(1) if since is None else open_on(1, done[1].ids, since)
    exchange.answer = instead(apis.DescribeProducersRequest, answer)
    done[1] = replace(done[1], first_offsets={("t", 1): 17})
    with pytest.raises(errors.PreparedRowsGone, match=r"kafka-transactions\.sh abort") as raised:
        exchange.commit(found, done)
    assert where(raised.value) == ("t", 1, "orders.1", 18 if since == 18 else None, 17)
    assert exchange.pauses_ms == ([] if since == 18 else list(PAUSES_MS))
    nothing_was_committed_and_the_next_run_is(exchange, found)


COUNTED = {"first_offsets": {("t", 1): 17}, "record_counts": {("t", 1): 5}}


def test_of_a_transaction_that_lost_its_last_rows_nothing_is_committed() -> None:
    """An unclean election: the leader has its first rows only."""
    exchange, found, done = after_tasks(2)
    exchange.answer = instead(apis.DescribeProducersRequest, open_on(1, done[1].ids, 17, last_sequence=2))
    done[1] = replace(done[1], **COUNTED)
    with pytest.raises(errors.PreparedRowsGone, match="lacks the last 2") as raised:
        exchange.commit(found, done)
    assert (raised.value.lacking_count, raised.value.open_since_offset, raised.value.first_offset) == (2, 17, 17)
    assert exchange.pauses_ms == list(PAUSES_MS)
    nothing_was_committed_and_the_next_run_is(exchange, found)


@pytest.mark.parametrize("last_sequence", [4, -1], ids=["all are there", "the leader does not tell"])
def test_of_a_transaction_with_all_its_rows_all_are_committed(last_sequence: int) -> None:
    exchange, found, done = after_tasks(2)
    exchange.answer = in_turn(*[open_on(1, done[1].ids, 17, sequence) for sequence in (3, last_sequence)])
    exchange.commit(found, [done[0], replace(done[1], **COUNTED)])
    assert (exchange.pauses_ms, exchange.kafka.visible) == ([PAUSES_MS[0]], ["0/0", "0/1"])


@pytest.mark.parametrize("since", [None, -1, 3])
@pytest.mark.parametrize("stale_answers", [1, len(PAUSES_MS)])
def test_a_leader_that_stood_still_is_asked_until_it_has_heard_of_its_successor(
    since: int | None, stale_answers: int
) -> None:
    exchange, found, done = after_tasks(2)
    before = nothing_on(1) if since is None else open_on(1, done[1].ids, since)
    exchange.answer = in_turn(*[before] * stale_answers, open_on(1, done[1].ids, 17))
    exchange.commit(found, [done[0], replace(done[1], first_offsets={("t", 1): 17})])
    assert exchange.pauses_ms == list(PAUSES_MS[:stale_answers])
    assert exchange.kafka.visible == ["0/0", "0/1"]


@pytest.mark.parametrize(("age_ms", "is_in_time"), [(22_234, True), (22_235, False)])
def test_what_is_open_is_looked_at_again_after_waiting_for_a_leader(age_ms: int, is_in_time: bool) -> None:
    """A transaction of 60 s has 5 of them left when it is decided, and what the leader took are 32.766."""
    exchange, found, done = after_tasks(1)
    exchange.answer = in_turn(*[nothing_on(0)] * len(PAUSES_MS), open_on(0, done[0].ids, 17))
    slots = [replace(done[0], first_offsets={("t", 0): 17})]
    with contextlib.nullcontext() if is_in_time else pytest.raises(errors.TransactionTimedOut):
        exchange.commit(found, slots, open_ms=age_ms)
    assert exchange.kafka.visible == (["0/0"] if is_in_time else [])
    assert (exchange.asked["EndTxn"] == 0) is not is_in_time


def test_rows_that_another_run_has_ended_are_no_loss_to_be_told_of() -> None:
    exchange, found, done = after_tasks(1)
    exchange.run(planning.plan(exchange.sink))
    exchange.answer = instead(apis.DescribeProducersRequest, nothing_on(0))
    slots = [replace(done[0], first_offsets={("t", 0): 17})]
    with pytest.raises(errors.DriverFenced):
        exchange.run(check_leaders(exchange.sink, slots, generation=found.generation, micro_batch_id=0))


def test_empty_slots_touch_no_partition_that_could_hang() -> None:
    exchange, found, done = after_tasks(2)
    exchange.commit(found, [replace(each, partitions=()) for each in done])
    assert exchange.asked["DescribeProducers"] == 0

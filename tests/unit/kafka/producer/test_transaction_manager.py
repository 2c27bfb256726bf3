"""A producer in a transaction that somebody else opened, on both versions of the protocol."""

import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kafka.record import MemoryRecords

import apis
from kafka_sink import errors
from kafka_sink.kafka.coordinators import Coordinators
from kafka_sink.kafka.producer.transaction_manager import (
    JOIN_PATIENCE_MS,
    TRANSITIONS,
    State,
    Transaction,
    TransactionManager,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.requests import select_version
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import TOPIC, Core, make_core, routed
from scripted_kafka import ScriptedKafka, ScriptedNetwork, Sent

NEW = Transaction("orders.0", producer_id=7000, producer_epoch=3, version=2)
OLD = replace(NEW, version=1)
COORDINATOR = 2


def begun(transaction: Transaction, *partitions: int, leaders: tuple[int, ...] = (0, 0), **options: object) -> Core:
    """A transaction with a row for each of these partitions."""
    core = make_core(leaders, **options)
    core.sender.begin_write(core.now_ms, transaction)
    if partitions:
        send_rows(core, *partitions)
    return core


def joining(*partitions: int, leaders: tuple[int, ...] = (0, 0), **options: object) -> Core:
    """One of version 1, whose coordinator is asked to add these partitions."""
    core = begun(OLD, *partitions, leaders=leaders, **options)
    find_coordinator(core)
    return core


def send_rows(core: Core, *partitions: int) -> list[Sent]:
    core.append(routed([b"row"] * len(partitions), list(partitions)))
    core.flush()
    core.run()
    return core.network.produce()


def next_transaction(core: Core, transaction: Transaction = NEW) -> None:
    core.sender.end_write()
    core.sender.begin_write(core.now_ms, replace(transaction, producer_epoch=4))


def headers(sent: Sent) -> list[tuple[bool, int, int, int]]:
    batches = [next(iter(MemoryRecords(bytes(each.records)))) for each in sent.request.partitions]
    return [(each.is_transactional, each.producer_id, each.producer_epoch, each.base_sequence) for each in batches]


def find_coordinator(core: Core) -> None:
    core.run()
    find = core.network.take(apis.FindCoordinatorRequest)
    assert find.request.keys == ("orders.0",)
    found = apis.FoundCoordinator("orders.0", 0, None, COORDINATOR, "localhost", 9094)
    core.answer(find, apis.FindCoordinatorResponse(0, (found,)))
    core.run()


def add_partitions(core: Core, **codes: int) -> Sent:
    """Answers the request to add partitions, with an error for those of `codes` (p0=29)."""
    asked = core.network.take(apis.AddPartitionsToTxnRequest)
    results = tuple(apis.PartitionResult(topic, p, codes.get(f"p{p}", 0)) for topic, p in asked.request.partitions)
    core.answer(asked, apis.PartitionsResponse(0, results))
    core.run()
    return asked


def test_batches_carry_the_transactions_ids_and_bit_and_no_producer_id_is_asked_for() -> None:
    core = begun(NEW, 0, 1)
    produce = core.only()
    assert headers(produce) == [(True, 7000, 3, 0), (True, 7000, 3, 0)]
    assert (produce.request.transactional_id, produce.request.transaction_version) == ("orders.0", 2)
    assert core.waiting(apis.InitProducerIdRequest) + core.waiting(apis.AddPartitionsToTxnRequest) == 0


def test_parts_of_a_split_batch_are_in_the_transaction_too() -> None:
    core = begun(NEW)
    (produce,) = core.send(routed([bytes(500), bytes(500)], [0, 0]))
    core.answer_produce(produce, ErrorCode.MESSAGE_TOO_LARGE)
    for sequence in (0, 1):
        part = core.only(0)
        assert headers(part) == [(True, 7000, 3, sequence)]
        core.answer_produce(part)


def test_each_transaction_begins_every_partition_at_sequence_0() -> None:
    """Also one after a write without one: its ids are others, and their leaders expect 0 first."""
    core = make_core((0, 0))
    core.send(routed([b"row"], [0]))
    core.answer_produce(core.only())
    core.run()
    core.sender.begin_write(core.now_ms, NEW)
    for epoch in (3, 4):
        (produce,) = send_rows(core, 0)
        assert headers(produce) == [(True, 7000, epoch, 0)]
        core.answer_produce(produce)
        next_transaction(core)


def test_a_write_without_a_transaction_after_one_asks_for_an_id_of_its_own() -> None:
    core = begun(NEW)
    core.sender.end_write()
    assert send_rows(core, 0) == []
    core.answer_producer_id()
    assert (headers(core.only()), core.only().request.transactional_id) == ([(False, 4_000, 0, 0)], None)


def written(produces: list[Sent]) -> list[tuple[int, list[int]]]:
    """Return the node of each request, and the partitions in it."""
    return [(sent.node_id, [each.partition for each in sent.request.partitions]) for sent in produces]


def test_leaders_get_the_first_rows_of_a_transaction_one_after_the_other() -> None:
    """A coordinator adds the partitions of one leader at a time; the broker of another one pauses for 20 ms."""
    core = begun(NEW, 0, 1, 2, 3, leaders=(0, 1, 2, 0))
    order = []
    for _ in range(3):
        produce = core.only(0)
        order += written([produce])
        core.answer_produce(produce)
    assert order == [(0, [0, 3]), (1, [1]), (2, [2])]
    # All are in the transaction now.
    assert sorted(written(send_rows(core, 0, 1, 2, 3))) == [(0, [0, 3]), (1, [1]), (2, [2])]
    # And none is in the next one.
    for produce in core.network.produce():
        core.answer_produce(produce)
    next_transaction(core)
    assert len(send_rows(core, 0, 1)) == 1


def test_a_leader_that_does_not_answer_holds_the_others_up_for_a_moment() -> None:
    core = begun(NEW, 0, 1, leaders=(0, 1))
    assert written(core.network.produce()) == [(0, [0])]
    core.run(JOIN_PATIENCE_MS - 1)
    assert core.sender.run_once(core.now_ms) == 1
    assert written(core.network.produce()) == [(0, [0])]
    core.run(1)
    assert written(core.network.produce()) == [(0, [0]), (1, [1])]


def test_a_leader_without_a_connection_holds_nobody_up() -> None:
    core = begun(NEW, leaders=(0, 1))
    core.network.connecting.add(0)
    assert written(send_rows(core, 0, 1)) == [(1, [1])]


@pytest.mark.parametrize(("first", "then"), [(0, [1, 2]), (1, [0])])
def test_new_partitions_wait_and_those_of_the_transaction_do_not(first: int, then: list[int]) -> None:
    core = begun(NEW, 1, leaders=(0, 1, 1))
    core.answer_produce(core.only())
    send_rows(core, first)
    assert written(send_rows(core, *then)) == [(first, [first]), (1 - first, [1 - first])]


def test_a_leader_with_more_new_partitions_goes_behind_the_others() -> None:
    core = begun(NEW, 0, 1, leaders=(0, 1, 0))
    first = core.only()
    send_rows(core, 2)
    core.answer_produce(first)
    second = core.only(0)
    core.answer_produce(second)
    assert written([first, second, core.only(0)]) == [(0, [0]), (1, [1]), (0, [2])]


def test_a_request_that_is_lost_lets_the_next_leader_go() -> None:
    core = begun(NEW, 0, 1, leaders=(0, 1))
    core.lose(core.only())
    assert written([core.only(0)]) == [(1, [1])]
    # Without a transaction all go at once.
    core = make_core((0, 1))
    assert written(core.send(routed([b"row"] * 2, [0, 1]))) == [(0, [0]), (1, [1])]


def test_version_1_adds_a_partition_before_anything_is_written_to_it() -> None:
    """To each transaction anew."""
    core = joining(0, 1)
    for epoch in (3, 4):
        assert core.network.produce() == []
        asked = add_partitions(core)
        assert (asked.node_id, sorted(asked.request.partitions)) == (COORDINATOR, [(TOPIC, 0), (TOPIC, 1)])
        assert (asked.request.producer_id, asked.request.producer_epoch) == (7000, epoch)
        assert headers(core.only()) == [(True, 7000, epoch, 0), (True, 7000, epoch, 0)]
        core.answer_produce(core.only())
        next_transaction(core, OLD)
        send_rows(core, 0, 1)


def test_what_one_transaction_wanted_the_next_does_not() -> None:
    manager, kafka, ask = managing()
    kafka.held = {apis.AddPartitionsToTxnRequest}
    for partition in (0, 1):
        manager.begin(OLD)
        manager.admit({1: deque([TopicPartition(TOPIC, partition)])}, 0)
        ask(0)
        _, adding = kafka.asked(apis.AddPartitionsToTxnRequest)[-1]
        assert adding.partitions == ((TOPIC, partition),)
        manager.end()


def managing() -> tuple[TransactionManager, ScriptedKafka, Callable[[int], None]]:
    """And what has the coordinators asked at a time, and their answers taken."""
    kafka = ScriptedKafka()
    network = ScriptedNetwork(kafka)
    coordinators = Coordinators(network=network, rng=random.Random(1), retry_backoff_ms=100, retry_backoff_max_ms=1_000)

    def ask(now_ms: int) -> None:
        # One turn finds the coordinator, the next one asks it.
        for _ in range(2):
            coordinators.run_once(now_ms)
            for answer in network.poll(0):
                coordinators.handle(answer, now_ms)

    return TransactionManager(coordinators, delivery_timeout_ms=60_000), kafka, ask


def test_version_1_asks_once_a_partition_and_goes_on_with_those_it_has() -> None:
    core = joining(0)
    add_partitions(core)
    # It never produces in a version that adds partitions itself.
    request = core.only().request
    assert select_version(request, {0: (0, 13)}) == apis.PRODUCE_ADDS_PARTITIONS - 1
    assert select_version(replace(request, transaction_version=2), {0: (0, 13)}) == 13
    core.answer_produce(core.only())
    (produce,) = send_rows(core, 0, 1)
    assert written([produce]) == [(0, [0])]
    core.answer_produce(produce)
    assert add_partitions(core).request.partitions == ((TOPIC, 1),)
    assert written([core.only()]) == [(0, [1])]


def test_version_1_adds_partitions_together_that_came_while_another_was_being_added() -> None:
    core = joining(0, leaders=(0, 0, 0))
    send_rows(core, 1)
    send_rows(core, 2)
    assert core.waiting(apis.AddPartitionsToTxnRequest) == 1
    assert add_partitions(core).request.partitions == ((TOPIC, 0),)
    assert sorted(add_partitions(core).request.partitions) == [(TOPIC, 1), (TOPIC, 2)]
    assert sorted(each.partition for sent in core.network.produce() for each in sent.request.partitions) == [0, 1, 2]


DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FENCED = [
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
]  # fmt: skip
REFUSED = [DENIED, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize(("code", "error"), [
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, errors.TopicAuthorizationFailed),
    *((code, errors.AttemptFenced) for code in FENCED),
    *((code, errors.TransactionRefused) for code in REFUSED),
])  # fmt: skip
def test_a_partition_that_is_refused_fails_the_write(code: int, error: type[Exception]) -> None:
    core = joining(0, 1)
    # A broker that refuses one partition adds none.
    add_partitions(core, p0=ErrorCode.OPERATION_NOT_ATTEMPTED, p1=code)
    core.failed(error)
    assert (core.acknowledgements.pending_batches, core.network.produce()) == (0, [])


@pytest.mark.parametrize("waits", [False, True], ids=["on the wire", "waiting for its retry"])
def test_a_partition_that_is_refused_fails_the_batches_of_those_that_were_added_too(waits: bool) -> None:
    core = joining(0)
    add_partitions(core)
    produce = core.only()
    if waits:
        core.answer_produce(produce, ErrorCode.REQUEST_TIMED_OUT)
    send_rows(core, 1)
    add_partitions(core, p1=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    core.failed(errors.TopicAuthorizationFailed)
    assert core.acknowledgements.pending_batches == 0
    if not waits:
        core.answer_produce(produce)
    core.run(5_000)
    assert (core.network.sent, core.receipts) == ([], ())
    assert core.is_free


MOVED = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, None]
LATER = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS,
]  # fmt: skip


@pytest.mark.parametrize("code", [*LATER, *MOVED, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_partition_that_cannot_be_added_yet_is_asked_for_again(code: int | None) -> None:
    core = joining(0)
    if code is None:
        core.lose(core.network.take(apis.AddPartitionsToTxnRequest))
    else:
        add_partitions(core, p0=code)
    assert core.network.produce() == []
    if code in MOVED:
        find_coordinator(core)
    core.run(1_000)
    add_partitions(core)
    assert headers(core.only()) == [(True, 7000, 3, 0)]


def test_what_the_coordinator_says_after_the_write_failed_changes_nothing() -> None:
    core = joining(0, delivery_timeout_ms=40_000)
    core.run(40_000)
    core.failed(errors.DeliveryTimeout)
    add_partitions(core)
    core.run(5_000)
    assert core.network.sent == []
    assert core.is_free


def test_a_coordinator_that_stays_away_fails_the_write_in_time() -> None:
    manager, kafka, ask = managing()
    manager.begin(OLD)
    kafka.down = kafka.brokers
    # Without a batch that would expire first.
    wanted = {0: deque([TopicPartition(TOPIC, 0)])}
    for now_ms in (0, 59_999):
        assert manager.admit(wanted, now_ms) == {0: deque()}
        ask(now_ms)
    ask(60_000)
    with pytest.raises(errors.TransactionRefused) as raised:
        manager.admit(wanted, 60_000)
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert "was refused: broker 9: Connection refused (error 7)" in str(raised.value)


def test_a_coordinator_that_is_not_known_fails_the_write_with_its_reason() -> None:
    core = begun(OLD, 0)
    core.run()
    found = apis.FoundCoordinator("orders.0", DENIED, None, -1, "", -1)
    core.answer(core.network.take(apis.FindCoordinatorRequest), apis.FindCoordinatorResponse(0, (found,)))
    core.run()
    failure = core.failed(errors.TransactionRefused)
    assert (failure.transactional_id, failure.api, failure.code) == ("orders.0", "AddPartitionsToTxn", DENIED)
    assert "ACL TRANSACTIONAL_ID WRITE" in str(failure)


LOST = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize(("code", "error"), [
    *((code, errors.AttemptFenced) for code in FENCED),
    *((code, errors.ProduceRejected) for code in LOST),
    (DENIED, errors.TransactionRefused),
])  # fmt: skip
def test_a_batch_that_is_refused_fails_the_attempt(code: int, error: type[Exception]) -> None:
    """Nothing more goes into its transaction, which the next attempt's InitProducerId aborts."""
    core = begun(NEW, 0)
    core.answer_produce(core.only(), code)
    failure: Any = core.failed(error)
    if error is errors.ProduceRejected:
        assert failure.code == code
    else:
        assert (failure.transactional_id, failure.api) == ("orders.0", "Produce")
    assert ("ACL TRANSACTIONAL_ID WRITE" in str(failure)) == (code == DENIED)
    core.run(5_000)
    assert core.network.sent == []


def test_a_batch_that_expired_fails_once_whatever_is_said_of_it_later() -> None:
    core = begun(NEW, 0, delivery_timeout_ms=40_000)
    produce = core.only()
    core.run(40_000)
    core.answer_produce(produce, ErrorCode.INVALID_TXN_STATE)
    core.failed(errors.DeliveryTimeout)
    assert (core.acknowledgements.pending_batches, core.is_free) == (0, True)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, ["begin", "end"])))
def test_every_state_takes_the_events_of_the_table_and_no_other(state: State, event: str) -> None:
    manager, _, _ = managing()
    if state is State.OPEN:
        manager.begin(NEW)
    step = {"begin": lambda: manager.begin(NEW), "end": manager.end}[event]
    if (state, event) in TRANSITIONS:
        step()
        assert (manager.transaction is not None) == (TRANSITIONS[state, event] is State.OPEN)
    else:
        with pytest.raises(KeyError):
            step()
        assert (manager.transaction is not None) == (state is State.OPEN)


Places = list[tuple[int, int | None, int]]


@pytest.mark.parametrize(("places", "gone"), [
    # Sequence, offset and count of each acknowledged batch.
    ([(0, 7, 2), (2, 9, 3), (5, 40, 1)], None), ([(0, 7, 2), (2, 7, 3)], (7, 8)),
    ([(0, 7, 2), (2, 8, 3)], (8, 8)), ([(0, 7, 2), (2, 0, 3)], (0, 8)),
    # The later one first.
    ([(2, 9, 3), (0, 7, 2), (5, 12, 1)], None), ([(2, 9, 3), (0, 8, 2)], (8, 9)),
    ([(2**31 - 2, 50, 2), (0, 52, 1)], None), ([(2**31 - 2, 50, 2), (0, 50, 1)], (50, 51)),
    # A leader that has a batch already may not tell where.
    ([(0, None, 2), (2, 9, 3), (5, None, 1)], None), ([(0, 7, 2), (2, None, 3), (5, 8, 1)], (8, 8)),
])  # fmt: skip
def test_offsets_ascend_with_sequences_or_acknowledged_rows_are_gone(
    places: Places, gone: tuple[int, int] | None
) -> None:
    manager, *_ = managing()
    manager.begin(NEW)
    told = None
    for sequence, first, count in places:
        try:
            manager.acknowledged(TopicPartition("t", 0), sequence, first, count)
        except errors.AcknowledgedRowsGone as error:
            told = error.offset, error.before
    assert told == gone


def test_offsets_of_another_partition_and_of_the_next_transaction_begin_anew() -> None:
    manager, *_ = managing()
    manager.begin(NEW)
    manager.acknowledged(TopicPartition("t", 0), 0, 7, 2)
    manager.acknowledged(TopicPartition("t", 1), 0, 3, 2)
    manager.end()
    manager.acknowledged(TopicPartition("t", 0), 2, 1, 2)
    manager.begin(NEW)
    manager.acknowledged(TopicPartition("t", 0), 0, 2, 2)


def test_a_leader_that_lacks_rows_of_the_transaction_fails_its_write() -> None:
    core = begun(NEW, 0)
    core.answer_produce(core.only(), offsets=lambda at: 40)
    send_rows(core, 0)
    core.answer_produce(core.network.produce()[-1], offsets=lambda at: 40)
    failure = core.failed(errors.AcknowledgedRowsGone)
    assert (failure.topic, failure.partition, failure.offset, failure.before) == ("t", 0, 40, 40)

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kafka.record import MemoryRecords

import apis
from effort import each
from kafka_sink import errors
from kafka_sink.kafka.metadata import MetadataSnapshot
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, PartitionOffsets
from kafka_sink.kafka.producer.checks import Probe
from kafka_sink.kafka.producer.error_policy import ACLS, ADVICE, Action, on_init_producer_id_error, on_produce_error
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.sender import EXPIRY_GRAIN_MS
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import TOPIC, TOPIC_ID, Core, make_core, metadata_response, routed, routed_to
from scripted_kafka import Sent

# Each row of 900 bytes has a batch of its own, and each batch a request.
ALONE = {"batch_size": 1_024, "max_request_size": 1_024}
EXPIRES = {"delivery_timeout_ms": 40_000}


def wire(sent: Sent) -> list[bytes]:
    return [bytes(partition.records) for partition in sent.request.partitions]


def headers(sent: Sent) -> list[Any]:
    return [next(iter(MemoryRecords(data))) for data in wire(sent)]


def sequences(sent: Sent) -> list[int]:
    return [batch.base_sequence for batch in headers(sent)]


def numbers(sent: Sent) -> list[tuple[int, int]]:
    """Producer id and base sequence of each batch."""
    return [(batch.producer_id, batch.base_sequence) for batch in headers(sent)]


def first_bytes(sent: Sent) -> bytes:
    return b"".join(next(next(iter(MemoryRecords(data)))).value[:1] for data in wire(sent))


def rows(count: int, size: int = 900) -> Any:
    """Rows for partition 0 that begin with A, B and so on."""
    return routed([bytes([65 + i]) + bytes(size) for i in range(count)], [0] * count)


def warm(core: Core) -> Core:
    """Partition 0 has one acknowledged record, sequence 0: its leader knows the producer."""
    core.send(routed([b"w"], [0]))
    core.answer_produce(core.only())
    core.acknowledgements = Acknowledgements()
    core.run(1)
    return core


def sending(batches: int = 1, **options: Any) -> tuple[Core, list[Sent]]:
    """`batches` batches of one row each for partition 0, each in a request of its own, on the wire."""
    c = make_core(**(ALONE if batches > 1 else {}), **options)
    return c, (warm(c) if batches > 1 else c).send(rows(batches))


def until_settled(c: Core, turns: int = 30) -> Iterator[None]:
    """A turn each until every row is answered for; no test here takes more than `turns`."""
    for _ in range(turns):
        if c.acknowledgements.settled:
            return
        yield
    raise AssertionError(f"not settled in {turns} turns")


def answer_all(c: Core, every_ms: int, of: Callable[[Sent], Any]) -> Any:
    """Acknowledge whatever is on the wire, turn by turn. What it was, in this order."""
    order: Any = None
    for _ in until_settled(c):
        c.run(every_ms)
        for request in c.network.produce():
            order = of(request) if order is None else order + of(request)
            c.answer_produce(request)
    return order


def refused_with(c: Core, request: Sent, code: int | None) -> None:
    """The answer has this code, or there is none."""
    if code is None:
        c.lose(request)
    else:
        c.answer_produce(request, code)


def test_rows_are_acknowledged_with_their_offsets() -> None:
    c = make_core()
    (request,) = c.send(routed([b"a", b"b", b"c"], [0, 1, 0]))
    assert request.request.acks == -1
    # Without a transaction no batch says that it is in one.
    assert [batch.is_transactional for batch in headers(request)] == [False, False]
    c.answer_produce(request, offsets=lambda tp: 100 if tp.partition else 40)
    assert c.is_written
    sizes = [len(data) for data in wire(request)]
    assert c.receipts == (
        PartitionOffsets("t", 0, 2, 40, 41, 1, sizes[0]),
        PartitionOffsets("t", 1, 1, 100, 100, 1, sizes[1]),
    )


def test_a_poll_waits_for_what_is_due_first() -> None:
    c = warm(make_core(linger_ms=600))
    c.accumulator.end_flush()
    assert c.sender.run_once(c.now_ms) == LONGEST_POLL_MS
    c.append(routed([b"lingers"], [0]))
    assert c.sender.run_once(c.now_ms + 100) == 500
    c.metadata.request_update()
    c.run(150)
    assert c.sender.run_once(c.now_ms) == 450
    c.lose(c.network.take(apis.MetadataRequest))
    metadata_due_ms = c.metadata.next_request_delay_ms(c.now_ms)
    assert metadata_due_ms is not None and 0 < metadata_due_ms < 450
    assert c.sender.run_once(c.now_ms) == metadata_due_ms
    c.run(metadata_due_ms)
    assert isinstance(c.network.sent[-1].request, apis.MetadataRequest)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_leader_that_answers_by_name_cannot_tell_topics_apart(by_name: bool) -> None:
    c, (request,) = sending()
    assert not c.sender.produces_by_name
    named = (TOPIC, None) if by_name else (None, TOPIC_ID)
    c.answer(request, apis.ProduceResponse(0, (apis.ProduceResult(*named, 0, 0, None, 40),)))
    assert (c.receipts[0].first_offset, c.sender.produces_by_name) == (40, by_name)


def without_id(**options: Any) -> Core:
    """A row waits for the producer id, which is asked for once."""
    c = make_core(**options)
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run()
    return c


def test_a_refused_producer_id_fails_the_write_and_a_busy_one_is_asked_again() -> None:
    c = without_id()
    c.run()
    assert (c.network.produce(), c.waiting(apis.InitProducerIdRequest)) == ([], 1)
    c.answer(c.network.take(apis.InitProducerIdRequest), apis.InitProducerIdResponse(0, 15, -1, -1))
    # A poll waits until it may be asked for again.
    wait_ms = c.sender.run_once(c.now_ms)
    assert 0 < wait_ms <= 120
    c.run(wait_ms - 1)
    assert c.network.sent == []
    c.run(1)
    c.lose(c.network.take(apis.InitProducerIdRequest))
    assert c.acknowledgements.failure is None
    c.run(400)
    c.answer(c.network.take(apis.InitProducerIdRequest), apis.InitProducerIdResponse(0, 31, -1, -1))
    c.failed(errors.ProducerIdRefused)


def test_a_producer_id_that_does_not_come_in_time_is_the_reason_that_is_told() -> None:
    c = without_id(**EXPIRES)
    c.answer(c.network.take(apis.InitProducerIdRequest), apis.InitProducerIdResponse(0, 14, -1, -1))
    c.run(40_000)
    assert c.failed(errors.DeliveryTimeout).last_error == "InitProducerId: COORDINATOR_LOAD_IN_PROGRESS (error 14)"


def test_a_producer_id_is_asked_for_once_metadata_leaves_the_only_place_on_the_wire() -> None:
    c = make_core(leaders=[0], max_in_flight_requests_per_connection=1)
    c.kafka.down = {1, 2}
    c.metadata.request_update()
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run(150)
    c.run()
    assert [type(sent.request) for sent in c.network.sent] == [apis.MetadataRequest]
    c.answer_metadata()
    c.answer_producer_id()
    assert c.only()


def test_up_to_five_requests_in_flight_numbered_in_order() -> None:
    c, sent = sending(7)
    assert [sequences(s) for s in sent] == [[1], [2], [3], [4], [5]]
    c.answer_produce(sent[0])
    c.run()
    assert [sequences(s) for s in c.network.produce()][-1] == [6]


@pytest.mark.parametrize("code", [6, 7, 19, 20, 2, None])
def test_a_retry_is_the_same_bytes_after_the_backoff(code: int | None) -> None:
    c, (first,) = sending()
    before = wire(first)
    refused_with(c, first, code)
    c.run()
    assert c.network.produce() == []
    again = c.only(130)
    assert wire(again) == before
    c.answer_produce(again, offsets=lambda tp: 5)
    assert c.receipts[0].first_offset == 5
    assert c.is_written


def test_the_pause_before_a_retry_grows_whoever_leads() -> None:
    c, (request,) = sending(leaders=[0])
    pauses = []
    for attempt in range(6):
        c.answer_produce(request, 7)
        (batch,) = c.accumulator.queued()
        pauses.append(batch.retry_at_ms - c.now_ms)
        if attempt == 2:
            c.learn(1, after_ms=1, leader_epoch=1)
        request = c.only(batch.retry_at_ms - c.now_ms)
        assert request.node_id == (0 if attempt < 2 else 1)
    assert all(80 * 2**n <= pause <= min(120 * 2**n, 1_000) for n, pause in enumerate(pauses[:4]))
    assert pauses[4:] == [1_000, 1_000]


def test_a_lost_connection_with_five_in_flight_is_resent_in_order_one_at_a_time() -> None:
    c, sent = sending(6)
    for request in (sent[2], sent[0], sent[4], sent[1], sent[3]):
        c.lose(request)
    order = []
    for _ in range(5):
        c.run(1_500)
        request = c.network.produce()[0]
        order += sequences(request)
        # Only the last of them may have a batch behind it that was never sent.
        assert len(c.network.produce()) == (1 if len(order) < 5 else 2)
        c.answer_produce(request)
    order += sequences(c.only())
    c.answer_produce(c.only())
    assert order == [1, 2, 3, 4, 5, 6]
    assert c.is_written


@pytest.mark.parametrize("code", [6, None])
def test_a_new_leader_gets_the_retry(code: int | None) -> None:
    """A lost answer is a reason to ask for the leader, too."""
    c = make_core(leaders=[0], retry_backoff_ms=1_000)
    c.run(1_500)  # the pause after the first metadata is over
    (first,) = c.send(rows(1))
    refused_with(c, first, code)
    c.leaders = [1]
    c.run(150)
    c.answer_metadata(leader_epoch=1)
    assert (first.node_id, c.only(1_100).node_id) == (0, 1)


def named(node_id: int, epoch: int, host: str | None = None) -> apis.NamedLeader:
    return apis.NamedLeader(node_id, epoch, None if host is None else apis.Broker(node_id, host, 9092))


def test_a_leader_that_a_broker_names_gets_the_retry_at_once() -> None:
    """Also if only that answer tells where it listens."""
    for node_id, host in ((1, None), (7, "new")):
        c, (first,) = sending(leaders=[0])
        c.answer_produce(first, 6, leader=named(node_id, 1, host))
        again = c.only(0)
        assert (first.node_id, again.node_id, wire(again)) == (0, node_id, wire(first))
        assert {each.host for each in c.network.learned.values()} == ({host} if host else set())
        # Metadata are asked for nevertheless: other partitions may have moved, too.
        c.run(150)
        assert c.waiting(apis.MetadataRequest) == 1
        c.answer_produce(again)
        assert c.is_written


def test_brokers_that_name_each_other_get_a_batch_as_often_as_metadata_are_answered() -> None:
    c, (request,) = sending(leaders=[0])
    sent = 0
    for epoch in range(1, 200):
        c.answer_produce(request, 6, leader=named(1 - request.node_id, epoch))
        until_ms = c.now_ms + 2_000
        while not c.network.produce() and c.now_ms < until_ms:
            c.run(10)
            if c.waiting(apis.MetadataRequest):
                c.leaders = [0]
                c.answer_metadata(leader_epoch=0)
        request, sent = c.only(), sent + 1
        if c.now_ms > 5_000:
            break
    assert 5 < sent < 60


@pytest.mark.parametrize("is_told_first", [False, True])
def test_a_gap_left_by_an_earlier_batch_heals_and_one_left_by_nobody_fails(is_told_first: bool) -> None:
    c, (first, second) = sending(2)
    answers = [(first, 7 if is_told_first else 19), (second, 45)]
    for request, code in reversed(answers) if is_told_first else answers:
        c.answer_produce(request, code)
    assert answer_all(c, 1_500, sequences) == [1, 2]
    assert c.is_written
    c, (only,) = sending()
    c.answer_produce(only, 45)
    assert c.failed(errors.ProduceRejected).code == 45


@pytest.mark.parametrize("code", [7, 20])
@pytest.mark.parametrize(("then", "first_offset"), [(0, 10), (46, 11)], ids=["written now", "written before"])
def test_a_batch_may_be_acknowledged_before_the_one_ahead_of_it(then: int, first_offset: int, code: int) -> None:
    """The leader wrote both, and the first answer says that it could not wait for the followers."""
    c, (first, second) = sending(2)
    c.answer_produce(second, offsets=lambda tp: 11)
    c.answer_produce(first, code)
    assert not c.acknowledgements.settled
    again = c.only(150)
    assert (sequences(again), wire(again)) == ([1], wire(first))
    c.answer_produce(again, then, offsets=lambda tp: 10)
    (receipt,) = c.receipts
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset) == (2, first_offset, 11)
    c.append(routed([b"after"], [0]))
    assert sequences(c.only(100)) == [3]


@pytest.mark.parametrize(("code", "offset"), [(46, 0), (46, -1), (0, -1)])
def test_a_batch_the_leader_had_before_counts_once_and_has_no_offset(code: int, offset: int) -> None:
    c, (request,) = sending()
    c.answer_produce(request, code, offsets=lambda at: offset)
    (receipt,) = c.receipts
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset) == (1, None, None)
    assert c.is_written


@pytest.mark.parametrize(("code", "error"), [
    (10, errors.RecordTooLarge),
    (29, errors.TopicAuthorizationFailed),
    *((code, errors.ProduceRejected) for code in (31, 43, 45, 47, 59, 87, 90, 157)),
])  # fmt: skip
def test_a_final_error_fails_the_write_and_everything_behind_it(code: int, error: type[Exception]) -> None:
    """Where Java's producer bumps its epoch and numbers anew (45, 47, 59, 90), this one stops, too."""
    c, sent = sending(7)
    c.answer_produce(sent[0], code)
    assert getattr(c.failed(error), "code", code) == code
    assert c.acknowledgements.pending_batches == 0
    # What is on the wire keeps its memory until its own request is answered.
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - 4 * 1_024
    c.answer_produce(sent[1])
    c.answer_produce(sent[2], 45)
    for request in sent[3:]:
        c.answer(request, None, "closed")
    assert (c.is_free, c.receipts) == (True, ())
    c.run(5_000)
    assert c.network.sent == []


@pytest.mark.parametrize("said", ["Compacted topic cannot accept message without key", None])
def test_a_refusal_is_told_in_the_leaders_words_where_it_has_any(said: str | None) -> None:
    c, (request,) = sending()
    c.answer(request, apis.ProduceResponse(0, (apis.ProduceResult("t", TOPIC_ID, 0, 87, said, -1),)))
    told = "INVALID_RECORD (error 87)." if said is None else f"INVALID_RECORD (error 87: {said})."
    assert told in str(c.acknowledgements.failure)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_refusal_of_some_records_names_the_first_of_them(compression: str) -> None:
    c = make_core(compression_type=compression)
    (request,) = c.send(routed([b"v" * 100] * 4, [0] * 4, timestamps=[7_000, 8_000, 6_500, 9_000]))
    refused = (-1, "?"), (4, "?"), (2, "too\nold"), (3, "too old")
    records = tuple(apis.RefusedRecord(*each) for each in refused)
    result = apis.ProduceResult("t", TOPIC_ID, 0, 32, "One or\x1b more", -1, records)
    c.answer(request, apis.ProduceResponse(0, (result,)))
    failure = c.failed(errors.ProduceRejected)
    assert (failure.refused, failure.place, failure.timestamp_ms, failure.reason) == (4, 2, 6_500, r"too\nold")
    assert "t-0 refused a batch of 4 records" in str(failure)
    assert r"record 2 of the batch (from 0), whose timestamp is 6500 ms from 1970: too\nold." in str(failure)
    assert "badRows=drop" in str(failure) and "DESCRIBE_CONFIGS" in str(failure) and "before.max.ms" in str(failure)
    assert str(failure).isprintable()


@pytest.mark.parametrize("code", [0, 6, 7, 10, 45, 46, 59, None])
def test_whatever_comes_back_after_the_end_gives_memory_back_and_sends_nothing(code: int | None) -> None:
    """An expired batch may have been written or not; nothing is numbered behind it, so nobody has to know."""
    c = warm(make_core(batch_size=2_048, max_request_size=2_048, **EXPIRES))
    sent = c.send(rows(14))
    assert len(sent) == 5
    c.run(40_000)
    c.failed(errors.DeliveryTimeout)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - 5 * 2_048
    for request in sent:
        refused_with(c, request, code)
        c.run(5_000)
    assert c.network.sent == []
    assert (c.receipts, c.acknowledgements.pending_batches, c.is_free) == ((), 0, True)
    with pytest.raises(errors.DeliveryTimeout):
        c.append(routed([b"more"], [0]))


@pytest.mark.parametrize("defect_at", ["close", "number"])
def test_a_defect_between_drain_and_send_fails_the_rows_and_frees_their_memory(
    defect_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = warm(make_core())
    c.append(routed([b"a", b"b"], [0, 1]))
    monkeypatch.setattr(ProducerBatch, defect_at, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        c.run(1_000)
    c.sender.fail(errors.ProducerClosed(reason="test"))
    assert (c.acknowledgements.pending_batches, c.is_free) == (0, True)
    c.failed(errors.ProducerClosed)


def three_in_flight(*, leaves_out: bool = True) -> tuple[Core, list[Sent]]:
    """Batches of two rows each, of sequences 1 to 6."""
    c = warm(make_core(**ALONE))
    if leaves_out:
        c.acknowledgements.refused = deque()
    sent = c.send(routed([b"%d" % number + bytes(449) for number in range(6)], [0] * 6))
    assert [sequences(each) for each in sent] == [[1], [3], [5]]
    return c, sent


def refuse(c: Core, request: Sent, *places: int, code: int = 32) -> None:
    refused = tuple(apis.RefusedRecord(place, "too old") for place in places)
    c.answer(request, apis.ProduceResponse(0, (apis.ProduceResult("t", TOPIC_ID, 0, code, None, -1, refused),)))


def written(c: Core) -> list[tuple[int, bytes]]:
    """Base sequence and first byte of each row of what is on the wire."""
    batches = [batch for request in c.network.produce() for batch in headers(request)]
    return [(batch.base_sequence, b"".join(record.value[:1] for record in batch)) for batch in batches]


def test_a_row_that_is_refused_is_left_out_and_those_behind_get_its_sequences() -> None:
    c, (first, second, third) = three_in_flight()
    refuse(c, first, 1, code=87)
    # Nothing goes out while one is on the wire: its numbers are about to be another's.
    c.run(1_000)
    assert c.network.produce() == [second, third]
    c.answer_produce(second, 45)
    refuse(c, third, 0)
    c.run(2_000)
    assert written(c) == [(1, b"0"), (2, b"23"), (4, b"45")]
    first, second, third = c.network.produce()
    c.answer_produce(first)
    c.answer_produce(second)
    refuse(c, third, 0)
    c.run(2_000)
    assert written(c) == [(4, b"5")]
    c.answer_produce(c.only())
    assert c.is_written
    assert sum(receipt.record_count for receipt in c.receipts) == 4
    assert c.acknowledgements.refused is not None and len(c.acknowledgements.refused) == 2


@pytest.mark.parametrize(("places", "leaves_out", "letters"), [
    *(pytest.param(places, True, None, id="no such place") for places in ((), (2,), (-1,), (0, 2))),
    pytest.param((0,), False, None, id="no row is left out"),
    pytest.param((0,), True, "t", id="of the dead letters themselves"),
])  # fmt: skip
def test_a_refusal_fails_the_write_where_nothing_is_to_be_left_out(places: Any, leaves_out: bool, letters: Any) -> None:
    c, (first, *_) = three_in_flight(leaves_out=leaves_out)
    c.acknowledgements.dead_letter_topic = letters
    refuse(c, first, *places)
    c.failed(errors.ProduceRejected)


@pytest.mark.parametrize("code", [None, 6, 7, 20])
def test_a_refusal_of_what_may_be_written_ends_the_write(code: int | None) -> None:
    """The leader judges times before it looks whether it has the batch: without the row it would be another one."""
    c, (first, second, third) = three_in_flight()
    refused_with(c, first, code)
    c.answer_produce(second, 45)
    c.answer_produce(third, 45)
    refuse(c, c.only(2_000), 0)
    c.failed(errors.ProduceRejected)
    assert c.is_free


@pytest.mark.parametrize("refused_first", [True, False])
@pytest.mark.parametrize("code", [None, 6, 7, 20, 0])
def test_one_behind_it_that_may_be_written_gets_no_other_number(code: int | None, refused_first: bool) -> None:
    c, (first, second, third) = three_in_flight()
    if refused_first:
        refuse(c, first, 0)
    refused_with(c, second, code)
    if not refused_first and code != 0:
        refuse(c, first, 0)
    if refused_first or code != 0:
        c.failed(errors.ProduceRejected)
        c.answer_produce(third, 45)
        assert c.is_free


def test_the_delivery_deadline_holds_in_the_queue_and_on_the_wire() -> None:
    c, (request,) = sending(**EXPIRES)
    c.answer_produce(request, 19)
    again = c.only(1_000)
    c.run(39_000)
    failure = c.failed(errors.DeliveryTimeout)
    assert (failure.attempts, failure.records, failure.elapsed_ms) == (2, 1, 40_000)
    assert "NOT_ENOUGH_REPLICAS" in failure.last_error
    assert "Whether the last attempt was written is unknown." in str(failure)
    assert not c.is_free
    c.answer_produce(again)
    assert c.is_free


def test_rows_that_no_leader_took_were_not_sent() -> None:
    c = make_core(leaders=[-1], **EXPIRES)
    c.network.last_error = "broker 1: Connection refused"
    c.append(routed([b"a", b"b", b"c"], [0] * 3))
    c.run(40_000)
    failure = c.failed(errors.DeliveryTimeout)
    # No batch was closed for them.
    assert failure.records == 3
    assert "Connection refused. None of them was sent." in str(failure)
    assert c.is_free


def test_a_batch_that_is_being_filled_does_not_expire() -> None:
    c = make_core(leaders=[-1], **EXPIRES)
    c.append(routed([b"a"], [0]))
    (batch,) = c.accumulator.queued()
    assert batch.filling is not None
    batch.filling.checked_out[batch.place] = True
    c.run(40_000)
    assert c.acknowledgements.failure is None
    batch.filling.checked_out[batch.place] = False
    c.run(40_000)
    c.failed(errors.DeliveryTimeout)


def test_of_batches_that_expire_together_one_that_was_sent_is_told_of() -> None:
    """It has a reason; those behind it waited for no other."""
    c = make_core(leaders=[0, 1], **EXPIRES)
    c.kafka.down = {0}
    (request,) = c.send(routed([b"waits", b"sent"], [0, 1]))
    c.answer_produce(request, 19)
    assert c.only(1_000)
    c.run(39_000)
    failure = c.failed(errors.DeliveryTimeout)
    assert (failure.partition, failure.attempts, "NOT_ENOUGH_REPLICAS" in failure.last_error) == (1, 2, True)


HUNG_UP, REFUSED = "broker 0: the peer closed the connection", "broker 0: Connection refused"
# It may be the next to be upgraded, so it is asked again.
OLD = "broker 0: Produce needs versions 9 to 13, which the broker lacks: it speaks versions 0 to 8"
LOST = "the connection was lost"


@pytest.mark.parametrize(("error", "since", "down", "told"), [
    pytest.param(OLD, "", set(), OLD, id="a version that the broker lacks"),
    pytest.param(None, "", set(), LOST, id="no reason is a lost connection"),
    pytest.param(HUNG_UP, REFUSED, {0}, f"{HUNG_UP}; since then: {REFUSED}", id="out of reach since then"),
    pytest.param(HUNG_UP, REFUSED, set(), HUNG_UP, id="in reach again"),
    pytest.param(HUNG_UP, HUNG_UP, {0}, HUNG_UP, id="one reason is told once"),
])  # fmt: skip
def test_why_there_was_no_answer_is_told_when_the_time_is_over(error: Any, since: str, down: Any, told: str) -> None:
    c, (request,) = sending(**EXPIRES)
    c.network.last_error, c.kafka.down = since, down
    c.answer(request, None, error)
    assert c.acknowledgements.failure is None
    c.run(40_000)
    assert c.failed(errors.DeliveryTimeout).last_error == told


@pytest.mark.parametrize("delivery_timeout_ms", [40_000, 2**31 - 1])
def test_the_delivery_deadline_fails_the_batches_of_all_partitions_at_once(delivery_timeout_ms: int) -> None:
    c = make_core(delivery_timeout_ms=delivery_timeout_ms)
    (request,) = c.send(routed([b"a", b"b"], [0, 1]))
    c.append(routed([b"queued"], [1]))
    assert c.acknowledgements.pending_batches == 3
    c.run(delivery_timeout_ms - 1)
    assert c.acknowledgements.failure is None
    c.run(EXPIRY_GRAIN_MS)
    c.failed(errors.DeliveryTimeout)
    assert c.acknowledgements.pending_batches == 0
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - 2 * c.accumulator.pool.buffer_bytes
    c.answer_produce(request)
    assert (c.is_free, c.receipts) == (True, ())


def test_a_deadline_that_is_near_or_past_does_not_make_the_sender_spin() -> None:
    c, _ = sending(**EXPIRES)
    for now_ms in (39_000, 39_999, 40_000, 40_000 + EXPIRY_GRAIN_MS, 50_000):
        assert c.sender.run_once(now_ms) >= EXPIRY_GRAIN_MS
    c.failed(errors.DeliveryTimeout)


def test_retries_and_a_deadline_that_counts_from_the_first_row_bound_the_attempts() -> None:
    c, (request,) = sending(retries=1)
    c.answer_produce(request, 19)
    c.answer_produce(c.only(200), 19)
    assert c.failed(errors.DeliveryTimeout).attempts == 2
    c, _ = sending(**EXPIRES)
    for _ in range(13):
        c.answer_produce(c.only(), 19)
        c.run(3_000)
    assert c.acknowledgements.failure is None
    c.run(1_000)
    assert c.failed(errors.DeliveryTimeout).elapsed_ms == 40_000


def test_a_topic_made_again_is_another_topic() -> None:
    c = make_core(retry_backoff_ms=1_000)
    c.run(1_500)  # the pause after the first metadata is over
    (request,) = c.send(rows(1))
    assert request.request.partitions[0].topic_id == TOPIC_ID
    c.answer_produce(request, 100)
    c.run(150)
    c.answer_metadata(topic_id=uuid.UUID(int=8))
    c.failed(errors.TopicRecreated)
    c.run(1_000)
    assert c.network.produce() == []


def test_rows_routed_before_a_topic_was_made_again_are_not_sent_to_the_new_one() -> None:
    c = make_core()
    c.learn(topic_id=uuid.UUID(int=8))
    assert c.send(routed([b"a"], [0])) == []
    c.failed(errors.TopicRecreated)
    assert c.is_free


def test_a_topic_that_is_forgotten_for_a_moment_or_was_idle_keeps_its_sequences() -> None:
    c, (request,) = sending()
    c.answer_produce(request, 3)
    c.run(150)
    c.answer_metadata(error_code=3)
    again = c.only(150)
    assert wire(again) == wire(request)
    c.answer_produce(again)
    c.run(400_000)
    assert c.network.sent[0].request.topics == ()
    c.answer(c.network.take(apis.MetadataRequest), replace(metadata_response([]), topics=()))
    assert c.metadata.snapshot.topics == {}
    c.metadata.want([TOPIC], c.now_ms)
    c.run()
    c.answer_metadata()
    c.append(routed([b"b"], [0]))
    assert sequences(c.only(100)) == [1]


@pytest.mark.parametrize("puts", [Core.append, Core.send], ids=["queued", "in flight"])
def test_a_topic_with_batches_pending_is_not_forgotten(puts: Callable[[Core, Any], object]) -> None:
    c = make_core(delivery_timeout_ms=10_000_000)
    assert puts(c, routed([b"a"], [0]))
    c.run(400_000)
    request = c.network.take(apis.MetadataRequest)
    assert request.request.topics == (TOPIC,)
    c.answer(request, metadata_response([0, 0]))
    assert TOPIC in c.metadata.snapshot.topics


def test_a_topic_that_was_forgotten_before_its_first_batch_is_asked_for_again() -> None:
    """A writer requests a topic, then pauses until the topic has expired, then opens its batch."""
    c = warm(make_core(leaders=[0]))
    c.run(600_000)
    c.answer(c.network.take(apis.MetadataRequest), replace(metadata_response([0]), topics=()))
    assert (c.metadata.snapshot.leader(TOPIC, 0), c.send(routed([b"a"], [0]))) == (-1, [])
    c.run()
    c.answer_metadata()
    assert len(wire(c.only(0))) == 1


def test_a_leader_that_cannot_be_reached_or_is_lost_is_asked_about() -> None:
    c = warm(make_core(leaders=[1]))
    c.kafka.down = {1}
    c.append(routed([b"b"], [0]))
    for _ in range(3):
        c.run(200)
    assert c.waiting(apis.MetadataRequest) == 1
    c.leaders = [2]
    c.answer_metadata(leader_epoch=1)
    assert c.only(1).node_id == 2
    c = warm(make_core(leaders=[0]))
    c.learn(-1, leader_epoch=1)
    c.run(300)
    assert c.waiting(apis.MetadataRequest) == 1
    c.leaders = [0]
    c.answer_metadata(leader_epoch=2)
    c.metadata.snapshot = MetadataSnapshot()
    c.append(routed([b"b"], [0]))
    c.run(1)
    c.run(1_500)
    assert c.waiting(apis.MetadataRequest) == 1


def test_a_write_that_ends_while_a_node_is_chosen_leaves_nothing_to_ask_for() -> None:
    c = make_core()
    c.metadata.request_update()
    choose = c.network.least_loaded_node

    def end_the_write(now_ms: int) -> int | None:
        c.metadata.want_nothing()
        return choose(now_ms)

    c.network.least_loaded_node = end_the_write  # type: ignore[method-assign]
    c.run(500)
    assert c.waiting(apis.MetadataRequest) == 0


class TestInterruptions:
    """A cluster that was restored while nobody was connected gives producer ids out again."""

    @pytest.mark.parametrize("is_known", [True, False])
    def test_rows_that_have_no_number_get_another_id(self, is_known: bool) -> None:
        """It counts from the request for one: the answer may come together with the end of the connection."""
        c = warm(make_core(leaders=[0])) if is_known else without_id(leaders=[0])
        c.network.interruptions = 1
        if is_known:
            c.append(routed([b"a"], [0]))
        else:
            c.answer(c.network.take(apis.InitProducerIdRequest), apis.InitProducerIdResponse(0, 0, 4_000, 0))
        c.run()
        assert c.network.produce() == []
        c.answer_producer_id(4_001)
        assert numbers(c.only()) == [(4_001, 0)]

    def test_rows_that_have_a_number_keep_it_and_the_id_until_they_are_answered(self) -> None:
        """They may be written: under another id they would be there twice."""
        c = warm(make_core(leaders=[0]))
        (lost,) = c.send(routed([b"a"], [0]))
        c.append(routed([b"b"], [0]))
        c.network.interruptions = 1
        c.lose(lost)
        again = c.only(10_000)
        assert numbers(again) == numbers(lost) == [(4_000, 1)]
        c.answer_produce(again)
        c.run()
        assert c.network.produce() == []
        c.answer_producer_id(4_001)
        assert numbers(c.only()) == [(4_001, 0)]

    @pytest.mark.parametrize("is_transaction", [False, True])
    def test_without_idempotence_there_is_no_id_and_a_transaction_keeps_its_own(self, is_transaction: bool) -> None:
        c = make_core(leaders=[0], enable_idempotence=is_transaction)
        if is_transaction:
            c.sender.begin_write(c.now_ms, Transaction("s.0", 7, 3, 2))
        c.network.interruptions = 1
        (request,) = c.send(routed([b"a"], [0]))
        assert numbers(request)[0][0] == (7 if is_transaction else -1)

    def test_leaders_of_a_restored_cluster_have_lower_epochs(self) -> None:
        """An answer of the old one may come together with the new connection; another one may look open for long."""
        c = make_core(leaders=[0])

        def hear(leader: int, leader_epoch: int) -> int:
            c.learn(leader, after_ms=1_500, leader_epoch=leader_epoch)
            c.run()
            return c.metadata.snapshot.leader(TOPIC, 0)

        c.metadata.request_update()
        c.run(1_500)
        c.network.handshakes = 1
        c.answer_metadata(leader_epoch=5)
        assert (hear(1, 3), hear(2, 2)) == (1, 1)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_probe_is_one_question_that_waits_for_a_node_and_may_be_lost(is_answered: bool) -> None:
    c = make_core()
    c.kafka.down = {0, 1, 2}
    probe = c.sender.probe = Probe()
    c.run()
    assert (probe.is_sent, c.network.sent) == (False, [])
    c.kafka.down = set()
    c.run()
    c.run()
    (sent,) = c.network.sent
    assert sent.request == apis.MetadataRequest((), allow_auto_topic_creation=False)
    assert not probe.is_settled
    c.answer(sent, metadata_response([0]) if is_answered else None)
    c.run()
    assert (probe.is_settled, probe.is_answered, c.network.sent) == (True, is_answered, [])


def too_large_for_its_leader(records: int = 4, **options: Any) -> tuple[Core, Sent]:
    """A Core whose partition 0 is warm, and the request with its one batch of so many records, about to be refused."""
    c = warm(make_core(**{"batch_size": 4_096, "max_request_size": 4_096, "buffer_memory": 8_192, **options}))
    (request,) = c.send(rows(records))
    return c, request


def test_a_batch_that_is_too_large_goes_again_in_parts_under_its_sequences() -> None:
    c, request = too_large_for_its_leader()
    c.answer_produce(request, 10)
    assert c.acknowledgements.pending_batches == 2
    order = []
    for turn in range(2):
        part = c.only(0)  # at once: there is nothing to wait for
        order.append((sequences(part), first_bytes(part)))
        c.answer_produce(part, offsets=lambda tp, turn=turn: 100 + 2 * turn)
    assert order == [([1], b"A"), ([3], b"C")]
    assert c.is_written
    (receipt,) = c.receipts
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset, receipt.batch_count) == (4, 100, 103, 2)
    c.append(routed([b"after"], [0]))
    assert sequences(c.only(0)) == [5]


def test_parts_are_split_down_to_the_record_that_is_too_large_alone() -> None:
    c, request = too_large_for_its_leader()
    requests = 0
    for _ in until_settled(c):
        requests += 1
        c.answer_produce(request, 10)
        c.run()
        request = (c.network.produce() or [request])[0]
    failure = c.failed(errors.RecordTooLarge)
    assert requests == 3  # of four records, two, one
    assert (failure.topic, failure.max_bytes, failure.size_bytes) == ("t", None, len(wire(request)[0]))
    assert (failure.row, failure.partition, failure.key_bytes) == (None, 0, None)
    assert f"partition 0, without a key and of timestamp {failure.timestamp_ms} ms from 1970, takes" in str(failure)
    for words in ("max.message.bytes", "message.max.bytes", str(failure.size_bytes)):
        assert words in str(failure)
    assert "AAA" not in str(failure)
    assert (c.acknowledgements.pending_batches, c.is_free) == (0, True)


def test_after_a_split_new_batches_of_the_topic_are_as_small_as_its_parts() -> None:
    c, request = too_large_for_its_leader(max_in_flight_requests_per_connection=1, buffer_memory=65_536)
    size = len(wire(request)[0])
    c.answer_produce(request, 10)
    c.append(rows(8))
    sizes = answer_all(c, 0, lambda request: [len(wire(request)[0])])
    assert (len(sizes), max(sizes) < size * 0.7) == (6, True)
    assert sum(receipt.record_count for receipt in c.receipts) == 12


def test_a_batch_from_before_the_limit_is_split_to_it_at_once() -> None:
    c = warm(make_core(batch_size=8_192, max_request_size=8_192, max_in_flight_requests_per_connection=1))
    c.append(rows(16))
    refused, accepted = 0, 0
    for _ in until_settled(c):
        request = c.only(0)
        too_large = len(wire(request)[0]) > 2_000
        refused, accepted = refused + too_large, accepted + (not too_large)
        c.answer_produce(request, 10 if too_large else 0)
    # The first batch of 8 in halves, twice; its other half and the second batch straight to what went through.
    assert (refused, accepted) == (4, 8)


def test_a_split_keeps_the_deadline_of_its_batch() -> None:
    c, request = too_large_for_its_leader(**EXPIRES)
    c.run(24_000)
    c.answer_produce(request, 19)
    c.answer_produce(c.only(1_000), 10)
    part = c.only(0)
    c.run(14_999)
    assert c.acknowledgements.failure is None
    c.run(EXPIRY_GRAIN_MS)
    failure = c.failed(errors.DeliveryTimeout)
    assert failure.elapsed_ms == 40_000 - 1 + EXPIRY_GRAIN_MS
    assert "MESSAGE_TOO_LARGE" in failure.last_error
    assert c.acknowledgements.pending_batches == 0
    c.answer_produce(part)
    assert c.is_free


def test_parts_that_were_not_sent_themselves_may_have_been_written_with_their_batch() -> None:
    c, request = too_large_for_its_leader(**EXPIRES)
    c.answer_produce(request, 10)
    c.kafka.down = {0}
    c.run(40_000)
    failure = c.failed(errors.DeliveryTimeout)
    assert (failure.attempts, "Whether the last attempt was written is unknown." in str(failure)) == (0, True)


def test_what_was_split_does_not_expire_and_a_write_that_failed_is_not_split() -> None:
    c, request = too_large_for_its_leader(**EXPIRES)
    c.answer_produce(request, 10)
    answer_all(c, 0, sequences)
    c.run(80_000)
    assert (c.acknowledgements.failure, c.sender.failure) == (None, None)
    c, request = too_large_for_its_leader()
    c.sender.fail(errors.ProducerClosed(reason="test"))
    c.answer_produce(request, 10)
    assert (c.acknowledgements.pending_batches, c.is_free) == (0, True)


def test_a_part_the_leader_has_under_another_number_of_records_ends_the_write() -> None:
    """The batch was written, its answer lost, and the limit lowered: its parts must not be written beside it."""
    c, request = too_large_for_its_leader()
    c.lose(request)
    c.answer_produce(c.only(150), 10)
    c.answer_produce(c.only(1), 45)
    c.failed(errors.ProduceRejected)


def without_idempotence(batches: int = 1, **options: Any) -> tuple[Core, list[Sent]]:
    """A Core without a producer id, and `batches` batches of one row each for partition 0 that it has to send."""
    c = make_core(enable_idempotence=False, **{"acks": "1", **ALONE, **options})
    return c, c.send(rows(batches))


@pytest.mark.parametrize("acks", ["all", "1"])
def test_without_idempotence_a_batch_is_split_as_well(acks: str) -> None:
    c, (request,) = without_idempotence(acks=acks, batch_size=4_096)
    c.answer_produce(request)
    c.append(rows(2))
    c.answer_produce(c.only(0), 10)
    parts = answer_all(c, 1, lambda part: [(*numbers(part), first_bytes(part))])
    assert parts == [((-1, -1), b"A"), ((-1, -1), b"B")]


@pytest.mark.parametrize(("acks", "on_the_wire"), [("all", -1), ("1", 1), ("0", 0)])
def test_without_idempotence_batches_name_no_producer_and_none_is_asked_for(acks: str, on_the_wire: int) -> None:
    c, (request,) = without_idempotence(acks=acks)
    assert not c.waiting(apis.InitProducerIdRequest)
    assert (request.request.acks, request.expects_response) == (on_the_wire, acks != "0")
    (batch,) = headers(request)
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_with_acks_0_a_batch_counts_as_sent_once_its_bytes_are_in_the_socket() -> None:
    c, (request,) = without_idempotence(acks="0")
    before = wire(request)
    c.lose(request)
    assert (c.receipts, c.acknowledgements.settled, c.is_free) == ((), False, False)
    again = c.only(150)
    assert wire(again) == before
    c.answer(again, None, None)
    assert c.is_written
    assert c.receipts == (PartitionOffsets("t", 0, 1, None, None, 1, len(before[0])),)


def test_with_acks_0_a_connection_that_is_gone_is_a_reason_to_ask_for_the_leader() -> None:
    """A broker that refuses such a batch can only hang up, when all that was sent has come back as sent."""
    c, (request,) = without_idempotence(acks="0")
    c.answer(request, None, None)
    c.run(1_000)
    assert c.waiting(apis.MetadataRequest) == 0
    c.network.is_down = lambda node_id: True  # type: ignore[method-assign]
    assert c.send(routed([b"b"], [0]))  # connected again in no time
    c.run(150)
    assert c.waiting(apis.MetadataRequest) == 1


def test_with_acks_0_a_failed_write_gets_its_memory_back_when_the_bytes_are_out() -> None:
    c, (request,) = without_idempotence(acks="0")
    c.sender.fail(errors.ProducerClosed(reason="test"))
    assert not c.is_free
    c.answer(request, None, None)
    assert (c.is_free, c.receipts) == (True, ())


def test_without_idempotence_lost_batches_wait_in_the_order_in_which_they_were_made() -> None:
    """And more than five may be in flight."""
    c, sent = without_idempotence(9, max_in_flight_requests_per_connection=8)
    assert b"".join(map(first_bytes, sent)) == b"ABCDEFGH"
    for number in (2, 0, 4, 1, 3, 7, 6, 5):
        c.lose(sent[number])
    assert answer_all(c, 2_000, first_bytes) == b"ABCDEFGHI"


def test_with_one_in_flight_a_partition_is_left_alone_until_its_batch_is_answered() -> None:
    c, sent = without_idempotence(3, max_in_flight_requests_per_connection=1)
    assert b"".join(map(first_bytes, sent)) == b"A"
    # Another leader takes requests, and must not get B while A may still be written by the first one.
    c.learn(1, 1, leader_epoch=1)
    assert c.only(150).node_id == 0
    c.lose(sent[0])
    again = answer_all(c, 2_000, lambda request: [(request.node_id, first_bytes(request))])
    assert again == [(1, b"A"), (1, b"B"), (1, b"C")]


def test_what_is_sent_again_and_throttled_is_counted() -> None:
    c = warm(make_core(leaders=[0], batch_size=2_048, max_request_size=2_048))
    c.append(routed([bytes(100)] * 10, [0] * 10))
    c.answer_produce(c.only(7), 7)
    # Two halves follow, which are not sent again.
    c.answer_produce(c.only(1_000), 10, throttle_time_ms=30)
    c.answer_produce(c.only(0), throttle_time_ms=6)
    c.answer_produce(c.only(0))
    found = c.acknowledgements
    assert found.retried == {"t": 10}
    assert (found.answers, found.throttle_ms, found.longest_throttle_ms) == (4, 36, 30)
    assert c.is_written


NEW_TOPIC_ID = uuid.UUID(int=99)


def write_to_the_topic_made_again(c: Core) -> list[Sent]:
    """A write to the topic, which is known by now to have been made again since the last."""
    c.learn(after_ms=1_000, topic_id=NEW_TOPIC_ID)
    c.append(routed_to(TopicPartition(TOPIC, 0), NEW_TOPIC_ID, b"a"))
    c.flush()
    c.run()
    return c.network.produce()


def test_sequences_that_an_earlier_topic_used_up_are_told_from_lost_ones() -> None:
    """A broker without topic ids wrote the transaction's first rows into the topic that was made again."""
    c = make_core(leaders=[0])
    c.sender.begin_write(c.now_ms, Transaction("orders.0", producer_id=7000, producer_epoch=3, version=2))
    (request,) = write_to_the_topic_made_again(warm(c))
    c.answer_produce(request, 45)
    failure = c.failed(errors.TopicRecreated)
    assert (failure.topic, failure.old_topic_id, failure.new_topic_id) == (TOPIC, str(TOPIC_ID), str(NEW_TOPIC_ID))


def test_a_topic_made_again_and_written_by_name_has_another_producer() -> None:
    """Its leader may have the numbers from 0 on: it would drop as many rows as were written under them."""
    c = warm(make_core(leaders=[0]))
    assert write_to_the_topic_made_again(c) == []
    c.answer_producer_id(4_001)
    assert numbers(c.only()) == [(4_001, 0)]
    c.answer_produce(c.only())
    assert c.is_written


def test_leaders_that_know_topic_ids_tell_a_topic_made_again_from_the_one_before() -> None:
    c, (request,) = sending(leaders=[0])
    c.answer(request, apis.ProduceResponse(0, (apis.ProduceResult(None, TOPIC_ID, 0, 0, None, 40),)))
    (request,) = write_to_the_topic_made_again(c)
    assert sequences(request) == [0]
    assert request.request.partitions[0].topic_id == NEW_TOPIC_ID


# By number, as the broker sends them: transcribed from kafka-facts, not from the table under test.
STALE_METADATA = {3, 5, 6, 13, 56, 74, 75, 100, 103}
RETRIED = {2, 7, 14, 15, 16, 19, 20, 51, 89}
ON_PRODUCE = {
    0: Action.ACKNOWLEDGE, 46: Action.ACKNOWLEDGE_WITHOUT_OFFSET, 45: Action.CHECK_SEQUENCE, 10: Action.SPLIT,
    32: Action.LEAVE_OUT, 87: Action.LEAVE_OUT, **dict.fromkeys(RETRIED, Action.RETRY),
    **dict.fromkeys(STALE_METADATA, Action.REFRESH_AND_RETRY),
}  # fmt: skip
ADVISED = {
    18: "segment.bytes", 29: "DESCRIBE", 31: "before 2.8", 32: "message.timestamp", 43: "compression.type=none",
    44: "policy", 45: "unclean election", 47: "Another producer", 59: "truncated", 76: "compression.type",
    87: "needs a key",
}  # fmt: skip


@each("code", range(-1, 200))
def test_every_produce_code_has_one_action(code: int) -> None:
    assert on_produce_error(code) is ON_PRODUCE.get(code, Action.FAIL)
    expected = Action.ACKNOWLEDGE if code == 0 else Action.RETRY if code in {7, 14, 15, 16, 51, 89} else Action.FAIL
    assert on_init_producer_id_error(code) is expected
    # What a user can do is said where there is something to do, and the ACL that is missing is named.
    assert (code in ADVICE) == (code in ADVISED)
    assert ADVISED.get(code, "") in ADVICE.get(code, "") and ADVICE.get(code, ".").endswith(".")
    assert ACLS.get(code) == {29: "TOPIC WRITE on this topic", 31: "CLUSTER IDEMPOTENT_WRITE"}.get(code)

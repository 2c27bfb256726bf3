from __future__ import annotations

import random
import socket
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kafka.record import MemoryRecords

from kafka_sink.errors import (
    DeliveryTimeout,
    ProducerClosed,
    ProduceRejected,
    ProducerIdRefused,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TopicRecreated,
)
from kafka_sink.kafka.metadata import MetadataSnapshot
from kafka_sink.kafka.net.network_client import NetworkClient, NetworkSettings
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, PartitionOffsets
from kafka_sink.kafka.producer.probe import Probe
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.producer.sender import EXPIRY_GRAIN_MS
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest, ProduceResponse, ProduceResult, RefusedRecord
from kafka_sink.kafka.protocol.requests import api_of
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import TOPIC, TOPIC_ID, Core, make_core, metadata_response, routed, routed_to
from scripted_kafka import AnsweringTransport, ByteScript, Sent


def wire(sent: Sent) -> list[bytes]:
    return [bytes(partition.records) for partition in sent.request.partitions]


def sequences(sent: Sent) -> list[int]:
    return [next(iter(MemoryRecords(data))).base_sequence for data in wire(sent)]


def ids(sent: Sent) -> list[int]:
    return [next(iter(MemoryRecords(data))).producer_id for data in wire(sent)]


def warm(core: Core) -> Core:
    """Partition 0 has one acknowledged record, sequence 0: its leader knows the producer."""
    core.append(routed([b"w"], [0]))
    core.flush()
    core.answer_producer_id()
    core.answer_produce(core.network.produce()[0])
    core.acknowledgements = Acknowledgements()
    return core


def sending(core: Core, batches: int = 1) -> list[Sent]:
    """`batches` batches of one row each for partition 0, each in a request of its own, on the wire."""
    if batches > 1:
        warm(core)
        core.append(routed([bytes([65 + i]) + bytes(900) for i in range(batches)], [0] * batches))
        core.run()
        return core.network.produce()
    core.append(routed([bytes([65 + i]) + bytes(900) for i in range(batches)], [0] * batches))
    core.flush()
    core.answer_producer_id()
    return core.network.produce()


def test_rows_are_acknowledged_with_their_offsets() -> None:
    c = make_core()
    c.append(routed([b"a", b"b", b"c"], [0, 1, 0]))
    c.flush()
    c.answer_producer_id()
    (request,) = c.network.produce()
    assert request.request.acks == -1
    c.answer_produce(request, offsets=lambda tp: 100 if tp.partition else 40)
    assert c.acknowledgements.settled
    assert c.acknowledgements.failure is None
    sizes = [len(data) for data in wire(request)]
    assert c.acknowledgements.partitions() == (
        PartitionOffsets("t", 0, 2, 40, 41, 1, sizes[0]),
        PartitionOffsets("t", 1, 1, 100, 100, 1, sizes[1]),
    )
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_a_poll_waits_for_what_is_due_first() -> None:
    c = warm(make_core(linger_ms=600))
    c.accumulator.end_flush()
    assert c.sender.run_once(c.now_ms) == LONGEST_POLL_MS
    c.append(routed([b"lingers"], [0]))
    assert c.sender.run_once(c.now_ms + 100) == 500
    c.metadata.request_update()
    c.run(advance_ms=150)
    assert c.sender.run_once(c.now_ms) == 450
    c.answer(c.network.take(MetadataRequest), None, "the connection was lost")
    metadata_due_ms = c.metadata.next_request_delay_ms(c.now_ms)
    assert metadata_due_ms is not None and 0 < metadata_due_ms < 450
    assert c.sender.run_once(c.now_ms) == metadata_due_ms
    c.run(advance_ms=metadata_due_ms)
    assert isinstance(c.network.sent[-1].request, MetadataRequest)


def test_a_poll_waits_until_a_producer_id_may_be_asked_for_again() -> None:
    c = make_core()
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run()
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 15, -1, -1))
    wait_ms = c.sender.run_once(c.now_ms)
    assert 0 < wait_ms <= 120
    c.run(advance_ms=wait_ms - 1)
    assert c.network.sent == []
    c.run(advance_ms=1)
    assert [type(sent.request) for sent in c.network.sent] == [InitProducerIdRequest]


def test_a_request_that_came_back_for_no_reason_was_lost_with_its_connection() -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer(request, None)
    c.run(advance_ms=c.config.delivery_timeout_ms)
    failure = c.acknowledgements.failure
    assert isinstance(failure, DeliveryTimeout)
    assert failure.last_error == "the connection was lost"


@pytest.mark.parametrize("by_name", [False, True])
def test_a_leader_that_answers_by_name_cannot_tell_topics_apart(by_name: bool) -> None:
    c = make_core()
    (request,) = sending(c)
    assert not c.sender.produces_by_name
    named = (TOPIC, None) if by_name else (None, TOPIC_ID)
    c.answer(request, ProduceResponse(0, (ProduceResult(*named, 0, 0, None, 40, -1),)))
    assert c.acknowledgements.settled
    assert c.sender.produces_by_name == by_name


def test_without_a_transaction_no_batch_says_that_it_is_in_one() -> None:
    (request,) = sending(make_core())
    assert [batch.is_transactional for data in wire(request) for batch in MemoryRecords(data)] == [False]


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    c = make_core()
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run()
    c.run()
    assert c.network.produce() == []
    assert sum(isinstance(s.request, InitProducerIdRequest) for s in c.network.sent) == 1


def test_a_refused_producer_id_fails_the_write_and_a_busy_one_is_asked_again() -> None:
    c = make_core()
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run()
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 15, -1, -1))
    assert c.acknowledgements.failure is None
    c.run()
    assert not any(isinstance(s.request, InitProducerIdRequest) for s in c.network.sent)
    c.run(advance_ms=200)
    c.answer(c.network.take(InitProducerIdRequest), None, "the connection was lost")
    c.run(advance_ms=400)
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 31, -1, -1))
    assert isinstance(c.acknowledgements.failure, ProducerIdRefused)


def test_a_producer_id_that_does_not_come_in_time_is_the_reason_that_is_told() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run()
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 14, -1, -1))
    c.run(advance_ms=40_000)
    failure = c.acknowledgements.failure
    assert isinstance(failure, DeliveryTimeout)
    assert failure.last_error == "InitProducerId: COORDINATOR_LOAD_IN_PROGRESS (error 14)"


def test_a_producer_id_is_asked_for_once_metadata_leaves_the_only_place_on_the_wire() -> None:
    c = make_core(leaders=[0], max_in_flight_requests_per_connection=1)
    c.kafka.down = {1, 2}
    c.metadata.request_update()
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run(advance_ms=150)
    c.run()
    assert [type(sent.request) for sent in c.network.sent] == [MetadataRequest]
    c.answer_metadata()
    c.answer_producer_id()
    assert len(c.network.produce()) == 1


def test_up_to_five_requests_in_flight_numbered_in_order() -> None:
    c = make_core(batch_size=1_024, max_request_size=1_024)
    sent = sending(c, batches=7)
    assert [sequences(s) for s in sent] == [[1], [2], [3], [4], [5]]
    c.answer_produce(sent[0])
    c.run()
    assert [sequences(s) for s in c.network.produce()][-1] == [6]


@pytest.mark.parametrize("code", [6, 7, 19, 20, 2, None])
def test_a_retry_is_the_same_bytes_after_the_backoff(code: int | None) -> None:
    c = make_core()
    (first,) = sending(c)
    before = wire(first)
    if code is None:
        c.answer(first, None, "the connection was lost")
    else:
        c.answer_produce(first, code)
    c.run()
    assert c.network.produce() == []
    c.run(advance_ms=130)
    (again,) = c.network.produce()
    assert wire(again) == before
    c.answer_produce(again, offsets=lambda tp: 5)
    assert c.acknowledgements.partitions()[0].first_offset == 5
    assert c.acknowledgements.settled


def test_the_pause_before_a_retry_grows_whoever_leads() -> None:
    c = make_core(leaders=[0])
    (request,) = sending(c)
    pauses = []
    for attempt in range(6):
        c.answer_produce(request, 7)
        (batch,) = c.accumulator.queued()
        pauses.append(batch.retry_at_ms - c.now_ms)
        if attempt == 2:
            c.leaders = [1]
            c.metadata.request_update()
            c.run(advance_ms=1)
            c.answer_metadata(leader_epoch=1)
        c.run(advance_ms=batch.retry_at_ms - c.now_ms)
        (request,) = c.network.produce()
        assert request.node_id == (0 if attempt < 2 else 1)
    assert all(80 * 2**n <= pause <= min(120 * 2**n, 1_000) for n, pause in enumerate(pauses[:4]))
    assert pauses[4:] == [1_000, 1_000]


def test_a_lost_connection_with_five_in_flight_is_resent_in_order_one_at_a_time() -> None:
    c = make_core(batch_size=1_024, max_request_size=1_024)
    sent = sending(c, batches=6)
    for request in (sent[2], sent[0], sent[4], sent[1], sent[3]):
        c.answer(request, None, "the connection was lost")
    order = []
    for _ in range(5):
        c.run(advance_ms=1_500)
        request = c.network.produce()[0]
        order += sequences(request)
        # Only the last of them may have a batch behind it that was never sent.
        assert len(c.network.produce()) == (1 if len(order) < 5 else 2)
        c.answer_produce(request)
    order += sequences(c.network.produce()[0])
    c.answer_produce(c.network.produce()[0])
    assert order == [1, 2, 3, 4, 5, 6]
    assert c.acknowledgements.settled


def test_a_new_leader_gets_the_retry() -> None:
    c = make_core(leaders=[0], retry_backoff_ms=1_000)
    c.run(advance_ms=1_500)  # the pause after the first metadata is over
    (first,) = sending(c)
    c.answer_produce(first, 6)
    c.leaders = [1]
    c.run(advance_ms=150)
    c.answer_metadata(leader_epoch=1)
    c.run(advance_ms=1_000)
    (again,) = c.network.produce()
    assert (first.node_id, again.node_id) == (0, 1)


def test_a_gap_left_by_an_earlier_batch_heals_and_one_left_by_nobody_fails() -> None:
    c = make_core(batch_size=1_024, max_request_size=1_024)
    first, second = sending(c, batches=2)
    c.answer_produce(first, 19)
    c.answer_produce(second, 45)
    for _ in range(2):
        c.run(advance_ms=1_500)
        (request,) = c.network.produce()
        c.answer_produce(request)
    assert c.acknowledgements.settled
    assert c.acknowledgements.failure is None

    c = make_core()
    (only,) = sending(c)
    c.answer_produce(only, 45)
    assert isinstance(c.acknowledgements.failure, ProduceRejected)
    assert c.acknowledgements.failure.code == 45


def test_a_gap_may_be_told_of_before_the_batch_that_left_it_is_answered() -> None:
    c = warm(make_core(batch_size=1_024, max_request_size=1_024))
    c.append(routed([bytes(900)] * 2, [0, 0]))
    c.run(advance_ms=10)
    first, second = c.network.produce()
    c.answer_produce(second, 45)
    c.run(advance_ms=1_500)
    assert c.network.produce() == [first]
    c.answer_produce(first, 7)
    order = []
    for _ in until_settled(c):
        c.run(advance_ms=1_500)
        (request,) = c.network.produce()
        order += sequences(request)
        c.answer_produce(request)
    assert order == [1, 2]
    assert c.acknowledgements.failure is None


@pytest.mark.parametrize("code", [7, 20])
@pytest.mark.parametrize(("then", "first_offset"), [(0, 10), (46, 11)], ids=["written now", "written before"])
def test_a_batch_may_be_acknowledged_before_the_one_ahead_of_it(then: int, first_offset: int, code: int) -> None:
    """The leader wrote both, and the first answer says that it could not wait for the followers."""
    c = make_core(batch_size=1_024, max_request_size=1_024)
    first, second = sending(c, batches=2)
    c.answer_produce(second, offsets=lambda tp: 11)
    c.answer_produce(first, code)
    assert not c.acknowledgements.settled
    c.run(advance_ms=150)
    (again,) = c.network.produce()
    assert (sequences(again), wire(again)) == ([1], wire(first))
    c.answer_produce(again, then, offsets=lambda tp: 10)
    (receipt,) = c.acknowledgements.partitions()
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset) == (2, first_offset, 11)
    c.append(routed([b"after"], [0]))
    c.run(advance_ms=100)
    assert sequences(c.network.produce()[0]) == [3]


def test_the_new_leader_counts_batches_that_the_former_one_still_has_to_answer() -> None:
    """The former leader stopped once the followers had the batch. The new one would refuse it as out of order, did it
    come again behind five later ones."""
    c = warm(make_core(leaders=[0], batch_size=1_024, max_request_size=1_024))
    c.append(routed([bytes(900)] * 2, [0, 0]))
    c.run()
    (owed, *_) = c.network.produce()
    c.metadata.request_update()
    c.run(advance_ms=150)
    c.leaders = [1]
    c.answer_metadata(leader_epoch=1)
    c.append(routed([bytes(900)] * 20, [0] * 20))
    new_leaders: list[int] = []
    for _ in range(20):
        c.run(advance_ms=1)
        for request in c.network.produce():
            if request.node_id == 1:
                new_leaders += sequences(request)
                c.answer_produce(request)
    assert sequences(owed) == [1]
    assert new_leaders == [3, 4, 5]
    for request in [request for request in c.network.produce() if request.node_id == 0]:
        c.answer(request, None, "no answer within 30000 ms")
    for _ in until_settled(c):
        c.run(advance_ms=2_000)
        for request in c.network.produce():
            new_leaders += sequences(request)
            c.answer_produce(request)
    assert new_leaders == [3, 4, 5, 1, 2, *range(6, 23)]


@pytest.mark.parametrize(("code", "offset"), [(46, 0), (46, -1), (0, -1)])
def test_a_batch_the_leader_had_before_counts_once_and_has_no_offset(code: int, offset: int) -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer_produce(request, code, offsets=lambda at: offset)
    (receipt,) = c.acknowledgements.partitions()
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset) == (1, None, None)
    assert c.acknowledgements.settled


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (10, RecordTooLarge),
        (29, TopicAuthorizationFailed),
        (31, ProduceRejected),
        (43, ProduceRejected),
        (87, ProduceRejected),
        (157, ProduceRejected),
    ],
)
def test_a_final_error_fails_the_write_and_everything_behind_it(code: int, error: type) -> None:
    c = make_core(batch_size=1_024, max_request_size=1_024)
    sent = sending(c, batches=7)
    c.answer_produce(sent[0], code)
    assert isinstance(c.acknowledgements.failure, error)
    assert c.acknowledgements.pending_batches == 0
    # What is on the wire keeps its memory until its own request is answered.
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - 4 * 1_024
    c.answer_produce(sent[1])
    for request in sent[2:]:
        c.answer(request, None, "closed")
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory
    assert c.acknowledgements.partitions() == ()
    c.run(advance_ms=5_000)
    assert c.network.produce() == []


@pytest.mark.parametrize("said", ["Compacted topic cannot accept message without key", None])
def test_a_refusal_is_told_in_the_leaders_words_where_it_has_any(said: str | None) -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer(request, ProduceResponse(0, (ProduceResult("t", TOPIC_ID, 0, 87, said, -1, -1),)))
    told = "INVALID_RECORD (error 87)." if said is None else f"INVALID_RECORD (error 87: {said})."
    assert told in str(c.acknowledgements.failure)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_refusal_of_some_records_names_the_first_of_them(compression: str) -> None:
    c = make_core(compression_type=compression)
    c.append(routed([b"v" * 100] * 4, [0] * 4, timestamps=[7_000, 8_000, 6_500, 9_000]))
    c.flush()
    c.answer_producer_id()
    (request,) = c.network.produce()
    refused = (RefusedRecord(-1, "?"), RefusedRecord(4, "?"), RefusedRecord(2, "too\nold"), RefusedRecord(3, "too old"))
    result = ProduceResult("t", TOPIC_ID, 0, 32, "One or\x1b more", -1, -1, refused)
    c.answer(request, ProduceResponse(0, (result,)))
    failure = c.acknowledgements.failure
    assert isinstance(failure, ProduceRejected)
    assert (failure.refused, failure.place, failure.timestamp_ms, failure.reason) == (4, 2, 6_500, r"too\nold")
    assert "t-0 refused a batch of 4 records" in str(failure)
    assert r"record 2 of the batch (from 0), whose timestamp is 6500 ms from 1970: too\nold." in str(failure)
    assert "badRows=drop" in str(failure) and "DESCRIBE_CONFIGS" in str(failure) and "before.max.ms" in str(failure)
    assert str(failure).isprintable()


# --- rows that the leader refuses by name, and that are left out ------------------------------------------------------


def three_in_flight(*, leaves_out: bool = True, **options: Any) -> tuple[Core, list[Sent]]:
    """Batches of two rows each, of sequences 1 to 6."""
    c = warm(make_core(batch_size=1_024, max_request_size=1_024, **options))
    if leaves_out:
        c.acknowledgements.refused = deque()
    c.append(routed([b"%d" % number + bytes(449) for number in range(6)], [0] * 6))
    c.run(advance_ms=10)
    sent = c.network.produce()
    assert [sequences(each) for each in sent] == [[1], [3], [5]]
    return c, sent


def refuse(c: Core, request: Sent, *places: int, code: int = 32) -> None:
    refused = tuple(RefusedRecord(place, "too old") for place in places)
    c.answer(request, ProduceResponse(0, (ProduceResult("t", TOPIC_ID, 0, code, None, -1, -1, refused),)))


def written(c: Core) -> list[tuple[int, bytes]]:
    """Base sequence and first byte of each row of what is on the wire."""
    found = []
    for request in c.network.produce():
        (batch,) = MemoryRecords(wire(request)[0])
        found.append((batch.base_sequence, b"".join(record.value[:1] for record in batch)))
    return found


def test_a_row_that_is_refused_is_left_out_and_those_behind_get_its_sequences() -> None:
    c, (first, second, third) = three_in_flight()
    refuse(c, first, 1, code=87)
    # Nothing goes out while one is on the wire: its numbers are about to be another's.
    c.run(advance_ms=1_000)
    assert c.network.produce() == [second, third]
    c.answer_produce(second, 45)
    refuse(c, third, 0)
    c.run(advance_ms=2_000)
    assert written(c) == [(1, b"0"), (2, b"23"), (4, b"45")]
    first, second, third = c.network.produce()
    c.answer_produce(first)
    c.answer_produce(second)
    refuse(c, third, 0)
    c.run(advance_ms=2_000)
    assert written(c) == [(4, b"5")]
    c.answer_produce(c.network.produce()[0])
    assert (c.acknowledgements.settled, c.acknowledgements.failure) == (True, None)
    assert sum(receipt.record_count for receipt in c.acknowledgements.partitions()) == 4
    assert c.acknowledgements.refused is not None and len(c.acknowledgements.refused) == 2
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_a_batch_of_which_nothing_is_left_leaves_its_sequences_to_the_next() -> None:
    c, (first, second, third) = three_in_flight()
    refuse(c, first, 1, 0)
    c.answer_produce(second, 45)
    c.answer_produce(third, 45)
    c.run(advance_ms=2_000)
    assert written(c) == [(1, b"23"), (3, b"45")]
    for request in c.network.produce():
        c.answer_produce(request)
    assert (c.acknowledgements.settled, c.acknowledgements.failure) == (True, None)


@pytest.mark.parametrize("places", [(), (2,), (-1,), (0, 2)])
def test_places_that_the_batch_does_not_have_are_no_reason_to_leave_out(places: tuple[int, ...]) -> None:
    c, (first, *_) = three_in_flight()
    refuse(c, first, *places)
    assert isinstance(c.acknowledgements.failure, ProduceRejected)


def test_a_refusal_fails_the_write_where_nothing_is_to_be_left_out() -> None:
    c, (first, *_) = three_in_flight(leaves_out=False)
    refuse(c, first, 0)
    assert isinstance(c.acknowledgements.failure, ProduceRejected)
    c, (first, *_) = three_in_flight()
    c.acknowledgements.dead_letter_topic = "t"
    refuse(c, first, 0)
    assert isinstance(c.acknowledgements.failure, ProduceRejected)


@pytest.mark.parametrize("code", [None, 6, 7, 20])
def test_a_refusal_of_what_may_be_written_ends_the_write(code: int | None) -> None:
    """The leader judges times before it looks whether it has the batch: without the row it would be another one."""
    c, (first, second, third) = three_in_flight()
    if code is None:
        c.answer(first, None, "closed")
    else:
        c.answer_produce(first, code)
    c.answer_produce(second, 45)
    c.answer_produce(third, 45)
    c.run(advance_ms=2_000)
    (again,) = c.network.produce()
    refuse(c, again, 0)
    assert isinstance(c.acknowledgements.failure, ProduceRejected)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


@pytest.mark.parametrize("code", [None, 6, 7, 20, 0])
def test_one_behind_it_that_may_be_written_gets_no_other_number(code: int | None) -> None:
    for refused_first in (True, False):
        c, (first, second, third) = three_in_flight()
        if refused_first:
            refuse(c, first, 0)
        if code is None:
            c.answer(second, None, "closed")
        else:
            c.answer_produce(second, code)
        if not refused_first and code != 0:
            refuse(c, first, 0)
        if refused_first or code != 0:
            assert isinstance(c.acknowledgements.failure, ProduceRejected)
            c.answer_produce(third, 45)
            assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_without_idempotence_the_rest_goes_on_in_its_place() -> None:
    c = make_core(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    c.acknowledgements.refused = deque()
    c.append(routed([b"0", b"1", b"2"], [0] * 3))
    c.flush()
    c.run()
    refuse(c, c.network.produce()[0], 1)
    c.run()
    assert written(c) == [(-1, b"02")]


def test_the_delivery_deadline_holds_in_the_queue_and_on_the_wire() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    (request,) = sending(c)
    c.answer_produce(request, 19)
    c.run(advance_ms=1_000)
    (again,) = c.network.produce()
    c.run(advance_ms=39_000)
    failure = c.acknowledgements.failure
    assert isinstance(failure, DeliveryTimeout)
    assert (failure.attempts, failure.records, failure.elapsed_ms) == (2, 1, 40_000)
    assert "NOT_ENOUGH_REPLICAS" in failure.last_error
    assert "Whether the last attempt was written is unknown." in str(failure)
    assert c.accumulator.pool.available_bytes < c.config.buffer_memory
    c.answer_produce(again)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory

    c = make_core(leaders=[-1], delivery_timeout_ms=40_000)
    c.network.last_error = "broker 1: Connection refused"
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert "Connection refused. None of them was sent." in str(c.acknowledgements.failure)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_rows_that_no_batch_was_closed_for_are_counted_when_their_time_is_over() -> None:
    c = make_core(leaders=[-1], delivery_timeout_ms=40_000)
    c.append(routed([b"a", b"b", b"c"], [0] * 3))
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert c.acknowledgements.failure.records == 3


def test_a_batch_that_is_being_filled_does_not_expire() -> None:
    c = make_core(leaders=[-1], delivery_timeout_ms=40_000)
    c.append(routed([b"a"], [0]))
    (batch,) = c.accumulator.queued()
    assert batch.filling is not None
    batch.filling.checked_out[batch.place] = True
    c.run(advance_ms=40_000)
    assert c.acknowledgements.failure is None
    batch.filling.checked_out[batch.place] = False
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)


def test_how_long_rows_waited_is_measured_from_their_batchs_first() -> None:
    c = make_core()
    c.run(advance_ms=1_000)
    c.append(routed([b"a"], [0]))
    c.run(advance_ms=250)
    c.flush()
    c.answer_producer_id()
    assert len(c.network.produce()) == 1
    assert c.metrics.snapshot(0).producer["queue_ms_max"] == 250


def test_of_batches_that_expire_together_one_that_was_sent_is_told_of() -> None:
    """It has a reason; those behind it waited for no other."""
    c = make_core(leaders=[0, 1], delivery_timeout_ms=40_000)
    c.kafka.down = {0}
    c.append(routed([b"waits", b"sent"], [0, 1]))
    c.flush()
    c.answer_producer_id()
    c.answer_produce(c.network.take(ProduceRequest), 19)
    c.run(advance_ms=1_000)
    assert len(c.network.produce()) == 1
    c.run(advance_ms=39_000)
    failure = c.acknowledgements.failure
    assert isinstance(failure, DeliveryTimeout)
    assert (failure.partition, failure.attempts) == (1, 2)
    assert "NOT_ENOUGH_REPLICAS" in failure.last_error


def test_why_there_was_no_answer_is_told_when_the_time_is_over() -> None:
    """A broker without a version for the request may be the next to be upgraded, so it is asked again."""
    c = make_core(delivery_timeout_ms=40_000)
    (request,) = sending(c)
    words = "broker 0: Produce needs versions 9 to 13, which the broker lacks: it speaks versions 0 to 8"
    c.answer(request, None, words)
    assert c.acknowledgements.failure is None
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert c.acknowledgements.failure.last_error == words


@pytest.mark.parametrize("down", [True, False])
def test_what_kept_a_leader_out_of_reach_since_the_last_attempt_is_told_too(down: bool) -> None:
    c = make_core(delivery_timeout_ms=40_000)
    (request,) = sending(c)
    c.answer(request, None, "broker 0: the peer closed the connection")
    c.network.last_error = "broker 0: Connection refused"
    c.kafka.down = {0} if down else set()
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    since_then = "; since then: broker 0: Connection refused" if down else ""
    assert c.acknowledgements.failure.last_error == "broker 0: the peer closed the connection" + since_then


def test_a_broker_that_only_hung_up_is_told_of_once() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    (request,) = sending(c)
    c.network.last_error = "broker 0: the peer closed the connection"
    c.kafka.down = {0}
    c.answer(request, None, c.network.last_error)
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert c.acknowledgements.failure.last_error == c.network.last_error


@pytest.mark.parametrize("delivery_timeout_ms", [40_000, 2**31 - 1])
def test_the_delivery_deadline_fails_the_batches_of_all_partitions_at_once(delivery_timeout_ms: int) -> None:
    c = make_core(delivery_timeout_ms=delivery_timeout_ms)
    c.append(routed([b"a", b"b"], [0, 1]))
    c.flush()
    c.answer_producer_id()
    (request,) = c.network.produce()
    c.append(routed([b"queued"], [1]))
    assert c.acknowledgements.pending_batches == 3
    c.run(advance_ms=delivery_timeout_ms - 1)
    assert c.acknowledgements.failure is None
    c.run(advance_ms=EXPIRY_GRAIN_MS)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert c.acknowledgements.pending_batches == 0
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - 2 * c.accumulator.pool.buffer_bytes
    c.answer_produce(request)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory
    assert c.acknowledgements.partitions() == ()


def test_a_deadline_that_is_near_or_past_does_not_make_the_sender_spin() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    sending(c)
    for now_ms in (39_000, 39_999, 40_000, 40_000 + EXPIRY_GRAIN_MS, 50_000):
        assert c.sender.run_once(now_ms) >= EXPIRY_GRAIN_MS
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)


def test_retries_bound_the_attempts() -> None:
    c = make_core(retries=1)
    (request,) = sending(c)
    c.answer_produce(request, 19)
    c.run(advance_ms=200)
    c.answer_produce(c.network.take(ProduceRequest), 19)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert c.acknowledgements.failure.attempts == 2


def test_a_topic_made_again_is_another_topic() -> None:
    c = make_core(retry_backoff_ms=1_000)
    c.run(advance_ms=1_500)  # the pause after the first metadata is over
    (request,) = sending(c)
    assert request.request.partitions[0].topic_id == TOPIC_ID
    c.answer_produce(request, 100)
    c.run(advance_ms=150)
    c.answer_metadata(topic_id=uuid.UUID(int=8))
    assert isinstance(c.acknowledgements.failure, TopicRecreated)
    c.run(advance_ms=1_000)
    assert c.network.produce() == []


def test_rows_routed_before_a_topic_was_made_again_are_not_sent_to_the_new_one() -> None:
    c = make_core()
    c.metadata.request_update()
    c.run(advance_ms=150)
    c.answer_metadata(topic_id=uuid.UUID(int=8))
    c.append(routed([b"a"], [0]))
    c.flush()
    c.answer_producer_id()
    assert c.network.produce() == []
    assert isinstance(c.acknowledgements.failure, TopicRecreated)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_a_topic_that_metadata_forgets_for_a_moment_keeps_its_batches_and_sequences() -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer_produce(request, 3)
    c.run(advance_ms=150)
    c.answer_metadata(error_code=3)
    c.run(advance_ms=150)
    (again,) = c.network.produce()
    assert wire(again) == wire(request)
    c.answer_produce(again)
    c.append(routed([b"b"], [0]))
    c.run(advance_ms=100)
    assert sequences(c.network.produce()[0]) == [1]


def test_a_topic_that_was_idle_and_is_forgotten_keeps_its_sequences() -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer_produce(request)
    c.run(advance_ms=400_000)
    assert c.network.sent[0].request.topics == ()
    c.answer(c.network.take(MetadataRequest), replace(metadata_response([]), topics=()))
    assert c.metadata.snapshot.topics == {}
    c.metadata.want([TOPIC], c.now_ms)
    c.run()
    c.answer_metadata()
    c.append(routed([b"b"], [0]))
    c.run(advance_ms=100)
    assert sequences(c.network.produce()[0]) == [1]


@pytest.mark.parametrize("sent", [False, True], ids=["queued", "in flight"])
def test_a_topic_with_batches_pending_is_not_forgotten(sent: bool) -> None:
    c = make_core(delivery_timeout_ms=10_000_000)
    c.append(routed([b"a"], [0]))
    if sent:
        c.flush()
        c.answer_producer_id()
        assert c.network.produce()
    c.run(advance_ms=400_000)
    request = c.network.take(MetadataRequest)
    assert request.request.topics == (TOPIC,)
    c.answer(request, metadata_response([0, 0]))
    assert TOPIC in c.metadata.snapshot.topics


def test_a_slow_broker_is_not_asked_for_metadata_twice_at_once() -> None:
    c = make_core()
    c.metadata.request_update()
    for _ in range(3):
        c.run(advance_ms=500)
    assert sum(isinstance(s.request, MetadataRequest) for s in c.network.sent) == 1


def test_an_answer_without_a_topic_name_is_matched_by_topic_id() -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer(request, ProduceResponse(0, (ProduceResult(None, TOPIC_ID, 0, 0, None, 77, -1),)))
    assert c.acknowledgements.partitions()[0].first_offset == 77


def test_a_failed_batch_answered_late_changes_no_receipt() -> None:
    c = make_core()
    (request,) = sending(c)
    c.sender.fail(ProducerClosed(reason="test"))
    c.answer_produce(request)
    assert c.acknowledgements.partitions() == ()
    assert c.acknowledgements.pending_batches == 0


@pytest.mark.parametrize("code", [0, 6, 7, 10, 45, 46, 59, None])
def test_whatever_comes_back_after_the_end_gives_memory_back_and_sends_nothing(code: int | None) -> None:
    """An expired batch may have been written or not; nothing is numbered behind it, so nobody has to know."""
    c = warm(make_core(batch_size=2_048, max_request_size=2_048, delivery_timeout_ms=40_000))
    c.append(routed([bytes([65 + i]) + bytes(900) for i in range(14)], [0] * 14))
    c.run()
    sent = c.network.produce()
    assert len(sent) == 5
    c.run(advance_ms=40_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    on_the_wire = 5 * 2_048
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - on_the_wire
    for request in sent:
        if code is None:
            c.answer(request, None, "closed")
        else:
            c.answer_produce(request, code)
        c.run(advance_ms=5_000)
    assert c.network.sent == []
    assert (c.acknowledgements.partitions(), c.acknowledgements.pending_batches) == ((), 0)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory
    with pytest.raises(DeliveryTimeout):
        c.append(routed([b"more"], [0]))


@pytest.mark.parametrize("code", [45, 47, 59, 90])
def test_a_leader_that_forgot_or_fenced_the_producer_ends_the_write(code: int) -> None:
    """Where Java's producer bumps its epoch and numbers anew, this one stops: see the module's first lines."""
    c = warm(make_core(batch_size=1_024, max_request_size=1_024))
    c.append(routed([bytes(900)] * 3, [0] * 3))
    c.run(advance_ms=1)
    sent = c.network.produce()
    assert len(sent) == 3
    c.answer_produce(sent[0], code)
    failure = c.acknowledgements.failure
    assert isinstance(failure, ProduceRejected)
    assert failure.code == code
    for request in sent[1:]:
        c.answer_produce(request, 45)
    c.run(advance_ms=5_000)
    assert c.network.sent == []
    assert c.acknowledgements.partitions() == ()


def test_results_are_matched_by_partition_and_not_by_place() -> None:
    c = make_core()
    c.append(routed([b"a", b"b"], [0, 1]))
    c.flush()
    c.answer_producer_id()
    (request,) = c.network.produce()
    results = tuple(ProduceResult("t", TOPIC_ID, partition, 0, None, 10 * partition, -1) for partition in (1, 0))
    c.answer(request, ProduceResponse(0, results))
    assert [receipt.first_offset for receipt in c.acknowledgements.partitions()] == [0, 10]


def test_the_delivery_deadline_counts_from_the_first_row_not_the_last_attempt() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    sending(c)
    for _ in range(13):
        c.answer_produce(c.network.take(ProduceRequest), 19)
        c.run(advance_ms=3_000)
    assert c.acknowledgements.failure is None
    c.run(advance_ms=1_000)
    assert isinstance(c.acknowledgements.failure, DeliveryTimeout)
    assert c.acknowledgements.failure.elapsed_ms == 40_000


def metadata_requests(c: Core) -> int:
    return sum(isinstance(s.request, MetadataRequest) for s in c.network.sent)


def test_a_leader_that_cannot_be_reached_is_asked_about() -> None:
    c = make_core(leaders=[1])
    c.append(routed([b"a"], [0]))
    c.flush()
    c.answer_producer_id()
    c.answer_produce(c.network.produce()[0])
    c.kafka.down = {1}
    c.append(routed([b"b"], [0]))
    for _ in range(3):
        c.run(advance_ms=200)
    assert metadata_requests(c) == 1
    c.leaders = [2]
    c.answer_metadata(leader_epoch=1)
    c.run(advance_ms=1)
    assert c.network.produce()[0].node_id == 2


def test_a_lost_answer_is_a_reason_to_ask_for_the_leader() -> None:
    c = make_core(leaders=[0], retry_backoff_ms=1_000)
    c.run(advance_ms=1_500)  # the pause after the first metadata is over
    (request,) = sending(c)
    c.answer(request, None, "no answer within 30000 ms")
    c.run(advance_ms=150)
    c.leaders = [1]
    c.answer_metadata(leader_epoch=1)
    c.run(advance_ms=1_100)
    assert c.network.produce()[0].node_id == 1


def test_a_partition_that_loses_its_leader_is_asked_about() -> None:
    c = make_core(leaders=[0])
    warm(c)
    c.metadata.request_update()
    c.run(advance_ms=150)
    c.leaders = [-1]
    c.answer_metadata(leader_epoch=1)
    c.run(advance_ms=300)
    assert metadata_requests(c) == 1
    c.leaders = [0]
    c.answer_metadata(leader_epoch=2)
    c.metadata.snapshot = MetadataSnapshot()
    c.append(routed([b"b"], [0]))
    c.run(advance_ms=1)
    c.run(advance_ms=1_500)
    assert metadata_requests(c) == 1


def test_a_defect_between_drain_and_send_fails_the_rows_and_frees_their_memory() -> None:
    for defect_at in ("close", "number"):
        c = make_core()
        warm(c)
        c.append(routed([b"a", b"b"], [0, 1]))
        c.now_ms += 1_000
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ProducerBatch, defect_at, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                c.run()
        c.sender.fail(ProducerClosed(reason="test"))
        assert c.acknowledgements.pending_batches == 0
        assert isinstance(c.acknowledgements.failure, ProducerClosed)
        assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def acknowledged(throttle_ms: int) -> tuple[ProduceRequest, dict[str, Any]]:
    """The answer to a Produce of partition 0."""
    results = [{"index": 0, "error_code": 0, "base_offset": 0, "record_errors": []}]
    said = {"name": TOPIC, "topic_id": TOPIC_ID, "partition_responses": results}
    return ANY_PRODUCE, {"responses": [said], "throttle_time": timedelta(milliseconds=throttle_ms)}


ANY_PRODUCE = ProduceRequest(-1, 1, ())


def test_a_broker_that_throttles_is_left_alone_for_as_long_as_it_says() -> None:
    """KIP-219, with the network's own client in between."""
    c = warm(make_core(leaders=[0], batch_size=1_024, max_request_size=1_024))
    answers = [acknowledged(throttle_ms=700), acknowledged(throttle_ms=0)]
    nobody = MetadataRequest((), False), {"brokers": [], "topics": [], "throttle_time": timedelta()}
    broker = AnsweringTransport(ByteScript([nobody, *answers]), held=api_of(ANY_PRODUCE).key)
    client = NetworkClient(
        broker,
        clock_ms=lambda: c.now_ms,
        rng=random.Random(1),
        settings=NetworkSettings(bootstrap_servers=(("localhost", 9092),), client_id="c"),
        metrics=c.metrics,
        resolve=lambda host, port: [Address(socket.AF_INET, ("127.0.0.1", port))],
    )
    client.update_brokers([Broker(0, "localhost", 9092)])
    c.handover.taken_by = client

    def turn(advance_ms: int = 0) -> None:
        c.run(advance_ms)
        c.sender.handle(client.poll(0), c.now_ms)

    c.append(routed([bytes(900)] * 2, [0, 0]))
    for _ in range(5):  # connect, negotiate, learn which cluster it is, send
        turn()
    assert len(broker.held) == 2
    broker.answer_held()
    turn()
    assert c.acknowledgements.settled
    c.append(routed([bytes(900)] * 2, [0, 0]))
    for advance_ms in (0, 1, 698):
        turn(advance_ms)
        assert broker.held == []
    turn(1)
    assert len(broker.held) == 2


class TestInterruptions:
    """A cluster that was restored while nobody was connected gives producer ids out again."""

    def test_rows_that_have_no_number_get_another_id(self) -> None:
        c = warm(make_core(leaders=[0]))
        c.network.interruptions = 1
        c.append(routed([b"a"], [0]))
        c.run()
        assert c.network.produce() == []
        c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 0, 4_001, 0))
        c.run()
        (request,) = c.network.produce()
        assert (ids(request), sequences(request)) == ([4_001], [0])

    def test_rows_that_have_a_number_keep_it_and_the_id_until_they_are_answered(self) -> None:
        """They may be written: under another id they would be there twice."""
        c = warm(make_core(leaders=[0]))
        c.append(routed([b"a"], [0]))
        c.run()
        (lost,) = c.network.produce()
        c.append(routed([b"b"], [0]))
        c.network.interruptions = 1
        c.answer(lost, None, "cut")
        c.run(10_000)
        (again,) = c.network.produce()
        assert (ids(again), sequences(again)) == (ids(lost), sequences(lost)) == ([4_000], [1])
        c.answer_produce(again)
        c.run()
        assert c.network.produce() == []
        c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 0, 4_001, 0))
        c.run()
        (request,) = c.network.produce()
        assert (ids(request), sequences(request)) == ([4_001], [0])

    def test_while_an_id_is_asked_for(self) -> None:
        """It counts from the request: the answer may come together with the end of the connection."""
        c = make_core(leaders=[0])
        c.flush()
        c.append(routed([b"a"], [0]))
        c.run()
        asked = c.network.take(InitProducerIdRequest)
        c.network.interruptions = 1
        c.answer(asked, InitProducerIdResponse(0, 0, 4_000, 0))
        c.run()
        assert c.network.produce() == []
        c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 0, 4_001, 0))
        c.run()
        assert ids(c.network.produce()[0]) == [4_001]

    def test_without_idempotence_there_is_no_id(self) -> None:
        c = make_core(leaders=[0], enable_idempotence=False)
        c.flush()
        c.network.interruptions = 1
        c.append(routed([b"a"], [0]))
        c.run()
        assert ids(c.network.produce()[0]) == [-1]

    def test_a_transaction_keeps_its_ids(self) -> None:
        c = make_core(leaders=[0])
        c.flush()
        c.sender.begin_transaction(Transaction("s.0", 7, 3, 2))
        c.network.interruptions = 1
        c.append(routed([b"a"], [0]))
        c.run()
        assert ids(c.network.produce()[0]) == [7]

    def test_leaders_of_a_restored_cluster_have_lower_epochs(self) -> None:
        """An answer of the old one may come together with the new connection; another one may look open for long."""
        c = make_core(leaders=[0])

        def hear(leader: int, leader_epoch: int, handshakes: int) -> int:
            c.metadata.request_update()
            c.run(advance_ms=1_500)
            c.network.handshakes = handshakes
            c.leaders = [leader]
            c.answer_metadata(leader_epoch=leader_epoch)
            c.run()
            return c.metadata.snapshot.leader(TOPIC, 0)

        assert hear(0, 5, handshakes=1) == 0
        assert hear(1, 3, handshakes=1) == 1
        assert hear(2, 2, handshakes=1) == 1


class TestProbe:
    def test_is_one_question(self) -> None:
        c = make_core()
        probe = c.sender.probe = Probe()
        c.run()
        c.run()
        (sent,) = c.network.sent
        assert sent.request == MetadataRequest((), allow_auto_topic_creation=False)
        assert not probe.is_settled
        c.answer(sent, metadata_response([0]))
        assert probe.is_settled
        assert probe.is_answered

    def test_that_is_lost_is_not_asked_again(self) -> None:
        c = make_core()
        probe = c.sender.probe = Probe()
        c.run()
        c.answer(c.network.take(MetadataRequest), None, "cut")
        c.run()
        assert (probe.is_settled, probe.is_answered, c.network.sent) == (True, False, [])

    def test_waits_for_a_node(self) -> None:
        c = make_core()
        c.kafka.down = {0, 1, 2}
        probe = c.sender.probe = Probe()
        c.run()
        assert (probe.is_sent, c.network.sent) == (False, [])


def too_large_for_its_leader(records: int = 4, **options: Any) -> tuple[Core, Sent]:
    """A Core whose partition 0 is warm, and the request with its one batch of so many records, about to be refused."""
    c = warm(make_core(**{"batch_size": 4_096, "max_request_size": 4_096, "buffer_memory": 8_192, **options}))
    c.append(routed([bytes([65 + i]) + bytes(900) for i in range(records)], [0] * records))
    c.run()
    (request,) = c.network.produce()
    return c, request


def test_a_batch_that_is_too_large_goes_again_in_parts_under_its_sequences() -> None:
    c, request = too_large_for_its_leader()
    c.answer_produce(request, 10)
    assert c.acknowledgements.pending_batches == 2
    order, offset = [], 100
    for _ in until_settled(c):
        c.run()  # at once: there is nothing to wait for
        (part,) = c.network.produce()
        order.append((sequences(part), first_bytes(part)))
        c.answer_produce(part, offsets=lambda tp, at=offset: at)
        offset += 2
    assert order == [([1], b"A"), ([3], b"C")]
    (receipt,) = c.acknowledgements.partitions()
    assert (receipt.record_count, receipt.first_offset, receipt.last_offset, receipt.batch_count) == (4, 100, 103, 2)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory
    c.append(routed([b"after"], [0]))
    c.run()
    assert sequences(c.network.produce()[0]) == [5]


def test_parts_are_split_down_to_the_record_that_is_too_large_alone() -> None:
    c, request = too_large_for_its_leader()
    requests = 0
    for _ in until_settled(c):
        requests += 1
        c.answer_produce(request, 10)
        c.run()
        request = (c.network.produce() or [request])[0]
    failure = c.acknowledgements.failure
    assert isinstance(failure, RecordTooLarge)
    assert requests == 3  # of four records, two, one
    assert failure.topic == "t"
    assert failure.max_bytes is None
    assert failure.size_bytes == len(wire(request)[0])
    assert (failure.row, failure.partition, failure.key_bytes) == (None, 0, None)
    assert f"partition 0, without a key and of timestamp {failure.timestamp_ms} ms from 1970, takes" in str(failure)
    for words in ("max.message.bytes", "message.max.bytes", str(failure.size_bytes)):
        assert words in str(failure)
    assert "AAA" not in str(failure)
    assert c.acknowledgements.pending_batches == 0
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_batches_in_flight_behind_a_split_one_are_sent_again_behind_its_parts() -> None:
    c = warm(make_core(batch_size=2_048, max_request_size=2_048))
    c.append(routed([bytes([65 + i]) + bytes(900) for i in range(6)], [0] * 6))
    c.run()
    sent = c.network.produce()
    assert [sequences(request) for request in sent] == [[1], [3], [5]]
    c.answer_produce(sent[0], 10)
    for behind in sent[1:]:
        c.answer_produce(behind, 45)
    order = []
    for _ in until_settled(c):
        c.run(advance_ms=1_500)
        request = c.network.produce()[0]
        order += sequences(request)
        c.answer_produce(request)
    assert order == [1, 2, 3, 5]
    assert c.acknowledgements.failure is None


def test_after_a_split_new_batches_of_the_topic_are_as_small_as_its_parts() -> None:
    c, request = too_large_for_its_leader(max_in_flight_requests_per_connection=1, buffer_memory=65_536)
    size = len(wire(request)[0])
    c.answer_produce(request, 10)
    c.append(routed([bytes(900)] * 8, [0] * 8))
    sizes = []
    for _ in range(6):
        c.run()
        (request,) = c.network.produce()
        sizes.append(len(wire(request)[0]))
        c.answer_produce(request)
    assert c.acknowledgements.settled
    assert max(sizes) < size * 0.7
    assert sum(receipt.record_count for receipt in c.acknowledgements.partitions()) == 12


def test_a_batch_from_before_the_limit_is_split_to_it_at_once() -> None:
    c = warm(make_core(batch_size=8_192, max_request_size=8_192, max_in_flight_requests_per_connection=1))
    c.append(routed([bytes(900)] * 16, [0] * 16))
    refused, accepted = 0, 0
    for _ in until_settled(c):
        c.run()
        (request,) = c.network.produce()
        too_large = len(wire(request)[0]) > 2_000
        refused, accepted = refused + too_large, accepted + (not too_large)
        c.answer_produce(request, 10 if too_large else 0)
    # The first batch of 8 in halves, twice; its other half and the second batch straight to what went through.
    assert (refused, accepted) == (4, 8)


def test_a_split_keeps_the_deadline_of_its_batch() -> None:
    c, request = too_large_for_its_leader(delivery_timeout_ms=40_000)
    c.run(advance_ms=24_000)
    c.answer_produce(request, 19)
    c.run(advance_ms=1_000)
    (again,) = c.network.produce()
    c.answer_produce(again, 10)
    c.run()
    (part,) = c.network.produce()
    c.run(advance_ms=14_999)
    assert c.acknowledgements.failure is None
    c.run(advance_ms=EXPIRY_GRAIN_MS)
    failure = c.acknowledgements.failure
    assert isinstance(failure, DeliveryTimeout)
    assert failure.elapsed_ms == 40_000 - 1 + EXPIRY_GRAIN_MS
    assert "MESSAGE_TOO_LARGE" in failure.last_error
    assert c.acknowledgements.pending_batches == 0
    c.answer_produce(part)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_parts_that_were_not_sent_themselves_may_have_been_written_with_their_batch() -> None:
    c, request = too_large_for_its_leader(delivery_timeout_ms=40_000)
    c.answer_produce(request, 10)
    c.kafka.down = {0}
    c.run(advance_ms=40_000)
    failure = c.acknowledgements.failure
    assert isinstance(failure, DeliveryTimeout)
    assert failure.attempts == 0
    assert "Whether the last attempt was written is unknown." in str(failure)


def test_what_was_split_and_acknowledged_does_not_expire() -> None:
    c, request = too_large_for_its_leader(delivery_timeout_ms=40_000)
    c.answer_produce(request, 10)
    for _ in until_settled(c):
        c.run()
        c.answer_produce(c.network.produce()[0])
    c.run(advance_ms=80_000)
    assert c.acknowledgements.failure is None
    assert c.sender.failure is None


def test_a_write_that_failed_is_not_split() -> None:
    c, request = too_large_for_its_leader()
    c.sender.fail(ProducerClosed(reason="test"))
    c.answer_produce(request, 10)
    assert c.acknowledgements.pending_batches == 0
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_a_part_the_leader_has_under_another_number_of_records_ends_the_write() -> None:
    """The batch was written, its answer lost, and the limit lowered: its parts must not be written beside it."""
    c, request = too_large_for_its_leader()
    c.answer(request, None, "the connection was lost")
    c.run(advance_ms=150)
    c.answer_produce(c.network.produce()[0], 10)
    c.run(advance_ms=1)
    c.answer_produce(c.network.produce()[0], 45)
    assert isinstance(c.acknowledgements.failure, ProduceRejected)


@pytest.mark.parametrize("acks", ["all", "1"])
def test_without_idempotence_a_batch_is_split_as_well(acks: str) -> None:
    c, (request,) = without_idempotence(acks=acks, batch_size=4_096)
    c.answer_produce(request)
    c.append(routed([b"A" + bytes(900), b"B" + bytes(900)], [0, 0]))
    c.run()
    c.answer_produce(c.network.produce()[0], 10)
    order = b""
    for _ in until_settled(c):
        c.run(advance_ms=1)
        for part in c.network.produce():
            (batch,) = MemoryRecords(wire(part)[0])
            assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
            order += first_bytes(part)
            c.answer_produce(part)
    assert order == b"AB"


def without_idempotence(batches: int = 1, **options: Any) -> tuple[Core, list[Sent]]:
    """A Core without a producer id, and `batches` batches of one row each for partition 0 that it has to send."""
    options = {"acks": "1", "batch_size": 1_024, "max_request_size": 1_024, **options}
    c = make_core(enable_idempotence=False, **options)
    c.append(routed([bytes([65 + i]) + bytes(900) for i in range(batches)], [0] * batches))
    c.flush()
    c.run()
    return c, c.network.produce()


def until_settled(c: Core, turns: int = 30) -> Iterator[None]:
    """A turn each until every row is answered for; no test here takes more than `turns`."""
    for _ in range(turns):
        if c.acknowledgements.settled:
            return
        yield
    raise AssertionError(f"not settled in {turns} turns")


def first_bytes(sent: Sent) -> bytes:
    return b"".join(next(next(iter(MemoryRecords(data)))).value[:1] for data in wire(sent))


@pytest.mark.parametrize(("acks", "on_the_wire"), [("all", -1), ("1", 1), ("0", 0)])
def test_without_idempotence_batches_name_no_producer_and_none_is_asked_for(acks: str, on_the_wire: int) -> None:
    c, (request,) = without_idempotence(acks=acks)
    assert not any(isinstance(s.request, InitProducerIdRequest) for s in c.network.sent)
    assert request.request.acks == on_the_wire
    assert request.expects_response == (acks != "0")
    (batch,) = MemoryRecords(wire(request)[0])
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_with_acks_0_a_batch_counts_as_sent_once_its_bytes_are_in_the_socket() -> None:
    c, (request,) = without_idempotence(acks="0")
    assert not c.acknowledgements.settled
    assert c.accumulator.pool.available_bytes < c.config.buffer_memory
    c.answer(request, None, None)
    assert c.acknowledgements.settled
    assert c.acknowledgements.failure is None
    assert c.acknowledgements.partitions() == (PartitionOffsets("t", 0, 1, None, None, 1, len(wire(request)[0])),)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_with_acks_0_a_request_that_did_not_get_out_is_sent_again() -> None:
    c, (request,) = without_idempotence(acks="0")
    before = wire(request)
    c.answer(request, None, "the connection was lost")
    assert c.acknowledgements.partitions() == ()
    c.run(advance_ms=150)
    (again,) = c.network.produce()
    assert wire(again) == before
    c.answer(again, None, None)
    assert c.acknowledgements.partitions()[0].record_count == 1


def test_with_acks_0_a_connection_that_is_gone_is_a_reason_to_ask_for_the_leader() -> None:
    """A broker that refuses such a batch can only hang up, when all that was sent has come back as sent."""
    c, (request,) = without_idempotence(acks="0")
    c.answer(request, None, None)
    c.run(advance_ms=1_000)
    assert metadata_requests(c) == 0
    c.network.is_down = lambda node_id: True  # type: ignore[method-assign]
    c.append(routed([b"b"], [0]))
    c.run()
    assert len(c.network.produce()) == 1  # connected again in no time
    c.run(advance_ms=150)
    assert metadata_requests(c) == 1


def test_with_acks_0_a_failed_write_gets_its_memory_back_when_the_bytes_are_out() -> None:
    c, (request,) = without_idempotence(acks="0")
    c.sender.fail(ProducerClosed(reason="test"))
    assert c.accumulator.pool.available_bytes < c.config.buffer_memory
    c.answer(request, None, None)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory
    assert c.acknowledgements.partitions() == ()


def test_without_idempotence_more_than_five_may_be_in_flight() -> None:
    _, sent = without_idempotence(9, max_in_flight_requests_per_connection=8)
    assert b"".join(map(first_bytes, sent)) == b"ABCDEFGH"


def test_without_idempotence_lost_batches_wait_in_the_order_in_which_they_were_made() -> None:
    c, sent = without_idempotence(7)
    assert len(sent) == 5
    for request in (sent[2], sent[0], sent[4], sent[1], sent[3]):
        c.answer(request, None, "the connection was lost")
    order = b""
    for _ in until_settled(c):
        c.run(advance_ms=2_000)
        for request in c.network.produce():
            order += first_bytes(request)
            c.answer_produce(request)
    assert order == b"ABCDEFG"
    assert c.acknowledgements.settled


def test_with_one_in_flight_a_partition_is_left_alone_until_its_batch_is_answered() -> None:
    c, sent = without_idempotence(3, max_in_flight_requests_per_connection=1)
    assert b"".join(map(first_bytes, sent)) == b"A"
    # Another leader takes requests, and must not get B while A may still be written by the first one.
    c.metadata.request_update()
    c.run(advance_ms=150)
    c.leaders = [1, 1]
    c.answer_metadata(leader_epoch=1)
    c.run(advance_ms=150)
    assert [request.node_id for request in c.network.produce()] == [0]
    c.answer(sent[0], None, "the connection was lost")
    order = b""
    for _ in range(3):
        c.run(advance_ms=2_000)
        (request,) = c.network.produce()
        assert request.node_id == 1
        order += first_bytes(request)
        c.answer_produce(request)
    assert order == b"ABC"


def test_a_write_that_ends_while_a_node_is_chosen_leaves_nothing_to_ask_for() -> None:
    c = make_core()
    c.metadata.request_update()
    choose = c.network.least_loaded_node

    def end_the_write(now_ms: int) -> int | None:
        c.metadata.want_nothing()
        return choose(now_ms)

    c.network.least_loaded_node = end_the_write  # type: ignore[method-assign]
    c.run(advance_ms=500)
    assert metadata_requests(c) == 0


def test_what_is_sent_again_split_and_failed_is_counted() -> None:
    c = warm(make_core(leaders=[0], batch_size=2_048, max_request_size=2_048))
    began = c.metrics.begin_task(c.now_ms)
    c.append(routed([bytes(100)] * 10, [0] * 10))
    c.flush()
    c.run(advance_ms=7)
    (first,) = c.network.produce()
    c.answer_produce(first, 7)
    c.run(advance_ms=1_000)
    (again,) = c.network.produce()
    c.answer_produce(again, 10)
    c.run()
    (half,) = c.network.produce()
    c.answer_produce(half, 87)
    figures = c.metrics.snapshot(c.now_ms).since(began)
    sent = sum(len(records) for request in (first, again, half) for records in wire(request))
    assert figures.producer["record-send-total"] == 10 + 10 + 5
    assert figures.topics["t"]["byte-total"] == sent
    assert figures.producer["record-retry-total"] == 10
    assert figures.producer["batch-split-total"] == 1
    assert figures.producer["record-error-total"] == figures.topics["t"]["record-error-total"] == 10
    assert figures.producer["records-per-request-avg"] == 25 / 3
    assert figures.producer["record-queue-time-max"] == 1_007
    assert figures.producer["compression-rate-avg"] == 1.0


def test_a_topic_that_was_forgotten_before_its_first_batch_is_asked_for_again() -> None:
    """A writer requests a topic, then pauses until the topic has expired, then opens its batch."""
    c = warm(make_core(leaders=[0]))
    c.run(advance_ms=600_000)
    c.answer(c.network.take(MetadataRequest), replace(metadata_response([0]), topics=()))
    assert c.metadata.snapshot.leader(TOPIC, 0) == -1
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run()
    c.run()
    c.answer_metadata()
    c.run()
    (request,) = c.network.produce()
    assert len(wire(request)) == 1


NEW_TOPIC_ID = uuid.UUID(int=99)


def append_to_the_topic_made_again(c: Core) -> None:
    """A write to the topic, which is known by now to have been made again since the last."""
    c.metadata.request_update()
    c.run(advance_ms=1_000)
    c.answer_metadata(topic_id=NEW_TOPIC_ID)
    c.append(routed_to(TopicPartition(TOPIC, 0), NEW_TOPIC_ID, b"a"))
    c.flush()
    c.run()


def test_sequences_that_an_earlier_topic_used_up_are_told_from_lost_ones() -> None:
    """A broker without topic ids wrote the transaction's first rows into the topic that was made again."""
    c = make_core(leaders=[0])
    c.sender.begin_transaction(Transaction("orders.0", producer_id=7000, producer_epoch=3, version=2))
    c.append(routed([b"w"], [0]))
    c.flush()
    c.run()
    c.answer_produce(c.network.produce()[0])
    c.acknowledgements = Acknowledgements()
    append_to_the_topic_made_again(c)
    (request,) = c.network.produce()
    c.answer_produce(request, 45)
    failure = c.acknowledgements.failure
    assert isinstance(failure, TopicRecreated)
    assert (failure.topic, failure.old_topic_id, failure.new_topic_id) == (TOPIC, str(TOPIC_ID), str(NEW_TOPIC_ID))


def test_a_topic_made_again_and_written_by_name_has_another_producer() -> None:
    """Its leader may have the numbers from 0 on: it would drop as many rows as were written under them."""
    c = warm(make_core(leaders=[0]))
    append_to_the_topic_made_again(c)
    assert c.network.produce() == []
    c.run()
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 0, 4_001, 0))
    c.run()
    (request,) = c.network.produce()
    (data,) = wire(request)
    batch = next(iter(MemoryRecords(data)))
    assert (batch.producer_id, batch.base_sequence) == (4_001, 0)
    c.answer_produce(request)
    assert c.acknowledgements.settled
    assert c.acknowledgements.failure is None


def test_another_producer_id_waits_for_what_is_unanswered_under_the_one_before() -> None:
    """Its batch is sent again under its own numbers until it has its answer."""
    c = warm(make_core(leaders=[0]))
    other_id = uuid.UUID(int=7)

    def answer_metadata(topic_id: uuid.UUID) -> None:
        response = metadata_response([0], topic_id=topic_id)
        other = replace(response.topics[0], name="other", topic_id=other_id)
        c.answer(c.network.take(MetadataRequest), replace(response, topics=(*response.topics, other)))

    def append_to_the_other() -> None:
        c.append(routed_to(TopicPartition("other", 0), other_id, b"o"))

    c.metadata.request_update()
    c.run(advance_ms=1_000)
    answer_metadata(TOPIC_ID)
    append_to_the_other()
    c.flush()
    c.run()
    (unanswered,) = c.network.produce()
    c.metadata.request_update()
    c.run(advance_ms=1_000)
    answer_metadata(NEW_TOPIC_ID)
    c.append(routed_to(TopicPartition(TOPIC, 0), NEW_TOPIC_ID, b"a"))
    for _ in range(3):
        c.run()
    assert c.network.produce() == [unanswered]
    assert not [sent for sent in c.network.sent if isinstance(sent.request, InitProducerIdRequest)]
    c.answer_produce(unanswered)
    c.run()
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 0, 4_001, 0))
    c.run()
    (request,) = c.network.produce()
    assert sequences(request) == [0]
    c.answer_produce(request)
    assert c.acknowledgements.settled
    assert c.acknowledgements.failure is None


def test_leaders_that_know_topic_ids_tell_a_topic_made_again_from_the_one_before() -> None:
    c = make_core(leaders=[0])
    (request,) = sending(c)
    c.answer(request, ProduceResponse(0, (ProduceResult(None, TOPIC_ID, 0, 0, None, 40, -1),)))
    append_to_the_topic_made_again(c)
    (request,) = c.network.produce()
    assert sequences(request) == [0]
    assert request.request.partitions[0].topic_id == NEW_TOPIC_ID

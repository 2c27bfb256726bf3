from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from kafka.record import MemoryRecords

from kafka_sink.errors import (
    DeliveryTimeout,
    ProducerClosed,
    ProduceRejected,
    ProducerIdRefused,
    TopicAuthorizationFailed,
    TopicRecreated,
)
from kafka_sink.producer.metadata import MetadataSnapshot
from kafka_sink.producer.producer_batch import ProducerBatch
from kafka_sink.producer.receipts import PartitionReceipt, Receipts
from kafka_sink.protocol.requests import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from producer_core import TOPIC, TOPIC_ID, Core, Sent, make_core, metadata_response, routed


def wire(sent: Sent) -> list[bytes]:
    return [bytes(partition.records) for partition in sent.request.partitions]


def sequences(sent: Sent) -> list[int]:
    return [next(iter(MemoryRecords(data))).base_sequence for data in wire(sent)]


def warm(core: Core) -> Core:
    """Partition 0 has one acknowledged record, sequence 0: its leader knows the producer."""
    core.append(routed([b"w"], [0]))
    core.flush()
    core.answer_producer_id()
    core.answer_produce(core.network.produce()[0])
    core.receipts = Receipts()
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
    assert c.receipts.settled
    assert c.receipts.failure is None
    sizes = [len(data) for data in wire(request)]
    assert c.receipts.partitions() == (
        PartitionReceipt("t", 0, 2, 40, 41, 1, sizes[0]),
        PartitionReceipt("t", 1, 1, 100, 100, 1, sizes[1]),
    )
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


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
    assert c.receipts.failure is None
    c.run()
    assert not any(isinstance(s.request, InitProducerIdRequest) for s in c.network.sent)
    c.run(advance_ms=200)
    c.answer(c.network.take(InitProducerIdRequest), None, "the connection was lost")
    c.run(advance_ms=400)
    c.answer(c.network.take(InitProducerIdRequest), InitProducerIdResponse(0, 31, -1, -1))
    assert isinstance(c.receipts.failure, ProducerIdRefused)


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
    assert c.receipts.partitions()[0].first_offset == 5
    assert c.receipts.settled


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
    assert c.receipts.settled


def test_a_new_leader_gets_the_retry() -> None:
    c = make_core(leaders=[0], retry_backoff_ms=1_000)
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
    assert c.receipts.settled
    assert c.receipts.failure is None

    c = make_core()
    (only,) = sending(c)
    c.answer_produce(only, 45)
    assert isinstance(c.receipts.failure, ProduceRejected)
    assert c.receipts.failure.code == 45


def test_a_batch_the_leader_had_before_counts_once_and_has_no_offset() -> None:
    c = make_core()
    (request,) = sending(c)
    c.answer_produce(request, 46)
    (receipt,) = c.receipts.partitions()
    assert (receipt.record_count, receipt.first_offset) == (1, None)
    assert c.receipts.settled


@pytest.mark.parametrize(
    ("code", "error"), [(10, ProduceRejected), (29, TopicAuthorizationFailed), (157, ProduceRejected)]
)
def test_a_final_error_fails_the_write_and_everything_behind_it(code: int, error: type) -> None:
    c = make_core(batch_size=1_024, max_request_size=1_024)
    sent = sending(c, batches=7)
    c.answer_produce(sent[0], code)
    assert isinstance(c.receipts.failure, error)
    assert c.receipts.pending_batches == 0
    # What is on the wire keeps its memory until its own request is answered.
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory - 4 * 1_024
    c.answer_produce(sent[1])
    for request in sent[2:]:
        c.answer(request, None, "closed")
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory
    assert c.receipts.partitions() == ()
    c.run(advance_ms=5_000)
    assert c.network.produce() == []


def test_the_delivery_deadline_holds_in_the_queue_and_on_the_wire() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    (request,) = sending(c)
    c.answer_produce(request, 19)
    c.run(advance_ms=1_000)
    (again,) = c.network.produce()
    c.run(advance_ms=39_000)
    failure = c.receipts.failure
    assert isinstance(failure, DeliveryTimeout)
    assert (failure.attempts, failure.records, failure.elapsed_ms) == (2, 1, 40_000)
    assert "NOT_ENOUGH_REPLICAS" in failure.last_error
    assert c.accumulator.pool.available_bytes < c.config.buffer_memory
    c.answer_produce(again)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory

    c = make_core(leaders=[-1], delivery_timeout_ms=40_000)
    c.network.last_error = "broker 1: Connection refused"
    c.append(routed([b"a"], [0]))
    c.flush()
    c.run(advance_ms=40_000)
    assert isinstance(c.receipts.failure, DeliveryTimeout)
    assert "Connection refused" in str(c.receipts.failure)
    assert c.accumulator.pool.available_bytes == c.config.buffer_memory


def test_retries_bound_the_attempts() -> None:
    c = make_core(retries=1)
    (request,) = sending(c)
    c.answer_produce(request, 19)
    c.run(advance_ms=200)
    c.answer_produce(c.network.take(ProduceRequest), 19)
    assert isinstance(c.receipts.failure, DeliveryTimeout)
    assert c.receipts.failure.attempts == 2


def test_a_topic_made_again_is_another_topic() -> None:
    c = make_core(retry_backoff_ms=1_000)
    (request,) = sending(c)
    assert request.request.partitions[0].topic_id == TOPIC_ID
    c.answer_produce(request, 100)
    c.run(advance_ms=150)
    c.answer_metadata(topic_id=uuid.UUID(int=8))
    assert isinstance(c.receipts.failure, TopicRecreated)
    c.run(advance_ms=1_000)
    assert c.network.produce() == []


def test_rows_routed_before_a_topic_was_made_again_are_not_sent_to_the_new_one() -> None:
    c = make_core()
    c.sender._metadata.request_update()
    c.run(advance_ms=150)
    c.answer_metadata(topic_id=uuid.UUID(int=8))
    c.append(routed([b"a"], [0]))
    c.flush()
    c.answer_producer_id()
    assert c.network.produce() == []
    assert isinstance(c.receipts.failure, TopicRecreated)
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
    assert c.receipts.partitions()[0].first_offset == 77


def test_a_failed_batch_answered_late_changes_no_receipt() -> None:
    c = make_core()
    (request,) = sending(c)
    c.sender.fail(ProducerClosed(reason="test"))
    c.answer_produce(request)
    assert c.receipts.partitions() == ()
    assert c.receipts.pending_batches == 0


def test_results_are_matched_by_partition_and_not_by_place() -> None:
    c = make_core()
    c.append(routed([b"a", b"b"], [0, 1]))
    c.flush()
    c.answer_producer_id()
    (request,) = c.network.produce()
    results = tuple(ProduceResult("t", TOPIC_ID, partition, 0, None, 10 * partition, -1) for partition in (1, 0))
    c.answer(request, ProduceResponse(0, results))
    assert [receipt.first_offset for receipt in c.receipts.partitions()] == [0, 10]


def test_the_delivery_deadline_counts_from_the_first_row_and_not_from_the_last_attempt() -> None:
    c = make_core(delivery_timeout_ms=40_000)
    sending(c)
    for _ in range(13):
        c.answer_produce(c.network.take(ProduceRequest), 19)
        c.run(advance_ms=3_000)
    assert c.receipts.failure is None
    c.run(advance_ms=1_000)
    assert isinstance(c.receipts.failure, DeliveryTimeout)
    assert c.receipts.failure.elapsed_ms == 40_000


def metadata_requests(c: Core) -> int:
    return sum(isinstance(s.request, MetadataRequest) for s in c.network.sent)


def test_a_leader_that_cannot_be_reached_is_asked_about() -> None:
    c = make_core(leaders=[1])
    c.append(routed([b"a"], [0]))
    c.flush()
    c.answer_producer_id()
    c.answer_produce(c.network.produce()[0])
    c.network.down = {1}
    c.append(routed([b"b"], [0]))
    for _ in range(3):
        c.run(advance_ms=200)
    assert metadata_requests(c) == 1
    c.leaders = [2]
    c.answer_metadata(leader_epoch=1)
    c.run(advance_ms=1)
    assert c.network.produce()[0].node_id == 2


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


def test_a_defect_between_drain_and_send_fails_the_drained_rows_and_gives_their_memory_back() -> None:
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
        assert c.receipts.pending_batches == 0
        assert isinstance(c.receipts.failure, ProducerClosed)
        assert c.accumulator.pool.available_bytes == c.config.buffer_memory


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

"""The relay's decisions, with a network that a test scripts."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

import pytest

from kafka_sink.errors import AuthenticationFailed, ClusterChanged, ClusterError, WorkerExhausted
from kafka_sink.kafka.net.relay_wire import INLINE, Buffer, Kind, Message, Reader, encode
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.frames import Frame, FrameAnswer
from kafka_sink.kafka.protocol.requests import Request, encode_request
from kafka_sink.relay.forwarder import CONNECTIONS, Forwarder

REFUSED = AuthenticationFailed(broker="b", mechanism="PLAIN", user="u", reason="no", remedy="")


@dataclass
class ScriptedNetwork:
    """Node -> number of its open connection, in `open`. `sent`: node and token of each request."""

    last_error: str = ""
    failure: ClusterError | WorkerExhausted | None = None
    open: dict[int, int] = field(default_factory=dict)
    connecting: set[int] = field(default_factory=set)
    backing_off: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    brokers: list[Broker] = field(default_factory=list)
    sent: list[tuple[int, Frame, object, bool]] = field(default_factory=list)
    throttled: list[tuple[int, int]] = field(default_factory=list)

    def learn(self, broker: Broker) -> None:
        self.brokers.append(broker)

    def ready(self, node_id: int, now_ms: int) -> bool:
        if node_id in self.unreachable:
            self.backing_off.add(node_id)
        elif node_id not in self.open:
            self.connecting.add(node_id)
        return node_id in self.open

    def can_send(self, node_id: int, now_ms: int) -> bool:
        return node_id in self.open and node_id not in self.busy

    def is_down(self, node_id: int) -> bool:
        return node_id not in self.open and node_id not in self.connecting

    def delay_ms(self, node_id: int, now_ms: int) -> int | None:
        return (50 if node_id in self.backing_off else 0) if self.is_down(node_id) else None

    def connection_key(self, node_id: int) -> int | None:
        return self.open.get(node_id)

    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None:
        assert self.can_send(node_id, now_ms) and isinstance(request, Frame)
        self.sent.append((node_id, request, token, expect_response))

    def throttle(self, node_id: int, milliseconds: int, now_ms: int) -> None:
        self.throttled.append((node_id, milliseconds))

    # What happens to it.

    def opened(self, node_id: int, key: int) -> None:
        self.connecting.discard(node_id)
        self.open[node_id] = key

    def failed(self, node_id: int, reason: str) -> None:
        self.connecting.discard(node_id)
        self.open.pop(node_id, None)
        self.backing_off.add(node_id)
        self.last_error = reason


class ScriptedWorker:
    def __init__(self, memory: bytes = b"") -> None:
        self.memory = memoryview(memory)
        self._reader = Reader()
        self.told: list[Message] = []

    def tell(self, message: list[Buffer]) -> None:
        self.told += self._reader.feed(b"".join(message))

    def take(self) -> list[tuple[Kind, int]]:
        told, self.told = self.told, []
        return [(each.kind, each.key) for each in told]


class House:
    def __init__(self) -> None:
        self.network = ScriptedNetwork()
        self.kept: list[tuple[int, memoryview]] = []
        self.forwarder = Forwarder(self.network, lambda key, memory: self.kept.append((key, memory)))

    def say(self, worker: ScriptedWorker, kind: Kind, key: int, body: bytes = b"", **more: object) -> None:
        (message,) = Reader().feed(b"".join(encode(kind, key, [body], **more)))  # type: ignore[arg-type]
        self.forwarder.on_message(worker, message, 0)

    def open(self, worker: ScriptedWorker, key: int, port: int = 9092) -> None:
        self.say(worker, Kind.OPEN, key, pickle.dumps(("b", port)))
        self.forwarder.look(0)

    def opened(self, worker: ScriptedWorker, key: int, node_id: int = 0) -> None:
        """A stream that is open, over connection 7 of the node."""
        self.open(worker, key)
        self.network.opened(node_id, 7)
        self.forwarder.look(0)
        assert worker.take()[-1] == (Kind.OPENED, key)

    def send(self, worker: ScriptedWorker, key: int, **more: object) -> None:
        frame = request(1)
        self.say(worker, Kind.SEND, key, frame, segments=[(INLINE, len(frame))], **more)

    def answer(self, index: int = 0, error: str | None = None) -> None:
        node_id, frame, token, expects = self.network.sent[index]
        response = FrameAnswer(b"\x00\x00\x00\x63answer") if expects and error is None else None
        self.forwarder.on_answers([ClientResponse(node_id, frame, token, response, error, 0)])


def request(correlation_id: int) -> bytes:
    metadata = MetadataRequest((), allow_auto_topic_creation=False)
    return b"".join(encode_request(metadata, version=12, correlation_id=correlation_id, client_id="w"))


@pytest.fixture
def house() -> House:
    return House()


# --- streams open and end with connections ----------------------------------------------------------------------------


def test_a_stream_opens_with_its_connection(house: House) -> None:
    worker = ScriptedWorker()
    house.open(worker, 5)
    assert house.network.brokers == [Broker(0, "b", 9092)] and house.network.connecting == {0}
    assert worker.take() == []
    house.network.opened(0, 7)
    house.forwarder.look(0)
    house.forwarder.look(0)
    assert worker.take() == [(Kind.OPENED, 5)]


def test_an_open_connection_is_shared_at_once(house: House) -> None:
    workers = [ScriptedWorker() for _ in range(10)]
    for worker in workers:
        house.open(worker, 1)
    for node_id in list(house.network.connecting):
        house.network.opened(node_id, node_id)
    house.forwarder.look(0)
    assert all(worker.take() == [(Kind.OPENED, 1)] for worker in workers)
    assert len(house.network.open) == CONNECTIONS


def test_a_worker_alone_has_one_connection_to_a_broker(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.say(worker, Kind.CLOSE, 1)
    house.open(worker, 2)
    assert worker.take() == [(Kind.CLOSED, 1), (Kind.OPENED, 2)]
    assert len(house.network.brokers) == 1


def test_brokers_have_connections_of_their_own(house: House) -> None:
    worker = ScriptedWorker()
    house.open(worker, 1, port=1)
    house.open(worker, 2, port=2)
    assert [broker.port for broker in house.network.brokers] == [1, 2]
    assert len({broker.node_id for broker in house.network.brokers}) == 2


def test_a_stream_ends_with_its_connection_even_if_another_has_opened_since(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.network.last_error = "hung up"
    house.network.open[0] = 8
    house.forwarder.look(0)
    (closed,) = worker.told
    assert (closed.kind, closed.key, pickle.loads(closed.body)) == (Kind.CLOSED, 1, ("hung up", None))


def test_an_attempt_that_fails_ends_the_streams_that_wait_for_it(house: House) -> None:
    worker = ScriptedWorker()
    house.open(worker, 1)
    house.forwarder.look(0)
    house.network.failed(0, "refused")
    house.forwarder.look(0)
    assert worker.take() == [(Kind.CLOSED, 1)]


def test_an_attempt_that_fails_at_once_ends_them_too(house: House) -> None:
    worker = ScriptedWorker()
    house.network.unreachable.add(0)
    house.open(worker, 1)
    assert worker.take() == [(Kind.CLOSED, 1)]


def test_a_stream_that_comes_during_a_backoff_waits_for_the_next_attempt(house: House) -> None:
    worker = ScriptedWorker()
    house.open(worker, 1)
    house.network.failed(0, "refused")
    house.forwarder.look(0)
    house.open(worker, 2)
    assert worker.take() == [(Kind.CLOSED, 1)]
    house.network.backing_off.clear()
    house.forwarder.look(50)
    house.network.opened(0, 8)
    house.forwarder.look(51)
    assert worker.take() == [(Kind.OPENED, 2)]


def test_all_streams_end_with_an_error_that_no_retry_fixes(house: House) -> None:
    first, second = ScriptedWorker(), ScriptedWorker()
    house.opened(first, 1)
    house.open(second, 1, port=2)
    house.network.failure = REFUSED
    house.forwarder.give_up()
    for worker in (first, second):
        failure = pickle.loads(worker.told[-1].body)[1]
        assert type(failure) is AuthenticationFailed and str(failure) == str(REFUSED)


def test_a_relay_does_not_judge_which_cluster_a_worker_belongs_to(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.network.failure = ClusterChanged(broker="b", expected="one", found="another")
    house.forwarder.give_up()
    assert pickle.loads(worker.told[-1].body)[1] is None


# --- requests ---------------------------------------------------------------------------------------------------------


def test_an_answer_goes_to_the_worker_that_asked(house: House) -> None:
    first, second = ScriptedWorker(), ScriptedWorker()
    house.opened(first, 1)
    house.say(second, Kind.OPEN, 1, pickle.dumps(("b", 9092)))
    house.forwarder.look(0)
    house.network.opened(1, 8)
    house.forwarder.look(0)
    second.take()
    house.send(second, 1)
    house.answer()
    assert first.take() == []
    (message,) = second.told
    assert message.kind is Kind.RECEIVED and bytes(message.body) == b"\x00\x00\x00\x0a\x00\x00\x00\x01answer"


def test_a_request_without_an_answer_is_told_when_it_is_written(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.send(worker, 1, flag=True)
    assert house.network.sent[0][3] is False
    house.answer()
    assert worker.take() == [(Kind.SENT, 1)]


def test_requests_keep_their_order_while_the_connection_takes_none(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.network.busy.add(0)
    for correlation_id in (1, 2, 3):
        frame = request(correlation_id)
        house.say(worker, Kind.SEND, 1, frame, segments=[(INLINE, len(frame))])
    assert house.network.sent == []
    house.network.busy.clear()
    house.forwarder.look(0)
    assert [frame.buffers[0][8:12] for _, frame, _, _ in house.network.sent] == [
        bytes([0, 0, 0, correlation_id]) for correlation_id in (1, 2, 3)
    ]


def test_rows_are_read_where_the_worker_has_them(house: House) -> None:
    rows = b"0123456789"
    worker = ScriptedWorker(rows)
    house.opened(worker, 1)
    head = (10 + 4).to_bytes(4, "big") + bytes(10)
    house.say(worker, Kind.SEND, 1, head, segments=[(INLINE, 14), (3, 4)])
    (_, frame, _, _) = house.network.sent[0]
    assert bytes(frame.buffers[1]) == b"3456"
    assert frame.buffers[1].obj is worker.memory.obj  # type: ignore[union-attr]


@pytest.mark.parametrize("segment", [(0, 11), (8, 3), (-2, 1), (2**40, 1)])
def test_a_place_outside_of_the_memory_is_refused(house: House, segment: tuple[int, int]) -> None:
    worker = ScriptedWorker(b"0123456789")
    house.opened(worker, 1)
    with pytest.raises(ValueError, match="segment"):
        house.say(worker, Kind.SEND, 1, bytes(14), segments=[(INLINE, 14), segment])
    assert house.network.sent == []


def test_bytes_that_are_no_request_are_refused(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    with pytest.raises(ValueError, match="request"):
        house.say(worker, Kind.SEND, 1, b"short", segments=[(INLINE, 5)])


def test_an_answer_for_a_stream_that_ended_goes_nowhere(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.send(worker, 1)
    house.say(worker, Kind.CLOSE, 1)
    house.open(worker, 2)
    worker.take()
    house.answer()
    assert worker.take() == []


def test_an_error_of_a_request_is_told_by_the_end_of_its_stream(house: House) -> None:
    worker = ScriptedWorker()
    house.opened(worker, 1)
    house.send(worker, 1)
    house.network.failed(0, "reset")
    house.answer(error="reset")
    house.forwarder.look(0)
    assert worker.take() == [(Kind.CLOSED, 1)]


# --- whose memory is read ---------------------------------------------------------------------------------------------


def test_when_a_stream_ends_its_worker_may_write_to_the_memory(house: House) -> None:
    worker = ScriptedWorker(b"rows")
    house.opened(worker, 1)
    house.send(worker, 1)
    house.say(worker, Kind.CLOSE, 1)
    assert house.kept == [(7, worker.memory)]
    assert worker.take() == [(Kind.CLOSED, 1)]


def test_a_worker_that_is_gone_is_forgotten_and_its_requests_are_written_to_the_end(house: House) -> None:
    worker = ScriptedWorker(b"rows")
    house.opened(worker, 1)
    house.send(worker, 1)
    house.forwarder.gone(worker)
    assert house.kept == [(7, worker.memory)]
    house.answer()
    house.network.failed(0, "reset")
    house.forwarder.look(0)
    assert worker.take() == []


def test_requests_that_were_not_handed_to_the_network_are_not_sent_after_the_end(house: House) -> None:
    worker = ScriptedWorker(b"rows")
    house.opened(worker, 1)
    house.network.busy.add(0)
    house.send(worker, 1)
    house.say(worker, Kind.CLOSE, 1)
    house.network.busy.clear()
    house.forwarder.look(0)
    assert house.network.sent == []


def test_the_end_of_an_unknown_stream_is_confirmed(house: House) -> None:
    worker = ScriptedWorker()
    house.say(worker, Kind.CLOSE, 9)
    assert worker.take() == [(Kind.CLOSED, 9)]


# --- throttling -------------------------------------------------------------------------------------------------------


def test_a_throttle_is_told_to_the_others_on_the_connection(house: House) -> None:
    workers = [ScriptedWorker() for _ in range(2 * CONNECTIONS)]
    for worker in workers:
        house.open(worker, 1)
    for node_id in range(CONNECTIONS):
        house.network.opened(node_id, node_id)
    house.forwarder.look(0)
    for worker in workers:
        worker.take()
    house.say(workers[0], Kind.THROTTLED, 1, (1_500).to_bytes(4, "big"))
    told = [worker for worker in workers if worker.told]
    assert len(told) == 1 and told != [workers[0]]
    (message,) = told[0].told
    assert (message.kind, int.from_bytes(message.body, "big")) == (Kind.THROTTLED, 1_500)
    # So a request that the broker does not read is not late.
    assert [milliseconds for _, milliseconds in house.network.throttled] == [1_500]


def test_what_only_a_relay_says_is_refused(house: House) -> None:
    with pytest.raises(ValueError, match="OPENED"):
        house.say(ScriptedWorker(), Kind.OPENED, 1)

"""The worker's side of the relay, over a socket whose other end is the test."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator

import pytest

from kafka_sink.errors import AuthenticationFailed
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net import relay_transport
from kafka_sink.kafka.net.relay_transport import RelayTransport
from kafka_sink.kafka.net.relay_wire import INLINE, Kind, Message, Reader, encode
from kafka_sink.kafka.net.shared_memory import RelayedMemory, is_possible
from kafka_sink.kafka.net.transport import Address, Connected, Disconnected, Event, Received, Sent, Throttled

pytestmark = pytest.mark.skipif(not is_possible(), reason="memfd is Linux's")

BROKER = Address(socket.AF_INET, ("10.0.0.1", 9092), "kafka-1")
CLOSED = pickle.dumps(("hung up", None))


class Relays:
    """What `find_relay` finds: each call is another relay, unless it is to fail."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.error: OSError | None = None

    def __call__(self, memory: RelayedMemory) -> socket.socket:
        if self.error is not None:
            raise self.error
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(5)
        self.ends.append(theirs)
        return ours

    def say(self, kind: Kind, key: int, body: bytes = b"") -> None:
        self.ends[-1].sendall(b"".join(encode(kind, key, [body])))

    def hear(self, count: int) -> list[Message]:
        reader, heard = Reader(), []
        while len(heard) < count:
            heard += reader.feed(self.ends[-1].recv(100_000))
        return heard


@pytest.fixture
def relays() -> Iterator[Relays]:
    relays = Relays()
    yield relays
    for end in relays.ends:
        end.close()


@pytest.fixture
def memory() -> Iterator[RelayedMemory]:
    memory = RelayedMemory(1024 * 1024)
    yield memory
    memory.close()


@pytest.fixture
def transport(relays: Relays, memory: RelayedMemory, monkeypatch: pytest.MonkeyPatch) -> Iterator[RelayTransport]:
    monkeypatch.setattr(relay_transport, "CONFIRM_S", 0.05)
    transport = RelayTransport(relays, memory, Metrics())
    yield transport
    transport.close_all()


def polled(transport: RelayTransport, count: int = 1) -> list[Event]:
    events: list[Event] = []
    for _ in range(100):
        events += transport.poll(50)
        if len(events) >= count:
            return events
    raise AssertionError(f"only {events}")


def opened(transport: RelayTransport, relays: Relays, key: int = 0) -> None:
    transport.connect(key, BROKER)
    transport.poll(0)
    (message,) = relays.hear(1)
    assert (message.kind, message.key, pickle.loads(message.body)) == (Kind.OPEN, key, ("kafka-1", 9092))
    relays.say(Kind.OPENED, key)
    assert polled(transport) == [Connected(key)]


def test_a_connection_is_there_when_the_relay_has_it(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays)
    assert transport.poll(0) == []


def test_rows_go_by_reference_and_the_rest_inline(
    transport: RelayTransport, relays: Relays, memory: RelayedMemory
) -> None:
    opened(transport, relays)
    rows, other = memory.shared.array.data[100:150], memoryview(b"other memory")
    transport.send(0, [b"head", rows, other, rows[:0]])
    transport.poll(0)
    (message,) = relays.hear(1)
    assert message.segments == ((INLINE, 4), (100, 50), (INLINE, 12), (INLINE, 0))
    assert bytes(message.body) == b"headother memory" and message.flag


def test_rows_of_memory_that_was_replaced_go_inline(
    transport: RelayTransport, relays: Relays, memory: RelayedMemory
) -> None:
    opened(transport, relays)
    rows = memory.shared.array.data[:3]
    rows[:] = b"row"
    memory.is_tainted = True
    memory.fresh()
    transport.send(0, [rows, memory.shared.array.data[:2]])
    transport.poll(0)
    (message,) = relays.hear(1)
    assert message.segments == ((INLINE, 3), (INLINE, 2))
    assert bytes(message.body) == b"row\0\0"


def test_a_request_with_an_answer_counts_as_sent_and_does_not_end_a_poll(
    transport: RelayTransport, relays: Relays
) -> None:
    opened(transport, relays)
    transport.send(0, [b"request"], tell_at_once=False)
    assert transport.poll(0) == [Sent(0)]
    relays.say(Kind.RECEIVED, 0, b"answer")
    assert polled(transport) == [Received(0, b"answer")]


def test_a_request_without_an_answer_is_sent_when_the_relay_says_so(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays)
    transport.send(0, [b"request"])
    assert transport.poll(0) == []
    relays.say(Kind.SENT, 0)
    assert polled(transport) == [Sent(0)]


def test_throttles_are_told_both_ways(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays)
    relays.say(Kind.THROTTLED, 0, (700).to_bytes(4, "big"))
    assert polled(transport) == [Throttled(0, 700)]
    transport.throttled(0, 900)
    transport.throttled(3, 900)
    transport.poll(0)
    (message,) = relays.hear(1)
    assert (message.kind, message.key, int.from_bytes(message.body, "big")) == (Kind.THROTTLED, 0, 900)


def test_the_relays_reason_and_failure_end_a_connection(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays)
    refused = AuthenticationFailed(broker="b", mechanism="PLAIN", user="u", reason="no", remedy="")
    relays.say(Kind.CLOSED, 0, pickle.dumps(("said no", refused)))
    (event,) = polled(transport)
    assert isinstance(event, Disconnected) and event.reason == "said no"
    assert str(event.failure) == str(refused)


def test_no_relay_is_a_connection_that_failed(transport: RelayTransport, relays: Relays) -> None:
    relays.error = ConnectionRefusedError("gone")
    transport.connect(0, BROKER)
    (event,) = polled(transport)
    assert isinstance(event, Disconnected) and "gone" in event.reason


# --- when the memory may be written again -----------------------------------------------------------------------------


def test_a_close_waits_for_the_relays_word(transport: RelayTransport, relays: Relays, memory: RelayedMemory) -> None:
    opened(transport, relays)
    relays.say(Kind.RECEIVED, 0, b"late")
    relays.say(Kind.CLOSED, 0, CLOSED)
    transport.close(0)
    (message,) = relays.hear(1)
    assert (message.kind, message.key) == (Kind.CLOSE, 0)
    assert not memory.is_tainted
    assert transport.poll(0) == []  # no event of it follows


def test_events_of_others_that_come_meanwhile_are_not_lost(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays, 0)
    opened(transport, relays, 1)
    relays.say(Kind.RECEIVED, 1, b"answer")
    relays.say(Kind.CLOSED, 0, CLOSED)
    transport.close(0)
    assert polled(transport) == [Received(1, b"answer")]


def test_a_relay_that_is_silent_taints_the_memory_and_ends_all(
    transport: RelayTransport, relays: Relays, memory: RelayedMemory
) -> None:
    opened(transport, relays, 0)
    opened(transport, relays, 1)
    transport.close(0)
    assert memory.is_tainted
    (event,) = polled(transport)
    assert isinstance(event, Disconnected) and event.key == 1 and "silent" in event.reason


def test_a_relay_that_has_ended_reads_nothing_any_more(
    transport: RelayTransport, relays: Relays, memory: RelayedMemory
) -> None:
    opened(transport, relays, 0)
    opened(transport, relays, 1)
    relays.ends[-1].close()
    events = polled(transport, 2)
    assert [event.key for event in events] == [0, 1] and all(isinstance(event, Disconnected) for event in events)
    assert not memory.is_tainted
    transport.send(0, [b"nobody hears it"])
    transport.close(0)
    assert transport.poll(0) == []


def test_a_relay_that_ends_during_a_close_needs_no_confirmation(
    transport: RelayTransport, relays: Relays, memory: RelayedMemory
) -> None:
    opened(transport, relays, 0)
    opened(transport, relays, 1)
    relays.ends[-1].close()
    transport.close(0)
    (event,) = polled(transport)
    assert isinstance(event, Disconnected) and event.key == 1
    assert not memory.is_tainted


def test_another_relay_takes_over(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays, 0)
    relays.ends[-1].close()
    polled(transport)
    opened(transport, relays, 1)
    assert len(relays.ends) == 2


def test_a_wakeup_ends_a_poll(transport: RelayTransport, relays: Relays) -> None:
    opened(transport, relays)
    transport.wakeup()
    assert transport.poll(60_000) == []

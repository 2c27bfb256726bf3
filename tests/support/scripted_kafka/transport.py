"""The seam of `Transport`: connections that do what a test says, and the bytes that were sent on them."""

from collections.abc import Sequence

from kafka_sink.kafka.net.transport import Address, Buffer, Disconnected, Event


class ScriptedTransport:
    """A poll without events moves `now_ms` by its whole timeout."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.connects: list[tuple[int, Address]] = []
        self.open: set[int] = set()
        self.outbox: dict[int, list[bytes]] = {}
        self.events: list[Event] = []
        self.told_at_once: list[bool] = []
        self.waited_ms: list[int] = []
        self.woken = 0
        self.ended = False

    def clock_ms(self) -> int:
        return self.now_ms

    def connect(self, key: int, address: Address) -> None:
        self.connects.append((key, address))
        self.open.add(key)
        self.outbox[key] = []

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        self.outbox[key].append(b"".join(buffers))
        self.told_at_once.append(tell_at_once)

    def poll(self, timeout_ms: int) -> list[Event]:
        assert timeout_ms >= 0
        self.waited_ms.append(timeout_ms)
        events, self.events = self.events, []
        if not events:
            self.now_ms += timeout_ms
        self.open -= {event.key for event in events if isinstance(event, Disconnected)}
        return events

    def close(self, key: int) -> None:
        self.open.discard(key)

    def wakeup(self) -> None:
        self.woken += 1

    def close_all(self) -> None:
        self.ended = True

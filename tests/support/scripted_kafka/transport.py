"""The seam of `Transport`: connections that do what a test says, and the bytes that were sent on them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafka_sink.kafka.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent
from scripted_kafka.byte_script import ByteScript


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


class AnsweringTransport(ScriptedTransport):
    """Connects at once to brokers that answer at once, but for requests of the API `held`: until `answer_held`."""

    def __init__(self, script: ByteScript, held: int) -> None:
        super().__init__()
        self._script, self._held = script, held
        self.held: list[tuple[int, bytes]] = []

    def connect(self, key: int, address: Address) -> None:
        super().connect(key, address)
        self.events.append(Connected(key))

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        super().send(key, buffers, tell_at_once=tell_at_once)
        frame = self.outbox[key][-1][4:]
        self.events.append(Sent(key))
        if int.from_bytes(frame[:2], "big") == self._held:
            self.held.append((key, frame))
        else:
            self._answer(key, frame)

    def answer_held(self) -> None:
        held, self.held = self.held, []
        for key, frame in held:
            self._answer(key, frame)

    def _answer(self, key: int, frame: bytes) -> None:
        answer = self._script.answer(frame)
        if answer is None:
            self.events.append(Disconnected(key, "hung up"))
        else:
            self.events.append(Received(key, struct.pack(">i", len(answer)) + answer))

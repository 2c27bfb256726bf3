"""A TCP proxy before each broker, that does to messages what a schedule says.

A message is a request or an answer of Kafka's protocol, with its length in front. A seed chooses what a bad network
does to it, separately for each direction of each connection, so that none's traffic changes another's fates.

Brokers must tell clients the proxies' ports: LocalKafka's `advertised`. The proxies run on a thread of their own;
what they do may be changed at any time, and holds from each connection's next message on.
"""

import asyncio
import contextlib
import enum
import itertools
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

LONGEST_DELAY_S = 0.5
HOST = "127.0.0.1"
DEADLINE_S = 30
LENGTH_BYTES = 4
# On, and no seconds to wait (struct linger): closing sends RST instead of FIN.
RESET = struct.pack("ii", 1, 0)

Address = tuple[str, int]


class Direction(enum.StrEnum):
    REQUEST = "request"
    ANSWER = "answer"


class Kind(enum.StrEnum):
    DELAYED = "delayed"
    """It, and with it all that comes after it on the connection, arrives later."""
    CUT = "cut off"
    """The connection is reset in its place. An answer's request was carried out."""
    HALF = "half sent"
    """Some of its bytes arrive, then the connection is reset."""
    SWALLOWED = "swallowed"
    """Neither it nor what comes after it arrives, and nobody is told: the connection stays open."""


@dataclass(frozen=True, slots=True)
class Fate:
    """`part`: of the time or of the bytes, in [0, 1)."""

    kind: Kind | None
    part: float = 0.0

    @property
    def delay_s(self) -> float:
        return LONGEST_DELAY_S * self.part

    def first_bytes(self, message: bytes) -> bytes:
        """What arrives of a message that is half sent: at least a byte, never all."""
        return message[: 1 + int(self.part * (len(message) - 1))]


UNHARMED = Fate(None)


@dataclass(frozen=True, slots=True)
class Schedule:
    """`per_thousand`: of the messages in a direction, how many meet what."""

    seed: int = 0
    per_thousand: Mapping[tuple[Direction, Kind], int] = field(default_factory=dict)

    def fates(self, connection: str, direction: Direction) -> Iterator[Fate]:
        """Of the messages of a connection in that direction, in their order; without end."""
        rng = random.Random(f"{self.seed} {connection} {direction}")
        kinds = [
            kind for (towards, kind), share in self.per_thousand.items() if towards is direction for _ in range(share)
        ]
        while True:
            drawn, part = rng.randrange(1000), rng.random()
            yield Fate(kinds[drawn], part) if drawn < len(kinds) else UNHARMED


HARMLESS = Schedule()


class Proxies:
    """One for each of `nodes`, from `with` on; a connection goes to what `address_of` says of the node at that time.

    `happened` counts what was done to messages, as "<direction> <kind>"."""

    def __init__(self, nodes: Iterable[int], address_of: Callable[[int], Address]) -> None:
        self._nodes = tuple(nodes)
        self._address_of = address_of
        self._schedule = HARMLESS
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self.ports: dict[int, int] = {}
        self.happened: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @contextlib.contextmanager
    def harm(self, schedule: Schedule) -> Iterator[None]:
        """Does what the schedule says, to connections that are there and to new ones. What was silenced stays so."""
        self._schedule = schedule
        try:
            yield
        finally:
            self._schedule = HARMLESS

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    async def _listen(self) -> None:
        for node in self._nodes:
            server = await asyncio.start_server(partial(self._serve, node), HOST, 0)
            self._servers.append(server)
            self.ports[node] = server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, node: int, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        name = f"{node} {next(self._numbers)}"
        try:
            with contextlib.closing(to_client):
                broker, to_broker = await asyncio.open_connection(*self._address_of(node))
                with contextlib.closing(to_broker):
                    both = [
                        asyncio.create_task(self._pass_on(name, Direction.REQUEST, client, to_broker)),
                        asyncio.create_task(self._pass_on(name, Direction.ANSWER, broker, to_client)),
                    ]
                    try:
                        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                        if any(each.result() for each in done):
                            reset(to_client)
                            reset(to_broker)
                    finally:
                        for each in both:
                            each.cancel()
        except OSError:  # the broker is down, or one of them has reset the connection
            pass
        finally:
            self._connections.discard(task)

    async def _pass_on(
        self, connection: str, direction: Direction, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> bool:
        """Until the connection ends: whether it is to be reset."""
        target.transport.set_write_buffer_limits(0)  # what was drained was sent
        schedule, fates, silent = HARMLESS, HARMLESS.fates(connection, direction), False
        while True:
            try:
                message = await read_message(source)
            except asyncio.IncompleteReadError:
                return False
            if schedule is not self._schedule:
                schedule = self._schedule
                fates = schedule.fates(connection, direction)
            fate = next(fates)
            if silent:
                continue
            if fate.kind is not None:
                self.happened[f"{direction} {fate.kind}"] += 1
            silent = fate.kind is Kind.SWALLOWED
            await send(message, fate, target)
            if fate.kind in (Kind.CUT, Kind.HALF):
                return True


async def read_message(source: asyncio.StreamReader) -> bytes:
    """With its length in front. Raises IncompleteReadError at the end of the connection."""
    length = await source.readexactly(LENGTH_BYTES)
    return length + await source.readexactly(int.from_bytes(length))


async def send(message: bytes, fate: Fate, target: asyncio.StreamWriter) -> None:
    """What arrives of it."""
    if fate.kind is Kind.DELAYED:
        # The time is what is done to it.
        await asyncio.sleep(fate.delay_s)
    if fate.kind in (None, Kind.DELAYED):
        target.write(message)
    elif fate.kind is Kind.HALF:
        target.write(fate.first_bytes(message))
    await target.drain()


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

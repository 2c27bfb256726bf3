"""What sends the requests of an admin client and takes their answers: a thread that drives a network.

    OwnConnections   the thread that asks, over connections of its own
    Guest            a producer's Sender thread, over the producer's connections

Source: Kafka's KafkaAdminClient (AdminClientRunnable).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_sink.errors import KafkaSinkError, ProducerClosed
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.connections import connect
from kafka_sink.kafka.network import LONGEST_POLL_MS, AdminNetwork, NetworkOver
from kafka_sink.kafka.protocol.api import ClientResponse, Request
from kafka_sink.kafka.waits import Contact

# More than a producer may have: these requests are independent, and a broker answers them in order.
IN_FLIGHT = 100


@dataclass(frozen=True, slots=True)
class Work:
    """Requests that belong together. Only the thread that drives the network calls these functions, and none waits.

    `run_once`: hand the network everything that is due now (ms), and return the longest time (ms) that a poll may wait.
    `handle`: process an answer to a request of this work, or of earlier work of the same client, at this time.
    `is_done`: whether nothing is left to wait for at this time.
    """

    run_once: Callable[[int], int]
    handle: Callable[[ClientResponse, int], None]
    is_done: Callable[[int], bool]


class Driver(Protocol):
    """`network`: what work sends its requests to."""

    @property
    def network(self) -> AdminNetwork: ...

    def now_ms(self) -> int:
        """Return the monotonic time that work is given."""

    def drive(self, work: Work, left_ms: Callable[[], int]) -> None:
        """Return when `work` is done, or when `left_ms` returns 0 or less. Raises the error that ended the network."""

    def collect(self) -> list[ClientResponse]:
        """Return the answers that have come since the last work. Empty if later work gets them."""

    def close(self) -> None:
        """Close the connections, if they are the client's own."""


class OwnConnections:
    """A `Driver`. Connects with the first request. Between two calls of `drive` no thread polls."""

    def __init__(self, config: ClientConfig, cluster_id: str | None, rng: random.Random) -> None:
        """`cluster_id`: the only cluster to connect to; None for any cluster."""
        self.network = connect(config, rng=rng, cluster_id=cluster_id, max_in_flight=IN_FLIGHT)

    def now_ms(self) -> int:
        return monotonic_ms()

    def drive(self, work: Work, left_ms: Callable[[], int]) -> None:
        while not work.is_done(self.now_ms()) and left_ms() > 0:
            wait_ms = work.run_once(self.now_ms())
            for answer in self.network.poll(max(0, min(wait_ms, left_ms()))):
                work.handle(answer, self.now_ms())
            if self.network.failure is not None:
                raise self.network.failure

    def collect(self) -> list[ClientResponse]:
        return self.network.poll(0)

    def close(self) -> None:
        self.network.close()


# --- over the connections of a producer -------------------------------------------------------------------------------


class SharedNetwork(AdminNetwork, Protocol):
    def wakeup(self) -> None:
        """End the current poll of the thread that drives the network, or the next one, early."""


class Guest:
    """A `Driver` over the connections of a producer, whose Sender thread alone uses the network.

        the thread that asks             the Sender thread, in each turn
        drive(work)  ── wakes it ──>     run_once ─> work.run_once ─> network.send
           waits                         network.poll
           returns   <── notifies ──     take ─> work.handle ─> is the work done?

    Work belongs to one thread at a time: to the Sender thread from `drive` until the work is done or withdrawn. Answers
    that come at another time wait for the next work. An exception of the work reaches the thread that asks, and the
    Sender thread continues.

    No thread takes another lock of the producer while it holds the guest's lock, or the other way round. So no order of
    locks is needed.
    """

    def __init__(self, network: SharedNetwork, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: the Sender thread's."""
        self.network: AdminNetwork = _GuestNetwork(network)
        self._clock_ms = clock_ms
        self._wakeup = network.wakeup
        # Guards all below. Notified when the work is done, and when the Sender thread ends.
        self._turn = threading.Condition()
        self._work: Work | None = None
        self._is_done = False
        # The exception that ended the work.
        self._error: Exception | None = None
        # Answers that no work has processed yet.
        self._answers: list[ClientResponse] = []
        self._has_ended = False
        self._failure: KafkaSinkError | None = None

    # --- the thread that asks -----------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock_ms()

    def drive(self, work: Work, left_ms: Callable[[], int]) -> None:
        with self._turn:
            self._work, self._is_done, self._error = work, False, None
            self._wakeup()
            try:
                while not self._is_done and not self._has_ended and (wait_ms := left_ms()) > 0:
                    self._turn.wait(wait_ms / 1000)
            finally:
                # Withdrawn, if it is not done.
                self._work = None
            if self._error is not None:
                raise self._error
            if self._has_ended and not self._is_done:
                raise self._failure or ProducerClosed(reason="its sender thread ended")

    def collect(self) -> list[ClientResponse]:
        return []

    def close(self) -> None:
        """Does nothing: the connections are the producer's."""

    # --- the Sender thread --------------------------------------------------------------------------------------------

    def run_once(self, now_ms: int) -> int:
        """Hand the network everything that is due now. Return the longest time (ms) that a poll may wait."""
        # Read without the lock: `drive` ends the poll after it has set the work.
        if self._work is None:
            return LONGEST_POLL_MS
        with self._turn:
            return self._work_once(now_ms, sends=True)

    def take(self, answers: list[ClientResponse], now_ms: int) -> list[ClientResponse]:
        """Process the answers to the guest's requests. Return the others."""
        own = [replace(answer, token=answer.token.token) for answer in answers if isinstance(answer.token, _Token)]
        if not own:
            return answers
        with self._turn:
            self._answers += own
            self._work_once(now_ms, sends=False)
        return [answer for answer in answers if not isinstance(answer.token, _Token)]

    @property
    def is_asked(self) -> bool:
        """Whether a thread waits for answers."""
        return self._work is not None

    def end(self, failure: KafkaSinkError | None) -> None:
        """End every wait, from now on, with `failure`, or with ProducerClosed if it is None."""
        with self._turn:
            self._has_ended, self._failure = True, failure
            self._turn.notify_all()

    def _work_once(self, now_ms: int, *, sends: bool) -> int:
        work, wait_ms = self._work, LONGEST_POLL_MS
        if work is None:
            return wait_ms
        answers, self._answers = self._answers, []
        try:
            for answer in answers:
                work.handle(answer, now_ms)
            if sends:
                wait_ms = work.run_once(now_ms)
            if not work.is_done(now_ms):
                return wait_ms
        except Exception as error:
            self._error = error
        self._work, self._is_done = None, True
        self._turn.notify_all()
        return wait_ms


@dataclass(frozen=True, slots=True)
class _Token:
    """Marks a request as the guest's. `token`: its own one."""

    token: object


class _GuestNetwork(NetworkOver):
    """The producer's network, with the guest's mark on each request."""

    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None:
        self._network.send(node_id, request, now_ms, _Token(token), expect_response)

    def contact(self, now_ms: int) -> Contact:
        """The producer looks at its servers itself."""
        return Contact(is_reached=True)

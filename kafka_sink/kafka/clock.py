"""The clocks of this process in milliseconds, as in Kafka, and calls with a deadline.

Pure modules get the time as an argument.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


def monotonic_ms() -> int:
    """Return ms for durations and deadlines. Never goes back, and is not a date."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Return ms since 1970, UTC, for other machines and for people."""
    return time.time_ns() // 1_000_000


def started(call: Callable[[], T]) -> Future[T]:
    """Begin `call`, which may block forever, in a thread of its own. The future holds its result or exception. No code
    waits for the thread, not even the end of the interpreter."""
    from concurrent.futures import Future

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="kafka_sink-call", daemon=True).start()
    return future


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of `call`, or raise its exception. Raises TimeoutError if it takes longer than `seconds`.

    A socket's timeout limits one `recv` only, so a peer that sends a byte at a time never exceeds it. A name lookup has
    no timeout at all.
    """
    future = started(call)
    try:
        return future.result(max(0.0, seconds))
    except TimeoutError:
        if future.done():
            raise
        raise TimeoutError(f"within {seconds:g} s") from None

"""A call that may take for ever, on a thread of its own: whoever needs its answer waits no longer than it wants to.

A socket's timeout is that of one `recv`, and a peer that sends a byte at a time never exceeds it; a look-up of a name
has none at all. What is not over in time goes on in its thread, which nobody waits for, not even the interpreter's end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def started(call: Callable[[], T]) -> Future[T]:
    """Begins `call`. What it gives or raises is the future's."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="kafka_sink-call", daemon=True).start()
    return future


def within(seconds: float, call: Callable[[], T]) -> T:
    """What `call` gives, or raises. Raises TimeoutError when it takes longer."""
    future = started(call)
    try:
        return future.result(max(0.0, seconds))
    except TimeoutError:
        if future.done():
            raise
        raise TimeoutError(f"within {seconds:g} s") from None

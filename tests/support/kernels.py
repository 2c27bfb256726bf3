"""The compiled kernel, unless it was not built, its fallback, and whether a call into C lets other threads run."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kafka_sink.records.kernel import compiled_kernel, fallback

COMPILED: Any = None
with suppress(ImportError):
    COMPILED = compiled_kernel()

needs_kernel = pytest.mark.skipif(COMPILED is None, reason="the kernel was not compiled")
KERNELS = [pytest.param(fallback(), id="vectorised"), pytest.param(COMPILED, id="compiled", marks=needs_kernel)]


DEADLINE_S = 30


def assert_lets_others_run(call: Callable[[], object]) -> None:
    """The interpreter takes the lock from a thread after the switch interval only; so, when another thread runs before
    the calls have ended, one of them has given the lock away. They end when the other has run."""
    begun, seen, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and not seen.is_set():
            call()
        ended.set()

    interval_s = sys.getswitchinterval()
    thread = threading.Thread(target=work)
    try:
        sys.setswitchinterval(2 * DEADLINE_S)
        thread.start()
        begun.wait()
        was_over = ended.is_set()
        seen.set()
    finally:
        sys.setswitchinterval(interval_s)
        thread.join()
    assert not was_over

"""Waiting, with a deadline, for what another thread, another process or a server does."""

import time
from collections.abc import Callable

PAUSE_SECONDS = 0.02


def wait_until(condition: Callable[[], object], deadline_seconds: float, what: str) -> None:
    """Returns when `condition` holds; fails with `what` was waited for after `deadline_seconds`."""
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {deadline_seconds} s"
        # Who makes the condition true tells nobody here, and to look without a pause would take the core that they need
        # for it. No test passes or fails by how long the pause is.
        time.sleep(PAUSE_SECONDS)

"""Whether this task writes over its executor's relay (`kafka_sink/relay`).

    PYKAFKA_RELAY=on     always, if the system has what it needs
    PYKAFKA_RELAY=off    never

in the environment of the executors (`spark.executorEnv.PYKAFKA_RELAY`). Without it: from WORKERS Python workers of the
executor on. Spark does not tell a task how many cores its executor has, so the running workers are counted. A worker
that has begun to use the relay goes on.
"""

from __future__ import annotations

import os

from kafka_sink.kafka.net.shared_memory import is_possible

WORKERS = 4
_begun_in: set[int] = set()


def is_worth_it() -> bool:
    choice = os.environ.get("PYKAFKA_RELAY")
    if choice == "off" or not is_possible():
        return False
    if choice == "on" or os.getpid() in _begun_in or workers_of(os.getppid()) >= WORKERS:
        _begun_in.add(os.getpid())
        return True
    return False


def workers_of(daemon_pid: int) -> int:
    """Return how many Python workers Spark's Python daemon has now; 0 where the system does not tell."""
    try:
        with open(f"/proc/{daemon_pid}/task/{daemon_pid}/children", encoding="ascii") as children:
            return len(children.read().split())
    except OSError:
        return 0

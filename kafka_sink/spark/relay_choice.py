"""Whether this task writes over its executor's relay (`kafka_sink/relay`).

It does if the executor runs at least TASKS tasks at once, where that saves most of the connections and was measured to
cost nothing (docs/design/performance.md, "Relays"). PYKAFKA_RELAY in the environment of the executors, `on` or `off`,
decides otherwise (`spark.executorEnv.PYKAFKA_RELAY`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kafka_sink.kafka.net.shared_memory import is_possible

TASKS = 8
PROC = Path("/proc")


def is_wanted(conf: Mapping[str, str]) -> bool:
    """`conf`: Spark's conf in the task."""
    asked = os.environ.get("PYKAFKA_RELAY")
    wanted = asked == "on" if asked in ("on", "off") else tasks_at_once(conf) >= TASKS
    return wanted and is_possible()


def tasks_at_once(conf: Mapping[str, str]) -> int:
    """Return how many tasks this executor runs at once, 0 if unknown."""
    match re.fullmatch(r"local(\[(\d+|\*).*)?", conf.get("spark.master", "")):
        case None:
            cores = _cores_of_executor()
        case local:
            cores = (os.cpu_count() or 1) if local[2] == "*" else int(local[2] or 1)
    cores_of_task = conf.get("spark.task.cpus", "1")
    return cores // int(cores_of_task) if cores_of_task.isdigit() and int(cores_of_task) else 0


def _cores_of_executor() -> int:
    """Return the argument `--cores` of the executor's JVM, which started this process or its parent, Spark's daemon.

    Source: org.apache.spark.executor.CoarseGrainedExecutorBackend, whose cluster managers all give it this argument.
    """
    try:
        parent = os.getppid()
        for process_id in (parent, _parent_of(parent)):
            arguments = (PROC / f"{process_id}/cmdline").read_bytes().split(b"\0")
            if b"--cores" in arguments[:-1]:
                return int(arguments[arguments.index(b"--cores") + 1])
    except (OSError, ValueError):
        # No such file system, or not as Linux has it.
        return 0
    return 0


def _parent_of(process_id: int) -> int:
    # The name of a process may have spaces and brackets.
    return int((PROC / f"{process_id}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])

"""Workers that write over one relay, without Spark. Run as a script:

    relay_app.py PLAN

forks the workers of PLAN (the JSON of a `Plan`), which is what Spark's Python daemon does, and ends after the last one.
Each line that it prints is a JSON object: `{"worker": N, "pid": ...}` when a worker begins, and
`{"worker": N, "write": N, "rows": ..., "error": ..., "text": ...}` for each write. `error`: its class, or None.

Row `number` of a worker goes to partition `number % partitions`. Its value says so, so each row that is read back can
be compared byte by byte.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from kafka_sink.kept import lease_producer
from kafka_sink.options.config import sink_config
from waiting import wait_until

DEADLINE_S = 120


@dataclass(frozen=True, slots=True)
class Plan:
    """`writes`: of each worker, which of `options` (prefixed `kafka.`) each of its writes has. `rows`: of a write, in
    Arrow batches of `batch_rows`. `start`: if set, no worker begins before this file exists. `gate`: if set, a write
    pauses before `gate_after` rows until this file exists.
    `broken`: what is not possible: to "start" a relay, or to "share" memory.
    """

    topic: str
    options: list[dict[str, str]]
    writes: list[list[int]]
    rows: int
    value_bytes: int = 100
    partitions: int = 4
    batch_rows: int = 1_000
    start: str = ""
    gate: str = ""
    gate_after: int = 0
    broken: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def value_of(worker: int, number: int, partition: int, size: int) -> bytes:
    """Return a row's value, which no compression makes much smaller."""
    head = b"%d/%d/%d/" % (worker, number, partition)
    return head + hashlib.shake_128(head).digest(max(0, size - len(head)))


def arrow_batches(plan: Plan, worker: int, first: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, plan.rows, plan.batch_rows):
        if plan.gate and start == plan.gate_after:
            wait_until(lambda: os.path.exists(plan.gate), DEADLINE_S, plan.gate)
        numbers = range(first + start, first + min(start + plan.batch_rows, plan.rows))
        placed = [(number, number % plan.partitions) for number in numbers]
        yield pa.record_batch(
            {
                "value": [value_of(worker, number, partition, plan.value_bytes) for number, partition in placed],
                "partition": pa.array([partition for _, partition in placed], pa.int32()),
            }
        )


def say(**what: object) -> None:
    # One call, so that lines of several processes do not mix.
    os.write(1, json.dumps(what).encode() + b"\n")


def work(plan: Plan, worker: int) -> None:
    say(worker=worker, pid=os.getpid())
    for write_number, which in enumerate(plan.writes[worker]):
        error: Exception | None = None
        rows = 0
        try:
            config = sink_config({**plan.options[which], "topic": plan.topic}).producer
            with lease_producer(config, by_relay=True) as producer:
                write = producer.begin(topic=plan.topic)
                for arrow_batch in arrow_batches(plan, worker, write_number * plan.rows):
                    write.append(arrow_batch)
                rows = sum(receipt.record_count for receipt in write.finish())
        except Exception as failure:
            error = failure
        say(
            worker=worker, write=write_number, rows=rows, error=type(error).__name__ if error else None,
            text=str(error or ""),
        )  # fmt: skip


def break_relays(what: str) -> None:
    if what == "start":
        sys.executable = "/nonexistent/python"
    elif what == "share":

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        setattr(os, "memfd_create", refuse)  # noqa: B010


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.WARNING, format="%(process)d %(message)s")
    break_relays(plan.broken)
    if plan.start:
        wait_until(lambda: os.path.exists(plan.start), DEADLINE_S, plan.start)
    children = []
    for worker in range(len(plan.writes)):
        child = os.fork()
        if not child:
            try:
                work(plan, worker)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

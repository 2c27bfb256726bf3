"""Runs of `relay_app.py`, whose relays and workers a test may kill or stop, and what they have written."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import processes
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from relay_app import DEADLINE_S, Plan, value_of
from waiting import wait_until

APP = Path(__file__).with_name("relay_app.py")
RELAYS_COMMAND = "kafka_sink.relay"
RELAYS_NAMES = "@pykafka/"
# In which relays end after their workers.
END_S = 20
# So that an incident costs seconds. A write may take as long as a busy machine needs.
HURRIED = {
    "kafka.request.timeout.ms": "1500",
    "kafka.delivery.timeout.ms": "60000",
    "kafka.linger.ms": "0",
    "kafka.batch.size": "16384",
    "kafka.compression.type": "none",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a write ended. `error`: the name of the error's class, or None."""

    worker: int
    write: int
    rows: int
    error: str | None
    text: str


class RelayRun:
    """A run in its own process session. The end of `with` kills all its processes. `held`: writes pause before
    `gate_after` rows until `go_on`."""

    def __init__(self, tmp_path: Path, plan: Plan, *, held: bool = False, waits: bool = False) -> None:
        self._gate, self._start = tmp_path / "gate", tmp_path / "start"
        self.plan = replace(plan, gate=str(self._gate) if held else "", start=str(self._start) if waits else "")
        self._out, self._err = tmp_path / "out", tmp_path / "err"
        # The application's folder is where it finds what it imports.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, str(APP), self.plan.to_json()], cwd=tmp_path, env=environment, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        processes.send_signal(self.live(), signal.SIGKILL)
        self._process.wait()

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        return self._err.read_text(errors="replace")

    def go_on(self) -> None:
        self._gate.touch()

    def begin(self) -> None:
        self._start.touch()

    def live(self) -> list[processes.Process]:
        return processes.of_session(self._process.pid)

    def relays(self) -> list[processes.Process]:
        return relays(self.live())

    def relay(self) -> processes.Process:
        """Wait until there is a relay, and return it. There must be one only."""

        def there() -> bool:
            assert self._process.poll() is None, f"it ended without a relay\n{self.stderr}"
            return bool(self.relays())

        wait_until(there, DEADLINE_S, "a relay")
        (relay,) = self.relays()
        return relay

    def worker_pid(self, worker: int) -> int:
        wait_until(lambda: any(line["worker"] == worker for line in self._lines()), DEADLINE_S, f"worker {worker}")
        return int(next(line["pid"] for line in self._lines() if line["worker"] == worker and "pid" in line))

    def ended(self) -> list[Ended]:
        """The writes that have ended so far."""
        return [Ended(**line) for line in self._lines() if "write" in line]

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def end(self) -> list[Ended]:
        """Wait for the end of the run and of its relays; return how each write ended."""
        wait_until(lambda: self._process.poll() is not None, DEADLINE_S, f"the workers end\n{self.stderr}")
        assert self._process.returncode == 0, self.stderr
        # A relay without workers ends after 30 s anyway. This one must not wait for that.
        wait_until(lambda: not self.live(), END_S, f"no process is left of {self.live()}")
        return self.ended()

    def finish(self) -> None:
        """Wait for the end. Every write must have ended well."""
        ended = self.end()
        failed = [each for each in ended if each.error]
        assert not failed, f"{failed}\n{self.stderr}"
        assert {each.rows for each in ended} == {self.plan.rows}
        assert len(ended) == sum(map(len, self.plan.writes)), self.stderr


def relays(found: Iterable[processes.Process]) -> list[processes.Process]:
    return [each for each in found if RELAYS_COMMAND in each.command]


def hurried(kafka: LocalKafka | str, **more: str) -> dict[str, str]:
    """Options of a write. `more` with underscores for dots, and without `kafka.`."""
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    own = {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}
    return {"kafka.bootstrap.servers": servers, **HURRIED, **own}


def one_write(options: dict[str, str], topic: str, workers: int, rows: int, **more: Any) -> Plan:
    """One write by each worker, all with the same options."""
    return Plan(topic, [options], [[0]] * workers, rows, **more)


def assert_rows(kafka: LocalKafka, plan: Plan, workers: Sequence[int] | None = None, *, once: bool = True) -> None:
    """Check that every row of `workers` (None: of all) is in the log, with its bytes and in its partition. Rows of
    other workers may be there, with their bytes. `once`: no row is there twice, and each
    partition is in order."""
    whole = range(len(plan.writes)) if workers is None else workers
    seen: Counter[tuple[int, int]] = Counter()
    last: dict[tuple[int, int], int] = {}
    for partition, offset, record in read_topic(kafka.bootstrap_servers, plan.topic, DEADLINE_S):
        value = record.value or b""
        worker, number, wanted = map(int, value.split(b"/", 3)[:3])
        assert partition == wanted, f"offset {offset} of {partition} has a row of {wanted}"
        assert value == value_of(worker, number, partition, plan.value_bytes), f"offset {offset} of {partition}"
        seen[worker, number] += 1
        if once:
            assert last.get((worker, partition), -1) < number, f"row {number} of worker {worker} is late or there twice"
            last[worker, partition] = number
    expected = {(worker, number) for worker in whole for number in range(plan.rows * len(plan.writes[worker]))}
    missing = expected - seen.keys()
    assert not missing, f"{len(missing)} rows are missing, such as {sorted(missing)[:5]}"
    strange = {each for each in seen.keys() - expected if workers is None or each[0] in whole}
    assert not strange
    if once:
        assert set(seen.values()) == {1}


def unread_bytes(kafka: LocalKafka) -> int:
    """Return how many bytes lie in the broker's sockets, which it has not read."""
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    # A JVM's sockets are those of IPv6.
    files = (Path("/proc/net", name) for name in ("tcp", "tcp6"))
    lines = [line.split() for file in files for line in file.read_text().splitlines()[1:]]
    queues = [line[4] for line in lines if line[3] == "01" and int(line[1].rpartition(":")[2], 16) == port]
    return sum(int(queue.partition(":")[2], 16) for queue in queues)


def waiting_for_relays() -> int:
    """Return how many workers of this host have connected to a relay that has not accepted them yet."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    # A connection has an inode from `accept` on.
    return sum(len(line) > 7 and line[7].startswith(RELAYS_NAMES) and line[6] == "0" for line in lines)


def names_of_relays() -> set[str]:
    """Return the abstract names at which relays of this host listen, with \0 in front."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    names = {line[7] for line in lines if len(line) > 7 and line[7].startswith(RELAYS_NAMES)}
    return {name.replace("@", "\0", 1) for name in names}


def shares_of(relay: processes.Process) -> list[int]:
    """Return the bytes that each worker of a relay has taken now, of those that have any."""
    for descriptor in Path(f"/proc/{relay.process_id}/fd").iterdir():
        if os.readlink(descriptor).startswith("/memfd:pykafka-ledger"):
            return [share for (share,) in struct.iter_unpack("=q", descriptor.read_bytes()) if share]
    raise AssertionError("the relay has no ledger")


def stop_broker(kafka: LocalKafka) -> None:
    """Stop a broker's process: it answers nothing until `resume_broker`, and its connections stay open."""
    processes.stop(kafka.pid(1))


def resume_broker(kafka: LocalKafka) -> None:
    with suppress(ProcessLookupError):
        processes.resume(kafka.pid(1))

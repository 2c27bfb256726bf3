"""The application of a soak: a stream in a process session of its own, which is killed in part or whole and started
again."""

import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import processes
from soak import usage

SAMPLE_EVERY_S = 2.0
BROKER, WORKER, PLANNER = "broker", "worker", "planner"
DRIVER, ALL = "driver", "driver and workers"


def committed(checkpoint: Path) -> int:
    """Return the number of micro-batches by Spark's commit log, which keeps the last hundred."""
    return max((int(file.name) for file in checkpoint.glob("commits/[0-9]*")), default=-1) + 1


class Application:
    """`folder` gets the checkpoint, and what the application says. All starts use the same `environment`."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self._began_s = time.monotonic()
        self._sampled_s = 0.0
        self.starts = 0
        # Of starts that ended by themselves, and not well: the errors of the package in what the application said.
        self.endings: Counter[str] = Counter()
        self.samples: list[usage.Sample] = []

    def start(self, command: Sequence[str]) -> None:
        self.close()
        self.starts += 1
        self._is_killed = False
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def status(self) -> int | None:
        assert self._process is not None
        if self.elapsed_s - self._sampled_s >= SAMPLE_EVERY_S:
            self._sampled_s = self.elapsed_s
            self.samples.append(usage.take(self.elapsed_s, self.starts, self._living()))
        return self._process.poll()

    def note_ending(self) -> None:
        assert self._process is not None
        if not self._is_killed:
            errors = re.findall(r"kafka_sink\.errors\.(?:\w+\.)*([A-Z]\w+)", self._log.read_text(errors="replace"))
            self.endings[errors[0] if errors else f"status {self._process.returncode}"] += 1

    def kill(self, kind: str, rng: random.Random) -> bool:
        """Kill a worker, the planner of the source, the driver, or all. Return False if there is no such process."""
        assert self._process is not None
        living = self._living()
        if kind in (WORKER, PLANNER):
            found = processes.planners(living) if kind == PLANNER else processes.workers(living)
            if found:
                processes.send_signal([rng.choice(found)], signal.SIGKILL)
            return bool(found)
        self._is_killed = True
        processes.send_signal(processes.drivers(living) if kind == DRIVER else living, signal.SIGKILL)
        self._process.wait()
        return True

    def close(self) -> None:
        if self._process is not None:
            processes.send_signal(self._living(), signal.SIGKILL)
            self._process.wait()

    def committed(self) -> int:
        return committed(self._folder / "checkpoint")

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def _log(self) -> Path:
        return self._folder / f"application-{self.starts}.log"

    def _living(self) -> list[processes.Process]:
        assert self._process is not None
        return processes.of_session(self._process.pid)

"""Runs the application until it has written everything, and kills parts of it and of the cluster meanwhile."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import processes
from kafka_sink.broker import LocalKafka
from soak import usage
from waiting import wait_until

APP = Path(__file__).resolve().parents[2] / "support" / "exactly_once_app.py"
# What is killed, and how often. A driver is spared more often: what it holds is looked at while it lives.
KINDS = {"broker": 4, "worker": 4, "driver": 1, "driver and workers": 1}
SAMPLE_EVERY_S = 2.0
# About as long as a micro-batch takes, so that a kill can come at any moment of one.
MOMENT_S = 4.0
DEADLINE_S = 300
# In a row, without one micro-batch: the query has stopped for good.
MOST_STARTS = 4


@dataclass(slots=True)
class Figures:
    batches: int = 0
    starts: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    # Of starts that ended by themselves, and not well: the errors of the sink in what the application said.
    endings: Counter[str] = field(default_factory=Counter)
    killed_at_s: list[float] = field(default_factory=list)
    samples: list[usage.Sample] = field(default_factory=list)


class Supervisor:
    """`folder` has `incoming`, and gets the checkpoint and what the application says. `apart`: how many micro-batches
    there are from one kill to the next, at least and at most."""

    def __init__(
        self,
        kafka: LocalKafka,
        topic: str,
        folder: Path,
        *,
        batches: int,
        slots: int,
        apart: tuple[int, int],
        seed: int,
    ) -> None:
        self._kafka = kafka
        self._folder = folder
        self._batches = batches
        self._apart = apart
        self._began_s = time.monotonic()
        self._sampled_s = 0.0
        self._rng = random.Random(seed)
        self._command = [
            sys.executable, str(APP), kafka.bootstrap_servers, topic, str(folder / "incoming"),
            str(folder / "checkpoint"), "--files", str(slots),
        ]  # fmt: skip
        self._figures = Figures()
        self._application: subprocess.Popen[bytes] | None = None
        self._killed = False

    def run(self) -> Figures:
        """Until all is written. Fails when it does not get on."""
        application = self._start()
        next_kill, since_progress = self._rng.randint(*self._apart), 0
        while True:
            started_at = self._committed()
            wait_until(partial(self._due, application, next_kill), DEADLINE_S, f"micro-batch {next_kill}")
            since_progress = 0 if self._committed() > started_at else since_progress + 1
            assert since_progress < MOST_STARTS, f"no micro-batch since {since_progress} starts\n{self._said()}"
            if application.poll() is None:
                self._kill(application)
                # A broker takes micro-batches to come back; what was due meanwhile is made up for, one at a time.
                next_kill = max(next_kill + self._rng.randint(*self._apart), self._committed() + 1)
                since_progress = 0
            if application.poll() == 0:
                break
            if application.poll() is not None:
                self._note_ending(application.returncode)
                application = self._start()
        self._figures.batches = self._committed()
        return self._figures

    def _due(self, application: subprocess.Popen[bytes], next_kill: int) -> bool:
        """Whether there is something to do: a kill, or a start. Looks at what is held while there is not."""
        self._sample(application)
        return application.poll() is not None or next_kill <= self._committed() < self._batches

    def _sample(self, application: subprocess.Popen[bytes]) -> None:
        at_s = time.monotonic() - self._began_s
        if at_s - self._sampled_s >= SAMPLE_EVERY_S:
            self._sampled_s = at_s
            living = processes.of_session(application.pid)
            self._figures.samples.append(usage.take(at_s, self._figures.starts, living))

    def close(self) -> None:
        """Ends the application."""
        if self._application is not None:
            processes.send_signal(processes.of_session(self._application.pid), signal.SIGKILL)
            self._application.wait()

    # --- the application ----------------------------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        self._figures.starts += 1
        self._killed = False
        with self._log.open("wb") as log:
            self._application = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        return self._application

    def _note_ending(self, status: int) -> None:
        if self._killed:
            return
        errors = re.findall(r"kafka_sink\.errors\.(\w+)", self._log.read_text(errors="replace"))
        self._figures.endings[errors[0] if errors else f"status {status}"] += 1

    @property
    def _log(self) -> Path:
        return self._folder / f"application-{self._figures.starts}.log"

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    def _committed(self) -> int:
        """Micro-batches in Spark's commit log, which keeps the last hundred."""
        commits = self._folder / "checkpoint" / "commits"
        numbers = [int(file.name) for file in commits.iterdir() if file.name.isdigit()] if commits.exists() else []
        return max(numbers, default=-1) + 1

    # --- kills --------------------------------------------------------------------------------------------------------

    def _kill(self, application: subprocess.Popen[bytes]) -> None:
        kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
        moment = time.monotonic() + self._rng.uniform(0, MOMENT_S)
        wait_until(lambda: time.monotonic() >= moment, DEADLINE_S, "the moment")
        living = processes.of_session(application.pid)
        if kind == "broker":
            node = self._rng.choice(self._kafka.node_ids)
            self._kafka.kill(node)
            self._kafka.start(node)
        elif kind == "worker":
            found = processes.workers(living)
            if not found:
                return
            processes.send_signal([self._rng.choice(found)], signal.SIGKILL)
        else:
            self._killed = True
            processes.send_signal(processes.drivers(living) if kind == "driver" else living, signal.SIGKILL)
            application.wait()
        self._figures.kills[kind] += 1
        self._figures.killed_at_s.append(time.monotonic() - self._began_s)
        print(f"micro-batch {self._committed()} of {self._batches}: kill -9 of {kind}", flush=True)

"""Runs the application until it has written everything, and kills parts of it and of the cluster meanwhile."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka_sink.broker import LocalKafka
from soak.application import ALL, BROKER, DRIVER, WORKER, Application
from waiting import wait_until

APP = Path(__file__).resolve().parents[2] / "support" / "exactly_once_app.py"
# What is killed, and how often. A driver is spared more often: what it holds is looked at while it lives.
KINDS = {BROKER: 4, WORKER: 4, DRIVER: 1, ALL: 1}
# About as long as a micro-batch takes, so that a kill can come at any moment of one.
MOMENT_S = 4.0
DEADLINE_S = 300
# In a row, without one micro-batch: the query has stopped for good.
MOST_STARTS = 4


@dataclass(slots=True)
class Kills:
    counts: Counter[str] = field(default_factory=Counter)
    at_s: list[float] = field(default_factory=list)


class Supervisor:
    """`folder` has `incoming`, and gets the checkpoint and what the application says. `apart`: how many micro-batches
    there are from one kill to the next, at least and at most."""

    def __init__(
        self, kafka: LocalKafka, topic: str, folder: Path, *, batches: int, slots: int, apart: tuple[int, int],
        seed: int,
    ) -> None:  # fmt: skip
        self._kafka = kafka
        self._batches = batches
        self._apart = apart
        self._rng = random.Random(seed)
        self._command = [
            sys.executable, str(APP), kafka.bootstrap_servers, topic, str(folder / "incoming"),
            str(folder / "checkpoint"), "--files", str(slots),
        ]  # fmt: skip
        self.application = Application(folder)
        self.kills = Kills()

    def run(self) -> None:
        """Until all is written. Fails when it does not get on."""
        application = self.application
        application.start(self._command)
        next_kill, since_progress = self._rng.randint(*self._apart), 0
        while True:
            started_at = application.committed()
            wait_until(partial(self._due, next_kill), DEADLINE_S, f"micro-batch {next_kill}")
            since_progress = 0 if application.committed() > started_at else since_progress + 1
            assert since_progress < MOST_STARTS, f"no micro-batch since {since_progress} starts\n{application.said}"
            if application.status() is None:
                self._kill()
                # A broker takes micro-batches to come back; what was due meanwhile is made up for, one at a time.
                next_kill = max(next_kill + self._rng.randint(*self._apart), application.committed() + 1)
                since_progress = 0
            if application.status() == 0:
                break
            if application.status() is not None:
                application.note_ending()
                application.start(self._command)

    def _due(self, next_kill: int) -> bool:
        """Return whether there is something to do: a kill, or a start."""
        ended = self.application.status() is not None
        return ended or next_kill <= self.application.committed() < self._batches

    def close(self) -> None:
        self.application.close()

    def _kill(self) -> None:
        kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
        moment = time.monotonic() + self._rng.uniform(0, MOMENT_S)
        wait_until(lambda: time.monotonic() >= moment, DEADLINE_S, "the moment")
        if kind == BROKER:
            node = self._rng.choice(self._kafka.node_ids)
            self._kafka.kill(node)
            self._kafka.start(node)
        elif not self.application.kill(kind, self._rng):
            return
        self.kills.counts[kind] += 1
        self.kills.at_s.append(self.application.elapsed_s)
        print(f"micro-batch {self.application.committed()} of {self._batches}: kill -9 of {kind}", flush=True)

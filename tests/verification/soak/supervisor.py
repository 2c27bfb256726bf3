"""Runs an application until it has written everything, and kills parts of it and of the cluster meanwhile."""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions

from broker_admin import group_coordinator, transactions
from kafka_sink.broker import LocalKafka
from soak.application import ALL, BROKER, DRIVER, PLANNER, WORKER, Application
from soak.topics import VALUE, WHERE
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
APP = ROOT / "tests" / "support" / "exactly_once_app.py"
JOB = ROOT / "jobs" / "transform_kafka.py"
TRANSACTIONS, GROUPS = "coordinator of transactions", "coordinator of groups"
# About as long as a micro-batch takes, so that a kill can come at any moment of one.
MOMENT_S = 4.0
DEADLINE_S, ADMIN_TIMEOUT_S = 600, 60
# In a row, without one micro-batch: the query has stopped for good; and nothing is killed until the next one.
MOST_STARTS, STARTS_TO_KILL = 4, 2
PARTITIONS = 3
SPARK = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# Less than what gathers while the application starts, so that the limit counts.
MAX_OFFSETS = 1_000


class Supervisor:
    """`sink`: the topic that is written. `folder` gets the checkpoint, and what the application says."""

    # What is killed, and how often. A driver is spared more often: what it holds is looked at while it lives.
    kinds: Mapping[str, int]

    def __init__(self, kafka: LocalKafka, sink: str, folder: Path, seed: int, **environment: str) -> None:
        self._kafka, self._sink = kafka, sink
        self._rng = random.Random(seed)
        # PYTHONSAFEPATH would hide a job's own modules from it; no sources lie in `folder`.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        self.application = Application(folder, inherited | environment)
        self.kills: Counter[str] = Counter()
        self.killed_at_s: list[float] = []
        self.close = self.application.close

    def _kill(self, within_s: float = 0.0) -> None:
        kind = self._rng.choices(list(self.kinds), list(self.kinds.values()))[0]
        moment = time.monotonic() + self._rng.uniform(0, within_s)
        wait_until(lambda: time.monotonic() >= moment, DEADLINE_S, "the moment")
        node = self._node(kind)
        if node is not None:
            self._kafka.kill(node)
            self._kafka.start(node)
        elif not self.application.kill(kind, self._rng):
            return
        self.kills[kind] += 1
        self.killed_at_s.append(self.application.elapsed_s)
        where = f"micro-batch {self.application.committed()}"
        print(f"{self.application.elapsed_s:.0f} s, {where}: kill -9 of {kind}", flush=True)

    def _node(self, kind: str) -> int | None:
        if kind == GROUPS:
            return group_coordinator(self._kafka, f"{self._sink}.decision")
        found = transactions(self._kafka, self._sink) if kind == TRANSACTIONS else {}
        if found:
            return found[self._rng.choice(sorted(found))].coordinator
        return self._rng.choice(self._kafka.node_ids) if kind in (BROKER, TRANSACTIONS) else None


class FileSupervisor(Supervisor):
    """`folder` has `incoming`."""

    kinds: Mapping[str, int] = {BROKER: 4, WORKER: 4, DRIVER: 1, ALL: 1}
    slots = 3

    def run(self, folder: Path, batches: int, apart: tuple[int, int]) -> None:
        """Until all is written. `apart`: how many micro-batches there are from one kill to the next, at least and at
        most. Fails when it does not get on."""
        application = self.application
        command = [
            sys.executable, str(APP), self._kafka.bootstrap_servers, self._sink, str(folder / "incoming"),
            str(folder / "checkpoint"), "--files", str(self.slots),
        ]  # fmt: skip
        application.start(command)
        next_kill, since_progress = self._rng.randint(*apart), 0

        def is_due() -> bool:
            """Return whether there is something to do: a kill, or a start."""
            return application.status() is not None or next_kill <= application.committed() < batches

        while True:
            started_at = application.committed()
            wait_until(is_due, DEADLINE_S, f"micro-batch {next_kill}")
            since_progress = 0 if application.committed() > started_at else since_progress + 1
            assert since_progress < MOST_STARTS, f"no micro-batch since {since_progress} starts\n{application.said}"
            if application.status() is None:
                self._kill(MOMENT_S)
                # A broker takes micro-batches to come back; what was due meanwhile is made up for, one at a time.
                next_kill = max(next_kill + self._rng.randint(*apart), application.committed() + 1)
                since_progress = 0
            if application.status() == 0:
                break
            if application.status() is not None:
                application.note_ending()
                application.start(command)


class TopicSupervisor(Supervisor):
    """Of a transformation of a topic."""

    kinds: Mapping[str, int] = {BROKER: 3, TRANSACTIONS: 1, GROUPS: 1, WORKER: 3, PLANNER: 2, DRIVER: 1, ALL: 1}
    # Half-way the source gets one more partition. Each is read by a task, and written by a slot.
    slots = PARTITIONS + 1

    def __init__(self, kafka: LocalKafka, source: str, sink: str, folder: Path, seed: int, **environment: str) -> None:
        super().__init__(kafka, sink, folder, seed, **environment)
        self._source = source
        self.command = [
            str(Path(sys.executable).with_name("spark-submit")), "--master", f"local[{self.slots},4]",
            *(word for name, value in SPARK.items() for word in ("--conf", f"{name}={value}")),
            str(JOB), "--bootstrap-servers", self._kafka.bootstrap_servers, "--subscribe", source, "--topic",
            self._sink, "--starting-offsets", "earliest", "--source-option", f"maxOffsetsPerTrigger={MAX_OFFSETS}",
            "--value", VALUE, "--where", WHERE, "--checkpoint", str(folder / "checkpoint"),
            "--option", "deliveryGuarantee=exactly-once", "--option", f"transactionalIdPrefix={self._sink}",
        ]  # fmt: skip

    def run(self, seconds: float, apart: tuple[float, float]) -> None:
        """Keep the query running, and kill, for so long, `apart` seconds from one kill to the next. Fails when it does
        not get on."""
        application = self.application
        command = [*self.command, "--processing-time", "0 seconds"]
        application.start(command)
        end_s, grows_s = application.elapsed_s + seconds, application.elapsed_s + seconds / 2
        next_kill_s = application.elapsed_s + self._rng.uniform(*apart)
        committed, progress_s, starts_since = 0, application.elapsed_s, 0
        while application.elapsed_s < end_s:
            due_s = min(end_s, next_kill_s, grows_s)
            wait_until(partial(self._is_due, due_s), seconds + DEADLINE_S, "the next event")
            if application.committed() > committed:
                committed, progress_s, starts_since = application.committed(), application.elapsed_s, 0
            assert application.elapsed_s - progress_s < DEADLINE_S, f"no micro-batch in time\n{application.said}"
            if application.status() is not None:
                application.note_ending()
                starts_since += 1
                assert starts_since < MOST_STARTS, f"no micro-batch since {starts_since} starts\n{application.said}"
                application.start(command)
            elif application.elapsed_s >= grows_s:
                grows_s = end_s + DEADLINE_S
                admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers})
                admin.create_partitions([NewPartitions(self._source, self.slots)])[self._source].result(ADMIN_TIMEOUT_S)
                print(f"{application.elapsed_s:.0f} s: the source has {self.slots} partitions", flush=True)
            elif application.elapsed_s >= next_kill_s:
                # A driver that is killed whenever it has just started shows nothing.
                if starts_since < STARTS_TO_KILL:
                    self._kill()
                next_kill_s = application.elapsed_s + self._rng.uniform(*apart)

    def finish(self) -> None:
        """Kill the query, and run it once to the end of its source. Fails unless that ends well."""
        self.application.start([*self.command, "--available-now"])
        wait_until(lambda: self.application.status() is not None, DEADLINE_S, "the last run")
        assert self.application.status() == 0, self.application.said

    def _is_due(self, at_s: float) -> bool:
        return self.application.status() is not None or self.application.elapsed_s >= at_s

"""Runs the transformation of a topic for a while, and kills parts of it and of the cluster meanwhile."""

from __future__ import annotations

import os
import random
import sys
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions

from committed_rows import group_coordinator, transactions
from kafka_sink.broker import LocalKafka
from soak.application import ALL, BROKER, DRIVER, PLANNER, WORKER, Application
from soak.supervisor import DEADLINE_S, MOST_STARTS, Kills
from soak.topic_comparison import VALUE, WHERE
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
JOB = ROOT / "jobs" / "transform_kafka.py"
TRANSACTIONS, GROUPS = "coordinator of transactions", "coordinator of groups"
KINDS = {BROKER: 3, TRANSACTIONS: 1, GROUPS: 1, WORKER: 3, PLANNER: 2, DRIVER: 1, ALL: 1}
PARTITIONS = 3
# Half-way the source gets one more. Each is read by a task, and written by a slot.
SLOTS = PARTITIONS + 1
SPARK = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# Less than what gathers while the application starts, so that the limit counts.
MAX_OFFSETS = 1_000
# The part of kills that do not wait for a micro-batch since the last kill.
EARLY = 0.2
ADMIN_TIMEOUT_S = 60


class TopicSupervisor:
    """`folder` gets the checkpoint and what the application says. `apart`: seconds from one kill to the next, at least
    and at most."""

    def __init__(
        self, kafka: LocalKafka, source: str, sink: str, folder: Path, *, apart: tuple[float, float], seed: int
    ) -> None:
        self._kafka = kafka
        self._source = source
        self._sink = sink
        self._apart = apart
        self._rng = random.Random(seed)
        self._command = [
            str(Path(sys.executable).with_name("spark-submit")), "--master", f"local[{SLOTS},4]",
            *(word for name, value in SPARK.items() for word in ("--conf", f"{name}={value}")),
            str(JOB), "--bootstrap-servers", kafka.bootstrap_servers, "--subscribe", source, "--topic", sink,
            "--starting-offsets", "earliest", "--source-option", f"maxOffsetsPerTrigger={MAX_OFFSETS}",
            "--value", VALUE, "--where", WHERE, "--checkpoint", str(folder / "checkpoint"),
            "--option", "deliveryGuarantee=exactly-once", "--option", f"transactionalIdPrefix={sink}",
        ]  # fmt: skip
        # PYTHONSAFEPATH would hide the job's own modules from it; no sources lie in `folder`.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | {
            "SPARK_CONF_DIR": str(ROOT / "conf"),  # for its log4j2.properties
        }
        self.application = Application(folder, environment)
        self.kills = Kills()
        self._next_kill_s = 0.0
        self._kill_from = 0

    def run(self, seconds: float) -> None:
        """Keep the query running, and kill, for so long. Fails when it does not get on."""
        application, command = self.application, [*self._command, "--processing-time", "0 seconds"]
        application.start(command)
        self._plan_kill()
        end_s = application.elapsed_s + seconds
        grows_s = application.elapsed_s + seconds / 2
        committed, starts = 0, 0
        while application.elapsed_s < end_s:
            wait_until(partial(self._is_due, min(end_s, grows_s)), DEADLINE_S, "a micro-batch, or the query's end")
            if application.committed() > committed:
                committed, starts = application.committed(), 0
            if application.status() is not None:
                application.note_ending()
                starts += 1
                assert starts < MOST_STARTS, f"no micro-batch since {starts} starts\n{application.said}"
                application.start(command)
            elif application.elapsed_s >= grows_s:
                grows_s = end_s
                self._add_partition()
            elif self._is_kill_due():
                self._kill()
                self._plan_kill()
                starts = 0

    def finish(self) -> None:
        """Kill the query, and run it once to the end of its source. Fails unless that ends well."""
        self.application.start([*self._command, "--available-now"])
        wait_until(lambda: self.application.status() is not None, DEADLINE_S, "the last run")
        assert self.application.status() == 0, self.application.said

    def close(self) -> None:
        """Ends the application."""
        self.application.close()

    def _plan_kill(self) -> None:
        """On a slow machine the query may be starting still when the time has come. Only some kills meet that."""
        self._next_kill_s = self.application.elapsed_s + self._rng.uniform(*self._apart)
        self._kill_from = 0 if self._rng.random() < EARLY else self.application.committed() + 1

    def _is_kill_due(self) -> bool:
        application = self.application
        return application.elapsed_s >= self._next_kill_s and application.committed() >= self._kill_from

    def _is_due(self, at_s: float) -> bool:
        application = self.application
        return application.status() is not None or application.elapsed_s >= at_s or self._is_kill_due()

    def _add_partition(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(self._source, SLOTS)])[self._source].result(ADMIN_TIMEOUT_S)
        print(f"{self.application.elapsed_s:.0f} s: the source has {SLOTS} partitions", flush=True)

    def _kill(self) -> None:
        kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
        node = self._node(kind)
        if node is not None:
            self._kafka.kill(node)
            self._kafka.start(node)
        elif not self.application.kill(kind, self._rng):
            return
        self.kills.counts[kind] += 1
        self.kills.at_s.append(self.application.elapsed_s)
        where = f"micro-batch {self.application.committed()}"
        print(f"{self.application.elapsed_s:.0f} s, {where}: kill -9 of {kind}", flush=True)

    def _node(self, kind: str) -> int | None:
        """Return the broker to kill, None if it is none."""
        if kind == TRANSACTIONS:
            found = transactions(self._kafka, self._sink)
            if found:
                return found[self._rng.choice(sorted(found))].coordinator
        if kind == GROUPS:
            return group_coordinator(self._kafka, f"{self._sink}.decision")
        return self._rng.choice(self._kafka.node_ids) if kind in (BROKER, TRANSACTIONS) else None

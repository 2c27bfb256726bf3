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
ADMIN_TIMEOUT_S = 60
# After so many starts without a micro-batch in between, nothing is killed until the next one.
STARTS_TO_KILL = 2


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
        self.command = [
            str(Path(sys.executable).with_name("spark-submit")), "--master", f"local[{SLOTS},4]",
            *(word for name, value in SPARK.items() for word in ("--conf", f"{name}={value}")),
            str(JOB), "--bootstrap-servers", kafka.bootstrap_servers, "--subscribe", source, "--topic", sink,
            "--starting-offsets", "earliest", "--source-option", f"maxOffsetsPerTrigger={MAX_OFFSETS}",
            "--value", VALUE, "--where", WHERE, "--checkpoint", str(folder / "checkpoint"),
            "--option", "deliveryGuarantee=exactly-once", "--option", f"transactionalIdPrefix={sink}",
        ]  # fmt: skip
        # PYTHONSAFEPATH would hide the job's own modules from it; no sources lie in `folder`.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | {
            "SPARK_CONF_DIR": str(ROOT / "conf")  # for its log4j2.properties
        }
        self.application = Application(folder, environment)
        self.kills = Kills()

    def run(self, seconds: float) -> None:
        """Keep the query running, and kill, for so long. Fails when it does not get on."""
        application, command = self.application, [*self.command, "--processing-time", "0 seconds"]
        application.start(command)
        end_s = application.elapsed_s + seconds
        next_kill_s = self._next_kill_s()
        grows_s = application.elapsed_s + seconds / 2
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
                self._add_partition()
            elif application.elapsed_s >= next_kill_s:
                # A driver that is killed whenever it has just started shows nothing.
                if starts_since < STARTS_TO_KILL:
                    self._kill()
                next_kill_s = self._next_kill_s()

    def finish(self) -> None:
        """Kill the query, and run it once to the end of its source. Fails unless that ends well."""
        self.application.start([*self.command, "--available-now"])
        wait_until(lambda: self.application.status() is not None, DEADLINE_S, "the last run")
        assert self.application.status() == 0, self.application.said

    def close(self) -> None:
        self.application.close()

    def _next_kill_s(self) -> float:
        return self.application.elapsed_s + self._rng.uniform(*self._apart)

    def _is_due(self, at_s: float) -> bool:
        return self.application.status() is not None or self.application.elapsed_s >= at_s

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
        if kind == TRANSACTIONS:
            found = transactions(self._kafka, self._sink)
            return (
                found[self._rng.choice(sorted(found))].coordinator if found else self._rng.choice(self._kafka.node_ids)
            )
        if kind == GROUPS:
            return group_coordinator(self._kafka, f"{self._sink}.decision")
        return self._rng.choice(self._kafka.node_ids) if kind == BROKER else None

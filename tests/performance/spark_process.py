"""A Spark application as another process, which answers lines of JSON, and the topics that it writes to.

    a benchmark ──a line of JSON──> its Spark application
                <──a line of JSON──

It is a process of its own so that what it uses can be counted apart from the benchmark and from the broker.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_sink.broker import LocalKafka
from spark_environment import spark_environment
from waiting import wait_until

ANSWER_TIMEOUT_S = 900.0
ADMIN_TIMEOUT_S = 60.0
# For brokers: how long after a topic's end its files go.
DELETE_SOON = {"log.segment.delete.delay.ms": 1_000}


class SparkProcess:
    """Runs a script of this Python, with `log` as its stderr, and waits until it says that it is ready.

    Every method raises SystemExit, with the log's path, when the application ended or does not answer within 15 min.
    """

    def __init__(
        self, arguments: Sequence[str | Path], log: Path, *, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._log = log
        self._answer_timeout_s = answer_timeout_s
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=spark_environment(os.environ),
            )
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, object]) -> Any:
        """The answer, as JSON has it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as its missing answer will say
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], self._answer_timeout_s)[0]:
            raise SystemExit(f"Spark did not answer within {self._answer_timeout_s:g} s; its log is {self._log}")
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"Spark ended with status {self._process.wait()}; its log is {self._log}")
        return json.loads(line)

    def stop(self) -> None:
        """The end of its input ends it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


class Topics:
    """Topics for one write at a time, which are deleted when their rows have been counted."""

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka
        self._numbers = itertools.count(1)
        # Silent when the broker ends before them.
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2}
        self._admin = AdminClient(servers)
        self._consumer = Consumer(servers | {"group.id": "bench"})

    def create(self, partitions: int, topics: int = 1) -> list[str]:
        """Their names: one that no other has, with -0, -1, ... behind it if there are several. Returns when every
        leader has made its log: it is known to lead before, and 2,000 logs take many seconds."""
        name = f"bench-{next(self._numbers)}"
        names = [name] if topics == 1 else [f"{name}-{number}" for number in range(topics)]
        for each in names:
            # Deleted at once and not after a minute: before the system writes to the disk what nobody will read.
            self._kafka.create_topic(each, partitions, config={"file.delete.delay.ms": 0})
        wait_until(partial(self._has_logs, names, partitions), ADMIN_TIMEOUT_S, f"logs of {name}")
        return names

    def _has_logs(self, names: Sequence[str], partitions: int) -> bool:
        try:
            return self.row_count(names, partitions) == 0
        except KafkaException:  # not the leader yet
            return False

    def row_count(self, names: Sequence[str], partitions: int) -> int:
        ends = (
            self._consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=ADMIN_TIMEOUT_S)
            for name in names
            for partition in range(partitions)
        )
        return sum(high for _, high in ends)

    def log_bytes(self, names: Sequence[str]) -> int:
        """What the segments of the topics take on the broker's disk."""
        # Not by looking through all folders: those of deleted topics vanish meanwhile.
        logs = (log for name in names for log in self._kafka.dir.glob(f"*/data/{name}-*[0-9]/*.log"))
        return sum(segment.stat().st_size for segment in logs)

    def delete(self, names: Sequence[str]) -> None:
        for deleted in self._admin.delete_topics(list(names), operation_timeout=ADMIN_TIMEOUT_S).values():
            deleted.result(ADMIN_TIMEOUT_S)

    def await_no_files(self, names: Sequence[str]) -> None:
        """Of topics that are deleted. The broker removes them afterwards, and 2,000 logs are work that the next write
        would share cores with; `DELETE_SOON` has it done within seconds and not after a minute."""
        beginnings = tuple(f"{name}-" for name in names)
        wait_until(lambda: not self._has_files(beginnings), ADMIN_TIMEOUT_S, f"no files of {names[0]}")

    def _has_files(self, beginnings: tuple[str, ...]) -> bool:
        return any(log.name.startswith(beginnings) for log in self._kafka.dir.glob("*/*"))

    def close(self) -> None:
        self._consumer.close()

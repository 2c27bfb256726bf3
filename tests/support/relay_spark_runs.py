"""Runs of `relay_spark_app.py`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import processes
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from relay_runs import END_S
from relay_spark_app import PARTITIONS, VALUE_BYTES
from waiting import wait_until

APP = Path(__file__).with_name("relay_spark_app.py")
DEADLINE_S = 280


class SparkRun:
    """A run in its own process session. The end of `with` kills all its processes. Tasks pause until `go_on`."""

    def __init__(
        self, tmp_path: Path, topic: str, options: dict[str, str], *, master: str, tasks: int, rows: int
    ) -> None:
        self._gate, self._said = tmp_path / "gate", tmp_path / "said"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYKAFKA_RELAY": "on"}
        command = [
            sys.executable, str(APP), master, str(tasks), str(rows), topic, str(self._gate), json.dumps(options)
        ]  # fmt: skip
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        processes.send_signal(self.live(), signal.SIGKILL)
        self._process.wait()

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def live(self) -> list[processes.Process]:
        return processes.of_session(self._process.pid)

    def go_on(self) -> None:
        self._gate.touch()

    def check(self) -> None:
        assert self._process.poll() in (None, 0), self.said

    def finish(self) -> None:
        """Wait for the end of the application and of all its processes. It must end well."""
        wait_until(lambda: self._process.poll() is not None, DEADLINE_S, "the application ends")
        assert self._process.returncode == 0, self.said
        # A relay without workers ends after 30 s anyway. This one must not wait for that.
        wait_until(lambda: not self.live(), END_S, f"no process is left of {self.live()}")
        assert "connects to brokers itself" not in self.said


def assert_range(kafka: LocalKafka, topic: str, rows: int, *, once: bool = True) -> None:
    """Check that all rows of the application are in the topic, in their partitions, and with `once` no row twice."""
    seen: Counter[int] = Counter()
    for partition, offset, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S):
        value = record.value or b""
        assert len(value) == VALUE_BYTES, f"offset {offset} of {partition}"
        assert partition == int(value) % PARTITIONS, f"offset {offset} of {partition}"
        seen[int(value)] += 1
    assert seen.keys() == set(range(rows))
    if once:
        assert set(seen.values()) == {1}

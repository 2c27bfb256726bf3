"""Two streams, one of each guarantee: the rows that they have committed, and the error that ended one.

They are `streams_app.py`, a process of its own with a session of its own, of which nothing is left after `close`.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import processes
from chaos.streams_app import ROWS
from soak.application import committed
from waiting import wait_until

APP = Path(__file__).with_name("streams_app.py")
JOBS = Path(__file__).resolve().parents[3] / "jobs"
DEADLINE_S = 300
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
GUARANTEES = AT_LEAST_ONCE, EXACTLY_ONCE
TOLD_BYTES = 6_000


class Streams:
    """`servers`: what they are told to begin with. `topics`: guarantee -> topic. `options`: of both sinks."""

    def __init__(self, servers: str, folder: Path, topics: Mapping[str, str], options: Mapping[str, str]) -> None:
        self.topics = topics
        self._folder = folder
        self._command = [sys.executable, str(APP), servers, str(folder), *topics.values()]
        self._process: subprocess.Popen[bytes] | None = None
        for guarantee, topic in topics.items():
            lines = {"deliveryGuarantee": guarantee, **options}
            if guarantee == EXACTLY_ONCE:
                lines["transactionalIdPrefix"] = topic
            (folder / f"{topic}.conf").write_text("".join(f"{name} = {text}\n" for name, text in lines.items()))

    def run(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(JOBS), environment.get("PYTHONPATH"))))
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=environment, stdout=said, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def end(self) -> None:
        """Between two micro-batches of each."""
        assert self._process is not None
        self._process.terminate()
        wait_until(lambda: self._process is None or self._process.poll() is not None, DEADLINE_S, "the streams end")
        assert self._process.returncode == 0, self.told

    def close(self) -> None:
        if self._process is not None:
            processes.send_signal(processes.of_session(self._process.pid), signal.SIGKILL)
            self._process.wait()

    def committed(self, guarantee: str) -> int:
        """Micro-batches."""
        return committed(self._folder / self.topics[guarantee])

    def committed_rows(self, guarantee: str) -> int:
        """They are the numbers from 0."""
        return ROWS * self.committed(guarantee)

    def get_on(self, micro_batches: int, deadline_s: float = DEADLINE_S) -> None:
        """Until each has committed so many more, and one that was under way."""
        goals = {guarantee: self.committed(guarantee) + micro_batches + 1 for guarantee in self.topics}

        def reached() -> bool:
            assert self._process is not None and self._process.poll() is None, self.told
            return all(self.committed(guarantee) >= goal for guarantee, goal in goals.items())

        try:
            wait_until(reached, deadline_s, "the streams get on")
        except AssertionError as error:
            now = {guarantee: self.committed(guarantee) for guarantee in goals}
            raise AssertionError(f"{error}: {now}, to be {goals}, {self.endings()}\n{self.told}") from None

    def endings(self) -> list[tuple[str, str]]:
        """Guarantee and error of each stream that ended, in their order."""
        file = self._folder / "endings"
        told = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        named = {topic: guarantee for guarantee, topic in self.topics.items()}
        return [(named[topic], error_of(text)) for line in told for topic, text in line.items()]

    @property
    def told(self) -> str:
        endings = self._folder / "endings"
        return "".join(
            file.read_text(errors="replace")[-TOLD_BYTES:] for file in (self._said, endings) if file.exists()
        )

    @property
    def _said(self) -> Path:
        return self._folder / "said"


def error_of(text: str) -> str:
    """The name of the sink's own error in what Spark says, or all of that."""
    named = re.search(r"kafka_sink\.errors\.(\w+)", text)
    return named[1] if named else text

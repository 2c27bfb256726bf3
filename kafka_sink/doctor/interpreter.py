"""Which Python a process has, which version of this package and which kernel; and whether a write there is as it should
be. Spark starts the processes of one write by several rules, so that they may differ (docs/deploying.md)."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_sink.doctor.report import Finding, ok, warning
from kafka_sink.kafka.config import VERSION
from kafka_sink.records.kernel import KERNEL


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`folder`: where the package was found, a folder or a zip. `loss` and `remedy`: why the compiled kernel is not in
    use, and what to do; both are empty where it is, or where it was switched off."""

    executable: str
    python: str
    version: str
    folder: str
    kernel: str
    loss: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return (
            f"{self.executable}, Python {self.python}, kafka_sink {self.version} in {self.folder}, {self.kernel} kernel"
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def this_interpreter() -> Interpreter:
    """That of the calling process."""
    loss = KERNEL.loss
    return Interpreter(
        executable=sys.executable,
        python=platform.python_version(),
        version=VERSION,
        folder=str(Path(__file__).parents[2]),
        kernel=KERNEL.name,
        loss="" if loss is None else loss.reason,
        remedy="" if loss is None else loss.remedy,
    )


def interpreter_of(text: str) -> Interpreter:
    """What `to_json` of another process has written."""
    return Interpreter(**json.loads(text))


def judged(found: Interpreter, driver: Interpreter) -> Finding:
    """Whether a write is as it should be where `found` runs, as the user's own process has `driver`."""
    if found.version != driver.version:
        return warning(
            f"{found}: another version than the driver's {driver.version}",
            f"install pyspark-pykafka {driver.version} there as well: one write goes through both",
        )
    if found.loss:
        return warning(f"{found}: {found.loss}. A core encodes only about a sixth of the rows", found.remedy)
    return ok(str(found))

"""The Python, the package version and the kernel of a process, and a check that they suit a write.

Spark starts the processes of one write by several rules, so their Pythons may differ (docs/deploying.md).
"""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_sink.doctor.pyspark_archives import compiles_pyspark
from kafka_sink.doctor.report import Finding, ok, warning
from kafka_sink.kafka.config import VERSION
from kafka_sink.records.kernel import KERNEL


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter of one process.

    `folder` is the folder or zip that contains the package. `loss` and `remedy` say why the compiled kernel is not in
    use, and what to do. Both are empty if it is in use, or was switched off. `compiles`: the process compiles pyspark's
    modules, because nobody has called `pykafka warm`.
    """

    executable: str
    python: str
    version: str
    folder: str
    kernel: str
    loss: str = ""
    remedy: str = ""
    compiles: bool = False

    def __str__(self) -> str:
        return (
            f"{self.executable}, Python {self.python}, kafka_sink {self.version} in {self.folder}, {self.kernel} kernel"
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def this_interpreter() -> Interpreter:
    """Return the interpreter of the calling process."""
    loss = KERNEL.loss
    return Interpreter(
        executable=sys.executable,
        python=platform.python_version(),
        version=VERSION,
        folder=str(Path(__file__).parents[2]),
        kernel=KERNEL.name,
        loss="" if loss is None else loss.reason,
        remedy="" if loss is None else loss.remedy,
        compiles=compiles_pyspark(),
    )


def interpreter_of(text: str) -> Interpreter:
    """Return the interpreter that another process wrote by `to_json`."""
    return Interpreter(**json.loads(text))


def judged(found: Interpreter, driver: Interpreter) -> Finding:
    """Judge the interpreter `found`: it needs the driver's package version and the compiled kernel."""
    if found.version != driver.version:
        return warning(
            f"{found}: another version than the driver's {driver.version}",
            f"install pyspark-pykafka {driver.version} there too: one write uses both processes",
        )
    if found.loss:
        return warning(f"{found}: {found.loss}. One core encodes only about a sixth of the rows/s", found.remedy)
    cold = ". It compiles pyspark in each process: `pykafka warm` on this host saves 0.4 s a process"
    return ok(f"{found}{cold if found.compiles else ''}")

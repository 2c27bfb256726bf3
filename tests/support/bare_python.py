"""A Python that has the packages of this one, but for some: links to them, for an interpreter without site-packages."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kafka_sink

OURS = Path(kafka_sink.__file__).parent
DEADLINE_S = 240
NEVER = ("__pycache__", "__editable__", "kafka_sink", "pyspark_pykafka")


@dataclass(frozen=True, slots=True)
class BarePython:
    """`folder`: its only packages, with the kafka_sink under test."""

    folder: Path

    def run(self, code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        return subprocess.run(
            [sys.executable, "-S", "-c", code, *arguments],
            env={**inherited, "PYTHONPATH": str(self.folder), **variables}, cwd=self.folder,
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip


def without(packages: Sequence[str], folder: Path) -> BarePython:
    """`packages`: names of what lies in site-packages, without what follows a hyphen."""
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.suffix != ".pth" and not each.name.startswith(NEVER) and each.name.partition("-")[0] not in packages:
            (folder / each.name).symlink_to(each)
    for each in (OURS, OURS.with_name("pyspark_pykafka.py")):
        (folder / each.name).symlink_to(each)
    return BarePython(folder)

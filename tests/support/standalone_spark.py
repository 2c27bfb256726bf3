"""Spark's standalone cluster of one master and one worker, from pip's pyspark, in separate processes.

Their environment has no variable that names a Python, as on a cluster that somebody else has set up.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
DEADLINE_S = 60
_CALLERS = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "PYKAFKA")
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass(frozen=True, slots=True)
class StandaloneSpark:
    """`folder`: the worker's, with a folder of each executor, where its stderr is."""

    master: str
    folder: Path

    def stderr_of_executors(self) -> str:
        return "".join(file.read_text(errors="replace") for file in sorted(self.folder.glob("app-*/*/stderr")))


def bare_environment(**more: str) -> dict[str, str]:
    """Return the tests' environment without the variables that locate Spark, Python or this package."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(_CALLERS)}
    return {**own, "SPARK_LOCAL_IP": "127.0.0.1", **more}


@contextmanager
def standalone_spark(folder: Path) -> Iterator[StandaloneSpark]:
    with ExitStack() as running:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            environment = bare_environment(
                SPARK_HOME=str(SPARK_HOME), SPARK_DAEMON_JAVA_OPTS="-Dspark.master.rest.enabled=false"
            )
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name.lower()}.{name}"]
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments],
                    env=environment, cwd=folder, stdout=out, stderr=subprocess.STDOUT,
                )  # fmt: skip
            running.callback(process.wait, DEADLINE_S)
            running.callback(process.terminate)
            return log

        master_log = start("Master")
        wait_until(lambda: _MASTER_URL.search(master_log.read_text()), DEADLINE_S, "a master")
        found = _MASTER_URL.search(master_log.read_text())
        assert found is not None
        work = folder / "work"
        worker_log = start("Worker", "--cores", "2", "--memory", "2g", "--work-dir", str(work), found[1])
        wait_until(lambda: "Successfully registered with master" in worker_log.read_text(), DEADLINE_S, "a worker")
        yield StandaloneSpark(found[1], work)

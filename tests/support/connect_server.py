"""A server of Spark Connect in a process of its own, from pip's pyspark, as `start-connect-server.sh` starts one."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from standalone_spark import SPARK_HOME, bare_environment
from waiting import wait_until

DEADLINE_S = 180
_STARTED = re.compile(r"Spark Connect server started at: \S*?:(\d+)")


@contextmanager
def connect_server(folder: Path, python: Path) -> Iterator[str]:
    """Yield its address for SPARK_REMOTE. `python`: what it starts for planners, tasks and functions."""
    log = folder / "connect-server.log"
    environment = bare_environment(SPARK_HOME=str(SPARK_HOME), PYSPARK_PYTHON=str(python))
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
    }  # fmt: skip
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]",
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(
            lambda: _STARTED.search(log.read_text(errors="replace")) or process.poll() is not None,
            DEADLINE_S,
            "a server of Spark Connect",
        )
        started = _STARTED.search(log.read_text(errors="replace"))
        assert started is not None, log.read_text(errors="replace")[-4_000:]
        yield f"sc://127.0.0.1:{started[1]}"
    finally:
        process.terminate()
        process.wait(DEADLINE_S)

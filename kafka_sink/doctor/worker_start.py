"""Whether a Python worker of Spark can start on this host and connect back to it in time.

Spark starts a worker, listens on the loopback address, and gives up after 10 s: "Python worker failed to connect back".
This module does the same with the Python that runs `format("pykafka")`, and with the imports of a worker.

Source: PythonWorkerFactory.createSimpleWorker.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time

from kafka_sink.doctor.report import Finding, Verdict, failed, ok, warning

STEP = "python worker"
# As long as Spark waits.
LIMIT_S = 10.0
# On a quiet machine a worker needs about a second.
SLOW_S = 5.0
_POLL_S = 0.1
_PROGRAM = "import socket, sys, pyspark.worker, kafka_sink; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


def look_at_worker() -> Verdict:
    python = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"
    return Verdict(STEP, f"{python} on this host", _started(python))


def _started(python: str) -> Finding:
    correct = "set PYSPARK_PYTHON to the Python that has pyspark and kafka_sink, in the environment of the driver"
    if shutil.which(python) is None:
        return failed("there is no such program, so no worker starts", correct)
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as errors:
        server.settimeout(_POLL_S)
        began_s = time.monotonic()
        worker = subprocess.Popen([python, "-c", _PROGRAM, str(server.getsockname()[1])], stderr=errors)
        try:
            while (took_s := time.monotonic() - began_s) < LIMIT_S:
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    if worker.poll():
                        errors.seek(0)
                        last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
                        return failed(f"it ended with status {worker.returncode}: {last}", correct)
                else:
                    return _judged(took_s)
            return failed(
                f"it had not connected back to 127.0.0.1 after {LIMIT_S:g} s, as long as Spark waits: Python worker "
                f"failed to connect back. {_load()}",
                "give the machine fewer tasks at a time (spark.executor.cores, local[N]) or more cores, look for "
                "a slow disk of the Python environment, and allow connections on the loopback interface. Then start "
                "the query again with its checkpoint",
            )
        finally:
            worker.kill()
            worker.wait()


def _judged(took_s: float) -> Finding:
    said = f"it connected back after {took_s:.1f} s; Spark waits {LIMIT_S:g} s"
    if took_s < SLOW_S:
        return ok(said)
    return warning(f"{said}. {_load()}", "give the machine fewer tasks at a time (spark.executor.cores), or more cores")


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f} processes want its {os.cpu_count()} cores"

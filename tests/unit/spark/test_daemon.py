"""The fork server of tasks: what its process has before it forks, and what two forks of it do not share."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

STATE = """
import gc, json, os, random, sys, threading, uuid
from kafka_sink.spark import daemon

may_fork = daemon.prepare()
from kafka_sink.kept import KEPT

def forked():
    reading, writing = os.pipe()
    if os.fork() == 0:
        import pyarrow as pa, pyarrow.compute as pc
        total = pc.sum(pa.chunked_array([pa.array(range(1000))] * 100)).as_py()  # by Arrow's threads
        os.write(writing, json.dumps([random.random(), uuid.uuid4().hex, total]).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    with open(reading) as file:
        return json.load(file)

open_files = [os.readlink(each.path) for each in os.scandir("/proc/self/fd") if os.path.exists(each.path)]
# The lock of Python's main thread is always locked, and Python makes it anew.
modules = [module for name, module in list(sys.modules.items()) if name != "threading"]
values = [value for module in modules for value in list(vars(module).values())] + [KEPT]
attributes = [each for value in values for each in [value, *getattr(value, "__dict__", {}).values()]]
print(json.dumps({
    "may fork": may_fork,
    "threads": len(os.listdir("/proc/self/task")),
    "sockets": [each for each in open_files if each.startswith("socket")],
    "locked": [repr(each) for each in attributes if isinstance(each, type(threading.Lock())) and each.locked()],
    "clients": len(KEPT._clients),
    "shared generators": [name for name in ("numpy.random", "pandas") if name in sys.modules],
    "needed": sorted(set(daemon.MODULES) - set(sys.modules)),
    "forks": [forked(), forked()],
}))
"""
THREADED = """
import runpy, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv = ["", "pyspark.worker"]
runpy.run_module("kafka_sink.spark.daemon", run_name="__main__")
"""


def test_it_forks_without_threads_connections_locks_and_generators_in_common() -> None:
    # Spark sets OMP_NUM_THREADS to spark.task.cpus. Python 3.12 warns of a fork of a process with threads.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", STATE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    (random, identifier, total), (other_random, other_identifier, _) = found.pop("forks")
    assert found == {
        "may fork": True, "threads": 1, "sockets": [], "locked": [], "clients": 0, "shared generators": [],
        "needed": [],
    }  # fmt: skip
    assert total == 49_950_000 and random != other_random and identifier != other_identifier


def test_with_a_thread_it_becomes_sparks_own_server() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        (port,) = struct.unpack("!i", server.stdout.read(4))
        with open(f"/proc/{server.pid}/cmdline") as file:
            command = file.read().split("\0")
        server.stdin.close()
        assert port > 0 and command[1:4] == ["-m", "pyspark.daemon", "pyspark.worker"]
        assert b"spark.task.cpus" in server.stderr.read()

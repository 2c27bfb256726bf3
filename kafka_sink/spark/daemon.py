"""Spark's fork server for tasks, which has the modules of a task before it forks: `spark.python.daemon.module`.

Workers start without imports, and share the memory of modules. Everything else is Spark's own: sockets, secrets,
versions, and the Python functions of other formats. Spark takes the conf for tasks only; plans and commits have Spark's
server in any case.

A fork copies one thread, and everything that the others had locked. So the modules must start no thread, open no
connection and hold no lock. OpenBLAS starts threads if OMP_NUM_THREADS is more than 1, which Spark sets from
spark.task.cpus; then this process becomes Spark's own server. No generator of random numbers may be the same in two
workers: Python makes a new seed for its own after a fork, and numpy's gets one here.
`tests/unit/spark/test_workers.py` looks at each of these.

Source: pyspark/daemon.py; PythonPlannerRunner.scala, which has no daemon module of the conf.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys
from importlib.machinery import ModuleSpec

import pyspark
from pyspark import daemon

log = logging.getLogger("kafka_sink")

# What tasks import: their half of Spark, both guarantees, reads, and the requests of each.
MODULES = (
    "pyspark.worker",
    "pyspark.sql.datasource",
    "pyarrow.compute",
    "kafka_sink.spark.writer",
    "kafka_sink.spark.rows",
    "kafka_sink.spark.interceptor_chain",
    "kafka_sink.spark.exactly_once.slot",
    "kafka_sink.spark.reading.batch_reader",
    "kafka_sink.spark.reading.stream_reader",
    "kafka_sink.spark.reading.range_reader",
    "kafka_sink.kafka.client",
    "kafka_sink.kafka.reader",
    "kafka_sink.kafka.protocol.needs",
    "kio.serial",
    "zstandard",
)


def prepare() -> bool:
    """Import what tasks need. Return whether this process may fork: it has one thread."""
    # Arrow's allocator frees memory in a thread of its own, unless it is told to do so with the next allocation.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in MODULES:
        importlib.import_module(name)
    # Where it is installed pyarrow imports it for what a task returns. A broken one fails where it is used.
    with contextlib.suppress(Exception):
        importlib.import_module("pandas")
        os.register_at_fork(after_in_child=importlib.import_module("numpy.random").seed)
    _forget_importers_of(pyspark.__spec__)
    # Workers collect garbage after each task. What is frozen stays shared.
    gc.collect()
    gc.freeze()
    return os.path.isdir("/proc/self/task") and len(os.listdir("/proc/self/task")) == 1


def _forget_importers_of(spec: ModuleSpec | None) -> None:
    """Each package in an archive has an importer, which Python makes anew when it needs one. In Python 3.11 a worker
    that begins (`importlib.invalidate_caches`) reads the list of the archive for each: 0.1 s and 25 MB for pyspark."""
    archive = getattr(spec and spec.loader, "archive", None)
    for path, importer in list(sys.path_importer_cache.items()):
        if archive is not None and getattr(importer, "archive", None) == archive:
            del sys.path_importer_cache[path]


def main() -> None:
    if prepare():
        daemon.manager()
    log.warning(
        "A module that workers need starts threads, so Spark's own pyspark.daemon forks the workers, without modules. "
        "Usually spark.task.cpus or OMP_NUM_THREADS is more than 1."
    )
    os.execv(sys.executable, [sys.executable, "-m", daemon.__name__, *sys.argv[1:]])


if __name__ == "__main__":
    main()

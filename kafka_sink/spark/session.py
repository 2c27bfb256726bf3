"""The session of a DataFrame, and the Python that its driver starts for planners and tasks.

Spark starts `python3` of the PATH unless PYSPARK_PYTHON is set. That is another Python if the caller's environment is
not activated. It seldom has the package, so Spark finds no format. Nothing is set on import, because other hosts of a
cluster may not have the caller's Python. With a local master there are no others, so `use` makes Spark start it.

Source: pyspark/core/context.py (pythonExec); UserDefinedPythonDataSource.scala, which looks formats up.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_sink.errors.installed import NEEDED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("kafka_sink")

_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_HAS_PACKAGE = "import importlib.util as u; raise SystemExit(u.find_spec('pyspark_pykafka') is None)"
_DEADLINE_S = 5


def other_python() -> str | None:
    """Return the Python that Spark would start, if it is not in the folder of the running one; None if it is, or if the
    user has chosen one."""
    # A client of Spark Connect has no Py4J, and starts no Spark.
    if any(name in os.environ for name in _VARIABLES) or find_spec("py4j") is None:
        return None
    found = shutil.which("python3")
    if found is None or Path(found).parent.resolve() == Path(sys.executable).parent.resolve():
        return None
    return found


def warn_if_it_lacks_the_package() -> None:
    """Log a warning if there is no pyspark, or if a Spark that this process starts would not find the format. Not for a
    worker of Spark, for a client of Spark Connect, or for a command of this package."""
    is_command = Path(sys.argv[0]).name == "pykafka" or any(each.startswith("kafka_sink") for each in sys.orig_argv)
    is_worker = any(name.startswith("PYTHON_WORKER_FACTORY") for name in os.environ)
    if is_command or is_worker:
        return
    if find_spec("pyspark") is None:
        log.warning(NEEDED)
        return
    if "SPARK_REMOTE" in os.environ or (python := other_python()) is None:
        return
    import subprocess

    try:
        status = subprocess.run([python, "-c", _HAS_PACKAGE], capture_output=True, timeout=_DEADLINE_S).returncode
    except (OSError, subprocess.TimeoutExpired):
        return
    if status:
        log.warning(
            'A Spark of this process starts %s, which has no pyspark-pykafka, so it finds no format("pykafka"). Set '
            "PYSPARK_PYTHON=%s before the session starts, or activate that environment. With a local master "
            "kafka_sink.register(spark) does it, too.",
            python,
            sys.executable,
        )


def use(spark: SparkSession) -> bool:
    """Make a local Spark start the running Python from now on. Return whether it would have started another one, and so
    does not find the format by itself."""
    if is_connect(spark) or other_python() is None or not str(spark.sparkContext.master).startswith("local"):
        return False
    spark.sparkContext.pythonExec = sys.executable
    return True


# --- the active session -----------------------------------------------------------------------------------------------


def is_connect(spark: SparkSession) -> bool:
    """Return True if `spark` is a Spark Connect session.

    The check uses the module's name, because importing Spark Connect needs grpc, which may not be installed.
    """
    return type(spark).__module__.startswith("pyspark.sql.connect.")


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the thread's active session in the block, and restore the previous one afterwards.

    Spark looks up a format's name in the thread's active session. In threads that the user's Python starts, that is not
    the DataFrame's. The server of Spark Connect runs each request in the request's own session.
    """
    if is_connect(spark):
        yield
        return
    # An import of the package imports this module, and must not import Spark.
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    in_jvm = SparkSession._get_j_spark_session_class(spark._jvm)
    before = in_jvm.getActiveSession()
    in_jvm.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        # If the JVM has ended, the block has already raised an error.
        with suppress(Py4JError):
            if before.isDefined():
                in_jvm.setActiveSession(before.get())
            else:
                in_jvm.clearActiveSession()

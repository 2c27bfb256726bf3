"""Checks from where `format("pykafka")` runs: its Python interpreters, and the brokers' hosts seen from the executors.

The interpreters on the driver's host, which plans and commits, and in tasks may differ from the Python of the session's
functions. If Spark found the format itself, planner and tasks run PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else
python3, from the environment of the driver's JVM. If the format was registered, both run the Python of functions. So
this module reads `format("pykafka")`: Spark plans and runs a read in the same workers as a write, and returns rows.

Source: UserDefinedPythonDataSource.scala, pyspark/core/context.py (pythonExec); seen on pyspark 4.3.0.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_sink.doctor.interpreter import Interpreter, interpreter_of, judged, this_interpreter
from kafka_sink.doctor.report import DRIVER, Finding, Report, Verdict, failed, from_json, to_json, warning
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.spark.session import is_connect
from kafka_sink.spark.source import INTERPRETERS, KafkaDataSource, register_source

STEP = "python"
# Enough for all executors of a small cluster.
TASKS = 16
_PLANNER, _TASK = "planner", "tasks"
_SCHEMA = "process STRING, host STRING, interpreter STRING"
_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
# The most useful lines of Spark's long texts, the best first.
_TELLING = (
    re.compile(r"Python worker failed to connect back[^\n]*"),
    re.compile(r"ModuleNotFoundError: [^\n]*"),
    re.compile(r"Cannot run program [^\n]*"),
    re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\n]*"),
    re.compile(r"\[[A-Z_.]+\] [^\n]*"),
    re.compile(r"[^\n]*"),
)


class InterpreterReader(DataSourceReader):
    """Returns one row for each task, and one for the planner, which makes this object."""

    def __init__(self) -> None:
        self.planner = (_PLANNER, socket.gethostname(), this_interpreter().to_json())

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if partition.value == 0:
            yield self.planner
        yield _TASK, socket.gethostname(), this_interpreter().to_json()


def examine_interpreters(spark: SparkSession) -> Report:
    """Return the report on the interpreters of `spark`, with the calling process first.

    If Spark does not find the format, register it as an application would do, and read again.
    """
    here = this_interpreter()
    driver = Verdict(STEP, DRIVER, judged(here, here))
    try:
        return Report((driver, *_asked(spark, here)))
    except Exception as failure:
        if not _is_not_found(failure):
            return Report((driver, _unusable(failure, spark, here)))
    try:
        register_source(spark, KafkaDataSource)
        asked = _asked(spark, here)
    except Exception as failure:
        return Report((driver, _unusable(failure, spark, here)))
    return Report((driver, Verdict(STEP, "format", _only_registered(spark, here)), *asked))


def telling(failure: Exception) -> str:
    """Return the line of Spark's exception that says why its Python does not run."""
    return next(found[0] for pattern in _TELLING if (found := pattern.search(str(failure))))


def _asked(spark: SparkSession, driver: Interpreter) -> list[Verdict]:
    """Return a verdict for each different interpreter, the planner's first. Raises Spark's exceptions."""
    rows = set(map(tuple, spark.read.format("pykafka").option(INTERPRETERS, "true").schema(_SCHEMA).load().collect()))
    return [
        Verdict(STEP, process, judged(interpreter_of(text), driver), DRIVER if process == _PLANNER else host)
        for process, host, text in sorted(rows)
    ]


def _is_not_found(failure: Exception) -> bool:
    return "[DATA_SOURCE_NOT_FOUND]" in str(failure)


def _only_registered(spark: SparkSession, driver: Interpreter) -> Finding:
    return warning(
        f'Spark finds format("pykafka") only after kafka_sink.register(spark): by itself it finds '
        f"no kafka_sink that is installed in {_python_of(spark)}",
        f"call kafka_sink.register(spark) in each application, or {_set_python(spark, driver)}",
    )


def _unusable(failure: Exception, spark: SparkSession, driver: Interpreter) -> Verdict:
    return Verdict(
        STEP,
        f"{_PLANNER}, {_TASK}",
        failed(
            f'format("pykafka") cannot run in Spark\'s workers: {telling(failure)}. They run {_python_of(spark)}',
            _set_python(spark, driver),
        ),
    )


def _python_of(spark: SparkSession) -> str:
    """Describe the Python that the session's JVM starts. A JVM on this host has this process's environment."""
    if is_connect(spark):
        return "the Python that the Spark Connect server starts, by the server's environment"
    variables = " and ".join(f"{name} is {os.environ.get(name, 'not set')}" for name in _VARIABLES)
    return f"the Python that the driver's JVM starts ({variables})"


def _set_python(spark: SparkSession, driver: Interpreter) -> str:
    if not is_connect(spark) and os.path.isdir(driver.folder):
        return f"set PYSPARK_PYTHON={shlex.quote(driver.executable)} in the environment where Spark's driver starts"
    where = "Spark Connect server" if is_connect(spark) else "driver"
    return (
        "install the package in a Python that every host has, and set PYSPARK_PYTHON to that Python in the environment "
        f"where the {where} starts"
    )


# --- from the executors -----------------------------------------------------------------------------------------------


def examine_from_executors(spark: SparkSession, config: ClientConfig) -> Report:
    """Return a report of the brokers of `config`, as seen from the executors, which may have another DNS or firewall.

    Spark decides where tasks run: a host without a task is missing in the report.
    """
    from pyspark.sql.functions import udf  # the planner and the tasks of a check need none

    job = uuid.uuid4().hex

    def look(_: int) -> tuple[str, str]:
        return socket.gethostname(), _seen_for(job, config)

    # Functions of Arrow batches need pandas.
    seen = udf(look, "host STRING, verdicts STRING", useArrow=False)
    rows = spark.range(0, TASKS, 1, TASKS).select(seen("id").alias("seen")).collect()
    by_host = dict(sorted(row.seen for row in rows))
    return sum((Report(from_json(verdicts, seen_from=host)) for host, verdicts in by_host.items()), start=Report(()))


@functools.lru_cache(maxsize=1)
def _seen_for(job: str, config: ClientConfig) -> str:
    """Return the verdicts of this process, which may run several tasks of a job and checks once."""
    # The report on interpreters needs none of it.
    from kafka_sink.doctor.engine import examine_hosts

    return to_json(examine_hosts(config).verdicts)

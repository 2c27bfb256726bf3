"""Which Python `format("pykafka")` runs: on the driver's host, where a write is planned and committed, and in tasks.

It need not be the one that runs the session's functions. Where Spark has found the format itself, the planner and the
tasks run PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else python3, by the environment of the driver's JVM; where it was
registered, both run the Python of functions. So Spark is asked to read `format("pykafka")`: it plans and runs a read in
the workers that it takes for a write, and brings back rows.

Source: UserDefinedPythonDataSource.scala, pyspark/core/context.py (pythonExec); seen on pyspark 4.3.0.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka_sink.doctor.interpreter import Interpreter, interpreter_of, judged, this_interpreter
from kafka_sink.doctor.report import DRIVER, Finding, Report, Verdict, failed, warning
from kafka_sink.spark.source import INTERPRETERS, KafkaDataSource, register_source

STEP = "python"
# Enough to meet the executors of a small cluster.
TASKS = 16
_PLANNER, _TASK = "planner", "tasks"
_SCHEMA = "process STRING, host STRING, interpreter STRING"
_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
# What of Spark's long texts tells most, the best first.
_TELLING = (
    re.compile(r"ModuleNotFoundError: [^\n]*"),
    re.compile(r"Cannot run program [^\n]*"),
    re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\n]*"),
    re.compile(r"\[[A-Z_.]+\] [^\n]*"),
    re.compile(r"[^\n]*"),
)


class InterpreterReader(DataSourceReader):
    """A row of each task, and one of the planner, which makes this object."""

    def __init__(self) -> None:
        self.planner = (_PLANNER, socket.gethostname(), this_interpreter().to_json())

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if partition.value == 0:
            yield self.planner
        yield _TASK, socket.gethostname(), this_interpreter().to_json()


def examine_interpreters(spark: SparkSession) -> Report:
    """The interpreters of `spark`, the calling process's first. A format that Spark does not find is registered, as an
    application would do it, and asked again."""
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
    """The line of an exception of Spark's that says why its Python does not run."""
    return next(found[0] for pattern in _TELLING if (found := pattern.search(str(failure))))


def _asked(spark: SparkSession, driver: Interpreter) -> list[Verdict]:
    """Each that differs once, the planner's first. Raises whatever Spark says."""
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
    """What the session's JVM starts; one of this host has this process's environment."""
    if _is_remote(spark):
        return "the Python that the Spark Connect server starts, by the server's environment"
    said = " and ".join(f"{name} is {os.environ.get(name, 'not set')}" for name in _VARIABLES)
    return f"the Python that the driver's JVM starts ({said})"


def _set_python(spark: SparkSession, driver: Interpreter) -> str:
    if not _is_remote(spark) and os.path.isdir(driver.folder):
        return f"set PYSPARK_PYTHON={shlex.quote(driver.executable)} in the environment where Spark's driver starts"
    where = "Spark Connect server" if _is_remote(spark) else "driver"
    return (
        "install the package in a Python that every host has, and set PYSPARK_PYTHON to that Python in the environment "
        f"where the {where} starts"
    )


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")

"""The bar of an export, where somebody looks at it: a terminal or a notebook, with the extra `progress` installed.

A bar goes by an interceptor (spark/tally.py), and interceptors are a matter of the whole session. So a write that has a
bar goes by a format of its own, with what is registered for "pykafka" and the tally behind it: no interceptor of the
user's is left out, the session's format stays as it is, and another write at the same time has another bar. Where it is
not known what is registered (`source_of`), and with Spark Connect, which has no accumulators, there is no bar; nor,
unless it is asked for, in a session that is a copy, as that of foreachBatch.

Neither formats nor accumulators can be taken back. So both are used again: there are as many as exports at one time.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from weakref import ref

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_sink.spark.source import KafkaDataSource, source_of
from kafka_sink.spark.tally import Tally

_numbers = itertools.count(1)


@dataclass(slots=True)
class _Format:
    """One export at a time has it. `tally`: of `context`. `registered`: for which session, and with what behind it."""

    name: str
    tally: Tally
    context: SparkContext
    registered: tuple[ref[SparkSession], type[KafkaDataSource]] | None = None


# Those that no export has now; `pop` and `append` are one step each for other threads.
_free: list[_Format] = []


@contextmanager
def watched(spark: SparkSession, topic: str | None, *, wanted: bool | None, is_remote: bool) -> Iterator[str]:
    """The name of the format to write by. `wanted` is None: if somebody looks."""
    source = source_of(spark)
    is_wanted = is_looked_at() and is_main(spark) if wanted is None else wanted
    if is_remote or source is None or not is_wanted or find_spec("tqdm") is None:
        yield KafkaDataSource.name()
        return
    from kafka_sink.monitoring.bar import ExportBar

    with _format(spark) as form, ExportBar(spark, tally=form.tally, desc=topic):
        _register(form, spark, source)
        yield form.name


def is_looked_at() -> bool:
    """A notebook's kernel has no terminal, and shows all the same."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None or sys.stderr.isatty()


def is_main(spark: SparkSession) -> bool:
    """Whether it is the session that the program began with. foreachBatch has a copy, wrapped anew each time; PySpark
    says of no session that it is one."""
    return spark is getattr(SparkSession, "_instantiatedSession", None)


@contextmanager
def _format(spark: SparkSession) -> Iterator[_Format]:
    context = spark.sparkContext
    try:
        form = _free.pop()
    except IndexError:
        form = _Format(f"pykafka-export-{next(_numbers)}", Tally(spark), context)
    if form.context is not context:
        # That one was stopped, and its accumulators with it.
        form = _Format(form.name, Tally(spark), context)
    try:
        yield form
    finally:
        _free.append(form)


def _register(form: _Format, spark: SparkSession, source: type[KafkaDataSource]) -> None:
    """Makes its name mean `source` with its tally behind, instead of what it meant in this session. Where it means
    that already it stays: Spark would warn."""
    if form.registered is not None and (form.registered[0](), form.registered[1]) == (spark, source):
        return
    name = form.name
    with_tally = type(
        "WatchedKafkaDataSource",
        (source,),
        {"interceptors": (*source.interceptors, form.tally), "name": classmethod(lambda cls: name)},
    )
    spark.dataSource.register(with_tally)
    form.registered = ref(spark), source

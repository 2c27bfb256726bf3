"""The progress bar of an export in a terminal or notebook, with the extra `progress` (tqdm) installed.

The bar needs an interceptor (spark/tally.py), and interceptors apply to the whole session. So `export` writes with its
own format: the interceptors registered for "pykafka", plus the tally. The user's interceptors all run, the
session's format does not change, and parallel writes have separate bars.

There is no bar if the registered interceptors are unknown (`source_of`), and none with Spark Connect, which has no
accumulators. In a copied session, as in foreachBatch, there is a bar only on request.

Spark cannot unregister formats and accumulators. So both are used again. Their number is the largest number of exports
at one time.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import ref

from pyspark.sql import SparkSession

from kafka_sink.spark.source import KafkaDataSource, source_of
from kafka_sink.spark.tally import Tally

if TYPE_CHECKING:
    # A client of Spark Connect has none.
    from pyspark import SparkContext

log = logging.getLogger(__name__)
_numbers = itertools.count(1)


@dataclass(slots=True)
class _Format:
    """A format, used by one export at a time. `tally` belongs to `context`. `registered` is the session in which the
    format is registered, and the source behind it."""

    name: str
    tally: Tally
    context: SparkContext
    registered: tuple[ref[SparkSession], type[KafkaDataSource]] | None = None


# Formats that no export uses now. `pop` and `append` are atomic for other threads.
_free: list[_Format] = []


@contextmanager
def watched(spark: SparkSession, topic: str | None, *, wanted: bool | None, is_remote: bool) -> Iterator[str]:
    """Yield the name of the format for the write. With `wanted` None there is a bar in a terminal or notebook."""
    source = source_of(spark)
    is_wanted = is_looked_at() and is_main(spark) if wanted is None else wanted
    if is_remote or source is None or not is_wanted or not can_draw():
        yield KafkaDataSource.name()
        return

    # It needs tqdm.
    from kafka_sink.monitoring.bar import ExportBar

    with _format(spark) as form, ExportBar(spark, tally=form.tally, desc=topic):
        _register(form, spark, source)
        yield form.name


@functools.cache
def can_draw() -> bool:
    """Log what is missing, once per process."""
    if find_spec("tqdm") is not None:
        return True
    log.warning("there is no progress bar without tqdm: pip install 'pyspark-pykafka[progress]'")
    return False


def is_looked_at() -> bool:
    """Return True in a terminal or a notebook. A notebook's kernel has no terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None or sys.stderr.isatty()


def is_main(spark: SparkSession) -> bool:
    """Return True if `spark` is the program's first session.

    foreachBatch has a copy with a new wrapper each time. PySpark has no method that identifies a copy.
    """
    return spark is getattr(SparkSession, "_instantiatedSession", None)


@contextmanager
def _format(spark: SparkSession) -> Iterator[_Format]:
    context = spark.sparkContext
    try:
        form = _free.pop()
    except IndexError:
        form = _Format(f"pykafka-export-{next(_numbers)}", Tally(spark), context)
    if form.context is not context:
        # The format's context was stopped, and its accumulators with it.
        form = _Format(form.name, Tally(spark), context)
    try:
        yield form
    finally:
        _free.append(form)


def _register(form: _Format, spark: SparkSession, source: type[KafkaDataSource]) -> None:
    """Register the format's name for `source` with the tally. An existing equal registration stays, because Spark warns
    about a repeated one."""
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

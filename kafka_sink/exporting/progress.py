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
from types import TracebackType
from typing import Any
from weakref import ref

from pyspark import SparkContext
from pyspark.sql import SparkSession
from tqdm.auto import tqdm

from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.source import KafkaDataSource, source_of
from kafka_sink.spark.tally import ReceiptsByPartition, Tally

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


class ExportBar(Interceptor):
    """A progress bar.

        with ExportBar(spark, total=df.count()) as bar:
            kafka_sink.register(spark, interceptors=[bar])
            df.write.format("pykafka").mode("append").options(...).save()

    It counts acknowledged rows, and moves when a task ends. With more and smaller tasks it moves more often. `total` is
    the number of rows; without it the bar shows only the count. `tally` is an existing tally to use again. Further
    arguments go to tqdm.
    """

    def __init__(
        self, spark: SparkSession, total: int | None = None, *, tally: Tally | None = None, **of_tqdm: Any
    ) -> None:
        self._bar: tqdm[Any] | None = tqdm(total=total, **{"unit": " rows", "unit_scale": True, **of_tqdm})
        self._tally = Tally(spark) if tally is None else tally
        self._tally.watch(self._show)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the bar: tasks count, and show nothing."""
        return {"_bar": None, "_tally": self._tally}

    def __enter__(self) -> ExportBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._bar is not None, "tasks have no bar to leave"
        self._tally.unwatch()
        self._bar.close()

    @property
    def value(self) -> ReceiptsByPartition:
        """The rows acknowledged so far. Only the process that shows the bar can read it."""
        return self._tally.value

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._tally.on_acknowledgement(receipts, error)

    def _show(self, so_far: ReceiptsByPartition) -> None:
        assert self._bar is not None, "only the driver sums up"
        acknowledged = sum(receipt.record_count for receipt in so_far.values())
        self._bar.set_postfix(MB=round(sum(receipt.batch_bytes for receipt in so_far.values()) / 1e6, 1), refresh=False)
        self._bar.update(acknowledged - self._bar.n)

"""The bar of an export, where somebody looks at it: a terminal or a notebook, with the extra `progress` installed.

A bar is an interceptor (monitoring/bar.py), and interceptors are a matter of the whole session. So a write that has a
bar goes by a format of its own, with what is registered for "pykafka" and the bar behind it: no interceptor of the
user's is left out, the session's format stays as it is, and another write at the same time has another bar. Where it is
not known what is registered (`source_of`), and with Spark Connect, which has no accumulators, there is no bar.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from pyspark.sql import SparkSession

from kafka_sink.spark.source import KafkaDataSource, source_of

_numbers = itertools.count(1)


@contextmanager
def watched(spark: SparkSession, topic: str | None, *, wanted: bool | None, is_remote: bool) -> Iterator[str]:
    """The name of the format to write by. `wanted` is None: if somebody looks."""
    source = source_of(spark)
    if is_remote or source is None or not (is_looked_at() if wanted is None else wanted) or find_spec("tqdm") is None:
        yield KafkaDataSource.name()
        return
    from kafka_sink.monitoring.bar import ExportBar

    with ExportBar(spark, desc=topic) as bar:
        yield _format_with(spark, source, bar)


def is_looked_at() -> bool:
    """A notebook's kernel has no terminal, and shows all the same."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None or sys.stderr.isatty()


def _format_with(spark: SparkSession, source: type[KafkaDataSource], bar: Any) -> str:
    """Registers `source` with `bar` behind its interceptors; returns its name."""
    name = f"pykafka-export-{next(_numbers)}"
    with_bar = type(
        "WatchedKafkaDataSource",
        (source,),
        {"interceptors": (*source.interceptors, bar), "name": classmethod(lambda cls: name)},
    )
    spark.dataSource.register(with_bar)
    return name

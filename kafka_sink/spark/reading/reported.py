"""Notifies the interceptors of a read."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from kafka_sink.kafka.consumer.statistics import ReadStatistics
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.interceptors import Interceptor


def reported(
    rows: Generator[pa.RecordBatch, None, Sequence[ReadStatistics]], interceptors: Sequence[Interceptor]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges. Notify the interceptors when Spark asks for more than the last of them."""
    chain = InterceptorChain(interceptors)
    try:
        for statistics in (yield from rows):
            chain.on_read(statistics)
    finally:
        chain.close()

"""The interceptors of one write or read, in order: their calls, and the result of an exception.

| Raises in | Then |
|---|---|
| `on_send` | InterceptorFailed: the task fails, and its rows are sent when it runs again |
| the other four | logged; the other interceptors are still called, and the result of the task does not change |

Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafka_sink.errors import InterceptorFailed, SchemaError
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.statistics import ReadStatistics, WriteStatistics
from kafka_sink.records.columns import DEAD_LETTER, check_schema
from kafka_sink.spark.interceptors import Interceptor

log = logging.getLogger(__name__)


class InterceptorChain:
    """Any number of interceptors, including none."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the result of the last interceptor. Raises InterceptorFailed."""
        for interceptor in self._interceptors:
            arrow_batch = _rows_of(interceptor, arrow_batch)
        return arrow_batch

    def checked(
        self, arrow_batches: Iterator[pa.RecordBatch], *, topic_option: bool, takes_dead_letters: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result of `on_send` for each Arrow batch. Columns and types are checked when the schema changes.

        Raises InterceptorFailed, SchemaError.
        """
        checked_schema: pa.Schema | None = None
        for arrow_batch in arrow_batches:
            to_send = self.on_send(arrow_batch)
            if to_send.schema is not checked_schema:
                self.check_schema(
                    to_send.schema, arrow_batch.schema, topic_option=topic_option, takes_dead_letters=takes_dead_letters
                )
                checked_schema = to_send.schema
            yield to_send

    def check_schema(
        self, returned: pa.Schema, given: pa.Schema, *, topic_option: bool, takes_dead_letters: bool
    ) -> None:
        """Run `columns.check_schema` on the result of `on_send`.

        Raises SchemaError if `returned` equals `given`, because then the DataFrame is wrong, otherwise
        InterceptorFailed.
        """
        if DEAD_LETTER in given.names and DEAD_LETTER not in returned.names:
            names = ", ".join(map(_name, self._interceptors))
            raise InterceptorFailed(interceptor=names, problem=f"returned no column {DEAD_LETTER!r}, which was there")
        try:
            check_schema(returned, topic_option=topic_option, takes_dead_letters=takes_dead_letters)
        except SchemaError as wrong:
            if returned.equals(given):
                raise
            names = ", ".join(map(_name, self._interceptors))
            problem = f"returned columns that no Kafka record has ({type(wrong).__name__}: {wrong.column!r})"
            raise InterceptorFailed(interceptor=names, problem=problem) from wrong

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._notify("on_acknowledgement", receipts, error)

    def on_statistics(self, statistics: WriteStatistics) -> None:
        self._notify("on_statistics", statistics)

    def on_read(self, statistics: ReadStatistics) -> None:
        self._notify("on_read", statistics)

    def close(self) -> None:
        self._notify("close")

    def _notify(self, method: str, *values: object) -> None:
        for interceptor in self._interceptors:
            try:
                getattr(interceptor, method)(*values)
            # Catch all exceptions: this is the user's code, and it cannot change the result of the task any more.
            except Exception:
                log.exception("interceptor %s: %s raised; the task goes on without it", _name(interceptor), method)


def _rows_of(interceptor: Interceptor, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        returned = interceptor.on_send(arrow_batch)
    # Catch all exceptions, because this is the user's code.
    except Exception as error:
        problem = f"on_send raised {type(error).__name__}"
        raise InterceptorFailed(interceptor=_name(interceptor), problem=problem) from error
    if not isinstance(returned, pa.RecordBatch):
        problem = f"on_send returned {type(returned).__name__}; expected pyarrow.RecordBatch"
    elif returned.num_rows != arrow_batch.num_rows:
        problem = f"on_send returned {returned.num_rows} rows for {arrow_batch.num_rows}; it must return as many"
    else:
        return returned
    raise InterceptorFailed(interceptor=_name(interceptor), problem=problem)


def _name(interceptor: Interceptor) -> str:
    return type(interceptor).__qualname__

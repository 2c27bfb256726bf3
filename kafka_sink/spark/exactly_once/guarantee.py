"""Exactly-once as a `Guarantee` (`spark/writer.py`): a class for batch writes and a class for streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.options.config import GivenOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.spark.exactly_once.plan import Plan
    from kafka_sink.spark.interceptor_chain import InterceptorChain
    from kafka_sink.spark.task_results import TaskCommitMessage


class _ExactlyOnce:
    """`planned` is None before `plan`. Tasks always have it."""

    def __init__(self, options: GivenOptions) -> None:
        self.options = options
        self.planned: Plan | None = None

    def write(self, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows into open transactions. read_committed readers do not see them yet."""
        from kafka_sink.spark.exactly_once.slot import write_slot

        assert self.planned is not None, "a task has its writer from the process that planned"
        return write_slot(self.options, self.planned, chain, arrow_batches)

    def commit(self, messages: Sequence[WriterCommitMessage | None], micro_batch_id: int | None) -> None:
        """Make the rows visible."""
        from kafka_sink.spark.exactly_once.commit import commit_micro_batch
        from kafka_sink.spark.exactly_once.plan import in_transaction_errors
        from kafka_sink.spark.limits import check_bad_rows
        from kafka_sink.spark.task_results import check_all_present

        with in_transaction_errors(None if self.planned is None else self.planned.batch):
            present = check_all_present(messages, micro_batch_id=micro_batch_id)
            check_bad_rows(present, rows_are_written=False)
        commit_micro_batch(self.options, present)


class ExactlyOnceBatch(_ExactlyOnce):
    def plan(self) -> None:
        from kafka_sink.spark.exactly_once.plan import plan_batch

        if self.planned is None:
            self.planned = plan_batch(self.options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of the rows, so that read_committed readers never see them."""
        from kafka_sink.spark.exactly_once.commit import abort_run

        if self.planned is not None:
            abort_run(self.options, self.planned.sink.names.sink, self.planned.facts.generation)


class ExactlyOnceStream(_ExactlyOnce):
    """`checkpoint`: the location, None if it is not an option of the write."""

    def __init__(self, options: GivenOptions, checkpoint: str | None) -> None:
        super().__init__(options)
        self.checkpoint = checkpoint

    def plan(self) -> None:
        from kafka_sink.spark.exactly_once.plan import plan_stream

        if self.planned is None:
            self.planned = plan_stream(self.options, self.checkpoint)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of the rows, if the generation of the run is known."""
        from kafka_sink.spark.exactly_once.commit import abort_micro_batch

        abort_micro_batch(self.options, messages, checkpoint=self.checkpoint)

"""What users extend to see or change rows on their way out, and to learn what became of them.

    class MaskEmails(Interceptor):
        def on_send(self, arrow_batch):
            masked = pc.replace_substring_regex(arrow_batch["value"], "[^ ]+@", "***@")
            return arrow_batch.set_column(arrow_batch.schema.get_field_index("value"), "value", masked)

    kafka_sink.register(spark, interceptors=[MaskEmails()])

Kafka's ProducerInterceptor, with Arrow batches for records and a task's write for a send. Its objects are given to
`register`, never named in options. Spark pickles them, so each task attempt has copies of its own, as they were when
they were registered: what one counts, it counts for one write, on the thread of that write. A class of a notebook or a
script travels along; one of a module must be importable on driver and executors.

Where it differs from Kafka's: an exception of `on_send` fails the write there and then. Kafka's producer logs it and
sends the record as it was before; a mask that fails would let through what it was there to hide.

Source: org.apache.kafka.clients.producer.ProducerInterceptor (KIP-42).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
    from kafka_sink.kafka.producer.statistics import WriteStatistics


class Interceptor:
    """Overrides what it needs; each method does nothing by itself."""

    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to send instead of those of `arrow_batch`: as many, with columns that the sink takes, in any type
        that it takes. Called for each Arrow batch, in the order of `interceptors`, each with what the one before
        returned, before topics and partitions are decided. An Arrow batch of a stream's or a task's rows has up to
        10,000 (`spark.sql.execution.arrow.maxRecordsPerBatch`); a task without rows has none.

        An exception fails the task with InterceptorFailed, and so does another count of rows: filter the DataFrame.
        """
        return arrow_batch

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        """Called once at the end of a write. `error` None: the leaders have acknowledged every row, and `receipts` says
        where. Else the write has failed with `error`, `receipts` is empty, and rows may or may not be in Kafka. An
        exception is logged and changes nothing."""

    def on_statistics(self, statistics: WriteStatistics) -> None:
        """Called once after `on_acknowledgement`, where the write succeeded: what was sent again, how long brokers held
        the task back, and its bad rows. An exception is logged and changes nothing."""

    def close(self) -> None:
        """Called once, last of all, whatever happened. An exception is logged and changes nothing. When Spark kills the
        worker process, neither this nor `on_acknowledgement` is called."""

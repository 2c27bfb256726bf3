"""The class that users extend to see or change rows before they are sent, and to receive the results of writes and
reads.

    class MaskEmails(Interceptor):
        def on_send(self, arrow_batch):
            masked = pc.replace_substring_regex(arrow_batch["value"], "[^ ]+@", "***@")
            return arrow_batch.set_column(arrow_batch.schema.get_field_index("value"), "value", masked)

    kafka_sink.register(spark, interceptors=[MaskEmails()])

It corresponds to Kafka's ProducerInterceptor, with Arrow batches instead of records and a task's write instead of a
send. Pass objects to `register`; no option names them. Spark pickles the objects, so each task attempt has its own
copies, in the state at registration. So a counter in an interceptor counts one write, on the thread of that write.
Spark also pickles a class that is defined in a notebook or a script. A class of a module must be importable on driver
and executors.

One difference from Kafka: an exception in `on_send` fails the write immediately. Kafka's producer logs it and sends the
unchanged record. A failed mask would then send the data that it should hide.

Source: org.apache.kafka.clients.producer.ProducerInterceptor (KIP-42).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
    from kafka_sink.kafka.statistics import ReadStatistics, WriteStatistics


class Interceptor:
    """Override the methods that you need. By default the methods do nothing.

    Examples:
        >>> class Count(kafka_sink.Interceptor):
        ...     def on_acknowledgement(self, receipts, error):
        ...         print(error or sum(receipt.record_count for receipt in receipts))
        >>> kafka_sink.register(spark, interceptors=[Count()])
    """

    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to send instead of `arrow_batch`: the same number of rows, with columns and types that the
        sink accepts.

        Called for each Arrow batch, in the order of `interceptors`, before topics and partitions are chosen. Each
        interceptor receives the result of the one before. An Arrow batch has up to 10,000 rows
        (`spark.sql.execution.arrow.maxRecordsPerBatch`). A task without rows has no Arrow batch.

        An exception or a different number of rows fails the task with InterceptorFailed. To drop rows, filter the
        DataFrame.
        """
        return arrow_batch

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        """Called once at the end of a task's write.

        `error` is None if the leaders have acknowledged every row; then `receipts` has the offsets. Otherwise the write
        failed with `error`, `receipts` is empty, and some rows may be in Kafka. An exception here is only logged.
        """

    def on_statistics(self, statistics: WriteStatistics) -> None:
        """Called once after `on_acknowledgement` if the write succeeded.

        `statistics` has the retries, the time of throttling by brokers, and the bad rows. An exception here is only
        logged.
        """

    def on_read(self, statistics: ReadStatistics) -> None:
        """Called once at the end of a task's read of `format("pykafka")`, if Spark has taken every row.

        A task that reads and writes has one copy of the interceptor for each. An exception here is only logged.
        """

    def close(self) -> None:
        """Called once at the end of a write or read, after success and after failure. An exception here is only logged.

        If Spark kills the worker process, neither this method nor `on_acknowledgement` is called.
        """

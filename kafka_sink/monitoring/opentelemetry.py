"""The same metrics for OpenTelemetry: instruments of a meter that the application has set up.

    OpenTelemetry(opentelemetry.metrics.get_meter("orders"))

Needs the extra `opentelemetry`, which is the API alone: exporting is the application's.
"""

from __future__ import annotations

from opentelemetry.metrics import Meter

from kafka_sink.monitoring.micro_batch import MicroBatch


class OpenTelemetry:
    """A watcher of `ProgressListener`."""

    def __init__(self, meter: Meter) -> None:
        self._rows = meter.create_counter("pykafka.rows", "{row}", "Rows that leaders acknowledged.")
        self._bytes = meter.create_counter("pykafka.bytes", "By", "Bytes of record batches that leaders acknowledged.")
        self._batches = meter.create_counter(
            "pykafka.record_batches", "{batch}", "Record batches that leaders acknowledged."
        )
        self._input_rows = meter.create_counter("pykafka.input_rows", "{row}", "Rows that the sources gave.")
        self._duration = meter.create_histogram("pykafka.micro_batch.duration", "s", "What a micro-batch took.")
        self._write = meter.create_histogram("pykafka.write.duration", "s", "Of this, in tasks and commit.")

    def __call__(self, micro_batch: MicroBatch) -> None:
        of_query = {"query": micro_batch.query}
        for topic, totals in micro_batch.topics.items():
            of_topic = {**of_query, "topic": topic}
            self._rows.add(totals.row_count, of_topic)
            self._bytes.add(totals.byte_count, of_topic)
            self._batches.add(totals.batch_count, of_topic)
        self._input_rows.add(micro_batch.input_row_count, of_query)
        self._duration.record(micro_batch.duration_ms / 1000, of_query)
        self._write.record(micro_batch.write_ms / 1000, of_query)

"""Progress of a running write: a bar for exports, a line and metrics for each micro-batch of a stream.

    from kafka_sink.monitoring.bar import ExportBar
    from kafka_sink.monitoring.listener import ProgressLine, ProgressListener, ReceiptTotals, StreamTally
    from kafka_sink.monitoring.prometheus import Prometheus
    from kafka_sink.monitoring.opentelemetry import OpenTelemetry
    from kafka_sink.monitoring.transactions import TransactionWatch

The sink does not need this package. Modules may need an extra: progress, prometheus or opentelemetry.
"""

from kafka_sink.errors.installed import needs_pyspark

with needs_pyspark():
    import pyspark  # noqa: F401

"""What a running write tells whoever watches: a bar for exports, a line and metrics for each micro-batch of a stream.

    from kafka_sink.monitoring.bar import ExportBar
    from kafka_sink.monitoring.listener import ProgressLine, ProgressListener, StreamTally
    from kafka_sink.monitoring.prometheus import Prometheus
    from kafka_sink.monitoring.opentelemetry import OpenTelemetry
    from kafka_sink.monitoring.transactions import TransactionWatch

Nothing of the sink needs this package, and each module of it needs its own extra: progress, prometheus, opentelemetry.
"""

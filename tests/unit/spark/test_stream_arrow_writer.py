"""The class of stream writers, as Spark 4.0 and as later versions have it."""

from __future__ import annotations

import importlib

import pytest
from pyspark.sql import datasource

from kafka_sink.spark import stream_arrow_writer
from kafka_sink.spark.writer import KafkaStreamWriter


def test_spark_hands_arrow_batches_to_a_stream_writer() -> None:
    asked_for = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceArrowWriter)
    assert issubclass(KafkaStreamWriter, datasource.DataSourceStreamWriter)
    assert issubclass(KafkaStreamWriter, asked_for)


def test_spark_4_0_takes_a_stream_writer_for_one_that_wants_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    try:
        of_4_0 = importlib.reload(stream_arrow_writer).StreamArrowWriter
        assert issubclass(of_4_0, datasource.DataSourceStreamWriter)
        assert issubclass(of_4_0, datasource.DataSourceArrowWriter)
    finally:
        monkeypatch.undo()
        importlib.reload(stream_arrow_writer)

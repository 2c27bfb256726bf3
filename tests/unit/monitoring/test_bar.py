"""A bar moves with what is acknowledged, and only where it is shown."""

from __future__ import annotations

import io
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import Accumulator

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.monitoring.bar import ExportBar

RECEIPTS = (PartitionOffsets("t", 0, 2, 3, 4, 1, 500_000), PartitionOffsets("t", 1, 1, None, None, 1, 700_000))


def make_bar(shown: io.StringIO, params: list[Any] | None = None, **of_tqdm: Any) -> ExportBar:
    """`params`: gets that of its accumulator."""

    def accumulator(value: Any, param: Any) -> Accumulator[Any]:
        if params is not None:
            params.append(param)
        return Accumulator(0, value, param)

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(accumulator=accumulator))
    return ExportBar(spark, file=shown, ascii=True, ncols=90, mininterval=0, **of_tqdm)


def test_it_shows_rows_of_how_many_and_megabytes() -> None:
    shown = io.StringIO()
    with make_bar(shown, total=6, desc="export") as bar:
        bar.on_acknowledgement(RECEIPTS, None)
        bar.on_acknowledgement((), ProducerClosed(reason="of a test"))
        bar.on_acknowledgement(RECEIPTS, None)
    last = shown.getvalue().replace("\n", "").split("\r")[-1]
    assert last.startswith("export: 100%|") and "6.00/6.00" in last and "MB=2.4" in last
    assert "50%" in shown.getvalue()
    assert bar.value[TopicPartition("t", 0)].record_count == 4


def test_a_task_has_its_copy_and_no_bar() -> None:
    shown = io.StringIO()
    params: list[Any] = []
    with make_bar(shown, params, total=6) as bar:
        before = shown.getvalue()
        of_task = pickle.loads(pickle.dumps(bar))
        with pytest.raises(AssertionError, match="tasks have no bar"):
            of_task.__exit__(None, None, None)
        param = pickle.loads(pickle.dumps(params[0]))
        param.addInPlace({}, {TopicPartition("t", 0): RECEIPTS[0]})
        assert shown.getvalue() == before

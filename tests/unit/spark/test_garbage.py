"""What was imported is frozen once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kafka_sink.config import given_options
from kafka_sink.errors import ProducerClosed
from kafka_sink.spark import writer
from kafka_sink.spark.commit_message import TaskReceipt

OPTIONS = given_options({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
PROGRAM = """
import gc, json
from kafka_sink.spark import garbage
before = gc.get_freeze_count()
garbage.spare_modules()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
garbage.spare_modules()
same = gc.get_freeze_count()
import wsgiref.simple_server
garbage.spare_modules()
print(json.dumps([before, first, same, gc.get_freeze_count()]))
"""


def test_what_was_imported_is_frozen_when_something_was() -> None:
    """In a process of its own: this one's objects stay as they are."""
    told = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    before, first, same, again = json.loads(told)
    assert before == 0
    assert first > 10_000
    # Frozen objects may go; none are added.
    assert first - 100 <= same <= first
    assert again >= same + 1_000


def test_a_task_that_went_well_freezes_and_one_that_did_not_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(writer, "spare_modules", lambda: called.append(1))
    receipt = TaskReceipt(spark_partition_id=0, attempt_number=0, record_count=0, partitions=(), topic_ids={})
    monkeypatch.setattr(writer, "_write_rows", lambda *_: receipt)
    assert writer.write_task(OPTIONS, (), iter(())) is receipt
    assert called == [1]

    def fail(*_: object) -> None:
        raise ProducerClosed(reason="a test")

    monkeypatch.setattr(writer, "_write_rows", fail)
    with pytest.raises(ProducerClosed):
        writer.write_task(OPTIONS, (), iter(()))
    assert called == [1]

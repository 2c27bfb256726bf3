"""What was imported is frozen once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kafka_sink.errors import ProduceRejected
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import given_options
from kafka_sink.spark import writer
from kafka_sink.spark.guarantee import AtLeastOnce
from live_producers import rows
from scripted_kafka import LiveNetwork

OPTIONS = given_options({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
PROGRAM = """
import gc, json
from kafka_sink.spark import garbage
before = gc.get_freeze_count()
garbage.freeze_modules()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
garbage.freeze_modules()
same = gc.get_freeze_count()
import wsgiref.simple_server
garbage.freeze_modules()
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


def test_a_task_that_went_well_freezes_and_one_that_did_not_does_not(
    network: LiveNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    monkeypatch.setattr(writer, "freeze_modules", lambda: called.append(1))
    assert writer.write_task(AtLeastOnce(OPTIONS), (), iter([rows(1)])).record_count == 1
    assert called == [1]
    network.kafka.always(ProduceRequest, ErrorCode.INVALID_RECORD)
    with pytest.raises(ProduceRejected):
        writer.write_task(AtLeastOnce(OPTIONS), (), iter([rows(1)]))
    assert called == [1]

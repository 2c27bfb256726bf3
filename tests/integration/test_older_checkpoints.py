"""Streams that are started with an older copy of their checkpoint: one from topic to topic, exactly-once, and one that
only reads."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import kafka_sink
from broker_admin import produce
from committed_rows import held_back, read_values
from here import Here
from kafka_reads import PYKAFKA
from kafka_sink.errors import CheckpointBehind, KafkaSinkError, NonDeterministicReplay
from spark_writes import finish
from stream_reads import places, read_now, stream

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LIMIT = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}


class TopicToTopic:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._checkpoint = here.folder / "checkpoint"
        self.source, self.target = here.topic(1), here.topic(1)

    def run(self) -> KafkaSinkError | None:
        """Run to the end of the source. Return the error that ended it."""
        options = {"subscribe": self.source, "kafka.isolation.level": "read_committed", **LIMIT}
        frame = stream(self._here.spark, PYKAFKA, self._here.kafka, **options).select("value")
        try:
            finish(self._here.start(frame, self.target, {"deliveryGuarantee": "exactly-once"}))
        except PySparkException as failure:
            return kafka_sink.error_of(failure)
        return None

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._checkpoint, self._here.folder / name))

    def restore(self, copy: Path) -> None:
        shutil.rmtree(self._checkpoint)
        shutil.copytree(copy, self._checkpoint)

    def more(self, count: int) -> None:
        produce(self._here.kafka, self.source, count)

    @property
    def rows(self) -> int:
        assert held_back(self._here.kafka, self.target) == 0
        return sum(read_values(self._here.kafka, self.target).values())


def test_a_copy_that_is_too_old_stops_and_the_newest_goes_on(here: Here) -> None:
    stream_ = TopicToTopic(here)
    stream_.more(40)
    assert stream_.run() is None
    old = stream_.copy("old")
    stream_.more(40)
    assert stream_.run() is None
    new = stream_.copy("new")
    stream_.restore(old)
    for _ in range(2):
        assert isinstance(stream_.run(), CheckpointBehind)
        assert stream_.rows == 80
    stream_.restore(new)
    stream_.more(10)
    assert stream_.run() is None
    assert stream_.rows == 90


@pytest.mark.parametrize("more", [0, 5])
def test_a_copy_that_is_one_micro_batch_behind_writes_nothing_again(here: Here, more: int) -> None:
    """Spark plans the micro-batch anew: with the same rows it is done, with others it stops."""
    stream_ = TopicToTopic(here)
    stream_.more(20)
    assert stream_.run() is None
    behind = stream_.copy("behind")
    stream_.more(10)
    assert stream_.run() is None
    stream_.restore(behind)
    stream_.more(more)
    error = stream_.run()
    assert isinstance(error, NonDeterministicReplay) if more else error is None
    assert stream_.rows == 30


def test_a_stream_that_only_reads_goes_on_where_the_copy_ends(here: Here) -> None:
    name, checkpoint = here.topic(2), here.folder / "checkpoint"
    frame = stream(here.spark, PYKAFKA, here.kafka, subscribe=name, **LIMIT)
    produce(here.kafka, name, 20, 20)
    first = read_now(frame, checkpoint)
    old = Path(shutil.copytree(checkpoint, here.folder / "old"))
    produce(here.kafka, name, 20, 20)
    later = read_now(frame, checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(old, checkpoint)
    again = read_now(frame, checkpoint)
    assert again.batches == later.batches
    assert Counter(places(first.rows + again.rows)) == Counter((p, o) for p in range(2) for o in range(40))

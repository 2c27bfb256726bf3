"""Where reads begin, with real Spark and a real broker: at times that people write, at the last offsets, and where a
consumer group is."""

import time

import pytest
from confluent_kafka import Consumer

from broker_admin import delete_records, producer
from kafka_reads import (
    PYKAFKA,
    Read,
    committed,
    frame,
    logged,
    offsets_read,
    places,
    read_now,
    reader_of,
    running,
    stream,
)
from kafka_sink.errors import NoCommittedOffset, OffsetsLost
from kafka_sink.options.bounds import iso_text
from spark_writes import Here, error_of

HOUR_MS = 3_600_000


def written(here: Here, old: int, new: int) -> str:
    """A topic of one partition, with so many records of an hour ago, and of now."""
    name, of = here.topic(1), producer(here.kafka)
    now_ms = time.time_ns() // 1_000_000
    for timestamp_ms, count in ((now_ms - HOUR_MS, old), (now_ms, new)):
        for _ in range(count):
            of.produce(name, b"x", partition=0, timestamp=timestamp_ms)
    assert of.flush(60) == 0
    return name


def test_a_read_begins_at_a_time_before_now_at_an_iso_time_and_at_the_last_offsets(here: Here) -> None:
    name = written(here, 10, 5)
    half_an_hour_ago = iso_text(time.time_ns() // 1_000_000 - HOUR_MS // 2)
    starts = {
        "startingTimestamp=-30 minutes": range(10, 15), f"startingTimestamp={half_an_hour_ago}": range(10, 15),
        "startingTimestamp=-2 hours": range(15), "startingOffsets=latest-3": range(12, 15),
        "startingOffsets=latest-300": range(15),
    }  # fmt: skip
    for start, offsets in starts.items():
        given = dict([start.split("=", maxsplit=1)])
        rows = frame(here.spark, PYKAFKA, here.kafka, subscribe=name, **given).collect()
        assert sorted(places(rows)) == [(0, offset) for offset in offsets], start
    ended = frame(here.spark, PYKAFKA, here.kafka, subscribe=name, endingTimestamp="-30 minutes")
    assert ended.count() == 10
    # A stream records where it begins, and goes on there whatever the time is.
    read = read_now(
        stream(here.spark, PYKAFKA, here.kafka, subscribe=name, startingTimestamp="-30 minutes"), here.folder
    )
    assert sorted(places(read.rows)) == [(0, offset) for offset in range(10, 15)]
    assert (read.batches[0], logged(here.folder)[0]) == ([], {name: {"0": 10}})


@pytest.mark.long
@pytest.mark.parametrize("start", [{"startingTimestamp": "-30 minutes"}, {"startingOffsets": "latest-5"}])
def test_a_stream_whose_first_micro_batch_fails_begins_where_that_one_was_recorded(
    here: Here, start: dict[str, str]
) -> None:
    name = written(here, 10, 5)
    read = stream(here.spark, PYKAFKA, here.kafka, subscribe=name, **start)

    def fail(number: int) -> None:
        raise RuntimeError("of a test")

    with running(read, here.folder, Read(after=fail)) as failing, pytest.raises(Exception, match="of a test"):
        failing.query.awaitTermination(60)
    assert (logged(here.folder), committed(here.folder)) == ([{name: {"0": 10}}], [])
    of = producer(here.kafka)
    for _ in range(20):
        of.produce(name, b"x", partition=0)
    assert of.flush(60) == 0
    found = read_now(read, here.folder)
    assert sorted(places(found.rows)) == [(0, offset) for offset in range(10, 35)]
    # Another start counts for nothing, once there is a checkpoint.
    other = stream(here.spark, PYKAFKA, here.kafka, subscribe=name, startingOffsets="latest-20")
    assert read_now(other, here.folder).rows == []


# --- where a consumer group is ----------------------------------------------------------------------------------------


def consume(here: Here, group: str, *topics: str, count: int) -> None:
    """A consumer that processes so many records, and commits them."""
    consumer = Consumer({
        "bootstrap.servers": here.servers, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    try:
        consumer.subscribe(list(topics))
        messages = consumer.consume(count, 60)
        assert len(messages) == count, messages
        consumer.commit(asynchronous=False)
        # Also of a consumer that reads on, and has not committed it.
        consumer.consume(1, 5)
    finally:
        consumer.close()


def test_a_read_begins_where_a_consumer_has_committed(here: Here) -> None:
    name, group = written(here, 10, 5), "gr\u00fcn, and a 'strange' one: 100 %"
    consume(here, group, name, count=7)
    given = {"subscribe": name, "startingGroup": group}
    batch = frame(here.spark, PYKAFKA, here.kafka, **given)
    assert sorted(places(batch.collect())) == [(0, offset) for offset in range(7, 15)]
    read = read_now(stream(here.spark, PYKAFKA, here.kafka, **given), here.folder)
    assert sorted(places(read.rows)) == [(0, offset) for offset in range(7, 15)]
    assert (read.batches[0], logged(here.folder)[0]) == ([], {name: {"0": 7}})
    misspelt = {"subscribe": name, "startingGroup": group.upper(), "startingGroupStrategy": "earliest"}
    error = error_of(lambda: frame(here.spark, PYKAFKA, here.kafka, **misspelt).collect())
    assert isinstance(error, NoCommittedOffset) and error.group_id == group.upper()


@pytest.mark.long
def test_offsets_of_a_group_that_are_gone_and_partitions_that_it_has_not_read(here: Here) -> None:
    name, other = written(here, 10, 5), written(here, 3, 0)
    consume(here, name, name, count=4)
    given = {"startingGroup": name, "startingGroupStrategy": "latest", "subscribe": f"{name},{other}"}
    rows = frame(here.spark, PYKAFKA, here.kafka, **given).collect()
    assert sorted((row["topic"], row["offset"]) for row in rows) == [(name, offset) for offset in range(4, 15)]
    delete_records(here.kafka, name, 6)
    error = error_of(lambda: frame(here.spark, PYKAFKA, here.kafka, **given).collect())
    assert isinstance(error, OffsetsLost) and (error.first, error.end) == (4, 6)
    lenient = frame(here.spark, PYKAFKA, here.kafka, **given, failOnDataLoss="false")
    assert lenient.count() == 9


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_whose_members_read_on_is_read_as_it_is(
    here: Here, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = written(here, 10, 0)
    consumer = Consumer({
        "bootstrap.servers": here.servers, "group.id": name, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "group.protocol": protocol,
    })  # fmt: skip
    try:
        consumer.subscribe([name])
        assert len(consumer.consume(6, 60)) == 6
        consumer.commit(asynchronous=False)
        reader = reader_of(here.kafka, "offset", subscribe=name, startingGroup=name)
        assert offsets_read(reader) == [6, 7, 8, 9]
        # Without a consumer of the newer protocol being seen.
        assert ("has members" in caplog.text) is (protocol == "classic")
    finally:
        consumer.close()

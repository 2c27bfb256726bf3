"""A client of ours, for `bench_leaders.py`: it writes a row to each partition every so many milliseconds, or reads all
partitions from their ends on. Prints the partition and the microseconds since 1970 of each acknowledgement or row.

`reads` has a reader of each partition, as tasks of Spark have, and an end that no log reaches. `streams` is the source
of a stream without Spark: it asks where the logs end, plans, and reads, one micro-batch after the other.

`--ignores-leaders`: as before KIP-951. The leader that an answer names does not count, and each retry waits for its
backoff.
"""

import argparse
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from unittest.mock import patch

import pyarrow as pa

from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings
from kafka_sink.kafka.metadata import NO_LEADER, Metadata
from kafka_sink.kafka.producer.accumulator import RecordAccumulator
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.producer_batch import ProducerBatch
from kafka_sink.kafka.protocol.apis.offsets import LATEST
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.reader import Reader
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.reading.stream_reader import KafkaStreamReader

WRITES, READS, STREAMS = "writes", "reads", "streams"
# Behind every log's end.
FAR = 2**62
# As often as Spark begins micro-batches of a few rows.
MICRO_BATCH_S = 0.1


def note(partition: int) -> None:
    """In one system call, as several threads do so."""
    os.write(1, b"%d %d\n" % (partition, time.time_ns() // 1_000))


class NotedAcknowledgements(Acknowledgements):
    def acknowledged(self, batch: ProducerBatch, base_offset: int | None) -> None:
        super().acknowledged(batch, base_offset)
        note(batch.topic_partition.partition)


def write(settings: Mapping[str, str], topic: str, partitions: int, every_s: float, value_bytes: int) -> None:
    values = pa.array([bytes(value_bytes)] * partitions, pa.binary())
    rows = pa.record_batch({"value": values, "partition": pa.array(range(partitions), pa.int32())})
    with contextlib.closing(Producer(sink_config(settings).producer)) as producer:
        of_topic = Write(producer, topic=topic)
        of_topic.acknowledgements = NotedAcknowledgements()
        while True:
            of_topic.append(rows)
            time.sleep(every_s)


def read(settings: Mapping[str, str], topic: str, partitions: int) -> None:
    config = reading(settings, topic)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with contextlib.closing(AdminClient(config.consumer)) as client:
        ends = list_offsets(client, dict.fromkeys(places, LATEST), config.consumer.isolation_level)
        topic_id = client.topics((topic,))[topic].topic_id
    ranges = [FetchRange(topic, topic_id, each.partition, ends[each].offset, FAR) for each in places]
    threads = [threading.Thread(target=read_range, args=(config, each), daemon=True) for each in ranges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_range(config: ReadConfig, range_: FetchRange) -> None:
    settings = FetchSettings(
        config=config.consumer, fail_on_data_loss=True, reads_replacements=False, poll_timeout_ms=config.poll_timeout_ms
    )
    try:
        for _ in Reader(config.consumer).fetch(range_, settings):
            note(range_.partition)
    finally:
        # An error must end the benchmark.
        os._exit(1)


def stream(settings: Mapping[str, str], topic: str) -> None:
    reader = KafkaStreamReader(reading(settings, topic), ("partition",))
    begin = reader.initialOffset()
    while True:
        began_s = time.monotonic()
        end = reader.latestOffset(begin)
        for task in reader.partitions(begin, end):
            for rows in reader.read(task):
                deque(map(note, rows.column(0).unique().to_pylist()), maxlen=0)
        reader.commit(end)
        begin = end
        time.sleep(max(0.0, began_s + MICRO_BATCH_S - time.monotonic()))


def reading(settings: Mapping[str, str], topic: str) -> ReadConfig:
    return read_config(given_options({**settings, "subscribe": topic}, table=READING), is_stream=True)


def ignore_leaders() -> None:
    wait_ms = RecordAccumulator._wait_ms
    for owner, name, instead in (
        (Metadata, "follow", lambda *_: None),
        (Fetcher, "_turn_to_leader", lambda *_: None),
        (RecordAccumulator, "_wait_ms", lambda self, queue, _, now_ms: wait_ms(self, queue, NO_LEADER, now_ms)),
    ):
        patch.object(owner, name, instead).start()


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=(WRITES, READS, STREAMS))
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("every_ms", type=int)
    parser.add_argument("value_bytes", type=int)
    parser.add_argument("settings", nargs="+", help="of Kafka, as name=value")
    parser.add_argument("--ignores-leaders", action="store_true")
    options = parser.parse_args(given)
    settings = {f"kafka.{name}": value for name, _, value in (each.partition("=") for each in options.settings)}
    if options.ignores_leaders:
        ignore_leaders()
    match options.what:
        case "writes":
            write(settings, options.topic, options.partitions, options.every_ms / 1_000, options.value_bytes)
        case "reads":
            read(settings, options.topic, options.partitions)
        case "streams":
            stream(settings, options.topic)


if __name__ == "__main__":
    main()

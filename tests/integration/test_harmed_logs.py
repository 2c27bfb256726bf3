"""Bits of a segment file that no CRC covers, flipped while the broker is down: batch and stream, real Spark and broker.

Each read has every row, or fails with an error that names the place. One start of a broker serves all cases.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink
import segment_files
from effort import variants
from kafka_reads import JVM, PYKAFKA, frame, reader_of, running, stream
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import FetchRefused, KafkaSinkError, RecordsCorrupt

ROWS_A_BATCH, BATCH_COUNT = 20, 5
LEVELS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of the third batch. `errors`: what a read may end in; none: it has all rows. `is_live`: the broker runs
    meanwhile, because it does not start with such a log, or not with all of it. `rows`: that the log has."""

    byte: int
    bit: int
    errors: tuple[type[KafkaSinkError], ...] = (RecordsCorrupt,)
    is_live: bool = False
    rows: int = ROWS_A_BATCH * BATCH_COUNT


FLIPS: Mapping[str, Flip] = {
    "intact": Flip(0, 0, ()),
    "offset-0-top": Flip(0, 7),
    "offset-0": Flip(0, 2),
    "offset-5": Flip(5, 0),
    "offset-6": Flip(6, 0),
    "offset-7": Flip(7, 6),
    "offset-7-down": Flip(7, 3),
    # A broker refuses a length below 0 itself.
    "length-8-top": Flip(8, 7, (FetchRefused, RecordsCorrupt), is_live=True),
    "length-8": Flip(8, 1, is_live=True),
    "length-10": Flip(10, 1, is_live=True),
    # A broker that starts ends its log there.
    "length-8-then-start": Flip(8, 1, (), rows=2 * ROWS_A_BATCH),
    "length-11": Flip(11, 0),
    "epoch-12": Flip(12, 7, ()),
    "epoch-15": Flip(15, 1, ()),
    "format-to-0": Flip(16, 1),
    "format-to-3": Flip(16, 0),
}
# The rows that Spark's own source has of a log with all of them, without an error.
JAVA_ROWS = {
    "intact": 100, "offset-0-top": 80, "offset-0": 40, "offset-5": 40, "offset-6": 40, "offset-7": 40,
    "offset-7-down": 92, "length-8-then-start": 40, "epoch-12": 100, "epoch-15": 100,
}  # fmt: skip
# What is run with Spark, too.
OF_SPARK = variants("offset-0", "intact", "offset-6", "length-8")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka() as kafka:
        of = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1_000})
        for name in FLIPS:
            kafka.create_topic(name, 1)
            for batch in range(BATCH_COUNT):
                for row in range(ROWS_A_BATCH):
                    of.produce(name, b"%d" % (batch * ROWS_A_BATCH + row), partition=0)
                assert of.flush(60) == 0
        with segment_files.down(kafka):
            harm(kafka, is_live=False)
        harm(kafka, is_live=True)
        yield kafka


def harm(kafka: LocalKafka, *, is_live: bool) -> None:
    for name, each in FLIPS.items():
        if name != "intact" and each.is_live == is_live:
            flip(segment_files.segment_of(kafka, name), 2 * ROWS_A_BATCH, each)


def flip(segment: Path, first: int, which: Flip) -> None:
    """Flip a bit of the batch that begins at offset `first`."""
    content = segment.read_bytes()
    at = 0
    while int.from_bytes(content[at : at + 8], "big") != first:
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    with segment.open("r+b") as log:
        log.seek(at + which.byte)
        log.write(bytes([content[at + which.byte] ^ 1 << which.bit]))


def judge(error: KafkaSinkError | None, values: list[int], name: str) -> None:
    if error is None:
        assert sorted(values) == list(range(FLIPS[name].rows))
        assert not FLIPS[name].errors, "the damage was not told"
        return
    assert isinstance(error, FLIPS[name].errors), error
    if isinstance(error, RecordsCorrupt):
        assert (error.topic, error.partition, error.offset) == (name, 0, 2 * ROWS_A_BATCH)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FLIPS)
def test_a_reader_has_every_row_or_names_the_damage(broker: LocalKafka, name: str, level: str) -> None:
    """The reader itself, as Spark drives it, with answers of all batches and of few."""
    for max_bytes in (1024 * 1024, 1024):
        options = {**options_of(name, level), "kafka.max.partition.fetch.bytes": str(max_bytes)}
        reader = reader_of(broker, "value", **options)
        error, values = None, []
        try:
            for part in reader.partitions():
                for batch in reader.read(part):
                    values += [int(value) for value in batch.column("value").to_pylist()]
        except KafkaSinkError as raised:
            error = raised
        judge(error, values, name)


@pytest.mark.parametrize("level", variants(*LEVELS))
@pytest.mark.parametrize("name", OF_SPARK)
def test_a_batch_of_spark(spark: SparkSession, broker: LocalKafka, name: str, level: str) -> None:
    error, values = None, []
    try:
        values = [int(row.value) for row in frame(spark, PYKAFKA, broker, **options_of(name, level)).collect()]
    except PySparkException as raised:
        error = kafka_sink.error_of(raised)
        assert error is not None, raised
    judge(error, values, name)


@pytest.mark.long
def test_sparks_own_source_leaves_rows_of_most_damaged_offsets_out(both: SparkSession, broker: LocalKafka) -> None:
    found = {}
    for name in FLIPS:
        with suppress(Py4JJavaError, PySparkException):
            found[name] = len(frame(both, JVM, broker, **options_of(name, LEVELS[0])).collect())
    assert found == JAVA_ROWS


@pytest.mark.parametrize("level", variants(*LEVELS[::-1]))
@pytest.mark.parametrize("name", OF_SPARK)
def test_a_stream_of_spark(spark: SparkSession, broker: LocalKafka, tmp_path: Path, name: str, level: str) -> None:
    asked = stream(spark, PYKAFKA, broker, startingOffsets="earliest", **options_of(name, level))
    with running(asked, tmp_path, availableNow=True) as read:
        if FLIPS[name].errors:
            judge(read.error(), [], name)
        else:
            judge(None, [int(row.value) for row in read.finish()], name)


def options_of(name: str, level: str) -> dict[str, str]:
    return {"subscribe": name, "kafka.isolation.level": level, "kafkaConsumer.pollTimeoutMs": "20000"}

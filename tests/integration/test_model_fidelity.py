"""The model answers random traces of producers and readers as a real broker does (more of them: `make fidelity`), and
compacts a batch to the bytes to which a broker's cleaner does."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from kafka.record.default_records import DefaultRecordBatchBuilder

from fidelity.player import BROKER_CONFIG, DEADLINE_S, BrokerConnection, address_of, real_client
from fidelity.traces import make_trace, replay
from kafka_sink.broker import LocalKafka
from model.clients import READ_COMMITTED, VERSION_2, Got, Producer, ReadClient, TransactionClient
from model.partition_log import without_records
from model.read_apis import LATEST
from model.record_batches import HEADER, RecordBatch, decode_stored_records, next_batch, parse_batch
from waiting import wait_until

CLEANER = {"log.cleaner.backoff.ms": 100, "log.cleaner.min.cleanable.ratio": 0.0001}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0001, "segment.ms": 5_000}
_DELETE_HORIZON_BIT, _BASE_TIMESTAMP = 0b1000000, 7
# Of the records of the first segment; those of the second begin it, as they are so much later.
EARLY_MS, LATE_MS = 1_700_000_000_000, 1_700_000_100_000

Row = tuple[bytes, bytes | None, list[tuple[str, bytes | None]]]
# Of which producer each batch is. No row of the second batch and of the fourth is left. The second one is the last of
# its producer, so it stays.
FIRST, SECOND = "first", "second"
BATCHES: tuple[tuple[str, tuple[Row, ...]], ...] = (
    (FIRST, ((b"a", b"1" * 80, []), (b"b", b"2", []), (b"c", b"3", [("h", b"x"), ("n", None)]))),
    (SECOND, ((b"d", b"4", []),)),
    (FIRST, ((b"d", b"5", []), (b"a", b"6", []))),
    (FIRST, ((b"z", b"7", []),)),
    (FIRST, ((b"e", b"", []), (b"b", None, []), (b"f", b"8" * 200, []))),
    (FIRST, ((b"d", b"9", []), (b"e", b"9", []), (b"g", b"9", []), (b"z", b"9", []))),
)

pytestmark = pytest.mark.long
LEFT = {0: 1, 3: 0, 4: 1, 7: 2, 10: 4}
# Begins the segment that is not compacted.
LATER: tuple[Row, ...] = ((b"a", b"x", []),)


@pytest.fixture(scope="module", params=["3.9.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(kafka_version=request.param, config=CLEANER) as kafka:
        yield kafka


@pytest.fixture
def client(broker: LocalKafka) -> Iterator[TransactionClient]:
    with contextlib.closing(BrokerConnection(address_of(broker))) as connection:
        yield real_client(connection, VERSION_2)


def encoded(rows: tuple[Row, ...], timestamp_ms: int, base_sequence: int, producer: Producer) -> bytes:
    """Timestamps go down within a batch."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, base_sequence=base_sequence, **producer._asdict(),
        batch_size=10**6,
    )  # fmt: skip
    for offset, (key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp=timestamp_ms - offset, key=key, value=value, headers=headers)
    return bytes(builder.build())


def write(client: TransactionClient, topic: str) -> dict[int, RecordBatch]:
    """By base offset, the batches as they are in the log before it is compacted."""
    producers = {name: client.init(f"{topic}-{name}") for name in (FIRST, SECOND)}
    sequences = dict.fromkeys(producers, 0)
    written: dict[int, RecordBatch] = {}
    for name, rows in (*BATCHES, (FIRST, LATER)):
        timestamp_ms = LATE_MS if rows is LATER else EARLY_MS
        records = encoded(rows, timestamp_ms, sequences[name], producers[name])
        produced = client.append(None, records, topic, version=9)
        assert produced.code == 0
        written[produced.base_offset] = parse_batch(records).placed(produced.base_offset, 0)
        sequences[name] += len(rows)
    return written


def stored(got: Got) -> Iterator[RecordBatch]:
    data = got.records
    while (batch := next_batch(data)) is not None:
        data = data[len(batch.data) :]
        yield batch


def offsets(batch: RecordBatch) -> set[int]:
    return {record.offset for record in decode_stored_records(batch)}


def delete_horizon_ms(batch: RecordBatch) -> int | None:
    if not batch.attributes & _DELETE_HORIZON_BIT:
        return None
    return int(HEADER.unpack(batch.data[: HEADER.size])[_BASE_TIMESTAMP])


def test_a_compacted_log_is_the_models_to_the_byte(broker: LocalKafka, client: TransactionClient) -> None:
    topic = f"compacted-{uuid.uuid4()}"
    broker.create_topic(topic, 1, config=COMPACTED)
    reader = ReadClient(client.call)

    def fetched() -> list[RecordBatch]:
        """Of the first segment: a read ends there."""
        return list(stored(reader.fetch_one(1, topic, version=12, isolation=READ_COMMITTED)))

    wait_until(lambda: reader.list_offset(1, topic, LATEST, version=7)[0] == 0, DEADLINE_S, "a leader")
    written = write(client, topic)
    wait_until(lambda: fetched()[0].record_count == LEFT[0], DEADLINE_S, "a compacted log")
    left = {batch.base_offset: batch for batch in fetched()}
    assert {offset: batch.record_count for offset, batch in left.items()} == LEFT
    horizons_ms = {offset: delete_horizon_ms(batch) for offset, batch in left.items()}
    # Of the batch with the tombstone.
    assert [offset for offset, horizon_ms in horizons_ms.items() if horizon_ms is not None] == [7]
    for offset, batch in left.items():
        removed = offsets(written[offset]) - offsets(batch)
        assert without_records(written[offset], removed, horizons_ms[offset]) == batch


@pytest.fixture(scope="module")
def model_like() -> Iterator[LocalKafka]:
    with LocalKafka(config=BROKER_CONFIG) as kafka:
        yield kafka


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_random_trace_is_answered_alike(model_like: LocalKafka, seed: int) -> None:
    admin = AdminClient({"bootstrap.servers": model_like.bootstrap_servers})
    difference = replay(make_trace(seed, model_like.kafka_version), model_like, admin)
    assert difference is None, str(difference)

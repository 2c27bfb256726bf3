"""The five batches that a replica remembers of an idempotent producer."""

from __future__ import annotations

import pytest

from model.byte_client import Answer, ByteClient, client_of_topic, record_batch
from model.settings import KAFKA_2_1, KAFKA_2_8, Generation

OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER, INVALID_RECORD = 45, 47, 59, 87
CORRUPT_MESSAGE = 2
PRODUCER = 7
LAST_SEQUENCE = 2**31 - 1


def batch(base_sequence: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v", timestamp_ms: int = 0) -> bytes:
    values = [value] * count
    return record_batch(
        *values, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=base_sequence, timestamp_ms=timestamp_ms
    )


def leader(**settings: object) -> ByteClient:
    return client_of_topic(1, 1, **settings)  # type: ignore[arg-type]


def append(client: ByteClient, records: bytes, node_id: int = 0) -> Answer:
    """The leader's answer, once there is one."""
    sent = client.produce(node_id, {("t", 0): records})
    client.run_until(lambda: client.produced(sent) is not None)
    answer = client.produced(sent)
    assert answer is not None
    return answer[0]


def test_other_bytes_under_the_same_sequences_are_taken_for_the_same_and_dropped() -> None:
    client = leader()
    append(client, batch(0, value=b"old"))
    assert append(client, batch(0, value=b"new")) == Answer(0, 0)
    assert client.committed() == [b"old"]


@pytest.mark.parametrize(("silence_ms", "code"), [(900, OUT_OF_ORDER), (1_200, 0)])
def test_state_expires_with_time(silence_ms: int, code: int) -> None:
    client = leader(producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=100)
    append(client, batch(0, timestamp_ms=client.cluster.now_ms))
    client.run(silence_ms)
    assert append(client, batch(5)).code == code


def test_state_expires_by_the_time_of_the_records_not_of_the_append() -> None:
    client = leader(producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=100)
    append(client, batch(0, timestamp_ms=client.cluster.now_ms - 5_000))
    assert append(client, batch(0)) == Answer(0, 0)
    client.run(100)
    # The resend is appended a second time: nobody remembers.
    assert append(client, batch(0)) == Answer(0, 1)


def test_followers_know_what_they_replicated() -> None:
    client = client_of_topic(3, 2)
    for sequence in range(6):
        append(client, batch(sequence))
    client.run(100)
    client.cluster.elect("t", 0, 1)
    client.run(100)
    assert append(client, batch(3), node_id=1) == Answer(0, 3)
    assert append(client, batch(0), node_id=1) == Answer(OUT_OF_ORDER, -1)
    assert append(client, batch(6), node_id=1) == Answer(0, 6)


def test_a_restarted_broker_reads_its_state_from_the_log() -> None:
    client = leader()
    for sequence in range(3):
        append(client, batch(sequence))
    client.cluster.crash(0)
    client.run(2_000)
    client.cluster.restart(0)
    client.run(2_000)
    assert append(client, batch(2)) == Answer(0, 2)
    assert append(client, batch(4)) == Answer(OUT_OF_ORDER, -1)


def test_what_is_truncated_is_forgotten() -> None:
    client = client_of_topic(3, 2)
    append(client, batch(0))
    client.run(100)
    client.produce(0, {("t", 0): batch(1)}, acks=1)
    client.cluster.crash(0)
    client.run(2_000)
    client.cluster.restart(0)
    client.run(2_000)
    client.cluster.elect("t", 0, 0)
    client.run(100)
    assert client.log_of(0) == [b"v"]
    assert append(client, batch(1)) == Answer(0, 1)
    assert client.log_of(0) == [b"v", b"v"]


@pytest.mark.parametrize(
    ("generation", "answer"), [(KAFKA_2_1, Answer(UNKNOWN_PRODUCER, -1)), (KAFKA_2_8, Answer(0, 0))]
)
def test_what_a_producer_without_a_state_may_begin_with(generation: Generation, answer: Answer) -> None:
    """KIP-360."""
    client = leader(generation=generation)
    client.produce_version = 7
    assert append(client, batch(5)) == answer
    other = record_batch(b"v", producer_id=PRODUCER + 1, producer_epoch=0, base_sequence=0)
    assert append(client, other).code == 0


def test_before_invalid_record_a_batch_that_breaks_rules_is_corrupt() -> None:
    client = leader(generation=KAFKA_2_1)
    client.produce_version = 7
    assert append(client, batch(-1)) == Answer(CORRUPT_MESSAGE, -1)

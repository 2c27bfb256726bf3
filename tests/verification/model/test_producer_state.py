"""The five batches that a replica remembers of an idempotent producer."""

from __future__ import annotations

import pytest

from model.byte_client import Answer, ByteClient, client_of_topic, record_batch

OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER, INVALID_RECORD = 45, 47, 59, 87
PRODUCER = 7


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


@pytest.mark.parametrize(("silence_ms", "code"), [(900, OUT_OF_ORDER), (1_200, 0)])
def test_state_expires_with_time(silence_ms: int, code: int) -> None:
    client = leader(producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=100)
    append(client, batch(0, timestamp_ms=client.cluster.now_ms))
    client.run(silence_ms)
    assert append(client, batch(5)).code == code


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

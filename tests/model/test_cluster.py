"""The model cluster as its clients see it: what is asked in bytes is answered in bytes."""

from __future__ import annotations

import random

from model.byte_client import Answer, ByteClient, record_batch
from model.cluster import Cluster
from model.record_batches import decode_records
from model.settings import ClusterSettings


def cluster(**settings: object) -> ByteClient:
    made = Cluster(node_ids=(0, 1, 2), rng=random.Random(1), settings=ClusterSettings(**settings))  # type: ignore[arg-type]
    return ByteClient(made)


def committed(client: ByteClient, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [
        value
        for batch in client.cluster.committed(topic, partition)
        for _, value, _, _ in decode_records(batch.data)
    ]


def test_what_is_produced_is_committed_and_acknowledged_with_its_offset() -> None:
    client = cluster()
    client.cluster.create_topic("t", 1, 3, 2)
    client.run(100)
    ids = {"producer_id": client.init_producer_id(0), "producer_epoch": 0}
    first = client.produce(0, {("t", 0): record_batch(b"a", b"b", base_sequence=0, **ids)})
    assert client.produced(first) is None
    client.run(100)
    second = client.produce(0, {("t", 0): record_batch(b"c", base_sequence=2, **ids)})
    client.run(100)
    assert client.produced(first) == {0: Answer(0, 0)}
    assert client.produced(second) == {0: Answer(0, 2)}
    assert committed(client) == [b"a", b"b", b"c"]
    assert client.cluster.next_event_ms() is None

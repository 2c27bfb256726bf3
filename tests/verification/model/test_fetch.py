"""Fetch: bytes that a reader decodes, limits, waiting, isolation, epochs, followers, quotas."""

from __future__ import annotations

from typing import Any

import pytest

from model.clients import (
    NEWEST_FETCH,
    ByteClient,
    Got,
    Wanted,
    client_of_topic,
    fetch_answer,
    fetch_request,
    read_client,
    record_batch,
    values_of,
)
from model.partition_log import EpochAndOffset
from model.record_batches import RecordBatch, next_batch
from model.settings import FETCH

OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, NO_RIGHT_TO_TOPIC = 1, 3, 6, 29
NO_SESSION_OF_THIS_ID, FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID = 70, 74, 75, 100
NOT_DIVERGING, NO_LEADER_NAMED = EpochAndOffset(-1, -1), (-1, -1)
BATCH = record_batch(b"a", b"b")


def batches_of(got: Got) -> list[RecordBatch]:
    """The whole ones."""
    batches, data = [], got.records
    while (batch := next_batch(data)) is not None:
        batches.append(batch)
        data = data[len(batch.data) :]
    return batches


def values_in(got: Got) -> list[bytes | None]:
    return values_of(batches_of(got))


def client_with(*batches: bytes, **settings: int) -> ByteClient:
    """Of one broker, with these batches in "t"."""
    client = client_of_topic(1, 1, nodes=1, **settings)
    for batch in batches:
        client.produce(0, {("t", 0): batch})
    client.run(10)
    return client


def test_what_is_not_committed_is_not_there_and_its_offset_is_no_error() -> None:
    client = client_of_topic(3, 2)
    client.cluster.isolate(2)
    client.produce(0, {("t", 0): BATCH}, acks=1)
    client.run(100)
    got = read_client(client).fetch_one(0, "t", offset=1)
    assert (got.code, got.records, got.high_watermark) == (0, b"", 0)


def sent_fetch(client: ByteClient, *, offset: int = 0, node_id: int = 0, **limits: Any) -> int:
    wanted = [Wanted("t", offset=offset, topic_id=client.cluster.topic_id("t"))]
    return client.send(node_id, FETCH, NEWEST_FETCH, fetch_request(wanted, **limits))


def test_a_fetch_waits_for_its_least_bytes() -> None:
    client = client_of_topic(1, 1, nodes=1)
    sent = sent_fetch(client, max_wait_ms=5_000, min_bytes=len(BATCH) + 1)
    # A broker handles the requests of one connection one by one.
    client.reconnect(0)
    for _ in range(2):
        assert sent not in client.answers
        client.produce(0, {("t", 0): BATCH})
        client.run(10)
    assert len(batches_of(fetch_answer(client.answers[sent]).partitions[0])) == 2


@pytest.mark.parametrize("change", ["elect", "delete", "crash"])
def test_a_waiting_fetch_ends_when_the_broker_leads_no_more(change: str) -> None:
    client = client_of_topic(3, 2)
    topic_id = client.cluster.topic_id("t")
    wanted = [Wanted("t", topic_id=topic_id, current_leader_epoch=0)]
    sent = client.send(0, FETCH, NEWEST_FETCH, fetch_request(wanted, max_wait_ms=50_000))
    if change == "elect":
        client.cluster.elect("t", 0, 1)
    elif change == "delete":
        client.cluster.delete_topic("t")
    else:
        client.cluster.crash(0)
    client.run(100)
    if change == "crash":
        assert client.closed == [0]
        return
    (got,) = fetch_answer(client.answers[sent]).partitions
    assert got.code == (FENCED_EPOCH if change == "elect" else NOT_LEADER)


def test_a_leader_epoch_of_another_time_is_refused() -> None:
    client = client_of_topic(3, 2)
    client.cluster.elect("t", 0, 1)
    client.run(100)
    reader = read_client(client)
    assert reader.fetch_one(1, "t", current_leader_epoch=1).code == 0
    assert reader.fetch_one(1, "t", current_leader_epoch=2).code == UNKNOWN_EPOCH
    fenced = reader.fetch_one(1, "t", current_leader_epoch=0)
    assert (fenced.code, fenced.current_leader) == (FENCED_EPOCH, (1, 1))


def diverged() -> ByteClient:
    """Broker 1 leads in epoch 1 from offset 2; the records 2 and 3 of epoch 0, which were committed, are gone."""
    client = client_of_topic(2, 1, nodes=2, replica_lag_time_max_ms=200)
    client.produce(0, {("t", 0): BATCH})
    client.run(100)
    client.cluster.isolate(1)
    client.produce(0, {("t", 0): BATCH})
    client.run(500)
    assert client.cluster.high_watermark("t", 0, 0) == 4
    client.cluster.crash(0)
    client.run(2_000)
    client.cluster.isolate(1, False)
    client.cluster.elect("t", 0, 1, unclean=True)
    client.run(100)
    client.produce(1, {("t", 0): record_batch(b"x", b"y", b"z")})
    client.run(100)
    return client


def test_a_reader_of_a_truncated_log_is_told_where_it_left_the_leaders() -> None:
    client = diverged()
    epoch = client.cluster.state("t", 0).leader_epoch
    reader = read_client(client)
    got = reader.fetch_one(1, "t", offset=4, last_fetched_epoch=0, current_leader_epoch=epoch)
    assert (got.code, got.records, got.diverging) == (0, b"", EpochAndOffset(0, 2))
    # Without its epoch nobody notices: there is an offset 4.
    assert values_in(reader.fetch_one(1, "t", offset=4)) == [b"x", b"y", b"z"]
    assert reader.fetch_one(1, "t", offset=2, last_fetched_epoch=0).diverging == NOT_DIVERGING
    assert reader.fetch_one(1, "t", offset=2, last_fetched_epoch=epoch + 1).code == OUT_OF_RANGE


RACKS = {0: "a", 1: "b", 2: "c"}


def test_a_leader_sends_a_reader_to_the_replica_of_its_rack() -> None:
    client = client_of_topic(2, 1, racks=RACKS)
    client.produce(0, {("t", 0): BATCH})
    client.run(100)
    reader = read_client(client)
    got = reader.fetch_one(0, "t", rack="b", max_wait_ms=10_000)
    assert (got.preferred_read_replica, got.records, got.high_watermark) == (1, b"", 2)
    assert values_in(reader.fetch_one(1, "t", rack="b")) == [b"a", b"b"]
    for rack in ("a", "c", ""):
        got = reader.fetch_one(0, "t", rack=rack)
        assert (got.preferred_read_replica, values_in(got)) == (-1, [b"a", b"b"])


def test_a_follower_that_lags_has_less_and_nothing_beyond_its_end() -> None:
    client = client_of_topic(2, 1, racks=RACKS, replica_lag_time_max_ms=100)
    client.produce(0, {("t", 0): BATCH})
    client.run(50)
    client.cluster.isolate(1)
    client.produce(0, {("t", 0): BATCH})
    client.run(500)
    reader = read_client(client)
    assert reader.fetch_one(0, "t", offset=4).high_watermark == 4
    assert reader.fetch_one(1, "t").high_watermark == 2
    assert reader.fetch_one(1, "t", offset=4).code == OUT_OF_RANGE
    # It is out of the ISR, so the leader sends nobody there.
    assert reader.fetch_one(0, "t", offset=2, rack="b").preferred_read_replica == -1


def test_a_quota_of_reads_holds_readers_to_its_rate() -> None:
    batch = record_batch(bytes(1_000))
    client = client_with(*[batch] * 10)
    client.cluster.limit_reads(0, 1_000)
    reader, started_ms, received = read_client(client), client.cluster.now_ms, 0
    while client.cluster.now_ms < started_ms + 60_000:
        answer = reader.fetch(0, [Wanted("t")])
        received += sum(len(got.records) for got in answer.partitions)
        client.run(10)
    assert 30_000 <= received <= 70_000
    client.cluster.forgive(0)
    client.run(20_000)
    assert reader.fetch(0, [Wanted("t")]).throttle_time_ms == 0

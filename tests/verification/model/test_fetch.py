"""Fetch: bytes that a reader decodes, limits, waiting, isolation, epochs, followers, quotas."""

from __future__ import annotations

from typing import Any

import pytest

from model.byte_client import ByteClient, client_of, client_of_topic, record_batch, values_of
from model.partition_log import EpochAndOffset
from model.read_client import (
    NEWEST_FETCH,
    Got,
    Wanted,
    fetch_answer,
    fetch_request,
    read_client,
)
from model.record_batches import RecordBatch, check_batch, decode_stored_records, next_batch
from model.settings import FETCH, RELEASES

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


@pytest.mark.parametrize("version", range(4, NEWEST_FETCH + 1))
def test_the_bytes_are_those_of_the_producer_with_their_place_in_the_log(version: int) -> None:
    client = client_with(BATCH, record_batch(b"c"))
    client.cluster.elect("t", 0)
    got = read_client(client).fetch_one(0, "t", version=version)
    first, second = batches_of(got)
    assert (first.base_offset, first.leader_epoch, second.base_offset) == (0, 0, 2)
    assert first.data[16:] == BATCH[16:]
    assert [(record.offset, record.value) for batch in (first, second) for record in decode_stored_records(batch)] == [
        (0, b"a"), (1, b"b"), (2, b"c")
    ]  # fmt: skip
    assert (got.code, got.high_watermark, got.last_stable_offset) == (0, 3, 3)
    assert got.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize(("release", "newest"), [("2.1.1", 10), ("2.8.2", 12), ("3.3", 13), ("3.9.2", 17)])
def test_a_release_answers_its_own_versions(release: str, newest: int) -> None:
    client = client_of_topic(1, 1, nodes=1, generation=RELEASES[release])
    assert read_client(client).fetch_one(0, "t", version=newest).code == 0
    client.send(0, FETCH, newest + 1, fetch_request([Wanted("t")], version=newest + 1))
    assert client.closed == [0]


def test_a_leader_can_give_records_its_own_time() -> None:
    client = client_of(1)
    client.cluster.create_topic("t", 1, 1, log_append_time=True)
    client.run(1_000)
    sent = client.produce(0, {("t", 0): record_batch(b"a", b"b", timestamp_ms=5)})
    appended_ms = client.cluster.now_ms
    assert client.answers[sent].responses[0].partition_responses[0].log_append_time.timestamp() * 1_000 == appended_ms
    client.run(100)
    (batch,) = batches_of(read_client(client).fetch_one(0, "t"))
    assert batch.has_log_append_time
    assert [record.timestamp for record in decode_stored_records(batch)] == [appended_ms, appended_ms]
    assert read_client(client).list_offset(0, "t", 6)[1].offset == 0
    check_batch(batch, 10**6)


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


def test_a_fetch_that_waited_long_enough_gets_what_there_is() -> None:
    client = client_with(BATCH)
    sent = sent_fetch(client, max_wait_ms=500, min_bytes=10_000)
    client.run(499)
    assert sent not in client.answers
    client.run(1)
    assert values_in(fetch_answer(client.answers[sent]).partitions[0]) == [b"a", b"b"]
    assert all(len(replicas.delayed_fetches) == 0 for replicas in client.cluster.replicas.values())


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


def test_an_error_is_told_at_once() -> None:
    client = client_with(BATCH)
    sent = sent_fetch(client, offset=9, max_wait_ms=50_000, min_bytes=10_000)
    assert fetch_answer(client.answers[sent]).partitions[0].code == OUT_OF_RANGE


def test_a_leader_epoch_of_another_time_is_refused() -> None:
    client = client_of_topic(3, 2)
    client.cluster.elect("t", 0, 1)
    client.run(100)
    reader = read_client(client)
    assert reader.fetch_one(1, "t", current_leader_epoch=1).code == 0
    assert reader.fetch_one(1, "t", current_leader_epoch=2).code == UNKNOWN_EPOCH
    fenced = reader.fetch_one(1, "t", current_leader_epoch=0)
    assert (fenced.code, fenced.current_leader) == (FENCED_EPOCH, (1, 1))


def test_the_new_leader_is_named_with_its_address() -> None:
    client = client_of_topic(3, 2, nodes=4)
    sent = client.send(3, FETCH, 16, fetch_request([Wanted("t", topic_id=client.cluster.topic_id("t"))], version=16))
    answer = client.answers[sent]
    (got,) = fetch_answer(answer).partitions
    assert (got.code, got.current_leader) == (NOT_LEADER, (0, 0))
    assert [(each.node_id, each.host) for each in answer.node_endpoints] == [(0, "broker-0")]
    assert read_client(client).fetch_one(3, "t", version=15).current_leader == NO_LEADER_NAMED


def test_before_version_11_only_the_leader_answers() -> None:
    client = client_of_topic(3, 2)
    assert read_client(client).fetch_one(1, "t", version=10).code == NOT_LEADER
    assert read_client(client).fetch_one(1, "t", version=11).code == 0


def test_records_can_be_withheld_for_a_while() -> None:
    """The answer is that of an empty log, but for where it ends."""
    client = client_with(BATCH)
    reader = read_client(client)
    client.cluster.withhold(0, 2)
    got = [reader.fetch_one(0, "t") for _ in range(3)]
    assert [len(each.records) > 0 for each in got] == [False, False, True]
    assert {(each.code, each.high_watermark, each.last_stable_offset) for each in got} == {(0, 2, 2)}


def test_a_request_can_be_refused_once() -> None:
    client = client_with(BATCH)
    client.cluster.refuse(0, FETCH, NO_RIGHT_TO_TOPIC)
    reader = read_client(client)
    assert reader.fetch_one(0, "t").code == NO_RIGHT_TO_TOPIC
    assert reader.fetch_one(0, "t").code == 0


def test_there_are_no_sessions() -> None:
    reader = read_client(client_with(BATCH))
    assert reader.fetch(0, [Wanted("t")], session_epoch=0).code == 0
    answer = reader.fetch(0, [Wanted("t")], session_epoch=1)
    assert (answer.code, answer.partitions) == (NO_SESSION_OF_THIS_ID, ())


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


def test_an_epoch_that_the_leader_never_had_ends_with_the_one_before() -> None:
    client = diverged()
    assert client.cluster.state("t", 0).leader_epoch == 2
    assert read_client(client).fetch_one(1, "t", offset=1, last_fetched_epoch=1).diverging == EpochAndOffset(0, 2)


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


def test_a_fetch_waits_at_a_follower_until_it_has_learned_of_more() -> None:
    client = client_of_topic(2, 1, racks=RACKS, replica_fetch_ms=(10, 10))
    sent = sent_fetch(client, node_id=1, max_wait_ms=50_000)
    client.produce(0, {("t", 0): BATCH})
    client.run(20)
    assert sent not in client.answers
    client.run(10)
    assert values_in(fetch_answer(client.answers[sent]).partitions[0]) == [b"a", b"b"]


def test_metadata_has_the_racks() -> None:
    client = client_of_topic(2, 1, racks=RACKS)
    assert [broker.rack for broker in client.metadata(0, ["t"]).brokers] == ["a", "b", "c"]


def test_a_throttled_fetch_is_answered_without_a_partition() -> None:
    client = client_with(BATCH)
    client.cluster.throttle(0, 300)
    reader = read_client(client)
    answer = reader.fetch(0, [Wanted("t")])
    assert (answer.throttle_time_ms, answer.partitions) == (300, ())
    answer = reader.fetch(0, [Wanted("t")])
    assert (answer.throttle_time_ms, len(answer.partitions)) == (0, 1)
    assert client.cluster.now_ms >= 2_300


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

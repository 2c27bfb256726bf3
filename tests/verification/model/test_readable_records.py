"""The oracle of reads: what must be delivered, and what was lost by what."""

from __future__ import annotations

import pytest

from model.clients import ByteClient, client_of_topic, record_batch, transaction_client
from model.read_journal import Fate, Isolation

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


def fates(
    client: ByteClient, isolation: Isolation = COMMITTED, first: int = 0, end: int | None = None
) -> list[tuple[int, bytes | None, Fate]]:
    records = client.cluster.readable_records("t", 0, isolation, first, end)
    return [(record.offset, record.value, record.fate) for record in records]


def with_rows(*values: bytes, replicas: int = 1, **settings: int) -> ByteClient:
    """One batch for two values."""
    client = client_of_topic(replicas, 1, nodes=replicas, **settings)
    for at in range(0, len(values), 2):
        client.produce(0, {("t", 0): record_batch(*values[at : at + 2])})
    client.run(100)
    return client


def test_deleted_and_compacted_records_are_told_apart() -> None:
    client = with_rows(b"a", b"b", b"c", b"d", b"e", b"f")
    client.cluster.compact("t", 0, 0, {2, 3})
    client.cluster.delete_before("t", 0, 1)
    assert fates(client) == [
        (0, b"a", Fate.DELETED), (1, b"b", Fate.KEPT), (2, b"c", Fate.COMPACTED), (3, b"d", Fate.COMPACTED),
        (4, b"e", Fate.KEPT), (5, b"f", Fate.KEPT),
    ]  # fmt: skip


def test_isolation_levels_have_records_of_their_own() -> None:
    client = with_rows(b"row")
    transactions = transaction_client(client)
    for name, is_commit in (("aborted", False), ("committed", True), ("open", None)):
        producer = transactions.init(name)
        transactions.write(name, producer, "t", values=[name.encode()])
        if is_commit is not None:
            transactions.end_surely(name, producer, is_commit)
            client.run(100)
    assert [value for _, value, _ in fates(client, UNCOMMITTED)] == [b"row", b"aborted", b"committed", b"open"]
    assert [value for _, value, _ in fates(client, COMMITTED)] == [b"row", b"committed"]


def truncated(with_marker_only: bool) -> ByteClient:
    """A transaction was committed on broker 0 and read there. Broker 1, which leads now, lacks its end or all of it."""
    client = client_of_topic(2, 1, nodes=3, replica_lag_time_max_ms=200)
    transactions = transaction_client(client)
    producer = transactions.init("x")
    if not with_marker_only:
        client.cluster.isolate(1)
    transactions.write("x", producer, "t", values=[b"row"])
    client.run(100)
    client.cluster.isolate(1)
    transactions.end_surely("x", producer, is_commit=True)
    client.run(1_000)
    assert fates(client) == [(0, b"row", Fate.KEPT)]
    client.cluster.crash(0)
    client.run(2_000)
    client.cluster.isolate(1, False)
    client.cluster.elect("t", 0, 1, unclean=True)
    client.run(100)
    return client


@pytest.mark.parametrize("with_marker_only", [False, True])
def test_what_an_unclean_election_took_was_readable_once(with_marker_only: bool) -> None:
    client = truncated(with_marker_only)
    assert fates(client) == [(0, b"row", Fate.TRUNCATED)]
    assert fates(client, UNCOMMITTED) == [(0, b"row", Fate.KEPT if with_marker_only else Fate.TRUNCATED)]


def test_two_records_of_one_offset_differ_by_their_leaders_epoch() -> None:
    client = truncated(with_marker_only=False)
    client.produce(1, {("t", 0): record_batch(b"other")})
    client.run(100)
    first, second = client.cluster.readable_records("t", 0, COMMITTED)
    assert (first.offset, first.value, first.fate) == (0, b"row", Fate.TRUNCATED)
    assert (second.offset, second.value, second.fate) == (0, b"other", Fate.KEPT)
    assert first.leader_epoch < second.leader_epoch


def test_a_deleted_topic_is_asked_for_by_its_id() -> None:
    client = with_rows(b"a")
    topic_id = client.cluster.topic_id("t")
    client.cluster.delete_topic("t")
    client.cluster.create_topic("t", 1, 1)
    client.run(100)
    assert fates(client) == []
    (record,) = client.cluster.readable_records("t", 0, COMMITTED, topic_id=topic_id)
    assert (record.value, record.fate) == (b"a", Fate.TOPIC_GONE)

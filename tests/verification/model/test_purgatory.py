"""acks=all: what a request waits for, how it is answered, and that its entries are removed."""

from __future__ import annotations

from model.byte_client import Answer, ByteClient, client_of_topic, record_batch
from model.settings import KAFKA_3_3, KAFKA_4

NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_ENOUGH, NOT_ENOUGH_AFTER, INVALID_ACKS = 6, 7, 10, 19, 20, 21


def waiting(client: ByteClient) -> int:
    return sum(len(replicas.purgatory) for replicas in client.cluster.replicas.values())


def one_held_up_and_one_free(**settings: object) -> ByteClient:
    """Broker 0 leads t-0, whose followers do not fetch, and u-3, which has none."""
    client = client_of_topic(3, 2, **settings)  # type: ignore[arg-type]
    client.cluster.create_topic("u", 4, 1)
    client.run(100)
    let_fetch(client, False)
    return client


def let_fetch(client: ByteClient, fetching: bool) -> None:
    client.cluster.isolate(1, not fetching)
    client.cluster.isolate(2, not fetching)


BOTH = {("t", 0): record_batch(b"a"), ("u", 3): record_batch(b"b")}


def test_a_request_waits_for_all_its_partitions() -> None:
    client = one_held_up_and_one_free()
    sent = client.produce(0, BOTH)
    client.run(100)
    assert client.committed("u", 3) == [b"b"]
    assert client.produced(sent) is None
    assert waiting(client) == 2
    let_fetch(client, True)
    client.run(100)
    assert client.produced(sent) == {0: Answer(0, 0), 3: Answer(0, 0)}
    assert waiting(client) == 0


def test_a_request_that_waits_too_long_is_answered_and_reaped() -> None:
    client = one_held_up_and_one_free()
    sent = client.produce(0, BOTH, timeout_ms=400)
    client.run(399)
    assert client.produced(sent) is None
    client.run(1)
    assert client.produced(sent) == {0: Answer(TIMED_OUT, 0), 3: Answer(0, 0)}
    assert waiting(client) == 0
    # The rows are in the log all the same, and are committed later.
    let_fetch(client, True)
    client.run(100)
    assert client.committed() == [b"a"]


def test_not_enough_replicas_before_the_append_appends_nothing() -> None:
    client = client_of_topic(3, 2, replica_lag_time_max_ms=500)
    leave_the_leader_alone(client, acks=1)
    sent = client.produce(0, {("t", 0): record_batch(b"b")})
    assert client.produced(sent) == {0: Answer(NOT_ENOUGH, -1)}
    assert client.log_of(0) == [b"a"]
    assert client.code(client.produce(0, {("t", 0): record_batch(b"c")}, acks=1)) == 0


def leave_the_leader_alone(client: ByteClient, acks: int) -> int:
    """The rest of the ISR goes while a request is under way."""
    let_fetch(client, False)
    sent = client.produce(0, {("t", 0): record_batch(b"a")}, acks=acks, timeout_ms=5_000)
    client.run(600)
    assert client.cluster.state("t", 0).isr == (0,)
    return sent


def test_not_enough_replicas_after_the_append_leaves_the_rows_in_the_log() -> None:
    client = client_of_topic(3, 2, generation=KAFKA_3_3, replica_lag_time_max_ms=500)
    client.produce_version = 9
    sent = leave_the_leader_alone(client, acks=-1)
    assert client.produced(sent) == {0: Answer(NOT_ENOUGH_AFTER, 0)}
    assert client.log_of(0) == [b"a"]


def test_since_kip_966_such_a_request_waits_for_the_isr_to_grow_again() -> None:
    for in_time in (True, False):
        client = client_of_topic(3, 2, generation=KAFKA_4, replica_lag_time_max_ms=500)
        sent = leave_the_leader_alone(client, acks=-1)
        assert client.produced(sent) is None
        if in_time:
            client.cluster.isolate(1, False)
        client.run(5_000)
        assert client.produced(sent) == {0: Answer(0 if in_time else TIMED_OUT, 0)}


def test_a_crash_forgets_what_waits() -> None:
    client = client_of_topic(3, 2)
    sent = client.produce(0, {("t", 0): record_batch(b"a")}, timeout_ms=400)
    client.cluster.crash(0)
    client.cluster.restart(0)
    client.run(1_000)
    assert client.produced(sent) is None
    assert waiting(client) == 0

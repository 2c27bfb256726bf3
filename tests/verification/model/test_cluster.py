"""What brokers of the model do that no trace of one real broker shows: replicas, racks, faults; the oracle of reads."""

import random
from typing import Any

import pytest

from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE, lacking
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE
from model import clients
from model.broker import Operation
from model.clients import READ_COMMITTED, READ_UNCOMMITTED, ByteClient, client_of_topic, read_client, record_batch
from model.controller import NO_LEADER, PartitionState
from model.partition import Partition
from model.partition_log import EpochAndOffset
from model.read_apis import LATEST
from model.read_journal import Fate, Isolation
from model.settings import FETCH, RELEASES

NONE, OUT_OF_RANGE, NOT_LEADER, NO_RIGHT_TO_TOPIC, FENCED_EPOCH, UNKNOWN_EPOCH = 0, 1, 6, 29, 74, 75
NEWEST_FETCH = 18
BATCH = record_batch(b"a", b"b")
FAILOVER_MS = 2_000


@pytest.mark.parametrize(("release", "kept"), [
    ("2.1.1", {"at-least-once", "idempotence"}), ("2.8.2", {"at-least-once", "idempotence"}),
    ("3.0.2", {"at-least-once", "idempotence", "exactly-once"}),
    ("4.3.1", {"at-least-once", "idempotence", "exactly-once"}),
])  # fmt: skip
def test_what_a_release_offers_is_enough_for_these_guarantees(release: str, kept: set[str]) -> None:
    ranges = RELEASES[release].api_versions
    guarantees = (AT_LEAST_ONCE, IDEMPOTENCE, EXACTLY_ONCE)
    assert {guarantee.name for guarantee in guarantees if not lacking(ranges, guarantee)} == kept


# --- a broker and its clients -----------------------------------------------------------------------------------------


def test_acks_0_is_not_answered_and_an_error_ends_the_connection() -> None:
    client = client_of_topic(3, 2)
    client.produce(0, {("t", 0): record_batch(b"a")}, acks=0)
    client.run(100)
    assert (client.answers, client.closed, client.committed()) == ({}, [], [b"a"])
    client.produce(1, {("t", 0): record_batch(b"b")}, acks=0)
    assert (client.answers, client.closed) == ({}, [1])


def test_a_broker_acts_by_the_metadata_it_has() -> None:
    client = client_of_topic(3, 2, metadata_lag_ms=(500, 500))
    client.cluster.elect("t", 0, 1)
    client.run(499)
    # The old leader still answers, the new one does not know yet; what the old one takes now is lost.
    assert client.metadata(2, ["t"]).topics[0].partitions[0].leader_id == 0
    assert client.code(client.produce(1, {("t", 0): record_batch(b"early")}, acks=1)) == NOT_LEADER
    assert client.code(client.produce(0, {("t", 0): record_batch(b"zombie")}, acks=1)) == NONE
    client.run(1)
    assert client.code(client.produce(0, {("t", 0): record_batch(b"late")}, acks=1)) == NOT_LEADER
    assert client.code(client.produce(1, {("t", 0): record_batch(b"right")}, acks=1)) == NONE
    assert client.metadata(2, ["t"]).topics[0].partitions[0].leader_id == 1
    client.run(100)
    assert client.committed() == [b"right"]


def test_a_throttled_connection_is_told_so_and_not_read_until_the_time_is_over() -> None:
    client = client_of_topic(1, 1)
    client.cluster.brokers[0].throttle(300)
    sent = client.produce(0, {("t", 0): record_batch(b"a")})
    assert client.answers[sent].throttle_time.total_seconds() == 0.3
    early = client.produce(0, {("t", 0): record_batch(b"b")})
    client.run(299)
    assert (client.produced(early), client.cluster.log_end_offset("t", 0, 0)) == (None, 1)
    client.run(1)
    assert client.produced(early) == {0: clients.Answer(0, 1)}


@pytest.mark.parametrize("is_gone", [False, True])
def test_requests_of_a_connection_are_executed_one_after_the_other(is_gone: bool) -> None:
    """Although their client is gone; then nobody hears of it."""
    client = client_of_topic(3, 2)
    first = client.produce(0, {("t", 0): record_batch(b"a")})
    behind = client.produce(0, {("t", 0): record_batch(b"b")}, acks=1)
    assert client.cluster.log_end_offset("t", 0, 0) == 1
    if is_gone:
        client.disconnect(0)
    client.run(200)
    answers = [client.produced(first), client.produced(behind)]
    assert answers == ([None, None] if is_gone else [{0: clients.Answer(0, 0)}, {0: clients.Answer(0, 1)}])
    assert client.committed() == [b"a", b"b"]


def test_an_acl_is_taken_away_and_given_back() -> None:
    client = client_of_topic(3, 2)
    reader = read_client(client)

    def seen() -> tuple[list[str], int, int, int]:
        """The topics of a list, and the codes of the topic by name, of its end, and of its records."""
        client.run(100)
        listed = [topic.name for topic in client.metadata(0, None).topics]
        code = int(client.metadata(0, ["t"]).topics[0].error_code)
        return listed, code, reader.list_offset(0, "t", LATEST)[0], int(reader.fetch_one(0, "t").code)

    client.cluster.forbid("t", Operation.READ)
    assert seen() == (["t"], 0, 0, NO_RIGHT_TO_TOPIC)
    client.cluster.forbid("t", Operation.DESCRIBE)
    assert seen() == ([], NO_RIGHT_TO_TOPIC, NO_RIGHT_TO_TOPIC, NO_RIGHT_TO_TOPIC)
    client.cluster.allow("t")
    assert seen() == (["t"], 0, 0, 0)


# --- fetches ----------------------------------------------------------------------------------------------------------


def sent_fetch(client: ByteClient, **limits: Any) -> int:
    wanted = [clients.Wanted("t", topic_id=client.cluster.topic_id("t"), current_leader_epoch=0)]
    return client.send(0, FETCH, NEWEST_FETCH, clients.fetch_request(wanted, **limits))


def test_a_fetch_waits_for_its_least_bytes() -> None:
    client = client_of_topic(1, 1, nodes=1)
    sent = sent_fetch(client, max_wait_ms=5_000, min_bytes=len(BATCH) + 1)
    # A broker handles the requests of one connection one by one.
    client.reconnect(0)
    for _ in range(2):
        assert sent not in client.answers
        client.produce(0, {("t", 0): BATCH})
        client.run(10)
    assert len(clients.fetch_answer(client.answers[sent]).partitions[0].records) == 2 * len(BATCH)


@pytest.mark.parametrize(("is_deleted", "code"), [(False, FENCED_EPOCH), (True, NOT_LEADER)])
def test_a_waiting_fetch_ends_when_the_broker_leads_no_more(is_deleted: bool, code: int) -> None:
    client = client_of_topic(3, 2)
    sent = sent_fetch(client, max_wait_ms=50_000)
    if is_deleted:
        client.cluster.controller.delete_topic("t")
    else:
        client.cluster.elect("t", 0, 1)
    client.run(100)
    assert clients.fetch_answer(client.answers[sent]).partitions[0].code == code


def test_a_reader_of_a_truncated_log_is_told_where_it_left_the_leaders() -> None:
    """Broker 1 leads in epoch 1 from offset 2; the records 2 and 3 of epoch 0, which were committed, are gone."""
    client = client_of_topic(2, 1, nodes=2, replica_lag_time_max_ms=200)
    client.produce(0, {("t", 0): BATCH})
    client.run(100)
    client.cluster.isolate(1)
    client.produce(0, {("t", 0): BATCH})
    client.run(500)
    assert client.cluster.high_watermark("t", 0, 0) == 4
    client.cluster.crash(0)
    client.run(FAILOVER_MS)
    client.cluster.isolate(1, False)
    client.cluster.elect("t", 0, 1, unclean=True)
    client.run(100)
    client.produce(1, {("t", 0): record_batch(b"x", b"y", b"z")})
    client.run(100)
    epoch = client.cluster.state("t", 0).leader_epoch
    reader = read_client(client)
    got = reader.fetch_one(1, "t", offset=4, last_fetched_epoch=0, current_leader_epoch=epoch)
    assert (got.code, got.records, got.diverging) == (0, b"", EpochAndOffset(0, 2))
    # Without its epoch nobody notices: there is an offset 4.
    assert reader.fetch_one(1, "t", offset=4).records
    assert reader.fetch_one(1, "t", offset=2, last_fetched_epoch=0).diverging == EpochAndOffset(-1, -1)
    assert reader.fetch_one(1, "t", offset=2, last_fetched_epoch=epoch + 1).code == OUT_OF_RANGE
    assert reader.fetch_one(1, "t", current_leader_epoch=epoch + 1).code == UNKNOWN_EPOCH
    fenced = reader.fetch_one(1, "t", current_leader_epoch=0)
    assert (fenced.code, fenced.current_leader) == (FENCED_EPOCH, (1, epoch))


def test_a_leader_sends_a_reader_to_the_replica_of_its_rack() -> None:
    client = client_of_topic(2, 1, racks={0: "a", 1: "b", 2: "c"})
    client.produce(0, {("t", 0): BATCH})
    client.run(100)
    reader = read_client(client)
    got = reader.fetch_one(0, "t", rack="b", max_wait_ms=10_000)
    assert (got.preferred_read_replica, got.records, got.high_watermark) == (1, b"", 2)
    assert reader.fetch_one(1, "t", rack="b").records
    for rack in ("a", "c", ""):
        got = reader.fetch_one(0, "t", rack=rack)
        assert (got.preferred_read_replica, len(got.records)) == (-1, len(BATCH))


# --- which rows survive when brokers die ------------------------------------------------------------------------------


def fail_over(client: ByteClient) -> None:
    """The leader dies, another leads, the dead one comes back."""
    client.cluster.crash(0)
    client.run(FAILOVER_MS)
    client.cluster.restart(0)
    client.run(FAILOVER_MS)


def test_acks_all_with_min_insync_replicas_2_loses_no_acknowledged_row() -> None:
    outcomes = set()
    for delay_ms in range(25):
        client = client_of_topic(3, 2, seed=delay_ms)
        sent = client.produce(0, {("t", 0): record_batch(b"a")})
        client.run(delay_ms)
        acknowledged = client.produced(sent) == {0: clients.Answer(0, 0)}
        fail_over(client)
        outcomes.add((acknowledged, client.committed() == [b"a"]))
    # All that may happen did: lost, kept without a word, kept and told so.
    assert outcomes == {(False, False), (False, True), (True, True)}


@pytest.mark.parametrize("unclean", [False, True])
def test_unclean_election_loses_acknowledged_rows_and_clean_election_waits(unclean: bool) -> None:
    """With min.insync.replicas 1 a leader alone acknowledges them."""
    client = client_of_topic(3, 1, replica_lag_time_max_ms=500, unclean_leader_election=unclean)
    client.cluster.isolate(1)
    client.cluster.isolate(2)
    sent = client.produce(0, {("t", 0): record_batch(b"a")})
    client.run(600)
    assert (client.cluster.state("t", 0).isr, client.code(sent)) == ((0,), NONE)
    fail_over(client)
    assert client.committed() == ([] if unclean else [b"a"])


# --- over random faults: committed rows stay, and all replicas agree --------------------------------------------------


def act(client: ByteClient, rng: random.Random, number: int) -> int | None:
    """One step of the schedule. Returns the correlation id of a request, if it was one."""
    cluster = client.cluster
    node_id = rng.randrange(3)
    dead = [other for other in cluster.node_ids if not cluster.is_alive(other)]
    what = rng.choices(["produce", "crash", "restart", "elect", "isolate", "rejoin"], [50, 8, 14, 16, 3, 9])[0]
    if what == "produce":
        leader = cluster.leader("t", 0)
        return client.produce(node_id if leader is None else leader, {("t", 0): record_batch(b"%d" % number)})
    if what == "crash" and not dead:
        cluster.crash(node_id)
    elif what == "restart":
        for other in dead:
            cluster.restart(other)
    elif what == "elect":
        live = [other for other in cluster.state("t", 0).isr if other in cluster.controller.image.alive]
        if live:
            cluster.elect("t", 0, rng.choice(live))
    elif what in ("isolate", "rejoin"):
        cluster.isolate(node_id, what == "isolate")
    return None


def broken_promises(seed: int) -> list[str]:
    rng = random.Random(seed)
    client = client_of_topic(
        3, 2, seed=seed, replica_fetch_ms=(5, 40), metadata_lag_ms=(1, 5), replica_lag_time_max_ms=200,
        failure_detection_ms=(10, 100),
    )  # fmt: skip
    sent: dict[int, bytes] = {}
    committed: list[bytes | None] = []
    broken = []
    for number in range(150):
        correlation_id = act(client, rng, number)
        if correlation_id is not None:
            sent[correlation_id] = b"%d" % number
        client.run(rng.choice([0, 2, 10, 30, 60, 100]))
        now = client.committed()
        shared = min(len(now), len(committed))
        if now[:shared] != committed[:shared]:
            broken.append(f"step {number}: {committed[:shared]} became {now[:shared]}")
        committed = now if len(now) > len(committed) else committed
    heal(client)
    final = client.committed()
    logs = [client.log_of(node_id) for node_id in client.cluster.node_ids]
    if logs != [final] * 3:
        broken.append(f"committed {final}, but the logs are {logs}")
    acknowledged = [value for correlation_id, value in sent.items() if client.code(correlation_id) == 0]
    broken += [f"{value!r} was acknowledged and is lost" for value in acknowledged if value not in final]
    assert acknowledged
    return broken


def heal(client: ByteClient) -> None:
    for node_id in client.cluster.node_ids:
        client.cluster.isolate(node_id, False)
        client.cluster.restart(node_id)
    # Until every request that waited behind another is through.
    client.run_until(lambda: client.cluster.next_event_ms() is None, limit_ms=60_000)
    assert client.cluster.state("t", 0).isr == (0, 1, 2)
    assert all(len(replicas.purgatory) == 0 for replicas in client.cluster.replicas.values())


@pytest.mark.parametrize("seed", range(8))
def test_what_is_committed_stays(seed: int) -> None:
    assert broken_promises(seed) == []


def test_truncation_to_the_high_watermark_breaks_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower of a new leader drops what it does not know to be committed, as before Kafka 0.11 (KIP-101). This
    shows that the faults are hard enough."""
    apply = Partition.apply

    def mistaken(replica: Partition, state: PartitionState, alive: tuple[int, ...], now_ms: int) -> None:
        before = replica.state
        apply(replica, state, alive, now_ms)
        follows = state.leader not in (replica.node_id, before.leader, NO_LEADER)
        if follows and state.leader_epoch > before.leader_epoch:
            replica.truncate(replica.high_watermark)

    def shares_all(replica: Partition, last_epoch: int) -> EpochAndOffset:
        return EpochAndOffset(last_epoch, replica.log.end_offset)

    monkeypatch.setattr(Partition, "apply", mistaken)
    monkeypatch.setattr(Partition, "_end_offset_shared_with", shares_all)
    assert any(broken_promises(seed) for seed in range(40))


# --- the oracle of reads ----------------------------------------------------------------------------------------------


def fates(client: ByteClient, isolation: Isolation = READ_COMMITTED) -> list[tuple[int, bytes | None, Fate]]:
    records = client.cluster.readable_records("t", 0, isolation)
    return [(record.offset, record.value, record.fate) for record in records]


def with_rows(*values: bytes) -> ByteClient:
    """One batch for two values."""
    client = client_of_topic(1, 1, nodes=1)
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
    transactions = clients.transaction_client(client)
    for name, is_commit in (("aborted", False), ("committed", True), ("open", None)):
        producer = transactions.init(name)
        transactions.write(name, producer, "t", values=[name.encode()])
        if is_commit is not None:
            transactions.end_surely(name, producer, is_commit)
            client.run(100)
    assert [value for _, value, _ in fates(client, READ_UNCOMMITTED)] == [b"row", b"aborted", b"committed", b"open"]
    assert [value for _, value, _ in fates(client)] == [b"row", b"committed"]


def test_a_marker_goes_after_the_rows_of_its_transaction() -> None:
    """One producer: aborted at 0 (marker 1), committed at 2 (marker 3), and a row at 4 that stays."""
    client = client_of_topic(1, 1, nodes=1)
    transactions, reader = clients.transaction_client(client), read_client(client)
    producer = transactions.init("x")
    for is_commit in (False, True):
        transactions.write("x", producer, "t")
        producer = transactions.end_surely("x", producer, is_commit)
        client.run(100)
    client.produce(0, {("t", 0): record_batch(b"row")})
    client.run(10)
    sizes = []
    # An aborted transaction without its marker would hide the rows of the next one.
    for removed, is_told in (({1, 3}, True), ({0}, True), ({1}, False)):
        client.cluster.compact("t", 0, 0, removed)
        got = reader.fetch_one(0, "t", isolation=READ_COMMITTED)
        assert got.aborted == (((producer.producer_id, 0),) if is_told else ())
        sizes.append(len(got.records))
    assert sizes[0] > sizes[1] > sizes[2]


def truncated(with_marker_only: bool) -> ByteClient:
    """A transaction was committed on broker 0 and read there. Broker 1, which leads now, lacks its end or all of it."""
    client = client_of_topic(2, 1, nodes=3, replica_lag_time_max_ms=200)
    transactions = clients.transaction_client(client)
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
    client.run(FAILOVER_MS)
    client.cluster.isolate(1, False)
    client.cluster.elect("t", 0, 1, unclean=True)
    client.run(100)
    return client


@pytest.mark.parametrize("with_marker_only", [False, True])
def test_what_an_unclean_election_took_was_readable_once(with_marker_only: bool) -> None:
    client = truncated(with_marker_only)
    assert fates(client) == [(0, b"row", Fate.TRUNCATED)]
    assert fates(client, READ_UNCOMMITTED) == [(0, b"row", Fate.KEPT if with_marker_only else Fate.TRUNCATED)]


def test_two_records_of_one_offset_differ_by_their_leaders_epoch() -> None:
    client = truncated(with_marker_only=False)
    client.produce(1, {("t", 0): record_batch(b"other")})
    client.run(100)
    first, second = client.cluster.readable_records("t", 0, READ_COMMITTED)
    assert (first.offset, first.value, first.fate) == (0, b"row", Fate.TRUNCATED)
    assert (second.offset, second.value, second.fate) == (0, b"other", Fate.KEPT)
    assert first.leader_epoch < second.leader_epoch


def test_a_deleted_topic_is_asked_for_by_its_id() -> None:
    client = with_rows(b"a")
    topic_id = client.cluster.topic_id("t")
    client.cluster.controller.delete_topic("t")
    client.cluster.create_topic("t", 1, 1)
    client.run(100)
    assert fates(client) == []
    (record,) = client.cluster.readable_records("t", 0, READ_COMMITTED, topic_id=topic_id)
    assert (record.value, record.fate) == (b"a", Fate.TOPIC_GONE)

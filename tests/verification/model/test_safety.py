"""What Kafka promises, over random faults: committed rows stay, and all replicas agree.

With leader epochs and clean elections only. The same run with truncation to the high watermark breaks the promise,
which shows that the faults are hard enough.
"""

from __future__ import annotations

import random

import pytest

from model.clients import ByteClient, client_of_topic, record_batch
from model.settings import ClusterSettings, Truncation

STEPS = 150
SEEDS = range(8)


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


def broken_promises(seed: int, truncation: Truncation) -> list[str]:
    rng = random.Random(seed)
    client = client_of_topic(
        3, 2, seed=seed, truncation=truncation, replica_fetch_ms=(5, 40), metadata_lag_ms=(1, 5),
        replica_lag_time_max_ms=200, failure_detection_ms=(10, 100),
    )  # fmt: skip
    sent: dict[int, bytes] = {}
    committed: list[bytes | None] = []
    broken = []
    for number in range(STEPS):
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


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_committed_stays(seed: int) -> None:
    assert broken_promises(seed, Truncation.LEADER_EPOCH) == []


def test_truncation_to_the_high_watermark_breaks_promises() -> None:
    assert any(broken_promises(seed, Truncation.HIGH_WATERMARK) for seed in range(40))


def test_the_defaults_are_those_that_keep_them() -> None:
    settings = ClusterSettings()
    assert settings.truncation is Truncation.LEADER_EPOCH
    assert not settings.unclean_leader_election

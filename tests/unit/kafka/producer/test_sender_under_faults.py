"""The Sender against connections that break and leaders that move: nothing lost, doubled or reordered."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from effort import each, examples
from faulty_cluster import FaultyCluster
from kafka_sink.errors import KafkaSinkError, ProduceRejected
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.records.sent_rows import SentRow, rows_before
from model.record_batches import next_sequence
from producer_core import Core, make_core, routed

PARTITIONS = 3
ROWS = 60
SEEDS = range(examples(150))


@dataclass
class Run:
    core: Core
    cluster: FaultyCluster
    expected: list[list[bytes]]


def run(
    seed: int,
    *,
    max_message_bytes: int = 2**31,
    first_sequence: int = 0,
    refuses: Callable[[random.Random, bytes], bool] | None = None,
    faults: bool = True,
    **options: Any,
) -> Run:
    """Writes ROWS rows in small appends while `seed` decides what happens, then lets everything heal. `refuses`: which
    values leaders refuse by name, and the write leaves out."""
    rng = random.Random(seed)
    settings: dict[str, Any] = {
        "leaders": [rng.randrange(3) for _ in range(PARTITIONS)],
        "batch_size": 1_024,
        "max_request_size": rng.choice([1_024, 4_096]),
        "buffer_memory": 8_192,
        "linger_ms": rng.choice([0, 50]),
        "max_in_flight_requests_per_connection": rng.choice([1, 5]),
        "compression_type": rng.choice(["none", "zstd"]),
        "delivery_timeout_ms": 10_000_000,
    }
    core = make_core(**{**settings, **options})
    idempotent = core.config.enable_idempotence
    core.sender.sequences = Sequences(idempotent=idempotent, first_sequence=first_sequence)
    cluster = FaultyCluster(core, rng)
    cluster.faults = faults
    cluster.max_message_bytes = max_message_bytes
    if refuses is not None:
        core.acknowledgements.refused = deque()
        cluster.refuses = partial(refuses, rng)
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    written = 0
    while written < ROWS:
        values = [b"%06d" % (written + i) + bytes(rng.choice([5, 400, 1_500])) for i in range(rng.randint(1, 8))]
        partitions = [rng.randrange(PARTITIONS) for _ in values]
        for value, partition in zip(values, partitions, strict=True):
            expected[partition].append(value)
        rows = routed(values, partitions)
        written += len(values)
        try:
            while not core.append(rows):
                turn(core, cluster)
        except KafkaSinkError:
            break
        turn(core, cluster)
    core.flush()
    cluster.faults = False
    for _ in range(2_000):
        if core.acknowledgements.settled:
            break
        turn(core, cluster)
    return Run(core, cluster, expected)


def turn(core: Core, cluster: FaultyCluster) -> None:
    core.run(advance_ms=cluster.rng.choice([1, 20, 300]))
    cluster.step()


@each("seed", SEEDS)
def test_every_row_once_and_in_order_and_the_receipts_say_so(seed: int) -> None:
    assert_every_row_once_and_in_order(run(seed))


@each("seed", range(examples(40)))
def test_the_same_where_sequences_wrap(seed: int) -> None:
    done = run(seed, first_sequence=2**31 - 1 - seed % 8)
    assert_every_row_once_and_in_order(done)
    for log in done.cluster.logs:
        assert next_sequence(log.log.batches[-1].last_sequence) < ROWS


@each("seed", range(examples(80)))
def test_the_same_where_leaders_refuse_batches_for_their_size(seed: int) -> None:
    # 1,567 bytes: the largest row alone. Batches are up to four times as large.
    done = run(seed, max_message_bytes=1_700, batch_size=4_096, max_request_size=8_192, buffer_memory=12_288)
    assert_every_row_once_and_in_order(done)


def test_and_batches_are_split_while_others_are_in_flight() -> None:
    settings: dict[str, Any] = {"batch_size": 4_096, "max_request_size": 4_096, "buffer_memory": 32_768}
    runs = [
        run(seed, max_message_bytes=1_700, compression_type="none", max_in_flight_requests_per_connection=5, **settings)
        for seed in range(20)
    ]
    for done in runs:
        assert_every_row_once_and_in_order(done)
    assert sum(done.cluster.refused_as_too_large for done in runs) > 100
    assert max(done.cluster.most_in_flight for done in runs) >= 4


def number_of(value: bytes) -> int:
    return int(value[:6])


def always(rng: random.Random, value: bytes) -> bool:
    return number_of(value) % 7 == 3


def sometimes(rng: random.Random, value: bytes) -> bool:
    """By the leader's clock, which may have moved on since it took the same row."""
    return number_of(value) % 7 == 3 and rng.random() < 0.5


def left_out(done: Run) -> list[list[bytes]]:
    """Of each partition, as the write is told."""
    refused = done.core.acknowledgements.refused
    assert refused is not None
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for row in refused:
        columns = rows_before([SentRow(*row.topic_partition, row.timestamp_ms, row.body)], added_headers=0)
        values[row.topic_partition.partition].append(columns["value"][0].as_py())
    return values


def assert_every_row_is_written_or_left_out(done: Run) -> None:
    """Once, and in order; where the write has failed, nothing is doubled or overtaken."""
    for log, expected, out in zip(done.cluster.logs, done.expected, left_out(done), strict=True):
        if done.core.acknowledgements.failure is None:
            assert sorted(log.values + out) == expected
        assert log.values == [value for value in expected if value in set(log.values)]
        assert not set(log.values) & set(out)
    assert done.core.acknowledgements.settled
    assert done.core.is_free


@pytest.mark.parametrize("refuses", [always, sometimes])
@each("seed", SEEDS)
def test_rows_that_are_refused_are_left_out_and_the_others_written_once(
    seed: int, refuses: Callable[[random.Random, bytes], bool]
) -> None:
    done = run(seed, refuses=refuses)
    if isinstance(done.core.acknowledgements.failure, ProduceRejected):
        for sent in list(done.core.network.sent):
            done.core.answer(sent, None, "closed")
    else:
        assert done.core.acknowledgements.failure is None
        told = {receipt.partition: receipt.record_count for receipt in done.core.receipts}
        assert told == {number: len(log.values) for number, log in enumerate(done.cluster.logs) if log.values}
    assert_every_row_is_written_or_left_out(done)


@pytest.mark.parametrize("idempotent", [True, False])
@each("seed", range(examples(40)))
def test_without_faults_each_write_leaves_them_out(seed: int, idempotent: bool) -> None:
    alone = {} if idempotent else {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    done = run(seed, refuses=always, faults=False, first_sequence=2**31 - 5 if seed % 2 and idempotent else 0, **alone)
    assert done.core.acknowledgements.failure is None
    assert_every_row_is_written_or_left_out(done)
    refused = [value for values in done.expected for value in values if number_of(value) % 7 == 3]
    assert sum(map(len, left_out(done))) == len(refused)


def test_they_are_refused_with_others_in_flight_and_under_faults_some_writes_go_on() -> None:
    """Else the tests above are idle."""
    runs = [run(seed, refuses=always, faults=False, max_in_flight_requests_per_connection=5) for seed in range(20)]
    assert sum(done.cluster.refused_by_name for done in runs) > 100
    assert max(done.cluster.most_in_flight for done in runs) >= 4
    under_faults = [run(seed, refuses=sometimes) for seed in range(40)]
    assert sum(done.core.acknowledgements.failure is None for done in under_faults) >= 4
    assert sum(done.cluster.cuts for done in under_faults) > 50


def assert_every_row_once_and_in_order(done: Run) -> None:
    assert done.core.is_written
    assert [log.values for log in done.cluster.logs] == done.expected
    told = {each.partition: (each.first_offset, each.last_offset, each.record_count) for each in done.core.receipts}
    assert told == {number: (0, len(rows) - 1, len(rows)) for number, rows in enumerate(done.expected) if rows}


def test_the_faults_are_real() -> None:
    """Over the seeds, connections fill up and requests are executed late: else the test above is idle."""
    runs = [run(seed) for seed in range(20)]
    assert max(done.cluster.most_in_flight for done in runs) >= 5
    assert sum(done.cluster.cuts for done in runs) > 50
    assert sum(done.cluster.executed_late for done in runs) > 20


def firsts(values: list[bytes]) -> list[bytes]:
    """Each value where it first stands."""
    return list(dict.fromkeys(values))


@each("seed", range(examples(40)))
def test_without_idempotence_and_one_in_flight_no_row_is_lost_or_overtaken(seed: int) -> None:
    done = run(seed, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    assert done.core.is_written
    assert [firsts(log.values) for log in done.cluster.logs] == done.expected


def test_without_idempotence_rows_may_double_or_be_overtaken_but_none_is_lost() -> None:
    """What the option's text warns of does happen here: the guarantees of the other tests are not the model's."""
    runs = [run(seed, enable_idempotence=False, max_in_flight_requests_per_connection=5) for seed in range(40)]
    for done in runs:
        assert done.core.acknowledgements.settled
        assert [sorted(firsts(log.values)) for log in done.cluster.logs] == done.expected
        assert done.core.is_free
    logs = [log.values for done in runs for log in done.cluster.logs]
    assert any(len(values) > len(firsts(values)) for values in logs)
    assert any(firsts(values) != sorted(firsts(values)) for values in logs)

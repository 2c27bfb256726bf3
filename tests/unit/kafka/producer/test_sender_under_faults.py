"""The Sender against connections that break and leaders that move: nothing lost, doubled or reordered."""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from effort import each, examples
from kafka_sink.errors import KafkaSinkError, ProduceRejected
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest, NamedLeader
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest, ProduceResponse, ProduceResult, RefusedRecord
from kafka_sink.kafka.protocol.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.records.dead_letters import SentRow, rows_before
from model.partition_log import PartitionLog
from model.producer_state import ProducerState
from model.record_batches import RecordBatch, Refused, check_batch, decode_records, next_sequence, parse_batch
from producer_core import TOPIC_ID, Core, make_core, metadata_response, routed
from scripted_kafka import Sent


class Leader:
    """One partition: its log, and the state of producers that follows from the log."""

    def __init__(self) -> None:
        self.log = PartitionLog()
        self.values: list[bytes | None] = []
        self._producers = ProducerState()

    def append(self, batch: RecordBatch) -> int:
        """Append the batch and return its base offset in the log. Raises Refused."""
        if batch.producer_id >= 0:
            known = self._producers.find_duplicate(batch)
            if known is not None:
                return known.base_offset
            self._producers.check(batch)
        placed = batch.placed(self.log.end_offset, LEADER_EPOCH)
        self.log.append(placed)
        self.values += values_of(placed)
        if batch.producer_id >= 0:
            self._producers.update(placed)
        return placed.base_offset


def values_of(batch: RecordBatch) -> list[bytes | None]:
    return [value for _, value, _, _ in decode_records(batch.data)]


# Each partition has one log for all its leaders.
LEADER_EPOCH = 0


class FaultyCluster:
    """Answers the requests of `core`. Tests switch `faults` off to see that the producer then recovers."""

    def __init__(self, core: Core, rng: random.Random) -> None:
        self.core = core
        self.rng = rng
        self.faults = True
        self.max_message_bytes = 2**31
        self.refuses: Callable[[Any], bool] = lambda value: False
        self.logs = [Leader() for _ in core.leaders]
        self.leader_epoch = 0
        self.gave_up_on: list[Sent] = []
        self.most_in_flight = 0
        self.cuts = 0
        self.executed_late = 0
        self.refused_as_too_large = 0
        self.refused_by_name = 0
        self.named: Counter[str] = Counter()

    def step(self) -> None:
        """One event, if a request is waiting for one."""
        waiting = self.core.network.sent
        if self.gave_up_on and self.rng.random() < 0.3:
            self.executed_late += 1
            self._execute(self.gave_up_on.pop(0))
        if not waiting:
            return
        node_id = self.rng.choice(sorted({sent.node_id for sent in waiting}))
        connection = [sent for sent in waiting if sent.node_id == node_id]
        self.most_in_flight = max(self.most_in_flight, len(connection))
        if self.faults and self.rng.random() < 0.15:
            self._cut(connection)
        else:
            self._answer(connection[0])
        if self.faults and self.rng.random() < 0.1:
            self.core.leaders[self.rng.randrange(len(self.core.leaders))] = self.rng.randrange(3)
            self.leader_epoch += 1

    def _answer(self, sent: Sent) -> None:
        if isinstance(sent.request, MetadataRequest):
            error_code = 3 if self.faults and self.rng.random() < 0.1 else 0
            response = metadata_response(
                [] if error_code else self.core.leaders, error_code=error_code, leader_epoch=self.leader_epoch
            )
            self.core.answer(sent, response)
        elif isinstance(sent.request, InitProducerIdRequest):
            self.core.answer(sent, InitProducerIdResponse(0, 0, 4_000, 0))
        else:
            self.core.answer(sent, self._execute(sent))

    def _cut(self, connection: list[Sent]) -> None:
        self.cuts += 1
        executed = self.rng.randint(0, len(connection))
        for sent in connection[:executed]:
            self._execute(sent)
        if self.rng.random() < 0.5:
            self.gave_up_on += [_as_sent(sent) for sent in connection[executed:]]
        lost = list(connection)
        self.rng.shuffle(lost)
        for sent in lost:
            self.core.answer(sent, None, "the connection was lost")

    def _execute(self, sent: Sent) -> ProduceResponse | None:
        if not isinstance(sent.request, ProduceRequest):
            return None
        results = []
        for partition in sent.request.partitions:
            code, offset, leader = 0, -1, None
            refused: tuple[RefusedRecord, ...] = ()
            try:
                if self.core.leaders[partition.partition] != sent.node_id:
                    leader = self._leader_named(partition.partition)
                    raise Refused(ErrorCode.not_leader_or_follower, "moved")
                if self.faults and self.rng.random() < 0.1:
                    raise Refused(ErrorCode.not_enough_replicas, "for now")
                batch = parse_batch(bytes(partition.records))
                check_batch(batch, self.max_message_bytes)
                if refused := self._refused(batch):
                    raise Refused(ErrorCode.invalid_timestamp, "by name")
                offset = self.logs[partition.partition].append(batch)
            except Refused as refusal:
                code = int(refusal.code)
            self.refused_as_too_large += code == ErrorCode.message_too_large
            self.refused_by_name += bool(refused)
            here = (partition.topic, TOPIC_ID, partition.partition)
            results.append(ProduceResult(*here, code, None, offset, refused, leader))
        return ProduceResponse(0, tuple(results))

    def _leader_named(self, partition: int) -> NamedLeader | None:
        """KIP-951, also by a broker that lags, is wrong, or names a leader that was one for a moment only."""
        kind = self.rng.choice(["none", "right", "old", "same epoch", "gone", "nowhere"]) if self.faults else "right"
        self.named[kind] += 1
        leader, epoch, other = self.core.leaders[partition], self.leader_epoch, self.rng.randrange(3)
        match kind:
            case "none":
                return None
            case "right":
                return NamedLeader(leader, epoch, Broker(leader, "localhost", 9092 + leader))
            case "gone":
                self.leader_epoch += 2
                return NamedLeader(other, epoch + 1, None)
            case "nowhere":
                return NamedLeader(99, epoch + 1, None)
        return NamedLeader(other, max(0, epoch - 1) if kind == "old" else epoch, None)

    def _refused(self, batch: RecordBatch) -> tuple[RefusedRecord, ...]:
        places = [place for place, value in enumerate(values_of(batch)) if self.refuses(value)]
        return tuple(RefusedRecord(place, "too old") for place in places)


def _as_sent(sent: Sent) -> Sent:
    """The request with the bytes it has now: those are in the network, whatever becomes of the producer's buffer."""
    if not isinstance(sent.request, ProduceRequest):
        return sent
    partitions = tuple(replace(partition, records=bytes(partition.records)) for partition in sent.request.partitions)
    return replace(sent, request=replace(sent.request, partitions=partitions))


PARTITIONS, ROWS = 3, 60


@dataclass
class Run:
    core: Core
    cluster: FaultyCluster
    expected: list[list[bytes]]

    @property
    def failure(self) -> KafkaSinkError | None:
        return self.core.acknowledgements.failure


def number_of(value: bytes) -> int:
    return int(value[:6])


def never(rng: random.Random, value: bytes) -> bool:
    return False


def always(rng: random.Random, value: bytes) -> bool:
    return number_of(value) % 7 == 3


def sometimes(rng: random.Random, value: bytes) -> bool:
    """By the leader's clock, which may have moved on since it took the same row."""
    return number_of(value) % 7 == 3 and rng.random() < 0.5


def run(
    seed: int,
    refuses: Callable[[random.Random, bytes], bool] = never,
    *,
    first_sequence: int = 0,
    faults: bool = True,
    **options: Any,
) -> Run:
    """Writes ROWS rows in small appends while `seed` decides what happens, then lets everything heal. `refuses`: which
    values leaders refuse by name, and the write leaves out. Every other time they refuse large batches, too."""
    rng = random.Random(seed)
    is_limited = bool(seed % 2)
    settings: dict[str, Any] = {
        "leaders": [rng.randrange(3) for _ in range(PARTITIONS)],
        "batch_size": 4_096 if is_limited else 1_024,
        "max_request_size": rng.choice([1_024, 4_096]) * (1 + is_limited),
        "buffer_memory": 12_288 if is_limited else 8_192,
        "linger_ms": rng.choice([0, 50]),
        "max_in_flight_requests_per_connection": rng.choice([1, 5]),
        "compression_type": rng.choice(["none", "zstd"]),
        "delivery_timeout_ms": 10_000_000,
    }
    core = make_core(**{**settings, **options})
    core.sender.sequences = Sequences(idempotent=core.config.enable_idempotence, first_sequence=first_sequence)
    cluster = FaultyCluster(core, rng)
    cluster.faults = faults
    # 1,567 bytes: the largest row alone. Batches are up to four times as large.
    cluster.max_message_bytes = 1_700 if is_limited else 2**31
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


def left_out(done: Run) -> list[list[bytes]]:
    """Of each partition, as the write is told."""
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for row in done.core.acknowledgements.refused or ():
        columns = rows_before([SentRow(*row.topic_partition, row.timestamp_ms, row.body)], added_headers=0)
        values[row.topic_partition.partition].append(columns["value"][0].as_py())
    return values


def assert_every_row_is_written_or_left_out(done: Run) -> None:
    """Once, and in order, and the receipts say so; where the write has failed, nothing is doubled or overtaken."""
    for log, expected, out in zip(done.cluster.logs, done.expected, left_out(done), strict=True):
        if done.failure is None:
            assert sorted(log.values + out) == expected
        assert log.values == [value for value in expected if value in set(log.values)]
        assert not set(log.values) & set(out)
    if done.failure is None:
        told = {receipt.partition: receipt.record_count for receipt in done.core.receipts}
        assert told == {number: len(log.values) for number, log in enumerate(done.cluster.logs) if log.values}
    assert done.core.acknowledgements.settled
    assert done.core.is_free


@pytest.mark.parametrize("refuses", [never, always, sometimes])
@each("seed", range(examples(200)))
def test_each_row_is_written_once_and_in_order_or_refused_and_left_out(
    seed: int, refuses: Callable[[random.Random, bytes], bool]
) -> None:
    wraps = seed % 3 == 0
    done = run(seed, refuses, first_sequence=2**31 - 1 - seed % 8 if wraps else 0)
    if refuses is not never and isinstance(done.failure, ProduceRejected):
        for sent in list(done.core.network.sent):
            done.core.answer(sent, None, "closed")
    else:
        assert done.failure is None
    assert_every_row_is_written_or_left_out(done)
    if refuses is never:
        offsets = {each.partition: (each.first_offset, each.last_offset) for each in done.core.receipts}
        assert offsets == {number: (0, len(rows) - 1) for number, rows in enumerate(done.expected) if rows}
        for log in done.cluster.logs if wraps else ():
            assert next_sequence(log.log.batches[-1].last_sequence) < ROWS


@pytest.mark.parametrize("idempotent", [True, False])
@each("seed", range(examples(40)))
def test_without_faults_each_write_leaves_them_out(seed: int, idempotent: bool) -> None:
    alone = {} if idempotent else {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    done = run(seed, always, faults=False, first_sequence=2**31 - 5 if seed % 2 and idempotent else 0, **alone)
    assert done.failure is None
    assert_every_row_is_written_or_left_out(done)
    refused = [value for values in done.expected for value in values if number_of(value) % 7 == 3]
    assert sum(map(len, left_out(done))) == len(refused)


def test_the_faults_are_real() -> None:
    """Connections fill up, requests are executed late, and batches and rows are refused with others in flight: else the
    tests above are idle."""
    busy: dict[str, Any] = {"max_in_flight_requests_per_connection": 5, "compression_type": "none"}
    runs = [run(seed, **busy) for seed in range(20)]
    assert max(done.cluster.most_in_flight for done in runs) >= 5
    assert sum(done.cluster.cuts for done in runs) > 50
    assert sum(done.cluster.executed_late for done in runs) > 20
    assert sum(done.cluster.refused_as_too_large for done in runs) > 20
    assert min(sum((done.cluster.named for done in runs), Counter()).values()) >= 5
    healthy = [run(seed, always, faults=False, **busy) for seed in range(20)]
    assert sum(done.cluster.refused_by_name for done in healthy) > 100
    assert max(done.cluster.most_in_flight for done in healthy) >= 4
    assert sum(run(seed, sometimes).failure is None for seed in range(40)) >= 4


def firsts(values: list[bytes]) -> list[bytes]:
    """Each value where it first stands."""
    return list(dict.fromkeys(values))


def test_without_idempotence_rows_may_double_or_be_overtaken_but_none_is_lost() -> None:
    """With one in flight none is overtaken. What the option's text warns of does happen here."""
    for in_flight in (1, 5):
        runs = [run(s, enable_idempotence=False, max_in_flight_requests_per_connection=in_flight) for s in range(40)]
        logs = [log.values for done in runs for log in done.cluster.logs]
        assert all(done.core.is_written for done in runs)
        assert [sorted(firsts(values)) for values in logs] == [rows for done in runs for rows in done.expected]
        assert any(len(values) > len(firsts(values)) for values in logs)
        assert any(firsts(values) != sorted(firsts(values)) for values in logs) == (in_flight > 1)

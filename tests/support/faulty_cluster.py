"""Leaders that remember producers as Kafka's do, behind connections that break: a small model to run the Sender
against.

What it keeps of Kafka: a log a partition, the last five batches of a producer (an identical resend is answered with its
old offset, a gap with OUT_OF_ORDER_SEQUENCE), one leader a partition, answers in request order on a connection, and
`max_message_bytes`, which is looked at before anything else of a batch (UnifiedLog.analyzeAndValidateRecords), and then
`refuses`, values that a leader refuses by name, also in a batch that it has already (LogValidator). What it
does to it, by a seeded choice at every step: answer, refuse for now, move leaders, and cut a connection with any number
of its requests executed, and the rest executed later or never.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kafka.record import MemoryRecords

from kafka_sink.protocol.requests import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    RefusedRecord,
)
from producer_core import TOPIC_ID, Core, metadata_response
from scripted_kafka import Sent

NOT_LEADER, MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_TIMESTAMP, OUT_OF_ORDER = 6, 10, 19, 32, 45
REMEMBERED_BATCHES = 5
NO_PRODUCER_ID = -1


@dataclass
class PartitionLog:
    values: list[bytes] = field(default_factory=list)
    remembered: list[tuple[int, int, int]] = field(default_factory=list)  # base sequence, count, base offset

    def append(self, data: bytes) -> tuple[int, int]:
        """The error code and base offset that a leader answers with."""
        (batch,) = list(MemoryRecords(data))
        assert batch.validate_crc()
        values = [record.value for record in batch]
        if batch.producer_id == NO_PRODUCER_ID:
            assert (batch.producer_epoch, batch.base_sequence) == (-1, -1)
            self.values += values
            return 0, len(self.values) - len(values)
        for base_sequence, count, offset in self.remembered:
            if (base_sequence, count) == (batch.base_sequence, len(values)):
                return 0, offset
        # A leader that knows nothing of a producer takes whatever comes first.
        if self.remembered:
            last_sequence, last_count, _ = self.remembered[-1]
            if batch.base_sequence != (last_sequence + last_count) % 2**31:
                return OUT_OF_ORDER, -1
        offset = len(self.values)
        self.values += values
        self.remembered = [*self.remembered, (batch.base_sequence, len(values), offset)][-REMEMBERED_BATCHES:]
        return 0, offset


class FaultyCluster:
    """Answers what `core` sends. `faults` may be switched off, to see that everything then heals."""

    def __init__(self, core: Core, rng: random.Random) -> None:
        self.core = core
        self.rng = rng
        self.faults = True
        self.max_message_bytes = 2**31
        self.refuses: Callable[[bytes], bool] = lambda value: False
        self.logs = [PartitionLog() for _ in core.leaders]
        self.leader_epoch = 0
        self.gave_up_on: list[Sent] = []
        self.most_in_flight = 0
        self.cuts = 0
        self.executed_late = 0
        self.refused_as_too_large = 0
        self.refused_by_name = 0

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
            code, offset = 0, -1
            refused: tuple[RefusedRecord, ...] = ()
            if self.core.leaders[partition.partition] != sent.node_id:
                code = NOT_LEADER
            elif self.faults and self.rng.random() < 0.1:
                code = NOT_ENOUGH_REPLICAS
            elif len(partition.records) > self.max_message_bytes:
                self.refused_as_too_large += 1
                code = MESSAGE_TOO_LARGE
            elif refused := self._refused(bytes(partition.records)):
                self.refused_by_name += 1
                code = INVALID_TIMESTAMP
            else:
                code, offset = self.logs[partition.partition].append(bytes(partition.records))
            here = (partition.topic, TOPIC_ID, partition.partition)
            results.append(ProduceResult(*here, code, None, offset, -1, refused))
        return ProduceResponse(0, tuple(results))


    def _refused(self, data: bytes) -> tuple[RefusedRecord, ...]:
        (batch,) = list(MemoryRecords(data))
        places = [place for place, record in enumerate(batch) if self.refuses(record.value)]
        return tuple(RefusedRecord(place, "too old") for place in places)


def _as_sent(sent: Sent) -> Sent:
    """The request with the bytes it has now: those are in the network, whatever becomes of the producer's buffer."""
    if not isinstance(sent.request, ProduceRequest):
        return sent
    partitions = tuple(replace(partition, records=bytes(partition.records)) for partition in sent.request.partitions)
    return replace(sent, request=replace(sent.request, partitions=partitions))

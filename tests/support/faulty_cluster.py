"""Leaders of the model behind connections that break, to run the Sender against.

A seeded random choice at every step: answer, refuse with a retriable error, move leaders, or cut a connection. When a
connection is cut, any number of its requests are executed; the rest is executed later or never. Answers come in
request order on a connection. The model (`tests/verification/model`) decides which batches a leader accepts, and how it
answers a duplicate. `refuses`: the values that leaders refuse by name, also in a duplicate (LogValidator).
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest, ProduceResponse, ProduceResult, RefusedRecord
from model.partition_log import PartitionLog
from model.producer_state import ProducerState
from model.record_batches import RecordBatch, Refused, check_batch, decode_records, parse_batch
from producer_core import TOPIC_ID, Core, metadata_response
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
            try:
                if self.core.leaders[partition.partition] != sent.node_id:
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
            results.append(ProduceResult(*here, code, None, offset, -1, refused))
        return ProduceResponse(0, tuple(results))

    def _refused(self, batch: RecordBatch) -> tuple[RefusedRecord, ...]:
        places = [place for place, value in enumerate(values_of(batch)) if self.refuses(value)]
        return tuple(RefusedRecord(place, "too old") for place in places)


def _as_sent(sent: Sent) -> Sent:
    """The request with the bytes it has now: those are in the network, whatever becomes of the producer's buffer."""
    if not isinstance(sent.request, ProduceRequest):
        return sent
    partitions = tuple(replace(partition, records=bytes(partition.records)) for partition in sent.request.partitions)
    return replace(sent, request=replace(sent.request, partitions=partitions))

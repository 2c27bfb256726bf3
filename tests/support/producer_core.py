"""A producer core without threads or sockets: rows from lists, a clock that is a number, and brokers whose answers
the test gives."""

import contextlib
import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pytest

import apis
from kafka_sink.kafka import client
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.network import Network
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements, PartitionOffsets
from kafka_sink.kafka.producer.router import RoutedRows
from kafka_sink.kafka.producer.sender import Sender, codec_of
from kafka_sink.kafka.protocol.api import ClientResponse, Response
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import sink_config
from kafka_sink.records.columns import RecordColumns
from scripted_kafka import LiveNetwork, ScriptedKafka, ScriptedNetwork, Sent

TOPIC = "t"
TOPIC_ID = uuid.UUID(int=7)
NODES = (0, 1, 2)
STEP = 1_000_000
E = TypeVar("E", bound=Exception)
# As a Router's, they go on from one Arrow batch to the next.
DESTINATIONS: list[TopicPartition] = []
TOPIC_IDS: list[uuid.UUID | None] = []


def columns_of(values: Sequence[bytes]) -> RecordColumns:
    return RecordColumns.from_arrow(pa.record_batch({"value": pa.array(values, pa.binary())}), now_ms=1_000)


def routed(values: Sequence[bytes], partitions: Sequence[int], timestamps: Sequence[int] | None = None) -> RoutedRows:
    """Make rows with these values, for these partitions of TOPIC."""
    columns = columns_of(values)
    if timestamps is not None:
        columns = replace(columns, timestamp_ms=np.array(timestamps, dtype=np.int64))
    while len(DESTINATIONS) <= max(partitions, default=0):
        DESTINATIONS.append(TopicPartition(TOPIC, len(DESTINATIONS)))
        TOPIC_IDS.append(TOPIC_ID)
    return RoutedRows(columns, np.array(partitions, dtype=np.int64), DESTINATIONS, TOPIC_IDS)


def routed_to(topic_partition: TopicPartition, topic_id: uuid.UUID, value: bytes) -> RoutedRows:
    """Make one row for any topic."""
    return RoutedRows(columns_of([value]), np.zeros(1, np.int64), [topic_partition], [topic_id])


def metadata_response(
    leaders: Sequence[int], *, topic_id: uuid.UUID = TOPIC_ID, error_code: int = 0, leader_epoch: int = 0
) -> apis.MetadataResponse:
    brokers = tuple(apis.Broker(node, "localhost", 9092 + node, None) for node in NODES)
    partitions = tuple(apis.PartitionMetadata(0, p, leader, leader_epoch) for p, leader in enumerate(leaders))
    topic = apis.TopicMetadata(error_code=error_code, name=TOPIC, topic_id=topic_id, partitions=partitions)
    return apis.MetadataResponse(0, cluster_id="c", controller_id=0, brokers=brokers, topics=(topic,))


class Core:
    """A producer's shipped core. Only the test moves `now_ms`."""

    def __init__(
        self, config: ProducerConfig, leaders: Sequence[int], lock: contextlib.AbstractContextManager[Any]
    ) -> None:
        self.config = config
        self.now_ms = 0
        self.kafka = ScriptedKafka(NODES)
        in_flight = config.max_in_flight_requests_per_connection
        self.network = ScriptedNetwork(self.kafka, max_in_flight=in_flight, last_error="")
        self.codec = codec_of(config)
        self.acknowledgements = Acknowledgements()
        self.sender = Sender(config, network=cast(Network, self.network), lock=lock, rng=random.Random(1))
        self.accumulator, self.metadata = self.sender.accumulator, self.sender.metadata
        self.leaders = list(leaders)
        self._written: dict[TopicPartition, Iterator[int]] = {}
        self.metadata.want([TOPIC], 0)
        self.run()
        self.answer_metadata()

    def append(self, rows: RoutedRows) -> bool:
        return self.accumulator.try_append(rows, self.acknowledgements, self.codec, self.now_ms)

    def run(self, advance_ms: int = 0) -> None:
        self.now_ms += advance_ms
        self.sender.run_once(self.now_ms)

    def send(self, rows: RoutedRows) -> list[Sent]:
        """Flush these rows, with a producer id if one is asked for. Return what is on the wire then."""
        self.append(rows)
        self.flush()
        self.run()
        if self.waiting(apis.InitProducerIdRequest):
            self.answer_producer_id()
        return self.network.produce()

    def only(self, advance_ms: int | None = None) -> Sent:
        """Return the one Produce that is on the wire, after a turn in so many milliseconds."""
        if advance_ms is not None:
            self.run(advance_ms)
        (sent,) = self.network.produce()
        return sent

    def waiting(self, kind: type) -> int:
        """Return how many requests of a kind have no answer."""
        return sum(isinstance(sent.request, kind) for sent in self.network.sent)

    def answer(self, sent: Sent, response: Response | None, error: str | None = None) -> None:
        if sent in self.network.sent:
            self.network.sent.remove(sent)
        self.sender.handle([ClientResponse(sent.node_id, sent.request, sent.token, response, error, 0)], self.now_ms)

    def answer_metadata(self, **changes: Any) -> None:
        self.answer(self.network.take(apis.MetadataRequest), metadata_response(self.leaders, **changes))

    def learn(self, *leaders: int, after_ms: int = 150, **changes: Any) -> None:
        """Answer the Metadata request that is due after so long, with other leaders if any are given."""
        self.metadata.request_update()
        self.run(after_ms)
        self.leaders = list(leaders) or self.leaders
        self.answer_metadata(**changes)

    def answer_producer_id(self, producer_id: int = 4_000, code: int = 0) -> None:
        self.run()
        answer = apis.InitProducerIdResponse(0, code, *((-1, -1) if code else (producer_id, 0)))
        self.answer(self.network.take(apis.InitProducerIdRequest), answer)
        self.run()

    def answer_produce(
        self,
        sent: Sent,
        code: int = 0,
        offsets: Callable[[TopicPartition], int] | None = None,
        throttle_time_ms: int = 0,
        leader: apis.NamedLeader | None = None,
    ) -> None:
        """`offsets`: None for the next of each partition, in steps that no batch of the tests fills. `leader`: as the
        broker names it for each. Results are in another order than the request, as real brokers have them."""
        offset_of = offsets or self._next_offset
        results = []
        for each in reversed(sent.request.partitions):
            offset = offset_of(TopicPartition(each.topic, each.partition))
            here = each.topic, each.topic_id, each.partition
            results.append(apis.ProduceResult(*here, code, None, offset, leader=leader))
        self.answer(sent, apis.ProduceResponse(throttle_time_ms, tuple(results)))

    def _next_offset(self, partition: TopicPartition) -> int:
        return STEP * next(self._written.setdefault(partition, itertools.count()))

    def lose(self, sent: Sent) -> None:
        self.answer(sent, None, "the connection was lost")

    def flush(self) -> None:
        self.accumulator.begin_flush()

    @property
    def receipts(self) -> tuple[PartitionOffsets, ...]:
        return self.acknowledgements.partitions()

    @property
    def is_free(self) -> bool:
        """Whether no row holds memory."""
        return self.accumulator.pool.available_bytes == self.config.buffer_memory

    @property
    def is_written(self) -> bool:
        return (self.acknowledgements.settled, self.acknowledgements.failure, self.is_free) == (True, None, True)

    def failed(self, error: type[E]) -> E:
        """Return the failure, which is of this type."""
        failure = self.acknowledgements.failure
        assert isinstance(failure, error)
        return failure


def make_core(
    leaders: Sequence[int] = (0, 0), lock: contextlib.AbstractContextManager[Any] | None = None, **options: Any
) -> Core:
    """Make a Core that knows TOPIC; `options` are fields of ProducerConfig, e.g. batch_size=2048."""
    config = sink_config({"kafka.bootstrap.servers": "localhost:9092", "kafka.compression.type": "none"}).producer
    return Core(replace(config, **options), leaders, lock or contextlib.nullcontext())


def config(port: int, **options: str) -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": f"127.0.0.1:{port}", **options}).producer


class Live(LiveNetwork):
    """And what makes Producers that have it."""

    def __init__(self, kafka: ScriptedKafka) -> None:
        super().__init__(kafka)
        self.producers: list[Producer] = []

    def producer(self, **options: Any) -> Producer:
        """`options`: fields of ProducerConfig. Rows linger for long. Two that run would take each other's answers."""
        assert not any(each.usable for each in self.producers)
        self.producers.append(Producer(replace(config(1, **{"kafka.linger.ms": "20000"}), **options)))
        return self.producers[-1]


def let_wait(producer: Producer, max_block_ms: int) -> None:
    """As if it had been made with this `max.block.ms`. What comes before may take as long as a busy machine needs."""
    object.__setattr__(producer.config, "max_block_ms", max_block_ms)


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())})


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run `call` in a thread. What it returned or raised is in the list when the thread ends."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def refresh(network: LiveNetwork) -> None:
    """Wait until the last producer has the current state of the network."""
    metadata = network.sender.metadata
    answered = metadata.answered
    with network.lock:
        metadata.request_update()
        network.wakeup()
        assert network.lock.wait_for(lambda: metadata.answered > answered, 30)


def watch_senders(monkeypatch: pytest.MonkeyPatch) -> list[Sender]:
    """Collect the Sender of each Producer that is made from now on."""
    senders: list[Sender] = []

    def make_and_tell(*given: Any, **shared: Any) -> Sender:
        senders.append(Sender(*given, **shared))
        return senders[-1]

    monkeypatch.setattr(client, "Sender", make_and_tell)
    return senders

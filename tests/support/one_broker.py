"""Sends a request to one broker, over its own connection."""

import time

from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_sink.doctor.dialogue import dial
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest, ProduceResponse
from kafka_sink.kafka.protocol.requests import Request, Response
from waiting import wait_until

# A topic that was made a moment ago; the markers of the transaction before.
_FOR_NOW = frozenset({3, 6, 51})
_DEADLINE_S = 60


def ask_broker(config: ProducerConfig, request: Request, number: int = 0) -> Response:
    """Return the answer of the bootstrap server with this number, modulo the number of servers."""
    servers = config.bootstrap_servers
    attempt, dialogue = dial(*servers[number % len(servers)], config)
    assert dialogue is not None, attempt
    try:
        return dialogue.ask(request)
    finally:
        dialogue.close()


def produce_record(
    config: ProducerConfig, topic: str, partition: int, value: bytes, transactional_id: str, producer_id: int,
    producer_epoch: int, transaction_version: int = 2,
) -> None:  # fmt: skip
    """Write one record in a transaction by another client's encoder, to a cluster of one broker. With version 1 the
    request adds no partition to the transaction."""
    batch = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=0, batch_size=16_384,
    )  # fmt: skip
    # Of now: brokers look every five minutes for what is older than a week, and delete it.
    batch.append(0, timestamp=time.time_ns() // 1_000_000, key=None, value=value, headers=[])
    rows = ProducePartition(topic, partition, None, bytes(batch.build()))
    request = ProduceRequest(-1, 30_000, (rows,), transactional_id, transaction_version=transaction_version)
    codes: list[int] = []

    def is_answered() -> bool:
        response = ask_broker(config, request, len(codes))
        assert isinstance(response, ProduceResponse)
        codes.append(response.partitions[0].error_code)
        return codes[-1] not in _FOR_NOW

    wait_until(is_answered, _DEADLINE_S, "Produce is answered")
    assert codes[-1] == 0

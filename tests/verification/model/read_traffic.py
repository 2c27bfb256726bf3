"""Rows that readers of the model may meet: plain ones, and those of transactions that commit, abort or stay open."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from model.byte_client import ByteClient, record_batch
from model.settings import PRODUCE, WRITE_TXN_MARKERS
from model.wire import kio_module

_PRODUCE_VERSION = 9


class ReadTraffic:
    """Rows to one partition, some in transactions, each of a producer of its own. Brokers of the model verify none, so
    it needs no coordinator: it writes markers to the leader."""

    def __init__(self, client: ByteClient, rng: random.Random, partition: int = 0) -> None:
        self.client = client
        self._rng = rng
        self._partition = partition
        self._open: dict[int, bool] = {}
        self.ended: dict[int, bool] = {}
        self._rows = 0
        self._producer_id = 1_000 * (1 + partition)

    def step(self) -> None:
        kind = self._rng.choices(["row", "begin", "go on", "end"], [5, 3, 3, 4])[0]
        if kind == "row":
            self._send(record_batch(*self._values(), timestamp_ms=self.client.cluster.now_ms), None)
        elif kind == "begin":
            self._producer_id += 1
            self._open[self._producer_id] = self._rng.random() < 0.6
            self._write(self._producer_id)
        elif self._open:
            producer_id = self._rng.choice(list(self._open))
            if kind == "go on":
                self._write(producer_id)
            else:
                self.ended[producer_id] = self._open.pop(producer_id)
                self.end(producer_id)

    def finish(self) -> None:
        self.ended |= self._open
        self._open.clear()
        for producer_id in self.ended:
            self.end(producer_id)

    def _values(self) -> list[bytes]:
        count = self._rng.choice([1, 1, 2, 5])
        self._rows += count
        return [b"row %d" % row + bytes(self._rng.choice([0, 100])) for row in range(self._rows - count, self._rows)]

    def _write(self, producer_id: int) -> None:
        # A producer of many batches needs their answers; here each batch of a transaction has a first sequence.
        records = record_batch(
            *self._values(), producer_id=producer_id, producer_epoch=0, base_sequence=self._rows * 10,
            is_transactional=True, timestamp_ms=self.client.cluster.now_ms,
        )  # fmt: skip
        self._send(records, "x")

    def _send(self, records: bytes, transactional_id: str | None) -> None:
        kio_version = kio_module(PRODUCE, _PRODUCE_VERSION, "request")
        data = kio_version.PartitionProduceData(index=self._partition, records=records)
        self._to_leader(
            PRODUCE, _PRODUCE_VERSION,
            kio_version.ProduceRequest(
                transactional_id=transactional_id, acks=self._rng.choice([1, -1]), timeout=timedelta(seconds=1),
                topic_data=(kio_version.TopicProduceData(name="t", partition_data=(data,)),),
            ),
        )  # fmt: skip

    def end(self, producer_id: int) -> int | None:
        kio_version = kio_module(WRITE_TXN_MARKERS, 1, "request")
        topics = (kio_version.WritableTxnMarkerTopic(name="t", partition_indexes=(self._partition,)),)
        marker = kio_version.WritableTxnMarker(
            transaction_result=self.ended[producer_id], topics=topics, coordinator_epoch=0, producer_id=producer_id,
            producer_epoch=0,
        )  # fmt: skip
        return self._to_leader(WRITE_TXN_MARKERS, 1, kio_version.WriteTxnMarkersRequest(markers=(marker,)))

    def _to_leader(self, api_key: int, version: int, message: Any) -> int | None:
        leader = self.client.cluster.leader("t", self._partition)
        if leader is None or not self.client.cluster.is_alive(leader):
            return None
        # A request behind one that waits would wait, too.
        self.client.reconnect(leader)
        return self.client.send(leader, api_key, version, message)

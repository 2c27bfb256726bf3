"""How long batches have waited for their leaders: `delivery.timeout.ms`, without the time in which brokers throttled.

    look_at_throttles(now)      each turn: which nodes throttle, and until when
    expired(batches, now)       credits each batch with new throttle time; the first batch whose time is over
    outlasts(batches, ...)      throttling will outlast the transaction's timeout, so brokers would abort it
    has_room(batches, now)      a writer may hand over more rows

Source: KIP-91 (delivery timeout), KIP-219 (throttles).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kafka_sink.errors import DeliveryTimeout, QuotaOutlastsTransaction
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import Metadata
from kafka_sink.kafka.network import Network
from kafka_sink.kafka.producer.producer_batch import NO_SEQUENCE, ProducerBatch
from kafka_sink.kafka.producer.throttling import WINDOW_MS, Throttled, Throttling
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.waits import THROTTLED_LIMITS

# A throttling broker may have as many bytes waiting as it takes in 1/4 of `delivery.timeout.ms`. The rest waits in
# Spark.
ROOM_PART = 4
# 1/20 of a transaction's timeout is reserved for its marker and its commit.
COMMIT_PART = 20


class Delivery:
    """Of one producer. `batches`: all that are not acknowledged, sent ones first. Call under the producer's lock."""

    def __init__(self, config: ProducerConfig, network: Network, metadata: Metadata) -> None:
        self._config = config
        self._network = network
        self._metadata = metadata
        self._throttling = Throttling()
        # Throttle time of each node (ms) when batches were last credited with it.
        self._credited_ms: dict[int, int] = {}
        self._write_began_ms = 0

    def began(self, now_ms: int) -> None:
        """Begin a write."""
        self._write_began_ms = now_ms
        self._throttling.began(self._network.throttled_ms(now_ms))

    def look_at_throttles(self, now_ms: int) -> None:
        throttles = self._network.throttles(now_ms)
        if throttles:
            until_ms = {node_id: until_ms for node_id, (_, until_ms) in throttles.items()}
            self._throttling.looked(now_ms, self._network.throttled_ms(now_ms), until_ms)

    def acknowledged(self, batch: ProducerBatch, now_ms: int) -> None:
        self._throttling.acknowledged(batch.node_id, batch.size_bytes, now_ms)

    @property
    def is_throttled(self) -> bool:
        """True if any broker has throttled this write."""
        return self._throttling.is_felt

    def has_room(self, batches: Iterable[ProducerBatch], now_ms: int) -> bool:
        part_ms = self._config.delivery_timeout_ms // ROOM_PART
        return self._throttling.has_room(self._waiting(batches), now_ms, part_ms)

    @property
    def is_report_due(self) -> bool:
        return self._throttling.is_report_due()

    def report(self, batches: Iterable[ProducerBatch], now_ms: int) -> Throttled | None:
        """Return the throttling to log now, or None."""
        return self._throttling.report(self._waiting(batches), now_ms)

    def left_ms(self, batches: Iterable[ProducerBatch], now_ms: int) -> int | None:
        """Return the time until the first batch expires, None if there is none."""
        limit_ms = self._config.delivery_timeout_ms
        return min((max(0, limit_ms - each.waited_ms(now_ms)) for each in batches), default=None)

    def expired(self, batches: Sequence[ProducerBatch], now_ms: int) -> ProducerBatch | None:
        """Return the first batch that has waited for `delivery.timeout.ms`, queued or sent, or None."""
        self._credit(batches, now_ms)
        return next((batch for batch in batches if self._is_expired(batch, now_ms) and not batch.checked_out), None)

    def _is_expired(self, batch: ProducerBatch, now_ms: int) -> bool:
        return batch.waited_ms(now_ms) >= self._config.delivery_timeout_ms or self._is_ended_by_quota(batch)

    def _is_ended_by_quota(self, batch: ProducerBatch) -> bool:
        return batch.throttled_ms >= THROTTLED_LIMITS * self._config.delivery_timeout_ms

    def _credit(self, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        """Add new throttle time to `throttled_ms` of each batch. It counts if the leader of the batch's partition
        throttles, or the node that has a batch of that partition. Throttle time does not count as waiting."""
        throttled_ms = {node_id: passed_ms for node_id, (passed_ms, _) in self._network.throttles(now_ms).items()}
        new_ms = {
            node_id: more_ms
            for node_id, passed_ms in throttled_ms.items()
            if (more_ms := passed_ms - self._credited_ms.get(node_id, 0)) > 0
        }
        self._credited_ms = throttled_ms
        if not new_ms:
            return
        of_partition: defaultdict[TopicPartition, int] = defaultdict(int)
        for batch in batches:
            more_ms = max(new_ms.get(node_id, 0) for node_id in self._nodes_of(batch))
            of_partition[batch.topic_partition] = max(more_ms, of_partition[batch.topic_partition])
        for batch in batches:
            more_ms = min(of_partition[batch.topic_partition], batch.waited_ms(now_ms))
            batch.throttled_ms += more_ms

    def _nodes_of(self, batch: ProducerBatch) -> Sequence[int]:
        """Return the nodes that `batch` waits for: its partition's leader and, if in flight, the node it was sent
        to."""
        leader = self._metadata.snapshot.leader(*batch.topic_partition)
        return (leader, batch.node_id) if batch.in_flight else (leader,)

    def _waiting(self, batches: Iterable[ProducerBatch]) -> Mapping[int, int]:
        """Return the waiting bytes by node: the node that has the batch, or the leader that will get it."""
        waiting: defaultdict[int, int] = defaultdict(int)
        for batch in batches:
            waiting[self._nodes_of(batch)[-1]] += batch.size_bytes
        return waiting

    def outlasts(
        self, batches: Iterable[ProducerBatch], transaction: Transaction | None, now_ms: int
    ) -> QuotaOutlastsTransaction | None:
        """Return the error if throttling outlasts the transaction's timeout, because brokers would abort it."""
        if transaction is None or transaction.timeout_ms is None or not self._throttling.is_felt:
            return None
        timeout_ms = transaction.timeout_ms
        left_ms = self._write_began_ms + timeout_ms - now_ms
        known = self._throttling.outlasts(
            left_ms - timeout_ms // COMMIT_PART, self._waiting(batches), now_ms, min(WINDOW_MS, timeout_ms // 4)
        )
        if known is None:
            return None
        return QuotaOutlastsTransaction(
            transactional_id=transaction.transactional_id,
            timeout_ms=timeout_ms,
            left_ms=max(0, left_ms),
            client_id=self._config.client_id,
            bytes_per_s=round(known.bytes_per_s or 0),
            waiting_bytes=known.waiting_bytes,
            rest_ms=known.rest_ms,
        )

    def undelivered(self, batch: ProducerBatch, producer_id_error: str, now_ms: int) -> DeliveryTimeout:
        """`producer_id_error`: why the cluster gave no producer id, for a batch that has no error of its own."""
        return DeliveryTimeout(
            topic=batch.topic_partition.topic,
            partition=batch.topic_partition.partition,
            records=batch.record_count,
            elapsed_ms=batch.waited_ms(now_ms),
            throttled_ms=max(batch.throttled_ms, self._throttling.throttled_ms),
            is_quota=self._is_ended_by_quota(batch),
            attempts=batch.attempts,
            was_sent=batch.attempts > 0 or batch.base_sequence != NO_SEQUENCE,
            last_error=self._why_undelivered(batch, producer_id_error),
        )

    def _why_undelivered(self, batch: ProducerBatch, producer_id_error: str) -> str:
        """Return how the last attempt ended. Add the network's last error if the leader is unreachable since then."""
        reason, trouble = batch.last_error or producer_id_error, self._network.last_error
        if not reason or reason == trouble:
            return trouble
        leader = self._metadata.snapshot.leader(*batch.topic_partition)
        return f"{reason}; since then: {trouble}" if trouble and self._network.is_down(leader) else reason

"""The Sender chooses which batch goes to which broker, and handles every response.

    run_once(now)    expire ─> metadata due? ─> producer id? ─> ready nodes ─> drain ─> number ─> Produce requests
    handle(answers)  acknowledge ─> count;  retry ─> requeue, backoff;  too large ─> split;  anything else ─> fail

A batch gets one final result: acknowledged, or failed with the error that its write raises. A failure ends the
producer, because its sequences have a gap from then on. The next attempt of the write uses a new producer with a new
id. So the Sender needs no rules to continue after a gap.

A producer id is valid only as long as the cluster is the same. A cluster restored from a snapshot hands out used ids
again. It takes the first batch under such an id for a batch of the earlier producer, acknowledges it and drops it.
A restored cluster has closed every connection. So once all connections were interrupted, the Sender numbers no new
batch: it sends the numbered batches until they are answered, and asks for another id for the rest. The restored cluster
also has lower leader epochs, which would look like those of a broker that lags behind. So the Sender forgets leader
epochs when a new connection is ready.

Pure: `network` is passed in, `now_ms` is an argument. So a simulation runs the same objects as the product. Not
thread-safe: one thread runs it. It uses `lock` for what it shares with writers (accumulator, metadata,
acknowledgements).

Source: Kafka's Sender.java; KIP-91 (delivery timeout), KIP-98 (idempotence), KIP-580 (backoff).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kafka_sink.errors import (
    AcknowledgedRowsGone,
    DeliveryTimeout,
    KafkaSinkError,
    ProduceRejected,
    ProducerIdRefused,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TopicRecreated,
)
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.coordinators import Coordinators
from kafka_sink.kafka.metadata import MAX_IDLE_MS, Metadata, MetadataSnapshot
from kafka_sink.kafka.network import LONGEST_POLL_MS, Network
from kafka_sink.kafka.producer import error_policy
from kafka_sink.kafka.producer.accumulator import RecordAccumulator
from kafka_sink.kafka.producer.batch_split import half_bytes, rest, split
from kafka_sink.kafka.producer.checks import Probe, TopicCheck
from kafka_sink.kafka.producer.delivery import Delivery
from kafka_sink.kafka.producer.error_policy import Action
from kafka_sink.kafka.producer.producer_batch import (
    NO_PRODUCER,
    NO_SEQUENCE,
    BatchState,
    ProducerBatch,
    ProducerIdAndEpoch,
)
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.producer.throttling import Throttled
from kafka_sink.kafka.producer.transaction_manager import (
    ADDS_PARTITIONS_ITSELF,
    Transaction,
    TransactionManager,
    is_of_transaction,
)
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.produce import (
    UNKNOWN_OFFSET,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from kafka_sink.kafka.protocol.apis.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    transaction_refused,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, error_text
from kafka_sink.kafka.protocol.topic_partition import TopicPartition, ids_differ
from kafka_sink.kafka.waits import backoff_ms
from kafka_sink.records.compression import Codec, codec_for
from kafka_sink.records.dead_letters import key_bytes_of
from kafka_sink.records.record_batch import HEADER_BYTES
from kafka_sink.records.record_runs import records_at

# Value of the `acks` option -> `acks` field of a Produce request.
ACKS = {"all": -1, "1": 1, "0": 0}
# `_expire` scans every batch, which may be thousands. So it runs at most once per this interval.
EXPIRY_GRAIN_MS = 100


@dataclass(frozen=True, slots=True)
class _Produced:
    """The token of a Produce request: the batches that the request carries."""

    batches: dict[TopicPartition, ProducerBatch]


def codec_of(config: ProducerConfig) -> Codec:
    """Return a new codec. Each thread needs its own, because a compressor has state while it works."""
    return codec_for(config.compression_type, config.compression_level)


class Sender:
    """The Sender of one producer, with its accumulator and metadata."""

    def __init__(
        self, config: ProducerConfig, *, network: Network, lock: AbstractContextManager[object], rng: random.Random
    ) -> None:
        self._config = config
        self.accumulator = RecordAccumulator(
            lock=lock,
            buffer_memory=config.buffer_memory,
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            max_request_size=config.max_request_size,
        )
        self.metadata = Metadata(
            max_age_ms=config.metadata_max_age_ms,
            # A topic that a writer waits for must not be forgotten.
            max_idle_ms=max(MAX_IDLE_MS, config.max_block_ms),
            backoff_initial_ms=config.retry_backoff_ms,
            backoff_max_ms=config.retry_backoff_max_ms,
            rng=rng,
        )
        self._network = network
        self._codec = codec_of(config)
        self._lock = lock
        self._rng = rng
        self._acks = ACKS[config.acks]
        # Of the current producer id.
        self.sequences = Sequences(idempotent=config.enable_idempotence)
        # None: the Sender has to request a producer id.
        self._producer: ProducerIdAndEpoch | None = None if config.enable_idempotence else NO_PRODUCER
        self._coordinators = Coordinators(
            network=network,
            rng=rng,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )
        self._transactions = TransactionManager(self._coordinators, delivery_timeout_ms=config.delivery_timeout_ms)
        # Batches between drain and send: no queue has them.
        self._drained: list[ProducerBatch] = []
        self._asking_producer_id = False
        self._producer_id_attempts = 0
        self._producer_id_not_before_ms = 0
        # The cluster's last reason for not giving a producer id. Used for batches that have no error of their own.
        self._producer_id_error = ""
        # `network.interruptions` when the producer id was requested.
        self._interruptions = 0
        # `network.handshakes` when the leader epochs were last forgotten.
        self._handshakes = 0
        self._next_expiry_ms = 0
        self._delivery = Delivery(config, network, self.metadata)
        # True once a leader has answered with topic names. Such a leader cannot distinguish two topics of one name
        # (KIP-516).
        self.produces_by_name = False
        # The check at the end of a write. The writer sets it under the lock.
        self.topic_check: TopicCheck | None = None
        # The probe before a write. The writer sets it under the lock.
        self.probe: Probe | None = None
        self.failure: KafkaSinkError | None = None

    # --- writes, begun and ended by a writer under the lock -----------------------------------------------------------

    def begin_write(self, now_ms: int, transaction: Transaction | None = None) -> None:
        """Begin a write. `transaction`: contains its batches. No partition is added to the transaction yet."""
        self._delivery.began(now_ms)
        if transaction is not None:
            self._producer = self._transactions.begin(transaction)
            # `by_name` stays False: if a topic is recreated during a transaction, the check at the end of the write
            # fails it.
            self.sequences = Sequences()

    def end_write(self) -> None:
        """End a write, and its transaction. Without another transaction, the Sender requests a new producer id."""
        if self._transactions.transaction is not None:
            self._transactions.end()
            self._ask_for_another_producer_id()

    def _ask_for_another_producer_id(self) -> None:
        """Called once every numbered batch is answered."""
        self._producer = None
        self.sequences = Sequences()
        self.sequences.by_name = self.produces_by_name

    # --- what goes out ------------------------------------------------------------------------------------------------

    def run_once(self, now_ms: int) -> int:
        """Hand the network everything that is due now. Return the longest time (ms) that a poll may wait."""
        with self._lock:
            self._delivery.look_at_throttles(now_ms)
            self._expire(now_ms)
            if self._network.handshakes != self._handshakes:
                # Metadata from before the new connection may have epochs that are too high.
                self._handshakes = self._network.handshakes
                self.metadata.forget_leader_epochs()
            if self._id_may_be_taken():
                self.sequences.used_up = True
            if self.sequences.used_up and next(self.sequences.unanswered(), None) is None:
                self._ask_for_another_producer_id()
            metadata_wait_ms = self.metadata.next_request_delay_ms(now_ms)
        if self.failure is not None:
            return LONGEST_POLL_MS
        if metadata_wait_ms == 0:
            metadata_wait_ms = self._send_metadata_request(now_ms)
        if self.topic_check is not None:
            self._send_topic_check(self.topic_check, now_ms)
        if self.probe is not None and not self.probe.is_sent:
            self._send_probe(self.probe, now_ms)
        send_wait_ms = self._send_init_producer_id(now_ms) if self._producer is None else self._send_batches(now_ms)
        return min(LONGEST_POLL_MS if metadata_wait_ms is None else metadata_wait_ms, send_wait_ms, LONGEST_POLL_MS)

    def _id_may_be_taken(self) -> bool:
        """True if a restored cluster may give the producer id to another producer. A transaction's coordinator judges
        its own ids."""
        if self._producer in (None, NO_PRODUCER) or self._transactions.transaction is not None:
            return False
        return self._network.interruptions != self._interruptions

    def _send_probe(self, probe: Probe, now_ms: int) -> None:
        node_id = self._network.least_loaded_node(now_ms)
        if node_id is not None:
            probe.is_sent = True
            self._network.send(node_id, probe.request, now_ms, probe)

    def _send_metadata_request(self, now_ms: int) -> int:
        # Without the lock: choosing a node may connect to it, and the name lookup may be slow.
        node_id = self._network.least_loaded_node(now_ms)
        if node_id is None:
            return LONGEST_POLL_MS
        with self._lock:
            # The lock was free in between: the write may be over, so metadata may not be needed any more.
            if self.metadata.next_request_delay_ms(now_ms) != 0:
                return LONGEST_POLL_MS
            request = self.metadata.request({batch.topic_partition.topic for batch in self._all_batches()}, now_ms)
        self._network.send(node_id, request, now_ms)
        return LONGEST_POLL_MS

    def _send_topic_check(self, check: TopicCheck, now_ms: int) -> None:
        for node_id in check.to_ask():
            if self._network.ready(node_id, now_ms):
                self._ask_which_topics(check, node_id, now_ms)
            elif self._network.is_down(node_id):
                with self._lock:
                    check.gone(node_id)
        if check.wants_another and (another := self._network.least_loaded_node(now_ms)) is not None:
            self._ask_which_topics(check, another, now_ms)

    def _ask_which_topics(self, check: TopicCheck, node_id: int, now_ms: int) -> None:
        with self._lock:
            check.asked(node_id)
        self._network.send(node_id, check.request, now_ms, check)

    def _send_init_producer_id(self, now_ms: int) -> int:
        """Request a producer id if something is queued. Without transactions, any broker hands out ids."""
        with self._lock:
            wanted = next(iter(self.accumulator.queued()), None) is not None
        if not wanted or self._asking_producer_id:
            return LONGEST_POLL_MS
        if now_ms < self._producer_id_not_before_ms:
            return self._producer_id_not_before_ms - now_ms
        node_id = self._network.least_loaded_node(now_ms)
        if node_id is None:
            return LONGEST_POLL_MS
        self._asking_producer_id = True
        self._interruptions = self._network.interruptions
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._config.request_timeout_ms)
        self._network.send(node_id, request, now_ms)
        return LONGEST_POLL_MS

    def _send_batches(self, now_ms: int) -> int:
        with self._lock:
            snapshot = self.metadata.snapshot
            ready = self.accumulator.ready(snapshot, now_ms)
            if ready.leaderless:
                # Request the topic again: it may have been forgotten since the writer requested it.
                self.metadata.want(ready.leaderless, now_ms)
                self.metadata.request_update()
            try:
                may_write = self._transactions.admit(ready.led, now_ms)
            except KafkaSinkError as refused:
                self._fail(refused)
                return LONGEST_POLL_MS
        coordinators_wait_ms = self._coordinators.run_once(now_ms)
        wait_ms = min(coordinators_wait_ms, LONGEST_POLL_MS if ready.next_check_ms is None else ready.next_check_ms)
        for node_id in self._transactions.turns(may_write):
            led = may_write[node_id]
            if self._acks == 0 and self._network.is_down(node_id):
                # acks=0: a broker refuses a batch by closing the connection (KafkaApis.handleProduceRequest). It may
                # have lost leadership, so refresh metadata before `ready` reconnects.
                with self._lock:
                    self.metadata.request_update()
            # More than one request may fit: a node takes up to max.in.flight requests before its first response.
            while self._network.ready(node_id, now_ms):
                with self._lock:
                    self._drained = self.accumulator.drain(
                        node_id,
                        self._transactions.in_turn(led, now_ms),
                        self.sequences,
                        self._config.max_in_flight_requests_per_connection,
                        now_ms,
                    )
                if not self._drained or not self._send_produce(node_id, self._drained, snapshot, now_ms):
                    break
                self._drained = []
            else:
                if self._network.is_down(node_id):
                    # No request is in flight that could return an error, and the partition may have a new leader.
                    with self._lock:
                        self.metadata.request_update()
        joining_ms = self._transactions.wait_ms(now_ms)
        return wait_ms if joining_ms is None else min(wait_ms, joining_ms)

    def _send_produce(
        self, node_id: int, batches: list[ProducerBatch], snapshot: MetadataSnapshot, now_ms: int
    ) -> bool:
        """Send one Produce request. Return False if the producer has failed instead."""
        assert self._producer is not None
        recreated = next((batch for batch in batches if _was_recreated(batch, snapshot)), None)
        if recreated is not None:
            with self._lock:
                self._fail(_topic_recreated(recreated, snapshot))
            return False
        for batch in batches:
            if batch.state is BatchState.OPEN:
                batch.close(self._codec)
            if batch.base_sequence == NO_SEQUENCE:
                batch.number(self._producer, self.sequences.number(batch))
            batch.attempts += 1
            batch.last_attempt_ms = now_ms
            batch.node_id = node_id
            batch.step("send")
        transaction = self._transactions.transaction
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            partitions=tuple(
                ProducePartition(*batch.topic_partition, topic_id=batch.topic_id, records=batch.wire_bytes)
                for batch in batches
            ),
            transactional_id=transaction.transactional_id if transaction else None,
            transaction_version=transaction.version if transaction else ADDS_PARTITIONS_ITSELF,
        )
        token = _Produced({batch.topic_partition: batch for batch in batches})
        self._network.send(node_id, request, now_ms, token, expect_response=self._acks != 0)
        self._transactions.sent(node_id, token.batches, now_ms)
        return True

    # --- what comes back ----------------------------------------------------------------------------------------------

    def handle(self, answers: Iterable[ClientResponse], now_ms: int) -> None:
        """Process the responses of one poll."""
        with self._lock:
            self._delivery.look_at_throttles(now_ms)
            for answer in answers:
                if self._coordinators.handle(answer, now_ms):
                    continue
                if isinstance(answer.token, TopicCheck):
                    answer.token.answered(answer.node_id, answer.response)
                elif isinstance(answer.token, Probe):
                    answer.token.answered(answer.response)
                elif isinstance(answer.request, MetadataRequest):
                    self._on_metadata(answer, now_ms)
                elif isinstance(answer.request, InitProducerIdRequest):
                    self._on_init_producer_id(answer, now_ms)
                else:
                    self._on_produce(answer, now_ms)

    def _on_metadata(self, answer: ClientResponse, now_ms: int) -> None:
        if not isinstance(answer.response, MetadataResponse):
            self.metadata.failed(now_ms)
            return
        self.metadata.update(answer.response, now_ms)
        snapshot = self.metadata.snapshot
        self._network.update_brokers(snapshot.brokers)
        for batch in [*self.accumulator.queued(), *self.sequences.unanswered()]:
            if _was_recreated(batch, snapshot):
                self._fail(_topic_recreated(batch, snapshot))
                return

    def _on_init_producer_id(self, answer: ClientResponse, now_ms: int) -> None:
        self._producer_id_error = ""
        self._asking_producer_id = False
        response = answer.response
        action = Action.RETRY
        if isinstance(response, InitProducerIdResponse):
            action = error_policy.on_init_producer_id_error(response.error_code)
            if action is Action.ACKNOWLEDGE:
                self._producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                return
            code = response.error_code
            if action is Action.FAIL:
                self._fail(ProducerIdRefused(code=code, name=error_name(code)))
                return
            self._producer_id_error = f"InitProducerId: {error_text(code)}"
        self._producer_id_attempts += 1
        self._producer_id_not_before_ms = now_ms + self._backoff_ms(self._producer_id_attempts)

    def _on_produce(self, answer: ClientResponse, now_ms: int) -> None:
        token = answer.token
        assert isinstance(token, _Produced)
        self._transactions.answered(token.batches)
        if isinstance(answer.response, ProduceResponse):
            # All batches of a request are of one write.
            next(iter(token.batches.values())).acknowledgements.answered(answer.response.throttle_time_ms)
            names = {batch.topic_id: batch.topic_partition.topic for batch in token.batches.values()}
            for result in answer.response.partitions:
                self.produces_by_name |= result.topic is not None
                self.sequences.by_name = self.produces_by_name and self._transactions.transaction is None
                topic = names[result.topic_id] if result.topic is None else result.topic
                batch = token.batches[TopicPartition(topic, result.partition)]
                if result.topic is not None:
                    batch.acknowledgements.takers_by_name.add(answer.node_id)
                self._on_result(batch, result, now_ms)
        elif self._acks == 0 and answer.error is None:
            # acks=0: all bytes are in the socket, and no broker will confirm them.
            for batch in token.batches.values():
                self._acknowledge(batch, None, now_ms)
        else:
            # No response: the leader may or may not have the batches, and may have lost leadership.
            self.metadata.request_update()
            for batch in token.batches.values():
                batch.may_be_written = True
                self._retry(batch, answer.error or "the connection was lost", now_ms)

    def _on_result(self, batch: ProducerBatch, result: ProduceResult, now_ms: int) -> None:
        if self._release_if_failed(batch):
            return
        action = error_policy.on_produce_error(result.error_code)
        if action is Action.CHECK_SEQUENCE:
            action = Action.RETRY if self.sequences.gap_may_heal(batch) else Action.FAIL
        if action is Action.SPLIT and batch.record_count == 1:
            action = Action.FAIL
        if action is Action.LEAVE_OUT:
            action = self._how_to_leave_out(batch, result)
        batch.may_be_written |= result.error_code not in error_policy.NOT_WRITTEN
        if action is Action.REFRESH_AND_RETRY:
            self.metadata.request_update()
        if result.leader is not None:
            self.metadata.follow(batch.topic_partition, batch.topic_id, result.leader, self._network.learn)
        reason = error_text(result.error_code)
        if action in (Action.RETRY, Action.REFRESH_AND_RETRY):
            self._retry(batch, reason, now_ms)
        elif action is Action.SPLIT:
            self._split(batch, reason)
        elif action is Action.LEAVE_OUT:
            self._leave_out(batch, result)
        elif action is Action.FAIL:
            self._fail(self._rejection(batch, result))
            self.accumulator.deallocate(batch)
        else:
            has_offset = action is Action.ACKNOWLEDGE and result.base_offset != UNKNOWN_OFFSET
            self._acknowledge(batch, result.base_offset if has_offset else None, now_ms)

    def _how_to_leave_out(self, batch: ProducerBatch, result: ProduceResult) -> Action:
        """Return LEAVE_OUT, FAIL or RETRY. After RETRY the leader refuses the batch again once it is the oldest."""
        places = {each.place for each in result.refused}
        if not places or not places <= set(range(batch.record_count)):
            return Action.FAIL
        if not batch.acknowledgements.leaves_out(batch.topic_partition.topic) or batch.may_be_written:
            return Action.FAIL
        if not self.sequences.is_oldest(batch) or self.sequences.renumbering(batch) is not None:
            return Action.RETRY
        return Action.LEAVE_OUT if self.sequences.may_leave_out(batch) else Action.FAIL

    def _leave_out(self, batch: ProducerBatch, result: ProduceResult) -> None:
        """Replace `batch` with its remaining records, without the records that the leader refused."""
        assert self._producer is not None
        why = self._rejection(batch, result)
        places = {each.place for each in result.refused}
        parts, refused = rest(
            batch, places=places, producer=self._producer, codec=self._codec, pool=self.accumulator.pool
        )
        self.sequences.leave_out(batch, parts, why)
        batch.acknowledgements.leave_out(refused)
        self._replace(batch, parts)

    def _rejection(self, batch: ProducerBatch, result: ProduceResult) -> KafkaSinkError:
        transaction = self._transactions.transaction
        if transaction is not None and is_of_transaction(result.error_code):
            return transaction_refused(transaction.transactional_id, "Produce", result.error_code)
        return _refusal(batch, result, self.sequences.former_topic_id(batch))

    def _acknowledge(self, batch: ProducerBatch, base_offset: int | None, now_ms: int) -> None:
        if self._release_if_failed(batch) or self._ends_renumbering(batch):
            return
        try:
            self._transactions.acknowledged(batch.topic_partition, batch.base_sequence, base_offset, batch.record_count)
        except AcknowledgedRowsGone as gone:
            self._fail(gone)
            self.accumulator.deallocate(batch)
            return
        self.sequences.acknowledged(batch, now_ms)
        self._delivery.acknowledged(batch, now_ms)
        batch.step("acknowledge")
        batch.acknowledgements.acknowledged(batch, base_offset)
        self.accumulator.deallocate(batch)

    def _retry(self, batch: ProducerBatch, reason: str, now_ms: int) -> None:
        if self._release_if_failed(batch):
            return
        if batch.may_be_written and self._ends_renumbering(batch):
            return
        batch.last_error = reason
        if batch.attempts > self._config.retries:
            self._fail(self._undelivered(batch, now_ms))
            self.accumulator.deallocate(batch)
            return
        batch.step("retry")
        batch.acknowledgements.retried[batch.topic_partition.topic] += batch.record_count
        batch.retry_at_ms = now_ms + self._backoff_ms(batch.attempts)
        self.accumulator.requeue(batch)

    def _split(self, batch: ProducerBatch, reason: str) -> None:
        """Replace `batch` with parts: halves, or smaller if the topic's batch limit is smaller by now."""
        assert self._producer is not None
        batch.last_error = reason
        limit_bytes = self.accumulator.limit_batches(batch.topic_partition.topic, HEADER_BYTES + half_bytes(batch))
        parts = split(
            batch,
            part_bytes=limit_bytes - HEADER_BYTES,
            producer=self._producer,
            codec=self._codec,
            pool=self.accumulator.pool,
        )
        self.sequences.split(batch, parts)
        self._replace(batch, parts)

    def _replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        batch.step("split")
        batch.acknowledgements.split(len(parts))
        for part in parts:
            self.accumulator.requeue(part)

    def _release_if_failed(self, batch: ProducerBatch) -> bool:
        """Return True if the write of `batch` had already failed. The batch's memory waited only for this response."""
        if batch.state is not BatchState.DONE:
            return False
        self.accumulator.deallocate(batch)
        return True

    def _ends_renumbering(self, batch: ProducerBatch) -> bool:
        """Fail the write and return True if `batch` was to be renumbered although a leader may have written it."""
        why = self.sequences.renumbering(batch)
        if why is not None:
            self._fail(why)
            self.accumulator.deallocate(batch)
        return why is not None

    def _backoff_ms(self, attempts: int) -> int:
        return backoff_ms(attempts, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._rng)

    # --- how it ends --------------------------------------------------------------------------------------------------

    def _all_batches(self) -> list[ProducerBatch]:
        """Return sent batches first, because their errors explain why they are not acknowledged."""
        return [*self.sequences.unanswered(), *self.accumulator.queued()]

    def has_room(self, now_ms: int) -> bool:
        """Return True if a writer may hand over more rows. More rows would expire in the queue of a throttling broker.
        Call under the lock."""
        return not self._delivery.is_throttled or self._delivery.has_room(self._all_batches(), now_ms)

    def throttling_report(self, now_ms: int) -> Throttled | None:
        """Return the throttling to log now, or None."""
        with self._lock:
            return self._delivery.report(self._all_batches(), now_ms) if self._delivery.is_report_due else None

    def delivery_left_ms(self, now_ms: int) -> int | None:
        """Return the time until the first batch expires, None if there is none."""
        with self._lock:
            return self._delivery.left_ms(self._all_batches(), now_ms)

    def _expire(self, now_ms: int) -> None:
        """Fail the write if a batch has waited for `delivery.timeout.ms`, queued or sent (KIP-91), or if throttling
        outlasts its transaction."""
        if now_ms < self._next_expiry_ms:
            return
        self._next_expiry_ms = now_ms + EXPIRY_GRAIN_MS
        batches = self._all_batches()
        if (expired := self._delivery.expired(batches, now_ms)) is not None:
            expired.settle()
            self._fail(self._undelivered(expired, now_ms))
        elif (outlasts := self._delivery.outlasts(batches, self._transactions.transaction, now_ms)) is not None:
            self._fail(outlasts)

    def _undelivered(self, batch: ProducerBatch, now_ms: int) -> DeliveryTimeout:
        return self._delivery.undelivered(batch, self._producer_id_error, now_ms)

    def fail(self, error: KafkaSinkError) -> None:
        """End the producer from outside: on `close`, or when its thread crashes."""
        with self._lock:
            self._fail(error)

    def _fail(self, error: KafkaSinkError) -> None:
        """End the producer with `error`. Batches in flight keep their memory until their request returns."""
        if self.failure is not None:
            return
        self.failure = error
        self.accumulator.fail(error)
        for batch in [*self._drained, *self.sequences.unanswered()]:
            if batch.state is BatchState.DONE:
                continue
            on_the_wire = batch.in_flight
            batch.step("fail")
            batch.acknowledgements.failed(error)
            if not on_the_wire:
                self.accumulator.deallocate(batch)


def _was_recreated(batch: ProducerBatch, snapshot: MetadataSnapshot) -> bool:
    found = snapshot.topics.get(batch.topic_partition.topic)
    return found is not None and ids_differ(batch.topic_id, found.topic_id)


def _topic_recreated(batch: ProducerBatch, snapshot: MetadataSnapshot) -> TopicRecreated:
    topic = batch.topic_partition.topic
    return TopicRecreated(
        topic=topic, old_topic_id=str(batch.topic_id), new_topic_id=str(snapshot.topics[topic].topic_id)
    )


def _refusal(batch: ProducerBatch, result: ProduceResult, former_topic_id: uuid.UUID | None) -> KafkaSinkError:
    """Return the exception for the leader's final error about `batch`. `former_topic_id`: see `Sequences`."""
    topic, partition = batch.topic_partition
    if result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and former_topic_id is not None:
        return TopicRecreated(topic=topic, old_topic_id=str(former_topic_id), new_topic_id=str(batch.topic_id))
    if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationFailed(topic=topic)
    if result.error_code == ErrorCode.MESSAGE_TOO_LARGE:
        # The batch has one record: a larger batch would have been split.
        ((timestamp_ms, body),) = records_at(batch.records(), batch.base_timestamp, [0])
        return RecordTooLarge(
            topic=topic,
            size_bytes=batch.size_bytes,
            max_bytes=None,
            limit="the topic's max.message.bytes (where it has none, the brokers' message.max.bytes)",
            partition=partition,
            timestamp_ms=timestamp_ms,
            key_bytes=key_bytes_of(body),
        )
    first = next((each for each in result.refused if 0 <= each.place < batch.record_count), None)
    return ProduceRejected(
        topic=topic,
        partition=partition,
        code=result.error_code,
        name=error_name(result.error_code),
        records=batch.record_count,
        size_bytes=batch.size_bytes,
        detail=result.error_message or "",
        acl=error_policy.ACLS.get(result.error_code, ""),
        advice=error_policy.ADVICE.get(result.error_code, "The broker's log says more."),
        refused=0 if first is None else len(result.refused),
        place=None if first is None else first.place,
        timestamp_ms=None if first is None else records_at(batch.records(), batch.base_timestamp, [first.place])[0][0],
        reason="" if first is None else first.message,
    )

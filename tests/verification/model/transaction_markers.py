"""A coordinator sends the markers of an ended transaction to its partitions' leaders, until each leader has one.

The transaction waits for a partition without a leader. Deleted partitions are skipped.

Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler in Kafka; KAFKA-20734.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from kio.schema.errors import ErrorCode

from model.control_batches import EndTransactionMarker
from model.image import TopicIdPartition
from model.inter_broker import InterBroker
from model.replica_manager import ReplicaManager
from model.settings import TransactionSettings
from model.timeline import Timeline
from model.transaction_metadata import TopicPartition

# Final answers of a leader: this coordinator, or this transaction, is outdated.
_FENCED = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})


@dataclass(slots=True, eq=False)
class Sending:
    """`is_wanted`: True while the transaction waits for these markers. `on_written`: called for each partition."""

    marker: EndTransactionMarker
    is_wanted: Callable[[], bool]
    on_written: Callable[[TopicPartition], None]


@dataclass(frozen=True, slots=True, eq=False)
class TransactionMarkers:
    """Of the coordinators on one broker. `brokers`: every broker's replicas."""

    _replicas: ReplicaManager
    _brokers: Mapping[int, ReplicaManager]
    _inter_broker: InterBroker
    _settings: TransactionSettings
    _timeline: Timeline

    def send(self, sending: Sending, partition: TopicPartition) -> None:
        if not sending.is_wanted():
            return
        topic = self._replicas.image.topics.get(partition[0])
        if topic is None:
            sending.on_written(partition)
            return
        state = topic.partitions[partition[1]]
        if state.leader not in self._replicas.image.alive:
            self._retry(sending, partition)
        else:
            key = TopicIdPartition(topic.topic_id, partition[1])
            leader = self._brokers[state.leader]

            def request(answer: Callable[[ErrorCode], None]) -> None:
                leader.append_marker(key, sending.marker, answer)

            self._inter_broker.ask(request, partial(self._answered, sending, partition))

    def _answered(self, sending: Sending, partition: TopicPartition, code: ErrorCode) -> None:
        if not sending.is_wanted() or code in _FENCED:
            return
        if code is ErrorCode.none:
            sending.on_written(partition)
        else:
            self._retry(sending, partition)

    def _retry(self, sending: Sending, partition: TopicPartition) -> None:
        self._timeline.call_in(self._settings.marker_retry_ms, lambda: self.send(sending, partition))

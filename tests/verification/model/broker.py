"""One broker to its clients: connections in, answers out.

It acts by the last cluster image that it has received, even a stale one. The image decides when it answers NOT_LEADER,
how it describes topics, and if it still acts as a leader.

Each API executes its requests (`produce_api`, `transaction_api` and so on, which `cluster` puts together). ApiVersions
and Metadata are here.

Source: KafkaApis in Kafka; KIP-219 (throttling), KIP-511, KIP-516 (topic ids), KIP-584 (features).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from model.connection import Connection
from model.controller import Controller
from model.image import NO_LEADER, PartitionState, TopicImage
from model.internal_topics import INTERNAL_TOPICS
from model.quota import Quota
from model.replica_manager import ReplicaManager
from model.settings import API_VERSIONS, FETCH, METADATA, PRODUCE, ClusterSettings, Generation
from model.timeline import Timeline
from model.wire import NotARequest, Request, build, decode_request, encode_response, kio_module

PORT = 9092
# The code with which a request is refused; NONE: it is executed.
Rule = Callable[[Request], ErrorCode]
Handlers = Mapping[int, Callable[[Connection, Request], None]]
PRODUCER_IDS_PER_BLOCK = 1_000
# A throttled Fetch is answered without a partition; what it would have got is to be asked for again.
_FETCHED_NOTHING: Mapping[str, Any] = {"error_code": ErrorCode.none, "responses": ()}


def address_of(node_id: int, settings: ClusterSettings) -> tuple[str, int]:
    return settings.addresses.get(node_id, (f"broker-{node_id}", PORT))


class Operation(IntEnum):
    """What an ACL allows. A principal that may not describe a topic may not read it either."""

    READ = 0
    DESCRIBE = 1


class Outgoing(NamedTuple):
    """`frame`: an answer without its length; None: the broker closes the connection."""

    node_id: int
    connection_id: int
    frame: bytes | None


class Broker:
    """`outgoing` collects what it sends."""

    def __init__(
        self, node_id: int, settings: ClusterSettings, timeline: Timeline, controller: Controller,
        replicas: ReplicaManager, outgoing: list[Outgoing],
    ) -> None:  # fmt: skip
        self.node_id = node_id
        self.replicas = replicas
        self._settings = settings
        self._cluster_id = settings.cluster_id
        self._timeline = timeline
        self._controller = controller
        self._outgoing = outgoing
        self._connections: dict[int, Connection] = {}
        self._producer_ids: deque[int] = deque()
        self._refusals: dict[int, deque[ErrorCode]] = {}
        self._rules: dict[int, Rule] = {}
        self._throttle_times_ms: deque[int] = deque()
        self._withheld = 0
        self._forbidden: dict[str, Operation] = {}
        self._quota: Quota | None = None
        self._read_quota: Quota | None = None
        self._handlers: dict[int, Callable[[Connection, Request], None]] = {
            METADATA: self._metadata,
            API_VERSIONS: self._tell_api_versions,
        }

    @property
    def _generation(self) -> Generation:
        return self.replicas.generation

    def serve(self, handlers: Handlers) -> None:
        self._handlers |= handlers

    def add_rule(self, api_key: int, rule: Rule) -> None:
        """Answer each request of this API that the rule refuses with the rule's code, and do nothing else."""
        self._rules[api_key] = rule

    def refuse(self, api_key: int, code: ErrorCode) -> None:
        self._refusals.setdefault(api_key, deque()).append(code)

    def withhold(self, fetches: int) -> None:
        """The next fetches are answered without records, and tell the end of the log nevertheless: as if the records
        were in a remote storage that is slow (KIP-405, DelayedRemoteFetch) or over its quota (KIP-956)."""
        self._withheld = fetches

    def forbid(self, topic: str, operation: Operation) -> None:
        """All clients lack this ACL of the topic from now on."""
        self._forbidden[topic] = operation

    def allow(self, topic: str) -> None:
        self._forbidden.pop(topic, None)

    def refusal_of(self, topic: str | None, operation: Operation) -> ErrorCode:
        """TOPIC_AUTHORIZATION_FAILED if an ACL is missing, else NONE."""
        forbidden = self._forbidden.get(topic) if topic is not None else None
        is_refused = forbidden is not None and operation <= forbidden
        return ErrorCode.topic_authorization_failed if is_refused else ErrorCode.none

    def throttle(self, throttle_time_ms: int, answers: int) -> None:
        self._throttle_times_ms.extend([throttle_time_ms] * answers)

    def limit(self, bytes_per_s: float | None) -> None:
        self._quota = None if bytes_per_s is None else Quota(bytes_per_s)

    def limit_reads(self, bytes_per_s: float | None) -> None:
        self._read_quota = None if bytes_per_s is None else Quota(bytes_per_s)

    def forgive(self) -> None:
        """Cancel the remaining effects of `refuse`, `withhold` and `throttle`, and the quotas."""
        self._withheld = 0
        self._quota = self._read_quota = None
        self._refusals.clear()
        self._throttle_times_ms.clear()

    def crash(self) -> None:
        """Lose everything in memory and close all connections."""
        self.replicas.crash()
        for connection in self._connections.values():
            if not connection.is_gone:
                self._outgoing.append(Outgoing(self.node_id, connection.connection_id, None))
        self._connections.clear()
        self._producer_ids.clear()

    def receive(self, connection_id: int, frame: bytes) -> None:
        if not self.replicas.is_alive:
            self._outgoing.append(Outgoing(self.node_id, connection_id, None))
            return
        connection = self._connections.get(connection_id)
        if connection is None:
            connection = self._connections[connection_id] = Connection(connection_id)
        connection.received.append(frame)
        self._handle_next(connection)

    def disconnected(self, connection_id: int) -> None:
        connection = self._connections.get(connection_id)
        if connection is not None:
            connection.is_gone = True
            self._handle_next(connection)

    def _handle_next(self, connection: Connection) -> None:
        """Handle all requests that may be handled now. An immediate answer calls this again, without effect."""
        if connection.is_being_handled:
            return
        connection.is_being_handled = True
        while self._connections.get(connection.connection_id) is connection:
            frame = connection.next_frame()
            if frame is None:
                break
            try:
                request = decode_request(frame, self._generation.api_versions)
            except NotARequest:
                self._close(connection)
            else:
                self._execute(connection, request)
        connection.is_being_handled = False
        if connection.is_gone and not connection.is_busy and not connection.received:
            self._connections.pop(connection.connection_id, None)

    def _execute(self, connection: Connection, request: Request) -> None:
        rule = self._rules.get(request.api_key)
        code = ErrorCode.none if rule is None else rule(request)
        if code is not ErrorCode.none:
            self._refusals.setdefault(request.api_key, deque()).appendleft(code)
        self._handlers[request.api_key](connection, request)

    def _close(self, connection: Connection) -> None:
        del self._connections[connection.connection_id]
        if not connection.is_gone:
            self._outgoing.append(Outgoing(self.node_id, connection.connection_id, None))

    def answer(self, connection: Connection, request: Request, entity: str, **fields: Any) -> None:
        """Answer now or later. `entity`: kio's name of the answer. `fields`: the fields of its newest version."""
        if self._connections.get(connection.connection_id) is not connection:
            return
        throttle_time_ms = self._throttle_times_ms.popleft() if self._throttle_times_ms else 0
        throttle_time_ms = max(throttle_time_ms, self._by_quota_ms(connection, request, fields))
        if throttle_time_ms and request.api_key == FETCH:
            fields = dict(_FETCHED_NOTHING)
        kio_version = kio_module(request.api_key, request.version, "response")
        message = build(getattr(kio_version, entity), throttle_time=timedelta(milliseconds=throttle_time_ms), **fields)
        connection.is_busy = False
        if not connection.is_gone:
            frame = encode_response(request, message)
            self._outgoing.append(Outgoing(self.node_id, connection.connection_id, frame))
        self._throttle(connection, throttle_time_ms)
        self._handle_next(connection)

    def _by_quota_ms(self, connection: Connection, request: Request, fields: Mapping[str, Any]) -> int:
        if request.api_key == PRODUCE and self._quota is not None:
            return self._quota.throttle_time_ms(connection.request_bytes, self._timeline.now_ms)
        if request.api_key == FETCH and self._read_quota is not None:
            return self._read_quota.throttle_time_or_take_ms(_bytes_read(fields), self._timeline.now_ms)
        return 0

    def _throttle(self, connection: Connection, throttle_time_ms: int) -> None:
        if throttle_time_ms:
            connection.is_throttled = True
            self._timeline.call_in(throttle_time_ms, lambda: self._unthrottle(connection))

    def leave_unanswered(self, connection: Connection, is_failed: bool) -> None:
        """A client can then learn of a failure only by the end of its connection."""
        if self._connections.get(connection.connection_id) is not connection:
            return
        connection.is_busy = False
        if is_failed:
            self._close(connection)
        else:
            self._handle_next(connection)

    def _unthrottle(self, connection: Connection) -> None:
        connection.is_throttled = False
        self._handle_next(connection)

    def max_fetch_bytes(self) -> int:
        return self._read_quota.window_bytes() if self._read_quota is not None else 2**31 - 1

    def address_of(self, node_id: int) -> tuple[str, int]:
        return address_of(node_id, self._settings)

    def next_withheld(self) -> bool:
        is_withheld = self._withheld > 0
        self._withheld -= is_withheld
        return is_withheld

    def next_refusal(self, api_key: int) -> ErrorCode:
        """The code that a test set for the API's next request, else NONE. With a code the request is not run."""
        refusals = self._refusals.get(api_key)
        return refusals.popleft() if refusals else ErrorCode.none

    def _tell_api_versions(self, connection: Connection, request: Request) -> None:
        code, api_versions = self.next_refusal(API_VERSIONS), self._generation.api_versions
        if request.message is None:
            # KIP-511: in version 0, which anybody can read, with the range to choose from.
            request = Request(API_VERSIONS, 0, request.correlation_id, None)
            told = (API_VERSIONS,) if self._generation.names_its_versions else ()
            code, api_versions = ErrorCode.unsupported_version, {api_key: api_versions[api_key] for api_key in told}
        kio_version = kio_module(API_VERSIONS, request.version, "response")
        api_keys = tuple(
            kio_version.ApiVersion(api_key=api_key, min_version=lowest, max_version=highest)
            for api_key, (lowest, highest) in sorted(api_versions.items())
        )
        self.answer(
            connection, request, "ApiVersionsResponse",
            error_code=code, api_keys=api_keys, finalized_features_epoch=0,
            finalized_features=self._finalized_features(kio_version),
        )  # fmt: skip

    def _finalized_features(self, kio_version: Any) -> tuple[Any, ...]:
        """Leave out features of level 0, which counts as no feature (KIP-584)."""
        level = self._generation.transaction_version
        if not level or not hasattr(kio_version, "FinalizedFeatureKey"):
            return ()
        feature = kio_version.FinalizedFeatureKey(
            name="transaction.version", max_version_level=level, min_version_level=level
        )
        return (feature,)

    def new_producer_id(self) -> int:
        if not self._producer_ids:
            self._producer_ids.extend(self._controller.allocate_producer_ids(PRODUCER_IDS_PER_BLOCK))
        return self._producer_ids.popleft()

    def _metadata(self, connection: Connection, request: Request) -> None:
        code = self.next_refusal(METADATA)
        kio_version = kio_module(METADATA, request.version, "response")
        asked = request.message.topics
        image = self.replicas.image
        if asked is None:
            # Without those that the client may not describe, and without an error for them.
            topics = [
                self._topic_metadata(kio_version, topic, name, code)
                for name, topic in image.topics.items()
                if self.refusal_of(name, Operation.DESCRIBE) is ErrorCode.none
            ]
        else:
            topics = [self._topic_asked_for(kio_version, topic, code) for topic in asked]
        self.answer(
            connection, request, "MetadataResponse",
            brokers=tuple(self._broker_metadata(kio_version, node_id) for node_id in self.replicas.image.alive),
            cluster_id=self._cluster_id,
            controller_id=self.replicas.image.alive[0] if self.replicas.image.alive else NO_LEADER,
            topics=tuple(topics), error_code=ErrorCode.none,
        )  # fmt: skip

    def _broker_metadata(self, kio_version: Any, node_id: int) -> Any:
        host, port = self.address_of(node_id)
        rack = self._settings.racks.get(node_id)
        return build(kio_version.MetadataResponseBroker, node_id=node_id, host=host, port=port, rack=rack)

    def _topic_asked_for(self, kio_version: Any, asked: Any, code: ErrorCode) -> Any:
        """By name, or since version 12 by id: an id wins, and one that is unknown has no name."""
        image, topic_id = self.replicas.image, getattr(asked, "topic_id", None)
        if topic_id is None:
            # Whether it exists is not disclosed either.
            refusal = self.refusal_of(asked.name, Operation.DESCRIBE)
            if refusal is not ErrorCode.none:
                return self._topic_metadata(kio_version, None, asked.name, refusal)
            return self._topic_metadata(kio_version, image.topics.get(asked.name), asked.name, code)
        topic = image.topic_of(topic_id)
        if topic is not None:
            return self._topic_metadata(kio_version, topic, topic.name, code)
        unknown = ErrorCode.unknown_topic_id if code is ErrorCode.none else code
        return self._topic_metadata(kio_version, None, None, unknown, topic_id)

    def _topic_metadata(
        self, kio_version: Any, topic: TopicImage | None, name: str | None, code: ErrorCode,
        unknown_topic_id: uuid.UUID | None = None,
    ) -> Any:  # fmt: skip
        if topic is None and code is ErrorCode.none:
            code = ErrorCode.unknown_topic_or_partition
        partitions: Iterable[tuple[int, PartitionState]] = ()
        has_ids = self._generation.has_topic_ids and self.replicas.image.has_topic_ids
        if topic is not None and code is ErrorCode.none:
            partitions = enumerate(topic.partitions)
        return build(
            kio_version.MetadataResponseTopic,
            error_code=code,
            name=name,
            topic_id=unknown_topic_id if topic is None else topic.topic_id if has_ids else None,
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(self._partition_metadata(kio_version, *numbered) for numbered in partitions),
        )

    def _partition_metadata(self, kio_version: Any, number: int, state: PartitionState) -> Any:
        has_leader = state.leader in self.replicas.image.alive
        return build(
            kio_version.MetadataResponsePartition,
            error_code=ErrorCode.none if has_leader else ErrorCode.leader_not_available, partition_index=number,
            leader_id=state.leader if has_leader else NO_LEADER, leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas, isr_nodes=state.isr,
            offline_replicas=tuple(node_id for node_id in state.replicas if node_id not in self.replicas.image.alive),
        )  # fmt: skip


def _bytes_read(fields: Mapping[str, Any]) -> int:
    """Of a Fetch. Kafka counts the whole answer."""
    return sum(len(partition.records or b"") for topic in fields["responses"] for partition in topic.partitions)

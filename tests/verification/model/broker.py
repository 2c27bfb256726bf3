"""One broker to its clients: connections in, answers out.

It acts by the last cluster image that it has received, even a stale one. The image decides when it answers NOT_LEADER,
how it describes topics, and if it still acts as a leader.

ApiVersions and Metadata are here; `cluster` puts the other APIs beside them.

Source: KafkaApis in Kafka; KIP-219 (throttling), KIP-511, KIP-516 (topic ids), KIP-584 (features).
"""

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from model.controller import NO_LEADER, Controller, PartitionState, TopicImage
from model.internal_topics import INTERNAL_TOPICS
from model.replica_manager import ReplicaManager
from model.settings import API_VERSIONS, FETCH, METADATA, PRODUCE, ClusterSettings
from model.timeline import Timeline
from model.wire import NotARequest, Request, decode_request, encode_response, response_of

PORT = 9092
SAMPLE_MS, SAMPLES = 1_000, 11
# The code with which a request is refused; NONE: it is executed.
Rule = Callable[[Request], ErrorCode]
PRODUCER_IDS_PER_BLOCK = 1_000
# A throttled Fetch is answered without a partition; what it would have got is to be asked for again.
_FETCHED_NOTHING: Mapping[str, Any] = {"error_code": ErrorCode.none, "responses": ()}


@dataclass(slots=True, eq=False)
class Connection:
    """As the broker's network threads treat it (SocketServer.Processor: mute, unmute): the next request is read when
    the answer to the one before is sent, so five requests in flight are appended one after the other; and not before a
    throttled client's time is over (KIP-219). `is_gone`: the client has closed it. Earlier requests are executed."""

    connection_id: int
    received: deque[bytes] = field(default_factory=deque)
    is_busy: bool = False
    is_throttled: bool = False
    is_gone: bool = False
    is_being_handled: bool = False
    # Of the request that is being handled, or was last.
    request_bytes: int = 0

    def next_frame(self) -> bytes | None:
        if self.is_busy or self.is_throttled or not self.received:
            return None
        self.is_busy = True
        frame = self.received.popleft()
        self.request_bytes = len(frame)
        return frame


@dataclass(slots=True)
class _Sample:
    since_ms: int
    taken_bytes: int = 0


@dataclass(slots=True)
class Quota:
    """Of produced bytes, of all clients together as those of one client id have it
    (ClientQuotaManager, SampledStat and Rate in Kafka): bytes in samples of a second, of which eleven count; a rate
    over at least ten seconds; a client over the quota is held back for as long as brings the rate down to it."""

    bytes_per_s: float
    _samples: list[_Sample] = field(default_factory=list)

    def throttle_time_ms(self, size_bytes: int, now_ms: int) -> int:
        """Takes a request of that size. 0: within the quota."""
        self._samples = [each for each in self._samples if now_ms - each.since_ms < SAMPLES * SAMPLE_MS]
        if not self._samples or now_ms - self._samples[-1].since_ms >= SAMPLE_MS:
            self._samples.append(_Sample(now_ms))
        self._samples[-1].taken_bytes += size_bytes
        window_ms = max(now_ms - self._samples[0].since_ms, (SAMPLES - 1) * SAMPLE_MS)
        rate = sum(each.taken_bytes for each in self._samples) * 1_000 / window_ms
        return max(0, round((rate - self.bytes_per_s) / self.bytes_per_s * window_ms))


class Operation(IntEnum):
    """What an ACL allows. A principal that may not describe a topic may not read it either."""

    READ = 0
    DESCRIBE = 1


Handlers = Mapping[int, Callable[[Connection, Request], None]]


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
        self._handlers: dict[int, Callable[[Connection, Request], None]] = {
            METADATA: self._metadata,
            API_VERSIONS: self._tell_api_versions,
        }

    def serve(self, handlers: Handlers) -> None:
        self._handlers |= handlers

    def add_rule(self, api_key: int, rule: Rule) -> None:
        """Answer each request of this API that the rule refuses with the rule's code, and do nothing else."""
        self._rules[api_key] = rule

    def refuse(self, api_key: int, code: int) -> None:
        """The next request of this API is answered with `code` (every topic or partition of it) and not executed.
        Several wait in line."""
        self._refusals.setdefault(api_key, deque()).append(ErrorCode(code))

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

    def throttle(self, throttle_time_ms: int, answers: int = 1) -> None:
        """The next answers have this throttle time, and their connections are not read meanwhile."""
        self._throttle_times_ms.extend([throttle_time_ms] * answers)

    def limit(self, bytes_per_s: float | None) -> None:
        self._quota = None if bytes_per_s is None else Quota(bytes_per_s)

    def forgive(self) -> None:
        """Cancel the remaining effects of `refuse`, `withhold`, `throttle` and `limit`."""
        self._withheld = 0
        self._quota = None
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
                request = decode_request(frame, self.replicas.generation.api_versions)
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

    def answer(self, connection: Connection, request: Request, **fields: Any) -> None:
        """Answer now or later. `fields`: plain values for those of its newest version, a dict for an entity."""
        if self._connections.get(connection.connection_id) is not connection:
            return
        throttle_time_ms = self._throttle_times_ms.popleft() if self._throttle_times_ms else 0
        if request.api_key == PRODUCE and self._quota is not None:
            by_quota_ms = self._quota.throttle_time_ms(connection.request_bytes, self._timeline.now_ms)
            throttle_time_ms = max(throttle_time_ms, by_quota_ms)
        if throttle_time_ms and request.api_key == FETCH:
            fields = dict(_FETCHED_NOTHING)
        throttle_time = timedelta(milliseconds=throttle_time_ms)
        message = response_of(request.api_key, request.version, throttle_time=throttle_time, **fields)
        connection.is_busy = False
        if not connection.is_gone:
            frame = encode_response(request, message)
            self._outgoing.append(Outgoing(self.node_id, connection.connection_id, frame))
        if throttle_time_ms:
            connection.is_throttled = True
            self._timeline.after(throttle_time_ms, self._unthrottle, connection)
        self._handle_next(connection)

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

    def address_of(self, node_id: int) -> tuple[str, int]:
        return self._settings.addresses.get(node_id, (f"broker-{node_id}", PORT))

    def next_withheld(self) -> bool:
        is_withheld = self._withheld > 0
        self._withheld -= is_withheld
        return is_withheld

    def next_refusal(self, api_key: int) -> ErrorCode:
        """The code that a test set for the API's next request, else NONE. With a code the request is not run."""
        refusals = self._refusals.get(api_key)
        return refusals.popleft() if refusals else ErrorCode.none

    def _tell_api_versions(self, connection: Connection, request: Request) -> None:
        code, api_versions = ErrorCode.none, self.replicas.generation.api_versions
        if request.message is None:
            # KIP-511: in version 0, which anybody can read, with the range to choose from.
            request = Request(API_VERSIONS, 0, request.correlation_id, None)
            told = (API_VERSIONS,) if self.replicas.generation.names_its_versions else ()
            code, api_versions = ErrorCode.unsupported_version, {api_key: api_versions[api_key] for api_key in told}
        elif request.version >= 5 and not self._is_meant(request.message):
            code, api_versions = ErrorCode.rebootstrap_required, {}
        # A feature of level 0 counts as none (KIP-584).
        level = self.replicas.generation.transaction_version
        feature = {"name": "transaction.version", "max_version_level": level, "min_version_level": level}
        self.answer(
            connection, request, error_code=code, finalized_features_epoch=0,
            finalized_features=[feature] if level else [],
            api_keys=[
                {"api_key": api_key, "min_version": lowest, "max_version": highest}
                for api_key, (lowest, highest) in sorted(api_versions.items())
            ],
        )  # fmt: skip

    def _is_meant(self, message: Any) -> bool:
        """KIP-1242."""
        named = message.cluster_id, message.node_id
        return message.cluster_id is None or named == (self._settings.cluster_id, self.node_id)

    def new_producer_id(self) -> int:
        if not self._producer_ids:
            self._producer_ids.extend(self._controller.allocate_producer_ids(PRODUCER_IDS_PER_BLOCK))
        return self._producer_ids.popleft()

    def _metadata(self, connection: Connection, request: Request) -> None:
        code, asked, image = self.next_refusal(METADATA), request.message.topics, self.replicas.image
        if asked is None:
            # Without those that the client may not describe, and without an error for them.
            topics = [
                self._topic_metadata(topic, name, code)
                for name, topic in image.topics.items()
                if self.refusal_of(name, Operation.DESCRIBE) is ErrorCode.none
            ]
        else:
            topics = [self._topic_asked_for(topic, code) for topic in asked]
        self.answer(
            connection, request, brokers=[self.described(node_id) for node_id in image.alive],
            cluster_id=self._settings.cluster_id, topics=topics, error_code=ErrorCode.none,
            controller_id=image.alive[0] if image.alive else NO_LEADER,
        )  # fmt: skip

    def described(self, node_id: int) -> dict[str, Any]:
        host, port = self.address_of(node_id)
        return {"node_id": node_id, "host": host, "port": port, "rack": self._settings.racks.get(node_id)}

    def _topic_asked_for(self, asked: Any, code: ErrorCode) -> dict[str, Any]:
        """By name, or since version 12 by id: an id wins, and one that is unknown has no name."""
        image, topic_id = self.replicas.image, getattr(asked, "topic_id", None)
        if topic_id is None:
            # Whether it exists is not disclosed either.
            refusal = self.refusal_of(asked.name, Operation.DESCRIBE)
            if refusal is not ErrorCode.none:
                return self._topic_metadata(None, asked.name, refusal)
            return self._topic_metadata(image.topics.get(asked.name), asked.name, code)
        topic = image.topic_of(topic_id)
        if topic is not None:
            return self._topic_metadata(topic, topic.name, code)
        unknown = ErrorCode.unknown_topic_id if code is ErrorCode.none else code
        return self._topic_metadata(None, None, unknown, topic_id)

    def _topic_metadata(
        self, topic: TopicImage | None, name: str | None, code: ErrorCode, unknown_topic_id: uuid.UUID | None = None
    ) -> dict[str, Any]:
        if topic is None and code is ErrorCode.none:
            code = ErrorCode.unknown_topic_or_partition
        states = topic.partitions if topic is not None and code is ErrorCode.none else ()
        has_ids = self.replicas.generation.has_topic_ids and self.replicas.image.has_topic_ids
        return {
            "error_code": code, "name": name, "is_internal": name in INTERNAL_TOPICS,
            "topic_id": unknown_topic_id if topic is None else topic.topic_id if has_ids else None,
            "partitions": [self._partition_metadata(number, state) for number, state in enumerate(states)],
        }  # fmt: skip

    def _partition_metadata(self, number: int, state: PartitionState) -> dict[str, Any]:
        alive = self.replicas.image.alive
        has_leader = state.leader in alive
        return {
            "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available, "partition_index": number,
            "leader_id": state.leader if has_leader else NO_LEADER, "leader_epoch": state.leader_epoch,
            "replica_nodes": state.replicas, "isr_nodes": state.isr,
            "offline_replicas": [node_id for node_id in state.replicas if node_id not in alive],
        }  # fmt: skip

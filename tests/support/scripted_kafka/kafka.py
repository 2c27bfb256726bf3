"""A cluster that answers as a healthy one does, unless the script has another answer for an API."""

import enum
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.record import MemoryRecords

import apis
from kafka_sink.commit.effects import ToCoordinator, ToEveryBroker, ToLeaders
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.requests import api_of
from model.logical_kafka import LogicalKafka, Produce


class HangUp(enum.Enum):
    """The answer of a broker that closes the connection."""

    HANG_UP = enum.auto()


HANG_UP = HangUp.HANG_UP
# An error code, a response, HANG_UP, or what gives one of them for the request; 0 is the answer of a healthy broker.
Answer = Any

BASE_OFFSET = 100
_OF_COORDINATORS = (
    apis.AddOffsetsToTxnRequest
    | apis.DeleteGroupsRequest
    | apis.DescribeTransactionsRequest
    | apis.EndTxnRequest
    | apis.InitProducerIdRequest
    | apis.OffsetCommitRequest
    | apis.OffsetFetchRequest
    | apis.TxnOffsetCommitRequest
)


class ScriptedKafka:
    """A scripted cluster. Tests may change its attributes at any time.

    `leaders`: by partition, -1 for none. Topics that are not in `leaders` are described by `partitions`, `topic_id` and
    `topic_error`: led by the first broker, or unknown if there are no `partitions`. `transactions`: a model that
    answers for coordinators and leaders, with transactions of version 2. `received`: every request, with the broker's
    node id. `now_ms`: virtual time, moved only by polls if there are no threads; `at`: events at given times.
    """

    def __init__(self, brokers: Iterable[int] = (1, 2, 3), *, transactions: LogicalKafka | None = None) -> None:
        self.now_ms = 0
        self.at: list[tuple[int, Callable[[], Any]]] = []
        self.cluster_id: str | None = "c"
        self.brokers = set(brokers)
        self.down: set[int] = set()
        # They take requests and do not answer.
        self.silent: set[int] = set()
        # Requests of these APIs wait for their answer.
        self.held: set[type] = set()
        # Node id -> when its throttle began, and when it ends.
        self.throttled: dict[int, tuple[int, int]] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.leader_epoch = 0
        self.partitions = 0
        self.topic_id: uuid.UUID | None = None
        self.topic_error = 0
        self.lists_brokers = True
        self.topic_codes: dict[str, int] = {}
        # Those that are there, and that a list of all topics leaves out.
        self.unlisted_topics: set[str] = set()
        self.topic_ids: dict[str, uuid.UUID] = {}
        # As brokers that know no topic ids in Produce.
        self.by_name = False
        self.coordinator = min(self.brokers)
        self.features: Mapping[str, int] = {}
        self.settings: Mapping[tuple[int, str], str] = {}
        self.spoken: Callable[[Any], int | None] = lambda request: api_of(request).versions(request)[1]
        # What its brokers lack for each guarantee.
        self.lacking: tuple[str, ...] = ()
        self.transactions = transactions
        if transactions is not None:
            self.features, self.spoken = {"transaction.version": 2}, lambda request: 12
        self.received: list[tuple[int, Any]] = []
        self._script: defaultdict[type, deque[Answer]] = defaultdict(deque)
        self._always: dict[type, Answer] = {}

    # --- for the test ------------------------------------------------------------------------------------------------

    def script(self, api: type, *answers: Answer) -> None:
        """Set the answers to the next requests of an API, one each. Later requests are answered as before."""
        self._script[api] += answers

    def always(self, api: type, answer: Answer) -> None:
        """Set the answer to every request of an API from now on."""
        self._always[api] = answer

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for event in [event for event in self.at if event[0] <= self.now_ms]:
            self.at.remove(event)
            event[1]()

    def asked(self, api: type) -> list[tuple[int, Any]]:
        return [(node_id, request) for node_id, request in self.received if isinstance(request, api)]

    @property
    def produced(self) -> list[tuple[uuid.UUID | None, int]]:
        """Return topic id and partition of each batch that has arrived."""
        return [
            (part.topic_id, part.partition) for _, sent in self.asked(apis.ProduceRequest) for part in sent.partitions
        ]

    # --- answers ------------------------------------------------------------------------------------------------------

    def answers_now(self, node_id: int, request: Any) -> bool:
        return node_id not in self.silent and type(request) not in self.held

    def answer(self, node_id: int, request: Any) -> Any:
        """Return the response; None if the broker hangs up."""
        if node_id in self.down:
            return None
        if isinstance(request, apis.SharedFetchRequest):
            parts = [self.answer(node_id, part) for part in request.parts]
            return None if None in parts else apis.SharedFetchResponse(0, tuple(parts))
        script = self._script[type(request)]
        answer = script.popleft() if script else self._always.get(type(request), 0)
        if callable(answer):
            answer = answer(request)
        if answer is HANG_UP:
            return None
        return self._healthy(node_id, request, answer) if isinstance(answer, int) else answer

    def _healthy(self, node_id: int, request: Any, code: int) -> Any:
        if self.transactions is not None and not code:
            answer = self._of_transactions(node_id, request)
            if answer is not None:
                return answer
        match request:
            case apis.MetadataRequest(topics=topics):
                named = self._listed_topics() if topics is None else topics
                listed = sorted(self.brokers) if self.lists_brokers else ()
                nodes = tuple(apis.Broker(node, f"host{node}", 9092) for node in listed)
                of_topics = tuple(self._topic(topic) for topic in named)
                return apis.MetadataResponse(0, self.cluster_id, min(self.brokers), nodes, of_topics)
            case apis.InitProducerIdRequest():
                return apis.InitProducerIdResponse(0, code, 7, 0)
            case apis.ProduceRequest():
                return apis.ProduceResponse(0, self._produced(request, code))
            case apis.FindCoordinatorRequest(keys=keys):
                return apis.FindCoordinatorResponse(0, tuple(self._found(key, code) for key in keys))
            case apis.EndTxnRequest():
                return apis.EndTxnResponse(0, code, 7, 1)
            case apis.ListTransactionsRequest():
                return apis.ListTransactionsResponse(0, code, ())
            case apis.DescribeProducersRequest(partitions=partitions):
                codes = self._codes_of_leader(node_id, partitions, code)
                return apis.DescribeProducersResponse(
                    0, tuple(apis.ProducersOfPartition(t, p, c, None, ()) for t, p, c in codes)
                )
            case apis.WriteTxnMarkersRequest(partitions=partitions):
                return apis.WriteTxnMarkersResponse(tuple(apis.PartitionResult(t, p, code) for t, p in partitions))
            case apis.DescribeConfigsRequest(node_id=about, name=name):
                assert about == node_id, "only the broker itself knows"
                return apis.DescribeConfigsResponse(0, code, None if code else self.settings.get((node_id, name)))
            case apis.FetchRequest():
                return apis.FetchResponse(0, code)
            case apis.TopicConfigsRequest(topics=topics, names=names):
                return apis.TopicConfigsResponse(0, tuple(self._topic_configs(topic, names, code) for topic in topics))
            case apis.CreateTopicsRequest(topic=topic, partition_count=count):
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self.leaders |= {(topic, number): min(self.brokers) for number in range(max(1, count))}
                return apis.CreateTopicsResponse(0, code, "the controller says why" if code else None)
        raise AssertionError(f"no answer to {request}")

    def _of_transactions(self, node_id: int, request: Any) -> Any:
        """Return the model's answer, None if the model does not handle the request."""
        assert self.transactions is not None
        match request:
            case apis.InitProducerIdRequest(transactional_id=None):
                return None
            case request if isinstance(request, _OF_COORDINATORS):
                return self.transactions.execute(ToCoordinator(apis.CoordinatorKind.TRANSACTION, "", request))
            case apis.ListTransactionsRequest() if node_id == self.coordinator:
                (listed,) = self.transactions.execute(ToEveryBroker(request))
                return listed
            case apis.DescribeProducersRequest() | apis.WriteTxnMarkersRequest():
                codes = self._codes_of_leader(node_id, request.partitions, 0)
                return None if any(code for _, _, code in codes) else self.transactions.execute(ToLeaders(request))
        return None

    def _listed_topics(self) -> list[str]:
        """A list of all topics leaves out those that the principal may not describe."""
        denied = {name for name, code in self.topic_codes.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        return sorted({topic for topic, _ in self.leaders} - denied - self.unlisted_topics)

    def _topic(self, name: str) -> apis.TopicMetadata:
        leaders = [leader for (topic, _), leader in sorted(self.leaders.items()) if topic == name]
        code = self.topic_codes.get(name, self.topic_error)
        if not leaders and not code:
            leaders = [min(self.brokers)] * self.partitions
            code = 0 if leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = tuple(
            apis.PartitionMetadata(0 if leader >= 0 else 5, number, leader, self.leader_epoch)
            for number, leader in enumerate(leaders)
        )
        topic_id, is_internal = self.topic_ids.get(name, self.topic_id), name.startswith("__")
        return apis.TopicMetadata(code, name, topic_id, partitions, is_internal=is_internal)

    def _topic_configs(self, topic: str, names: tuple[str, ...], code: int) -> apis.TopicConfigs:
        code = code or self.topic_codes.get(topic, 0)
        return apis.TopicConfigs(topic, code, {} if code else dict.fromkeys(names, f"{topic}'s"))

    def _found(self, key: str, code: int) -> apis.FoundCoordinator:
        if code:
            return apis.FoundCoordinator(key, code, "why", -1, "", -1)
        return apis.FoundCoordinator(key, 0, None, self.coordinator, f"host{self.coordinator}", 9092)

    def _codes_of_leader(
        self, node_id: int, partitions: Iterable[tuple[str, int]], code: int
    ) -> list[tuple[str, int, int]]:
        return [
            (t, p, code if self.leaders.get((t, p)) == node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for t, p in partitions
        ]

    def _produced(self, request: apis.ProduceRequest, code: int) -> tuple[apis.ProduceResult, ...]:
        """Answer in another order than the request has, as real brokers do."""
        results = []
        for part in reversed(request.partitions):
            answer = code, BASE_OFFSET
            if request.transactional_id is not None and self.transactions is not None and not code:
                answer = self._appended(self.transactions, request.transactional_id, part)
            topic = part.topic if self.by_name else None
            results.append(apis.ProduceResult(topic, part.topic_id, part.partition, answer[0], None, answer[1], -1))
        return tuple(results)

    def _appended(self, transactions: LogicalKafka, transactional_id: str, part: Any) -> tuple[int, int]:
        (batch,) = MemoryRecords(bytes(part.records))
        rows = tuple(record.value.decode() for record in batch)
        ids = batch.producer_id, batch.producer_epoch
        produced = transactions.execute(Produce(transactional_id, *ids, part.partition, rows))
        return produced.error_code, produced.base_offset

"""The only scripted fake of Kafka; `scripted_peers` has its brokers behind a socket, `network_world` in bytes alone.

    ScriptedKafka    the cluster's state, the requests it received, and its answers by API: a healthy one's, unless the
                     script has another
    ScriptedNetwork  the seam of `NetworkClient`, in virtual time: requests and answers are objects
    LiveNetwork      the same for code with threads, in real time

`connect_clients` and `connect_producers` have the shipped clients talk to them. A test that needs Kafka's own rules
runs over a model (`tests/verification/model`), or gives the scripted brokers one to answer for their transactions.
"""

import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.record import MemoryRecords

import apis
from kafka_sink.commit import runner
from kafka_sink.commit.requests import ToCoordinator, ToEveryBroker, ToLeaders
from kafka_sink.errors import ClusterChanged, KafkaSinkError
from kafka_sink.kafka import client
from kafka_sink.kafka.admin import client as admin
from kafka_sink.kafka.admin import driver
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.producer.sender import Sender
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.needs import Guarantee
from kafka_sink.kafka.waits import Contact
from kafka_sink.spark import kept_clients
from model.logical_kafka import LogicalKafka, Produce

# The answer of a broker that closes the connection.
HANG_UP = object()
# An error code, a response, HANG_UP, or what gives one of them for the request; 0 is the answer of a healthy broker.
Answer = Any

BASE_OFFSET = 100
_OF_COORDINATORS = (
    apis.AddOffsetsToTxnRequest, apis.DeleteGroupsRequest, apis.DescribeTransactionsRequest, apis.EndTxnRequest,
    apis.InitProducerIdRequest, apis.OffsetCommitRequest, apis.OffsetFetchRequest, apis.TxnOffsetCommitRequest,
)  # fmt: skip


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
        # Of each group: offset and leader epoch by partition.
        self.committed: dict[str, Mapping[tuple[str, int], tuple[int, int]]] = {}
        self.group_state = "Empty"
        self.spoken: Callable[[Any], int | None] = lambda request: request.versions()[1]
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
                return apis.PartitionsResponse(0, tuple(apis.PartitionResult(t, p, code) for t, p in partitions))
            case apis.DescribeConfigsRequest(node_id=about, name=name):
                assert about == node_id, "only the broker itself knows"
                return apis.DescribeConfigsResponse(0, code, None if code else self.settings.get((node_id, name)))
            case apis.FetchRequest():
                return apis.FetchResponse(0, code)
            case apis.GroupOffsetsRequest(group_id=group_id, partitions=partitions):
                of_group = self.committed.get(group_id, {})
                offsets = (apis.CommittedOffset(t, p, code, *of_group.get((t, p), (-1, -1))) for t, p in partitions)
                return apis.GroupOffsetsResponse(0, 0, tuple(offsets))
            case apis.DescribeGroupRequest():
                return apis.DescribeGroupResponse(0, code, apis.NOT_REPORTED, self.group_state)
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
            results.append(apis.ProduceResult(topic, part.topic_id, part.partition, answer[0], None, answer[1]))
        return tuple(results)

    def _appended(self, transactions: LogicalKafka, transactional_id: str, part: Any) -> tuple[int, int]:
        (batch,) = MemoryRecords(bytes(part.records))
        rows = tuple(record.value.decode() for record in batch)
        ids = batch.producer_id, batch.producer_epoch
        produced = transactions.execute(Produce(transactional_id, *ids, part.partition, rows))
        return produced.error_code, produced.base_offset


# More polls than any test needs.
MOST_POLLS = 10_000


@dataclass(eq=False)
class Sent:
    """An in-flight request. It is also the answer, once `response` or `error` is set."""

    node_id: int
    request: Any
    token: Any
    response: Any = None
    error: str | None = None
    expects_response: bool = True
    sent_ms: int = 0


class ScriptedNetwork:
    """A poll without events moves the time of `kafka` by its whole timeout. A test that does not poll takes
    requests from `sent` and answers them itself.

    `known`: the nodes with known addresses. `expected_cluster_id`: the network fails if the cluster has another id.
    `connects`, `handshakes`, `interruptions`, `failure`, `last_error`: as `NetworkClient` has them, set by the test.
    `contacts`: what `contact` returns.
    """

    def __init__(
        self, kafka: ScriptedKafka, known: Iterable[int] | None = None, *, max_in_flight: int = 100,
        expected_cluster_id: str | None = None, last_error: str = "broker 9: Connection refused",
    ) -> None:  # fmt: skip
        self.kafka = kafka
        self.known = kafka.brokers.copy() if known is None else set(known)
        self.learned: dict[int, apis.Broker] = {}
        # Known, and neither ready nor down.
        self.connecting: set[int] = set()
        self.max_in_flight = max_in_flight
        self.last_error = last_error
        self.failure: KafkaSinkError | None = None
        self.connects = 0
        self.handshakes = 0
        self.interruptions = 0
        self.contacts = Contact(is_reached=True)
        self.closed = False
        self.waits: list[int] = []
        self.sent: list[Sent] = []
        self.expect(expected_cluster_id)

    def expect(self, cluster_id: str | None) -> None:
        """Make the network fail if a broker is of another cluster. None: every cluster is accepted."""
        found = self.kafka.cluster_id
        if cluster_id not in (None, found):
            self.failure = ClusterChanged(broker="broker 1", expected=str(cluster_id), found=str(found))

    # --- as a NetworkClient -------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        return self.kafka.cluster_id

    def ready(self, node_id: int, now_ms: int) -> bool:
        if node_id not in self.known - self.kafka.down - self.connecting or self._is_throttled(node_id, now_ms):
            return False
        return self.failure is None and sum(each.node_id == node_id for each in self.sent) < self.max_in_flight

    def is_down(self, node_id: int) -> bool:
        return node_id in self.kafka.down or node_id not in self.known

    def least_loaded_node(self, now_ms: int) -> int | None:
        return next((node for node in sorted(self.known & self.kafka.brokers) if self.ready(node, now_ms)), None)

    def update_brokers(self, brokers: Sequence[apis.Broker]) -> None:
        if brokers:
            self.known = {broker.node_id for broker in brokers}

    def learn(self, broker: apis.Broker) -> None:
        self.known.add(broker.node_id)
        self.learned[broker.node_id] = broker

    def throttles(self, now_ms: int) -> dict[int, tuple[int, int]]:
        throttled = self.kafka.throttled.items()
        return {node: (max(0, min(now_ms, until) - since), until) for node, (since, until) in throttled}

    def throttled_ms(self, now_ms: int) -> int:
        return max((passed_ms for passed_ms, _ in self.throttles(now_ms).values()), default=0)

    def finalized_features(self, node_id: int) -> Mapping[str, int] | None:
        return self.kafka.features

    def api_version(self, node_id: int, request: Any) -> int | None:
        return self.kafka.spoken(request)

    def lacks(self, node_id: int, guarantee: Guarantee) -> tuple[str, ...]:
        return self.kafka.lacking

    def name(self, node_id: int) -> str:
        return f"broker {node_id}"

    def contact(self, now_ms: int) -> Contact:
        return self.contacts

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True) -> None:
        self.kafka.received.append((node_id, request))
        self.sent.append(Sent(node_id, request, token, expects_response=expect_response, sent_ms=self.kafka.now_ms))

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        assert timeout_ms >= 0
        self.waits.append(timeout_ms)
        assert len(self.waits) < MOST_POLLS, "the client turns without waiting"
        answers = self._answers()
        self.kafka.pass_time(0 if answers else timeout_ms)
        return answers

    def wakeup(self) -> None:
        pass

    def close(self) -> list[ClientResponse]:
        self.closed = True
        unanswered, self.sent = self.sent, []
        return [ClientResponse(each.node_id, each.request, each.token, None, "closed", 0) for each in unanswered]

    # --- for the test -------------------------------------------------------------------------------------------------

    def take(self, kind: type) -> Sent:
        """Return the oldest unanswered request of a kind."""
        found = next(each for each in self.sent if isinstance(each.request, kind))
        self.sent.remove(found)
        return found

    def produce(self) -> list[Sent]:
        return [each for each in self.sent if isinstance(each.request, apis.ProduceRequest)]

    def _answers(self) -> list[ClientResponse]:
        ready = [each for each in self.sent if self.kafka.answers_now(each.node_id, each.request)]
        self.sent = [each for each in self.sent if each not in ready]
        return [self._answer(each) for each in ready]

    def _answer(self, sent: Sent) -> ClientResponse:
        response = self.kafka.answer(sent.node_id, sent.request)
        error = None if response is not None else f"broker {sent.node_id}: cut"
        latency_ms = self.kafka.now_ms - sent.sent_ms
        return ClientResponse(sent.node_id, sent.request, sent.token, response, error, latency_ms)

    def _is_throttled(self, node_id: int, now_ms: int) -> bool:
        since, until = self.kafka.throttled.get(node_id, (0, 0))
        return since <= now_ms < until


class LiveNetwork(ScriptedNetwork):
    """`arrived`: set by every Produce request. Between `hold` and `release` no Produce is answered. `sender`: of
    the newest Producer. `lock` guards it and is notified of answers."""

    sender: Sender
    lock: threading.Condition

    def __init__(self, kafka: ScriptedKafka) -> None:
        super().__init__(kafka, last_error="")
        self.arrived = threading.Event()
        self._something = threading.Condition()
        self._woken = False
        self._ready: list[ClientResponse] = []

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True) -> None:
        with self._something:
            super().send(node_id, request, now_ms, token, expect_response)
            self._ready += self._answers()
        if isinstance(request, apis.ProduceRequest):
            self.arrived.set()

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        with self._something:
            self._something.wait_for(lambda: self._ready or self._woken or self.failure, timeout_ms / 1000)
            self._woken = False
            ready, self._ready = self._ready, []
            return ready

    def wakeup(self) -> None:
        with self._something:
            self._woken = True
            self._something.notify()

    def hold(self) -> None:
        self.kafka.held.add(apis.ProduceRequest)

    def release(self) -> None:
        with self._something:
            self.kafka.held.discard(apis.ProduceRequest)
            self._ready += self._answers()
            self._something.notify()


def connect_clients(network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    """Every AdminClient made in the test has this network, and its time is that of the brokers."""

    def connect(config: ProducerConfig, *, cluster_id: str | None, **settings: Any) -> ScriptedNetwork:
        network.expect(cluster_id)
        return network

    def now_ms() -> int:
        return network.kafka.now_ms

    monkeypatch.setattr(driver, "connect", connect)
    monkeypatch.setattr(kept_clients, "KEPT", kept_clients.Kept())
    for module in (admin, driver, kept_clients):
        monkeypatch.setattr(module, "monotonic_ms", now_ms)
    sleep = SimpleNamespace(sleep=lambda seconds: network.kafka.pass_time(round(1_000 * seconds)))
    monkeypatch.setattr(runner, "time", sleep)
    return network


def connect_producers(network: LiveNetwork, monkeypatch: pytest.MonkeyPatch) -> LiveNetwork:
    """Every Producer made in the test has this network, which has the parts of the last one."""

    def connect(config: ProducerConfig, *, cluster_id: str | None, **settings: Any) -> LiveNetwork:
        network.expect(cluster_id)
        return network

    def make_and_tell(config: ProducerConfig, *, lock: Any, **shared: Any) -> Sender:
        network.sender, network.lock = Sender(config, lock=lock, **shared), lock
        return network.sender

    monkeypatch.setattr(client, "connect", connect)
    monkeypatch.setattr(client, "Sender", make_and_tell)
    monkeypatch.setattr(kept_clients, "KEPT", kept_clients.Kept())
    return network

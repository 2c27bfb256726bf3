"""The client of a commit over a cluster that a test makes up, in a time that only its polls move."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_sink import kept
from kafka_sink.commit import coordinator_client
from kafka_sink.commit.coordinator_client import TOPICS_FRESH_MS, CoordinatorClient, lease
from kafka_sink.config import ProducerConfig, sink_config
from kafka_sink.errors import (
    AuthenticationFailed,
    BrokersUnreachable,
    BrokerUnavailable,
    CommitTopicMissing,
    CommitTopicTooSmall,
    CoordinatorRefused,
    CoordinatorUnavailable,
    KafkaSinkError,
    LeaderUnavailable,
    TopicAuthorizationFailed,
    TopicNameInvalid,
    TopicNotFound,
)
from kafka_sink.net.network_client import ClientResponse
from kafka_sink.protocol.describing import TopicConfigs, TopicConfigsRequest, TopicConfigsResponse
from kafka_sink.protocol.requests import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProduceRequest,
    TopicMetadata,
)
from kafka_sink.protocol.transactions import (
    CoordinatorKind,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResult,
    ProducersOfPartition,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

GROUP, TXN = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION
MAX_BLOCK_MS = 10_000
UNKNOWN, NOT_LEADER, TIMED_OUT, LOADING, INVALID_TOPIC, DENIED, EXISTS = 3, 6, 7, 14, 17, 29, 36


@dataclass
class Cluster:
    """A NetworkClient whose brokers answer at the next poll, by what the fields say then. A poll with nothing to tell
    moves the clock by its whole timeout; `at` has what happens on the way."""

    now_ms: int = 0
    brokers: set[int] = field(default_factory=lambda: {1, 2, 3})
    down: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    topic_codes: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    coordinator: int = 1
    refuse: int = 0
    # What a broker answers first, request type by request type, before it answers as it should.
    first_codes: dict[type, list[int]] = field(default_factory=dict)
    # How many requests of a type get no answer before one does.
    cuts: dict[type, int] = field(default_factory=dict)
    create_codes: list[int] = field(default_factory=list)
    features: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[tuple[int, str], str] = field(default_factory=dict)
    spoken: Callable[[Any], int | None] = lambda request: None
    at: list[tuple[int, Callable[[], Any]]] = field(default_factory=list)
    received: list[tuple[int, Any]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    # Broker 1 is the bootstrap server.
    known: set[int] = field(default_factory=lambda: {1})
    last_error: str = "broker 9: Connection refused"
    failure: KafkaSinkError | None = None
    cluster_id: str | None = "c"
    interruptions: int = 0
    closed: bool = False
    _waiting: list[tuple[int, Any, object]] = field(default_factory=list)

    # --- as a NetworkClient -------------------------------------------------------------------------------------------

    def ready(self, node_id: int, now_ms: int) -> bool:
        return not self.is_down(node_id) and not self.throttled[0] <= now_ms < self.throttled[1]

    def is_down(self, node_id: int) -> bool:
        return node_id in self.down or node_id not in self.known

    def least_loaded_node(self, now_ms: int) -> int | None:
        if self.throttled[0] <= now_ms < self.throttled[1]:
            return None
        return min(self.brokers & self.known - self.down, default=None)

    def update_brokers(self, brokers: Any) -> None:
        self.known = {broker.node_id for broker in brokers}

    def learn(self, broker: Broker) -> None:
        self.known.add(broker.node_id)

    # When a throttle began and when it ends: nobody takes a request meanwhile.
    throttled: tuple[int, int] = (0, 0)

    def throttled_ms(self, now_ms: int) -> int:
        return max(0, min(now_ms, self.throttled[1]) - self.throttled[0])

    def finalized_features(self, node_id: int) -> Mapping[str, int] | None:
        return self.features

    def api_version(self, node_id: int, request: Any) -> int | None:
        return self.spoken(request)

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None) -> None:
        assert now_ms == self.now_ms
        self.received.append((node_id, request))
        self._waiting.append((node_id, request, token))

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        assert timeout_ms >= 0
        self.waits.append(timeout_ms)
        assert len(self.waits) < 2_000, "the client turns without waiting"
        answers = [self._answer(*sent) for sent in self._waiting if sent[0] not in self.silent]
        self._waiting = [sent for sent in self._waiting if sent[0] in self.silent]
        if not answers:
            self.now_ms += timeout_ms
        for event in [event for event in self.at if event[0] <= self.now_ms]:
            self.at.remove(event)
            event[1]()
        return answers

    def close(self) -> list[ClientResponse]:
        self.closed = True
        return []

    # --- as brokers ---------------------------------------------------------------------------------------------------

    def _answer(self, node_id: int, request: Any, token: object) -> ClientResponse:
        cut = self.cuts.get(type(request), 0)
        self.cuts[type(request)] = max(0, cut - 1)
        response = None if node_id in self.down or cut else self._response(node_id, request)
        return ClientResponse(node_id, request, token, response, None if response else f"broker {node_id}: cut", 0)

    def _response(self, node_id: int, request: Any) -> Any:
        codes = self.first_codes.get(type(request), [])
        code = codes.pop(0) if codes else 0
        match request:
            case MetadataRequest(topics=topics):
                brokers = tuple(Broker(broker, f"host{broker}", 9092) for broker in sorted(self.brokers))
                every = sorted({topic for topic, _ in self.leaders})
                named = every if topics is None else topics
                return MetadataResponse(0, "c", 1, brokers, tuple(self._topic(topic) for topic in named))
            case FindCoordinatorRequest(keys=keys):
                return FindCoordinatorResponse(0, tuple(self._found(key) for key in keys))
            case EndTxnRequest():
                return EndTxnResponse(0, code, 7, 1)
            case ListTransactionsRequest():
                return ListTransactionsResponse(0, code, ())
            case DescribeProducersRequest(partitions=partitions):
                of = [(t, p, code if self.leaders.get((t, p)) == node_id else NOT_LEADER) for t, p in partitions]
                return DescribeProducersResponse(0, tuple(ProducersOfPartition(t, p, c, None, ()) for t, p, c in of))
            case WriteTxnMarkersRequest(partitions=partitions):
                return WriteTxnMarkersResponse(tuple(PartitionResult(t, p, code) for t, p in partitions))
            case DescribeConfigsRequest(node_id=about, name=name):
                assert about == node_id, "only the broker itself knows"
                return DescribeConfigsResponse(0, code, self.settings.get((node_id, name)))
            case TopicConfigsRequest(topics=topics, names=names):
                return TopicConfigsResponse(0, tuple(self._topic_configs(topic, names, codes) for topic in topics))
            case CreateTopicsRequest(topic=topic, partition_count=count):
                created = self.create_codes.pop(0)
                if created in (0, EXISTS):
                    self.leaders |= {(topic, number): 1 for number in range(count)}
                return CreateTopicsResponse(0, created, "the controller says why" if created else None)
        raise AssertionError(f"no answer to {request}")

    def _topic_configs(self, topic: str, names: tuple[str, ...], codes: list[int]) -> TopicConfigs:
        """`codes`: one for each topic that is asked for."""
        code = codes.pop(0) if codes else self.topic_codes.get(topic, 0)
        return TopicConfigs(topic, code, {} if code else dict.fromkeys(names, f"{topic}'s"))

    def _topic(self, name: str) -> TopicMetadata:
        partitions = tuple(
            PartitionMetadata(0 if leader >= 0 else 5, number, leader, 0)
            for (topic, number), leader in sorted(self.leaders.items())
            if topic == name
        )
        code = self.topic_codes.get(name, 0 if partitions else UNKNOWN)
        return TopicMetadata(code, name, self.topic_ids.get(name), partitions)

    def _found(self, key: str) -> FoundCoordinator:
        if self.refuse:
            return FoundCoordinator(key, self.refuse, "why", -1, "", -1)
        return FoundCoordinator(key, 0, None, self.coordinator, f"host{self.coordinator}", 9092)

    def asked(self, kind: type) -> list[tuple[int, Any]]:
        return [(node_id, request) for node_id, request in self.received if isinstance(request, kind)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    monkeypatch.setattr(coordinator_client, "NetworkClient", lambda *args, **kwargs: made)
    for module in (coordinator_client, kept):
        monkeypatch.setattr(module, "monotonic_ms", lambda: made.now_ms)
    monkeypatch.setattr(coordinator_client, "_kept", kept.Kept())
    yield made


def config(**options: Any) -> ProducerConfig:
    made = sink_config({"kafka.bootstrap.servers": "b1:9092,b2:9092"}).producer
    return replace(made, max_block_ms=MAX_BLOCK_MS, **options)


@pytest.fixture
def client(cluster: Cluster) -> CoordinatorClient:
    return CoordinatorClient(config())


def commit(key: str) -> tuple[CoordinatorKind, str, EndTxnRequest]:
    return TXN, key, EndTxnRequest(key, 7, 0, committed=True, transaction_version=2)


class TestAskAll:
    def test_answers_come_in_the_order_of_the_requests(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.first_codes[EndTxnRequest] = [LOADING, 90]
        responses = client.ask_all([commit(f"s.{i}") for i in range(3)])
        assert [response.error_code for response in responses] == [0, 90, 0]  # type: ignore[union-attr]

    def test_all_are_under_way_at_once(self, cluster: Cluster, client: CoordinatorClient) -> None:
        client.ask_all([commit(f"s.{i}") for i in range(100)])
        assert len(cluster.asked(FindCoordinatorRequest)) == 1
        assert len(cluster.waits) == 2  # the coordinators of all, the answers of all
        assert cluster.now_ms == 0

    def test_nothing_is_answered_at_once(self, cluster: Cluster, client: CoordinatorClient) -> None:
        assert client.ask_all([]) == []
        assert cluster.waits == []

    def test_gives_up_when_the_time_is_over(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.first_codes[EndTxnRequest] = [0] + [LOADING] * 1_000
        with pytest.raises(CoordinatorUnavailable) as failure:
            client.ask_all([commit("s.0"), commit("s.1")])
        error = failure.value
        assert (error.kind, error.key, error.waited_ms) == ("transactional id", "s.1", MAX_BLOCK_MS)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in error.last_error
        assert cluster.now_ms == MAX_BLOCK_MS

    def test_a_refusal_is_told_once_all_others_are_answered(self, cluster: Cluster, client: CoordinatorClient) -> None:
        client.ask_all([commit("known")])
        cluster.refuse = 53
        cluster.first_codes[EndTxnRequest] = [LOADING]
        with pytest.raises(CoordinatorRefused) as failure:
            client.ask_all([(GROUP, "g", commit("x")[2]), commit("known")])
        assert (failure.value.kind, failure.value.key, failure.value.code) == ("group", "g", 53)
        assert len(cluster.asked(EndTxnRequest)) == 3

    def test_a_coordinator_that_dies_is_replaced(self, cluster: Cluster, client: CoordinatorClient) -> None:
        client.ask_all([commit("s.0")])
        cluster.down = {1}
        cluster.at = [(3_000, lambda: setattr(cluster, "coordinator", 2))]
        client.ask_all([commit("s.0")])
        assert [node_id for node_id, _ in cluster.asked(EndTxnRequest)] == [1, 2]
        assert 3_000 <= cluster.now_ms <= 4_500

    def test_brokers_are_listed_now_and_then(self, cluster: Cluster, client: CoordinatorClient) -> None:
        """So that a coordinator can be asked for when the bootstrap servers are gone."""
        client.ask_all([commit("s.0")])
        client.ask_all([commit("s.0")])
        assert cluster.asked(MetadataRequest) == [(1, MetadataRequest((), False))]
        cluster.now_ms += client.config.metadata_max_age_ms
        client.ask_all([commit("s.0")])
        assert len(cluster.asked(MetadataRequest)) == 2

    def test_a_list_that_is_lost_is_asked_for_again(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.cuts[MetadataRequest] = 1
        cluster.first_codes[EndTxnRequest] = [LOADING] * 4
        client.ask_all([commit("s.0")])
        assert len(cluster.asked(MetadataRequest)) == 2


class TestAskLeaders:
    PARTITIONS = (("a", 0), ("a", 1), ("b", 0), ("a", 2))

    def test_each_leader_is_asked_once_for_what_it_leads(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = dict(zip(self.PARTITIONS, (1, 2, 1, 2), strict=True))
        found = client.ask_leaders((*self.PARTITIONS, ("a", 0)), DescribeProducersRequest)
        assert set(found) == set(self.PARTITIONS)
        assert cluster.asked(DescribeProducersRequest) == [
            (1, DescribeProducersRequest((("a", 0), ("b", 0)))),
            (2, DescribeProducersRequest((("a", 1), ("a", 2)))),
        ]
        assert (1, MetadataRequest(("a", "b"), False)) in cluster.received

    def test_none_is_no_request(self, cluster: Cluster, client: CoordinatorClient) -> None:
        assert client.ask_leaders((), DescribeProducersRequest) == {}
        assert cluster.received == []

    def test_those_without_an_answer_are_asked_again_of_whoever_leads_then(
        self, cluster: Cluster, client: CoordinatorClient
    ) -> None:
        cluster.leaders = {("a", 0): 1, ("a", 1): -1, ("b", 0): 3, ("a", 2): 1}
        cluster.down = {3}

        def elect() -> None:
            cluster.leaders |= {("a", 1): 2, ("b", 0): 2}

        cluster.at = [(1_000, elect)]
        found = client.ask_leaders(self.PARTITIONS, DescribeProducersRequest)
        assert {result.error_code for result in found.values()} == {0}
        first, *others = cluster.asked(DescribeProducersRequest)
        assert first == (1, DescribeProducersRequest((("a", 0), ("a", 2))))
        assert others == [(2, DescribeProducersRequest((("a", 1), ("b", 0))))]

    def test_a_leader_that_is_down_costs_no_more_than_the_backoff(
        self, cluster: Cluster, client: CoordinatorClient
    ) -> None:
        cluster.leaders, cluster.down = {("a", 0): 3}, {3}
        cluster.at = [(0, lambda: cluster.leaders.update({("a", 0): 2}))]
        client.ask_leaders([("a", 0)], DescribeProducersRequest)
        assert cluster.now_ms <= 1.2 * client.config.retry_backoff_ms

    def test_what_was_said_of_leaders_is_good_for_a_second(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("a", 0): 1, ("b", 0): 2}
        for _ in range(2):
            client.ask_leaders([("a", 0)], DescribeProducersRequest)
        assert client.partitions(("a",)) == ((("a", 0),), ())
        assert cluster.received.count((1, MetadataRequest(("a",), False))) == 1
        client.ask_leaders([("a", 0), ("b", 0)], DescribeProducersRequest)
        assert (1, MetadataRequest(("a", "b"), False)) in cluster.received
        cluster.now_ms += TOPICS_FRESH_MS
        client.ask_leaders([("a", 0)], DescribeProducersRequest)
        assert cluster.received.count((1, MetadataRequest(("a",), False))) == 2

    @pytest.mark.parametrize("is_down", [False, True])
    def test_who_leads_no_longer_says_so_and_whoever_does_is_asked_at_once(
        self, cluster: Cluster, client: CoordinatorClient, is_down: bool
    ) -> None:
        cluster.leaders = {("a", 0): 3}
        client.ask_leaders([("a", 0)], DescribeProducersRequest)
        cluster.leaders, cluster.down = {("a", 0): 2}, {3} if is_down else set()
        found = client.ask_leaders([("a", 0)], DescribeProducersRequest)
        assert [result.error_code for result in found.values()] == [0]
        assert cluster.now_ms == 0

    def test_topics_without_a_leader_are_not_remembered(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("a", 0): 1, ("a", 1): -1}
        assert client.partitions(("a",)) == ((("a", 0),), (("a", 1),))
        cluster.leaders[("a", 1)] = 2
        assert client.partitions(("a",)) == ((("a", 0), ("a", 1)), ())

    def test_a_leader_that_takes_its_time_is_asked_once(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders, cluster.silent = {("a", 0): 2}, {2}
        cluster.at = [(5_000, cluster.silent.clear)]
        client.ask_leaders([("a", 0)], DescribeProducersRequest)
        assert len(cluster.asked(DescribeProducersRequest)) == 1

    def test_a_leader_that_refuses_is_an_answer(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("a", 0): 1}
        cluster.first_codes[WriteTxnMarkersRequest] = [NOT_LEADER, 31]
        found = client.ask_leaders([("a", 0)], lambda of: WriteTxnMarkersRequest(7, 0, True, 0, of))
        assert found == {("a", 0): PartitionResult("a", 0, 31)}
        assert len(cluster.asked(WriteTxnMarkersRequest)) == 2

    @pytest.mark.parametrize(
        ("leaders", "topic", "reason"),
        [
            ({("a", 0): 1, ("a", 1): -1}, "a", "LEADER_NOT_AVAILABLE (error 5)"),
            ({("a", 0): 1}, "a", "UNKNOWN_TOPIC_OR_PARTITION (error 3)"),
            ({("a", 0): 1, ("a", 1): 3}, "a", "broker 9: Connection refused"),
            ({("a", 0): 1, ("a", 1): 2}, "a", "no answer"),
        ],
    )
    def test_gives_up_when_the_time_is_over(
        self, cluster: Cluster, client: CoordinatorClient, leaders: Any, topic: str, reason: str
    ) -> None:
        cluster.leaders, cluster.down, cluster.silent = leaders, {3}, {2}
        with pytest.raises(LeaderUnavailable) as failure:
            client.ask_leaders([("a", 0), ("a", 1)], DescribeProducersRequest)
        error = failure.value
        assert (error.topic, error.partition, error.waited_ms) == (topic, 1, MAX_BLOCK_MS)
        assert error.last_error == reason
        assert cluster.now_ms <= MAX_BLOCK_MS


class TestAskBrokers:
    LIST = ListTransactionsRequest()

    def test_every_broker_is_asked(self, cluster: Cluster, client: CoordinatorClient) -> None:
        responses = client.ask_brokers(self.LIST)
        assert sorted(responses) == [1, 2, 3]
        assert cluster.asked(ListTransactionsRequest) == [(1, self.LIST), (2, self.LIST), (3, self.LIST)]

    def test_all_again_when_one_loads(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.first_codes[ListTransactionsRequest] = [0, LOADING]
        assert sorted(client.ask_brokers(self.LIST)) == [1, 2, 3]
        assert len(cluster.asked(ListTransactionsRequest)) == 6

    def test_all_again_when_one_went(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.down = {2}
        cluster.at = [(500, lambda: cluster.brokers.discard(2))]
        assert sorted(client.ask_brokers(self.LIST)) == [1, 3]
        assert [node_id for node_id, _ in cluster.asked(ListTransactionsRequest)][-2:] == [1, 3]
        assert len(cluster.asked(ListTransactionsRequest)) >= 4

    def test_all_again_when_one_came(self, cluster: Cluster, client: CoordinatorClient) -> None:
        """It may be the one to which another's transactions have moved."""
        arrived = iter([0, 4])
        respond = cluster._response

        def response(node_id: int, request: Any) -> Any:
            if isinstance(request, ListTransactionsRequest) and (new := next(arrived, 0)):
                cluster.brokers.add(new)
            return respond(node_id, request)

        cluster._response = response  # type: ignore[method-assign]
        assert sorted(client.ask_brokers(self.LIST)) == [1, 2, 3, 4]
        assert [node_id for node_id, _ in cluster.asked(ListTransactionsRequest)] == [1, 2, 3, 1, 2, 3, 4]

    def test_gives_up_when_the_time_is_over(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.down = {3}
        with pytest.raises(BrokerUnavailable) as failure:
            client.ask_brokers(self.LIST)
        assert (failure.value.node_id, failure.value.last_error) == (3, "broker 9: Connection refused")
        assert cluster.now_ms <= MAX_BLOCK_MS

    def test_says_what_the_broker_said(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.first_codes[ListTransactionsRequest] = [LOADING] * 1_000
        with pytest.raises(BrokerUnavailable, match=r"COORDINATOR_LOAD_IN_PROGRESS \(error 14\)"):
            client.ask_brokers(self.LIST)


class TestPartitions:
    def test_are_asked_for_with_the_commit_topic(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("t", 0): 1, ("t", 1): 1, ("a", 0): 2}
        client.ensure_topic("t", ask_also=("a",))
        assert client.partitions(("a",)) == ((("a", 0),), ())
        assert cluster.asked(MetadataRequest)[-1] == (1, MetadataRequest(("t", "a"), False))

    def test_of_topics_or_of_all_those_with_a_leader_and_those_without(
        self, cluster: Cluster, client: CoordinatorClient
    ) -> None:
        cluster.leaders = {("a", 0): 2, ("a", 1): -1, ("b", 0): 1}
        assert client.partitions(("a",)) == ((("a", 0),), (("a", 1),))
        assert client.partitions(None) == ((("a", 0), ("b", 0)), (("a", 1),))
        assert client.partitions(()) == ((), ())
        assert cluster.asked(MetadataRequest)[-1] == (1, MetadataRequest((), False))

    @pytest.mark.parametrize(("code", "error"), [(UNKNOWN, TopicNotFound), (DENIED, TopicAuthorizationFailed)])
    def test_of_a_topic_that_is_not_there(
        self, cluster: Cluster, client: CoordinatorClient, code: int, error: type[Exception]
    ) -> None:
        cluster.leaders, cluster.topic_codes = {("a", 0): 1}, {"b": code}
        with pytest.raises(error, match="'b'"):
            client.partitions(("a", "b"))

    def test_of_a_topic_that_a_broker_which_has_just_started_does_not_know_yet(
        self, cluster: Cluster, client: CoordinatorClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.leaders, cluster.topic_codes = {("a", 0): 1, ("b", 0): 1}, {"b": UNKNOWN}

        def pause(tries: int, deadline_ms: int) -> bool:
            cluster.topic_codes = {}
            return True

        monkeypatch.setattr(client, "_pause", pause)
        assert client.partitions(("a", "b")) == ((("a", 0), ("b", 0)), ())


class TestWithin:
    def test_all_that_is_asked_has_so_much_time_together(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.first_codes[EndTxnRequest] = [LOADING] * 10_000
        began_ms = cluster.now_ms
        with pytest.raises(CoordinatorUnavailable), client.within(3_000):
            client.ask_all([commit("s.0")])
        assert cluster.now_ms - began_ms <= 3_000
        began_ms = cluster.now_ms
        with pytest.raises(CoordinatorUnavailable):
            client.ask_all([commit("s.1")])
        assert cluster.now_ms - began_ms == client.config.max_block_ms


class TestTopicIds:
    def test_are_known_from_the_answer_that_told_of_partitions(
        self, cluster: Cluster, client: CoordinatorClient
    ) -> None:
        cluster.leaders = {("a", 0): 2, ("b", 0): 1}
        cluster.topic_ids = {"a": uuid.UUID(int=7)}
        client.partitions(("a", "b"))
        asked = len(cluster.asked(MetadataRequest))
        # Brokers before 2.8 have none.
        assert client.topic_ids(("a", "b")) == {"a": str(uuid.UUID(int=7)), "b": None}
        assert client.topic_ids(()) == {}
        assert len(cluster.asked(MetadataRequest)) == asked

    def test_are_asked_for_again_after_a_second(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders, cluster.topic_ids = {("a", 0): 2}, {"a": uuid.UUID(int=7)}
        client.partitions(("a",))
        cluster.topic_ids = {"a": uuid.UUID(int=8)}
        cluster.now_ms += TOPICS_FRESH_MS
        assert client.topic_ids(("a",)) == {"a": str(uuid.UUID(int=8))}

    def test_of_a_topic_that_is_gone(self, cluster: Cluster, client: CoordinatorClient) -> None:
        assert client.topic_ids(("a",)) == {"a": None}
        assert client.topics(("a",))["a"].error_code == UNKNOWN


class TestBrokerSetting:
    def test_is_asked_of_the_broker_that_it_is_about(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.settings = {(2, "transaction.max.timeout.ms"): "60000"}
        cluster.down = {1}
        cluster.brokers, cluster.known = {1, 2}, {1, 2}
        assert client.broker_setting("transaction.max.timeout.ms") == "60000"

    def test_that_is_not_told_is_none(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.first_codes[DescribeConfigsRequest] = [31]
        assert client.broker_setting("transaction.max.timeout.ms") is None
        assert len(cluster.asked(DescribeConfigsRequest)) == 1


NAMES = ("max.message.bytes", "cleanup.policy")
A_SETTINGS, B_SETTINGS = (dict.fromkeys(NAMES, f"{name}'s") for name in "ab")


class TestTopicSettings:
    def test_is_told_by_any_broker_of_all_topics_at_once(self, cluster: Cluster, client: CoordinatorClient) -> None:
        assert client.topic_settings(["b", "a"], NAMES) == {"a": A_SETTINGS, "b": B_SETTINGS}
        ((_, request),) = cluster.asked(TopicConfigsRequest)
        assert request == TopicConfigsRequest(("a", "b"), NAMES)

    def test_that_is_not_told_is_none(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.topic_codes = {"b": DENIED}
        assert client.topic_settings(["a", "b"], NAMES) == {"a": A_SETTINGS, "b": {}}
        assert len(cluster.asked(TopicConfigsRequest)) == 1

    def test_a_topic_that_the_broker_has_not_heard_of_yet_is_asked_for_again(
        self, cluster: Cluster, client: CoordinatorClient
    ) -> None:
        # One is taken off for the answer, then one for each topic.
        cluster.first_codes[TopicConfigsRequest] = [0, 0, UNKNOWN]
        assert client.topic_settings(["a", "b"], NAMES) == {"a": A_SETTINGS, "b": B_SETTINGS}
        assert [request.topics for _, request in cluster.asked(TopicConfigsRequest)] == [("a", "b"), ("b",)]

    def test_and_is_given_up_after_max_block_ms(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.topic_codes = {"b": UNKNOWN}
        assert client.topic_settings(["a", "b"], NAMES) == {"a": A_SETTINGS, "b": {}}
        assert cluster.now_ms <= MAX_BLOCK_MS + 1_000

    def test_no_topics_ask_nobody(self, cluster: Cluster, client: CoordinatorClient) -> None:
        assert client.topic_settings([], NAMES) == {}
        assert cluster.received == []


class TestThrottled:
    @pytest.mark.parametrize(
        "ask",
        [
            lambda client: client.ask_all([commit("s.0")]),
            lambda client: client.ask_brokers(ListTransactionsRequest()),
            lambda client: client.transaction_version(),
            lambda client: client.partitions(None),
        ],
    )
    def test_brokers_that_throttle_for_longer_than_max_block_ms_are_waited_for(
        self, cluster: Cluster, client: CoordinatorClient, ask: Callable[[CoordinatorClient], Any]
    ) -> None:
        cluster.throttled = (0, 5 * MAX_BLOCK_MS)
        ask(client)
        assert 5 * MAX_BLOCK_MS <= cluster.now_ms <= 6 * MAX_BLOCK_MS

    def test_and_the_time_that_was_left_is_left(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.throttled = (0, 5 * MAX_BLOCK_MS)
        cluster.silent = {1, 2, 3}
        with pytest.raises(CoordinatorUnavailable):
            client.ask_all([commit("s.0")])
        assert 6 * MAX_BLOCK_MS <= cluster.now_ms <= 6 * MAX_BLOCK_MS + 1_000


class TestUnreachable:
    @pytest.mark.parametrize(
        "ask",
        [
            lambda client: client.ask_brokers(ListTransactionsRequest()),
            lambda client: client.ask_leaders([("a", 0)], DescribeProducersRequest),
            lambda client: client.transaction_version(),
            lambda client: client.finalized_features(),
            lambda client: client.ensure_topic("t"),
            lambda client: client.partitions(None),
            lambda client: client.broker_setting("s"),
        ],
    )
    def test_without_any_broker(
        self, cluster: Cluster, client: CoordinatorClient, ask: Callable[[CoordinatorClient], Any]
    ) -> None:
        cluster.down = {1, 2, 3}
        with pytest.raises(BrokersUnreachable) as failure:
            ask(client)
        assert failure.value.bootstrap_servers == "b1:9092,b2:9092"
        assert (failure.value.waited_ms, failure.value.last_error) == (MAX_BLOCK_MS, "broker 9: Connection refused")
        assert cluster.now_ms == MAX_BLOCK_MS

    def test_a_broker_that_hangs_up_is_asked_again(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("t", 0): 2, ("t", 1): 2}
        cluster.cuts[MetadataRequest] = 3
        client.ensure_topic("t")
        assert 0 < cluster.now_ms < 2_000

    def test_what_no_retry_mends_is_told_at_once(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.failure = AuthenticationFailed(broker="broker 1", mechanism="PLAIN", user="alice", reason="no")
        cluster.silent = {1, 2, 3}
        with pytest.raises(AuthenticationFailed):
            client.ensure_topic("t")
        assert len(cluster.waits) == 1

    def test_by_any_broker_in_time(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.cuts[MetadataRequest] = 1_000
        with pytest.raises(BrokersUnreachable):
            client.ensure_topic("t")
        assert 0.8 * MAX_BLOCK_MS < cluster.now_ms <= MAX_BLOCK_MS


class TestTransactionVersion:
    @pytest.mark.parametrize(
        ("level", "produce", "end_txn", "offset_commit", "version"),
        [
            (2, 12, 5, 5, 2),
            (3, 13, 6, 6, 2),
            (1, 12, 5, 5, 1),
            (None, 12, 5, 5, 1),
            (2, 11, 5, 5, 1),
            (2, None, 5, 5, 1),
            (2, 12, None, 5, 1),
            (2, 12, 5, None, 1),
        ],
    )
    def test_is_2_where_all_of_it_is_spoken(
        self,
        cluster: Cluster,
        client: CoordinatorClient,
        level: int | None,
        produce: int | None,
        end_txn: int | None,
        offset_commit: int | None,
        version: int,
    ) -> None:
        cluster.features = {"metadata.version": 27} if level is None else {"transaction.version": level}
        spoken = {ProduceRequest: produce, EndTxnRequest: end_txn, TxnOffsetCommitRequest: offset_commit}
        cluster.spoken = lambda request: spoken[type(request)]
        assert client.transaction_version() == version
        assert client.finalized_features() == cluster.features


class TestEnsureTopic:
    def test_one_that_is_there(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("t", 0): 2, ("t", 1): -1}
        client.ensure_topic("t")
        assert MetadataRequest(("t",), allow_auto_topic_creation=False) in [request for _, request in cluster.received]
        assert cluster.asked(CreateTopicsRequest) == []

    @pytest.mark.parametrize("codes", [[0], [EXISTS], [TIMED_OUT, 0], [41, 89, EXISTS]])
    def test_one_that_is_not_is_made(self, cluster: Cluster, client: CoordinatorClient, codes: list[int]) -> None:
        cluster.create_codes = list(codes)
        client.ensure_topic("t")
        (_, request), *again = cluster.asked(CreateTopicsRequest)
        assert request == CreateTopicsRequest("t", 2, client.config.request_timeout_ms)
        assert len(again) == len(codes) - 1

    def test_one_without_a_leader_is_waited_for(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("t", 0): -1, ("t", 1): 1}
        cluster.at = [(2_000, lambda: cluster.leaders.update({("t", 0): 3}))]
        client.ensure_topic("t")
        assert 2_000 <= cluster.now_ms < 4_000
        assert cluster.asked(CreateTopicsRequest) == []

    @pytest.mark.parametrize("code", [DENIED, 31, 38, 44, 42])
    def test_a_refusal_tells_the_command(self, cluster: Cluster, client: CoordinatorClient, code: int) -> None:
        cluster.create_codes = [code]
        with pytest.raises(CommitTopicMissing) as failure:
            client.ensure_topic("t")
        error = failure.value
        assert (error.topic, error.reason.endswith(f"(error {code}): the controller says why")) == ("t", True)
        assert error.command == "kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --create --topic t --partitions 2"

    def test_one_without_a_second_partition_is_told_with_the_command(
        self, cluster: Cluster, client: CoordinatorClient
    ) -> None:
        cluster.leaders = {("t", 0): 1}
        with pytest.raises(CommitTopicTooSmall, match="has 1 partition and needs two") as failure:
            client.ensure_topic("t")
        command = "kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --alter --topic t --partitions 2"
        assert (failure.value.command, cluster.now_ms) == (command, 0)

    def test_gives_up_when_the_time_is_over(self, cluster: Cluster, client: CoordinatorClient) -> None:
        cluster.leaders = {("t", 0): -1}
        with pytest.raises(CommitTopicMissing, match="it has no leader"):
            client.ensure_topic("t")
        cluster.leaders, cluster.create_codes = {}, [TIMED_OUT] * 100
        with pytest.raises(CommitTopicMissing, match="REQUEST_TIMED_OUT"):
            client.ensure_topic("t")

    @pytest.mark.parametrize(("code", "error"), [(DENIED, TopicAuthorizationFailed), (INVALID_TOPIC, TopicNameInvalid)])
    def test_what_waiting_does_not_mend(
        self, cluster: Cluster, client: CoordinatorClient, code: int, error: type[Exception]
    ) -> None:
        cluster.topic_codes["t"] = code
        with pytest.raises(error):
            client.ensure_topic("t")
        assert cluster.now_ms == 0


class TestLease:
    def test_keeps_a_client_for_the_next_commit(self, cluster: Cluster) -> None:
        with lease(config()) as first:
            pass
        with lease(config()) as again:
            assert again is first
        with lease(config(client_id="other")) as other:
            assert other is not first
        assert not cluster.closed

    def test_one_whose_connections_ended_is_not_kept(self, cluster: Cluster) -> None:
        with lease(config()) as first:
            pass
        cluster.interruptions = 1
        with lease(config()) as again:
            assert again is not first

    def test_one_that_failed_meanwhile_is_not_kept(self, cluster: Cluster) -> None:
        with lease(config()) as first:
            pass
        cluster.failure = KafkaSinkError("another cluster")
        with lease(config()) as again:
            assert again is not first

    def test_one_of_another_cluster_is_not_the_one_that_is_asked_for(self, cluster: Cluster) -> None:
        with lease(config(), "c") as first:
            pass
        with lease(config(), "c") as again:
            assert again is first
        with lease(config(), "d") as other:
            assert other is not first

    def test_two_at_once_are_two(self, cluster: Cluster) -> None:
        with lease(config()) as first, lease(config()) as second:
            assert first is not second
        assert cluster.closed  # one of them is too many afterwards

    def test_one_that_raised_is_not_kept(self, cluster: Cluster) -> None:
        with pytest.raises(KeyboardInterrupt), lease(config()) as first:
            raise KeyboardInterrupt
        assert cluster.closed
        with lease(config()) as again:
            assert again is not first

    def test_one_that_was_idle_for_long_is_closed(self, cluster: Cluster) -> None:
        with lease(config()) as first:
            cluster.now_ms += 10_000_000
        with lease(config()) as again:
            assert again is first
        cluster.now_ms += first.config.connections_max_idle_ms + 1
        with lease(config(client_id="other")):
            assert cluster.closed

    def test_of_another_process_is_another(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        with lease(config()) as parents:
            pass
        monkeypatch.setattr(kept.os, "getpid", lambda: -1)
        with lease(config()) as childs:
            assert childs is not parents
        assert not cluster.closed

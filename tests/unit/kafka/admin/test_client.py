"""The admin client over scripted brokers, in a time that only its polls move."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import apis
import kafka_sink
from kafka_sink import errors
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.kafka.admin import topics
from kafka_sink.kafka.admin.calls import TOPICS_FRESH_MS, Call
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE
from kafka_sink.kafka.waits import FIRST_MS, Contact
from kafka_sink.options.config import sink_config
from kafka_sink.spark import kept_clients
from kafka_sink.spark.kept_clients import lease_admin_client
from scripted_kafka import HANG_UP
from scripted_kafka import ScriptedKafka as Kafka
from scripted_kafka import ScriptedNetwork as Network

GROUP, TXN = apis.CoordinatorKind.GROUP, apis.CoordinatorKind.TRANSACTION
MAX_BLOCK_MS = 10_000
REFUSES = Contact(began_ms=0, away_since_ms=0, is_refused=True, is_unanswered=True)
REFUSED = "broker 9: Connection refused"
UNKNOWN, NOT_LEADER, TIMED_OUT, LOADING, INVALID_TOPIC, DENIED, EXISTS = 3, 6, 7, 14, 17, 29, 36


def config(**options: Any) -> ProducerConfig:
    made = sink_config({"kafka.bootstrap.servers": "b1:9092,b2:9092"}).producer
    return replace(made, max_block_ms=MAX_BLOCK_MS, **options)


@pytest.fixture
def client(network: Network) -> AdminClient:
    return AdminClient(config())


def commit(key: str) -> tuple[apis.CoordinatorKind, str, apis.EndTxnRequest]:
    return TXN, key, apis.EndTxnRequest(key, 7, 0, committed=True, transaction_version=2)


class TestAskAll:
    def test_answers_come_in_the_order_of_the_requests(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.script(apis.EndTxnRequest, LOADING, 90)
        responses = client.ask_all([commit(f"s.{i}") for i in range(3)])
        assert [response.error_code for response in responses] == [0, 90, 0]  # type: ignore[union-attr]

    def test_all_are_under_way_at_once(self, kafka: Kafka, network: Network, client: AdminClient) -> None:
        assert (client.ask_all([]), network.waits) == ([], [])
        client.ask_all([commit(f"s.{i}") for i in range(100)])
        # The coordinators of all, the answers of all.
        assert (len(kafka.asked(apis.FindCoordinatorRequest)), len(network.waits), kafka.now_ms) == (1, 2, 0)

    def test_gives_up_when_the_time_is_over(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.script(apis.EndTxnRequest, 0, *[LOADING] * 1_000)
        with pytest.raises(errors.CoordinatorUnavailable) as failure:
            client.ask_all([commit("s.0"), commit("s.1")])
        error = failure.value
        assert (error.kind, error.key, error.waited_ms) == ("transactional id", "s.1", MAX_BLOCK_MS)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in error.last_error
        assert kafka.now_ms == MAX_BLOCK_MS

    def test_a_refusal_is_told_once_all_others_are_answered(self, kafka: Kafka, client: AdminClient) -> None:
        client.ask_all([commit("known")])
        kafka.script(apis.FindCoordinatorRequest, 53)
        kafka.script(apis.EndTxnRequest, LOADING)
        with pytest.raises(errors.CoordinatorRefused) as failure:
            client.ask_all([(GROUP, "g", commit("x")[2]), commit("known")])
        assert (failure.value.kind, failure.value.key, failure.value.code) == ("group", "g", 53)
        assert len(kafka.asked(apis.EndTxnRequest)) == 3

    def test_brokers_are_listed_now_and_then(self, kafka: Kafka, client: AdminClient) -> None:
        """So that a coordinator can be asked for when the bootstrap servers are gone."""
        client.ask_all([commit("s.0")])
        client.ask_all([commit("s.0")])
        assert kafka.asked(apis.MetadataRequest) == [(1, apis.MetadataRequest((), False))]
        kafka.now_ms += client.config.metadata_max_age_ms
        # A list that is lost is asked for again.
        kafka.script(apis.MetadataRequest, HANG_UP)
        kafka.script(apis.EndTxnRequest, *[LOADING] * 4)
        client.ask_all([commit("s.0")])
        assert len(kafka.asked(apis.MetadataRequest)) == 3


A, A1, B = ("a", 0), ("a", 1), ("b", 0)


def leading(kafka: Kafka, client: AdminClient, *partitions: tuple[str, int]) -> list[int]:
    """The error codes of what leaders say of the producers of these partitions."""
    found = client.ask_leaders(partitions, apis.DescribeProducersRequest)
    assert set(found) == set(partitions)
    return [result.error_code for result in found.values()]


class TestAskLeaders:
    PARTITIONS = (A, A1, B, ("a", 2))

    def test_those_without_an_answer_are_asked_again_of_whoever_leads_then(
        self, kafka: Kafka, client: AdminClient
    ) -> None:
        """Each once for what it leads."""
        kafka.leaders, kafka.down = {A: 1, A1: -1, B: 3, ("a", 2): 1}, {3}
        kafka.at = [(1_000, lambda: kafka.leaders.update({A1: 2, B: 2}))]
        assert set(leading(kafka, client, *self.PARTITIONS, A)) == {0}
        assert (1, apis.MetadataRequest(("a", "b"), False)) in kafka.received
        first, *others = kafka.asked(apis.DescribeProducersRequest)
        assert first == (1, apis.DescribeProducersRequest((A, ("a", 2))))
        assert others == [(2, apis.DescribeProducersRequest((A1, B)))]

    def test_a_leader_that_is_down_does_not_spoil_the_wait_for_another(
        self, kafka: Kafka, network: Network, client: AdminClient
    ) -> None:
        kafka.leaders, kafka.down, kafka.silent = {("t", 0): 1, ("t", 1): 2}, {2}, {1}
        network.known |= {1, 2}
        calls = [Call(1, apis.DescribeProducersRequest((("t", 0),))), Call(2, apis.ListTransactionsRequest())]
        deadline_ms = client.caller.deadline_ms()
        del network.waits[:]
        client.caller.run(calls, deadline_ms)
        assert [call.done for call in calls] == [False, True]
        assert len(network.waits) < 20

    def test_what_was_said_of_leaders_is_good_for_a_second(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {A: 1, B: 2}
        for _ in range(2):
            leading(kafka, client, A)
        assert client.partitions(("a",)) == ((A,), ())
        assert kafka.received.count((1, apis.MetadataRequest(("a",), False))) == 1
        leading(kafka, client, A, B)
        assert (1, apis.MetadataRequest(("a", "b"), False)) in kafka.received
        kafka.now_ms += TOPICS_FRESH_MS
        leading(kafka, client, A)
        assert kafka.received.count((1, apis.MetadataRequest(("a",), False))) == 2

    @pytest.mark.parametrize("down", [set(), {3}])
    def test_who_leads_no_longer_says_so_and_whoever_does_is_asked_at_once(
        self, kafka: Kafka, client: AdminClient, down: set[int]
    ) -> None:
        kafka.leaders = {A: 3}
        leading(kafka, client, A)
        kafka.leaders, kafka.down = {A: 2}, down
        assert leading(kafka, client, A) == [0]
        assert kafka.now_ms == 0

    def test_a_leader_that_takes_its_time_is_asked_once(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders, kafka.silent = {A: 2}, {2}
        kafka.at = [(5_000, kafka.silent.clear)]
        leading(kafka, client, A)
        assert len(kafka.asked(apis.DescribeProducersRequest)) == 1

    def test_a_leader_that_refuses_is_an_answer(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {A: 1}
        kafka.script(apis.WriteTxnMarkersRequest, NOT_LEADER, 31)
        found = client.ask_leaders([A], lambda of: apis.WriteTxnMarkersRequest(7, 0, True, 0, of))
        assert found == {A: apis.PartitionResult("a", 0, 31)}
        assert len(kafka.asked(apis.WriteTxnMarkersRequest)) == 2

    @pytest.mark.parametrize(("leaders", "reason"), [
        ({A: 1, A1: -1}, "LEADER_NOT_AVAILABLE (error 5)"), ({A: 1, A1: 3}, REFUSED), ({A: 1, A1: 2}, "no answer"),
    ])  # fmt: skip
    def test_gives_up_when_the_time_is_over(
        self, kafka: Kafka, client: AdminClient, leaders: dict[tuple[str, int], int], reason: str
    ) -> None:
        kafka.leaders, kafka.down, kafka.silent = leaders, {3}, {2}
        with pytest.raises(errors.LeaderUnavailable) as failure:
            leading(kafka, client, A, A1)
        error = failure.value
        assert (error.topic, error.partition, error.waited_ms, error.last_error) == ("a", 1, MAX_BLOCK_MS, reason)
        assert kafka.now_ms <= MAX_BLOCK_MS

    def test_a_partition_that_has_gone_is_not_waited_for(self, kafka: Kafka, client: AdminClient) -> None:
        """A topic that is made again with fewer partitions while a commit asks for its rows."""
        kafka.leaders = {A: 1}
        with pytest.raises(errors.LeaderUnavailable, match="a-1 does not exist any more") as failure:
            leading(kafka, client, A, A1)
        assert (failure.value.partition, failure.value.is_absent) == (1, True)
        assert ABSENT_PATIENCE_MS <= kafka.now_ms < MAX_BLOCK_MS

    def test_a_partition_that_is_absent_for_a_moment_is_waited_for(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {A: 1}
        kafka.at = [(4_000, lambda: kafka.leaders.update({A1: 2}))]
        assert leading(kafka, client, A, A1)


class TestAskBrokers:
    LIST = apis.ListTransactionsRequest()

    def test_every_broker_is_asked_and_all_again_when_one_loads(self, kafka: Kafka, client: AdminClient) -> None:
        assert sorted(client.ask_brokers(self.LIST)) == [1, 2, 3]
        assert kafka.asked(apis.ListTransactionsRequest) == [(1, self.LIST), (2, self.LIST), (3, self.LIST)]
        kafka.script(apis.ListTransactionsRequest, 0, LOADING)
        assert sorted(client.ask_brokers(self.LIST)) == [1, 2, 3]
        assert len(kafka.asked(apis.ListTransactionsRequest)) == 3 + 6

    def test_all_again_when_one_came_or_went(self, kafka: Kafka, client: AdminClient) -> None:
        """One that came may be the one to which another's transactions have moved."""
        kafka.script(apis.ListTransactionsRequest, 0, lambda request: kafka.brokers.add(4) or 0)
        assert sorted(client.ask_brokers(self.LIST)) == [1, 2, 3, 4]
        assert [node_id for node_id, _ in kafka.asked(apis.ListTransactionsRequest)] == [1, 2, 3, 1, 2, 3, 4]
        kafka.down = {2}
        kafka.at = [(kafka.now_ms + 500, lambda: kafka.brokers.discard(2))]
        assert sorted(client.ask_brokers(self.LIST)) == [1, 3, 4]
        assert [node_id for node_id, _ in kafka.asked(apis.ListTransactionsRequest)][-3:] == [1, 3, 4]

    @pytest.mark.parametrize("down", [True, False])
    def test_gives_up_when_the_time_is_over(self, kafka: Kafka, client: AdminClient, down: bool) -> None:
        kafka.down = {3} if down else set()
        kafka.script(apis.ListTransactionsRequest, *[0 if down else LOADING] * 1_000)
        with pytest.raises(errors.BrokerUnavailable) as failure:
            client.ask_brokers(self.LIST)
        expected = (3, REFUSED) if down else (1, "COORDINATOR_LOAD_IN_PROGRESS (error 14)")
        assert (failure.value.node_id, failure.value.last_error) == expected
        assert f"last: {expected[1]}." in str(failure.value)
        assert kafka.now_ms <= MAX_BLOCK_MS


class TestPartitionCount:
    def test_is_asked_for_as_a_write_asks(self, kafka: Kafka, client: AdminClient) -> None:
        """Brokers that make topics make this one."""
        kafka.partitions = 7
        assert topics.partition_count(client, "t") == 7
        assert (1, apis.MetadataRequest(("t",), allow_auto_topic_creation=True)) in kafka.received

    @pytest.mark.parametrize(("code", "error", "words"), [
        (DENIED, errors.TopicAuthorizationFailed, "for principal User:ANONYMOUS"),
        (INVALID_TOPIC, errors.TopicNameInvalid, "'t'"),
    ])  # fmt: skip
    def test_what_waiting_does_not_change_is_an_error_at_once(
        self, kafka: Kafka, network: Network, client: AdminClient, code: int, error: type[Exception], words: str
    ) -> None:
        kafka.partitions, kafka.topic_error = 7, code
        with pytest.raises(error):
            ensure_commit_topic(client, "t")
        with pytest.raises(error, match=words):
            kafka_sink.partition_count({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
        assert (kafka.now_ms, network.closed) == (0, True)

    def test_a_topic_is_waited_for_while_it_is_made_or_a_few_seconds(self, kafka: Kafka, client: AdminClient) -> None:
        with pytest.raises(errors.TopicNotFound) as raised:
            topics.partition_count(client, "t")
        assert ABSENT_PATIENCE_MS <= raised.value.waited_ms == kafka.now_ms < ABSENT_PATIENCE_MS + 2_000
        kafka.partitions, kafka.topic_error = 7, 5
        kafka.at = [(kafka.now_ms + ABSENT_PATIENCE_MS + 2_000, lambda: setattr(kafka, "topic_error", 0))]
        assert topics.partition_count(client, "t") == 7

    def test_the_public_one_takes_options_and_the_sessions_conf_and_closes(
        self, kafka: Kafka, network: Network
    ) -> None:
        kafka.partitions, options = 7, {"kafka.bootstrap.servers": "localhost:1"}
        assert (kafka_sink.partition_count({**options, "Topic": "t"}), network.closed) == (7, True)
        with pytest.raises(errors.MissingOption, match="'topic' is required"):
            kafka_sink.partition_count(options)
        conf = {f"spark.pykafka.{name}": value for name, value in {**options, "topic": "t"}.items()} | {"spark.x": "x"}
        session = SimpleNamespace(conf=SimpleNamespace(getAll=conf))
        assert kafka_sink.partition_count({}, session) == 7  # type: ignore[arg-type]


class TestPartitions:
    def test_are_asked_for_with_the_commit_topic(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {("t", 0): 1, ("t", 1): 1, A: 2}
        ensure_commit_topic(client, "t", ask_also=("a",))
        assert client.partitions(("a",)) == ((A,), ())
        assert kafka.asked(apis.MetadataRequest)[-1] == (1, apis.MetadataRequest(("t", "a"), False))

    def test_of_topics_or_of_all_those_with_a_leader_and_those_without(self, kafka: Kafka, client: AdminClient) -> None:
        """Topics without a leader are not remembered."""
        kafka.leaders = {A: 2, A1: -1, B: 1}
        assert (client.partitions(("a",)), client.partitions(None)) == (((A,), (A1,)), ((A, B), (A1,)))
        assert client.partitions(()) == ((), ())
        assert kafka.asked(apis.MetadataRequest)[-1] == (1, apis.MetadataRequest((), False))
        kafka.leaders[A1] = 2
        assert client.partitions(("a",)) == ((A, A1), ())

    @pytest.mark.parametrize(
        ("code", "error"), [(UNKNOWN, errors.TopicNotFound), (DENIED, errors.TopicAuthorizationFailed)]
    )
    def test_of_a_topic_that_is_not_there(
        self, kafka: Kafka, client: AdminClient, code: int, error: type[Exception]
    ) -> None:
        kafka.leaders, kafka.topic_codes = {A: 1}, {"b": code}
        with pytest.raises(error, match="'b'"):
            client.partitions(("a", "b"))

    def test_of_a_topic_that_a_broker_which_has_just_started_does_not_know_yet(
        self, kafka: Kafka, client: AdminClient
    ) -> None:
        kafka.leaders, kafka.topic_codes = {A: 1, B: 1}, {"b": UNKNOWN}
        kafka.at = [(1, lambda: kafka.topic_codes.clear())]
        assert client.partitions(("a", "b")) == ((A, B), ())


def test_all_that_is_asked_within_a_time_has_so_much_together(kafka: Kafka, client: AdminClient) -> None:
    kafka.script(apis.EndTxnRequest, *[LOADING] * 10_000)
    with pytest.raises(errors.CoordinatorUnavailable), client.within(3_000):
        client.ask_all([commit("s.0")])
    assert (began_ms := kafka.now_ms) <= 3_000
    with pytest.raises(errors.CoordinatorUnavailable):
        client.ask_all([commit("s.1")])
    assert kafka.now_ms - began_ms == client.config.max_block_ms


def test_topic_ids_are_known_from_the_answer_that_told_of_partitions(kafka: Kafka, client: AdminClient) -> None:
    kafka.leaders, kafka.topic_ids = {A: 2, B: 1}, {"a": uuid.UUID(int=7)}
    client.partitions(("a", "b"))
    asked = len(kafka.asked(apis.MetadataRequest))
    # Brokers before 2.8 have none.
    assert client.topic_ids(("a", "b")) == {"a": str(uuid.UUID(int=7)), "b": None}
    assert client.topic_ids(()) == {}
    assert len(kafka.asked(apis.MetadataRequest)) == asked
    # They are asked for again after a second.
    kafka.topic_ids = {"a": uuid.UUID(int=8)}
    kafka.now_ms += TOPICS_FRESH_MS
    assert client.topic_ids(("a",)) == {"a": str(uuid.UUID(int=8))}
    assert client.topic_ids(("gone",)) == {"gone": None}
    assert client.topics(("gone",))["gone"].error_code == UNKNOWN


SETTING = "transaction.max.timeout.ms"


def without(*kinds: type) -> Callable[[Any], int | None]:
    """As brokers that do not take requests of these kinds."""
    return lambda request: None if isinstance(request, kinds) else 0


def test_a_setting_is_asked_of_the_broker_that_it_is_about(kafka: Kafka, network: Network, client: AdminClient) -> None:
    """One that is not told is none."""
    kafka.settings, kafka.down, kafka.brokers = {(2, SETTING): "60000"}, {1}, {1, 2}
    network.known = {1, 2}
    kafka.script(apis.DescribeConfigsRequest, 31)
    assert [client.broker_setting(SETTING) for _ in range(2)] == [None, "60000"]
    assert len(kafka.asked(apis.DescribeConfigsRequest)) == 2


class TestRequestsThatBrokersDoNotTake:
    def test_settings_are_not_told(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.spoken = without(apis.DescribeConfigsRequest, apis.TopicConfigsRequest)
        assert client.broker_setting(SETTING) is None
        assert client.topic_settings(["a", "b"], NAMES) == {"a": {}, "b": {}}
        assert kafka.now_ms < 1_000

    def test_a_topic_is_not_made_and_the_reason_is_told_at_once(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.spoken = without(apis.CreateTopicsRequest)
        response = topics.create_topic(client, "t", NewTopic())
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert response.error_message == "brokers do not take CreateTopics 4 to 7"
        with pytest.raises(errors.CommitTopicMissing) as failure:
            ensure_commit_topic(client, "t")
        assert "CreateTopics 4 to 7" in failure.value.reason
        assert failure.value.command
        assert (kafka.asked(apis.CreateTopicsRequest), kafka.now_ms < 1_000) == ([], True)

    def test_a_guarantee_is_refused_by_what_it_lacks(self, kafka: Kafka, client: AdminClient) -> None:
        client.require(EXACTLY_ONCE)
        kafka.lacking = ("ListTransactions 0 to 2 (Kafka 3.0): it has none",)
        with pytest.raises(errors.BrokerUnsupported) as failure:
            client.require(EXACTLY_ONCE)
        assert failure.value.guarantee == "exactly-once"
        assert "ListTransactions" in str(failure.value) and "Kafka 3.0 or later" in str(failure.value)


NAMES = ("max.message.bytes", "cleanup.policy")
A_SETTINGS, B_SETTINGS = (dict.fromkeys(NAMES, f"{name}'s") for name in "ab")


class TestTopicSettings:
    def test_is_told_by_any_broker_of_all_topics_at_once_and_may_be_none(
        self, kafka: Kafka, client: AdminClient
    ) -> None:
        for codes, b_settings in ({}, B_SETTINGS), ({"b": DENIED}, {}):
            kafka.topic_codes = codes
            del kafka.received[:]
            assert client.topic_settings(["b", "a"], NAMES) == {"a": A_SETTINGS, "b": b_settings}
            ((_, asked),) = kafka.asked(apis.TopicConfigsRequest)
            assert asked == apis.TopicConfigsRequest(("a", "b"), NAMES)

    def test_a_topic_that_the_broker_has_not_heard_of_yet_is_asked_for_again(
        self, kafka: Kafka, client: AdminClient
    ) -> None:
        b_later = (apis.TopicConfigs("a", 0, A_SETTINGS), apis.TopicConfigs("b", UNKNOWN, {}))
        kafka.script(apis.TopicConfigsRequest, apis.TopicConfigsResponse(0, b_later))
        assert client.topic_settings(["a", "b"], NAMES) == {"a": A_SETTINGS, "b": B_SETTINGS}
        assert [request.topics for _, request in kafka.asked(apis.TopicConfigsRequest)] == [("a", "b"), ("b",)]
        # And is given up after max.block.ms.
        kafka.topic_codes, began_ms = {"b": UNKNOWN}, kafka.now_ms
        assert client.topic_settings(["a", "b"], NAMES) == {"a": A_SETTINGS, "b": {}}
        assert kafka.now_ms - began_ms <= MAX_BLOCK_MS + 1_000


ASKS: dict[str, Callable[[AdminClient], Any]] = {
    "coordinators": lambda client: client.ask_all([commit("s.0")]),
    "brokers": lambda client: client.ask_brokers(apis.ListTransactionsRequest()),
    "version": lambda client: client.transaction_version(),
    "partitions": lambda client: client.partitions(None),
    "leaders": lambda client: client.ask_leaders([("a", 0)], apis.DescribeProducersRequest),
    "topic": lambda client: ensure_commit_topic(client, "t"),
    "setting": lambda client: client.broker_setting("s"),
}


class TestThrottled:
    @pytest.mark.parametrize("what", ["coordinators", "brokers", "version", "partitions"])
    def test_brokers_that_throttle_for_longer_than_max_block_ms_are_waited_for(
        self, kafka: Kafka, client: AdminClient, what: str
    ) -> None:
        kafka.throttled = dict.fromkeys(kafka.brokers, (0, 5 * MAX_BLOCK_MS))
        ASKS[what](client)
        assert 5 * MAX_BLOCK_MS <= kafka.now_ms <= 6 * MAX_BLOCK_MS

    def test_and_the_time_that_was_left_is_left(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.throttled, kafka.silent = dict.fromkeys(kafka.brokers, (0, 5 * MAX_BLOCK_MS)), {1, 2, 3}
        with pytest.raises(errors.CoordinatorUnavailable):
            client.ask_all([commit("s.0")])
        # A tenth of the throttled time counts.
        assert 5.5 * MAX_BLOCK_MS <= kafka.now_ms <= 5.5 * MAX_BLOCK_MS + 1_000


class TestUnreachable:
    @pytest.mark.parametrize("what", sorted(ASKS.keys() - {"coordinators"}))
    def test_without_any_broker(self, kafka: Kafka, client: AdminClient, what: str) -> None:
        kafka.down = {1, 2, 3}
        with pytest.raises(errors.BrokersUnreachable) as failure:
            ASKS[what](client)
        assert failure.value.bootstrap_servers == "b1:9092,b2:9092"
        assert (failure.value.waited_ms, failure.value.last_error) == (MAX_BLOCK_MS, REFUSED)
        assert kafka.now_ms == MAX_BLOCK_MS

    @pytest.mark.parametrize("what", sorted(ASKS.keys() - {"coordinators"}))
    def test_a_first_plan_fails_early(self, kafka: Kafka, network: Network, client: AdminClient, what: str) -> None:
        kafka.down, network.contacts = {1, 2, 3}, REFUSES
        with pytest.raises(errors.BrokersUnreachable, match="answered within 6000 ms, and none has answered before"):
            ASKS[what](client)
        assert kafka.now_ms == FIRST_MS

    def test_a_first_plan_fails_early_also_between_two_tries(
        self, kafka: Kafka, network: Network, client: AdminClient
    ) -> None:
        kafka.script(apis.MetadataRequest, *[HANG_UP] * 1_000)
        network.contacts = REFUSES
        with pytest.raises(errors.BrokersUnreachable):
            ensure_commit_topic(client, "t")
        assert FIRST_MS <= kafka.now_ms <= FIRST_MS + 1_000

    def test_what_has_worked_is_waited_for(
        self, kafka: Kafka, network: Network, client: AdminClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        kafka.down, network.contacts = {1, 2, 3}, REFUSES
        client.outage.has_worked = True
        with pytest.raises(errors.BrokersUnreachable, match=r"raise kafka[.]max[.]block[.]ms"):
            client.topics(("t",))
        assert kafka.now_ms == MAX_BLOCK_MS
        (said,) = caplog.messages
        assert said.startswith(
            f"no definite answer of b1:9092,b2:9092 for 8 s, last: {REFUSED}. The client waits until "
        )
        assert said.endswith(" UTC (kafka.max.block.ms = 10000 ms), then it fails.")

    def test_a_wait_for_a_leader_is_logged(
        self, kafka: Kafka, client: AdminClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        kafka.leaders = {("t", 0): -1}
        with pytest.raises(errors.LeaderUnavailable):
            client.ask_leaders([TopicPartition("t", 0)], apis.DescribeProducersRequest)
        (said,) = caplog.messages
        assert "last: the leader of t-0: LEADER_NOT_AVAILABLE (error 5)" in said

    def test_a_step_with_a_limit_of_its_own_neither_fails_early_nor_is_logged(
        self, kafka: Kafka, network: Network, client: AdminClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        kafka.down, network.contacts = {1, 2, 3}, REFUSES
        with pytest.raises(errors.BrokersUnreachable, match="within 9000 ms"), client.within(9_000):
            client.topics(("t",))
        assert (kafka.now_ms, caplog.messages) == (9_000, [])

    def test_a_broker_that_hangs_up_is_asked_again(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {("t", 0): 2, ("t", 1): 2}
        kafka.script(apis.MetadataRequest, *[HANG_UP] * 3)
        ensure_commit_topic(client, "t")
        assert 0 < kafka.now_ms < 2_000

    def test_what_no_retry_mends_is_told_at_once(self, kafka: Kafka, network: Network, client: AdminClient) -> None:
        network.failure = errors.AuthenticationFailed(broker="broker 1", mechanism="PLAIN", user="alice", reason="no")
        kafka.silent = {1, 2, 3}
        with pytest.raises(errors.AuthenticationFailed):
            ensure_commit_topic(client, "t")
        assert len(network.waits) == 1


@pytest.mark.parametrize(("level", "spoken", "version"), [
    (2, (12, 5, 5), 2),
    (3, (13, 6, 6), 2),
    (1, (12, 5, 5), 1),
    (None, (12, 5, 5), 1),
    *((2, spoken, 1) for spoken in ((11, 5, 5), (None, 5, 5), (12, None, 5), (12, 5, None))),
])  # fmt: skip
def test_the_transaction_version_is_2_where_all_of_it_is_spoken(
    kafka: Kafka, client: AdminClient, level: int | None, spoken: tuple[int | None, ...], version: int
) -> None:
    kafka.features = {"metadata.version": 27} if level is None else {"transaction.version": level}
    versions = dict(zip((apis.ProduceRequest, apis.EndTxnRequest, apis.TxnOffsetCommitRequest), spoken, strict=True))
    kafka.spoken = lambda request: versions[type(request)]
    assert client.transaction_version() == version


class TestEnsureTopic:
    def test_one_that_is_there(self, kafka: Kafka, client: AdminClient) -> None:
        """A leader of its first partition is waited for."""
        kafka.leaders = {("t", 0): -1, ("t", 1): -1}
        kafka.at = [(2_000, lambda: kafka.leaders.update({("t", 0): 3}))]
        ensure_commit_topic(client, "t")
        assert 2_000 <= kafka.now_ms < 4_000
        assert (1, apis.MetadataRequest(("t",), allow_auto_topic_creation=False)) in kafka.received
        assert kafka.asked(apis.CreateTopicsRequest) == []

    @pytest.mark.parametrize("codes", [[0], [EXISTS], [TIMED_OUT, 0], [41, 89, EXISTS]])
    def test_one_that_is_not_is_made(self, kafka: Kafka, client: AdminClient, codes: list[int]) -> None:
        kafka.script(apis.CreateTopicsRequest, *codes)
        ensure_commit_topic(client, "t")
        (_, request), *again = kafka.asked(apis.CreateTopicsRequest)
        assert request == apis.CreateTopicsRequest("t", 2, client.config.request_timeout_ms)
        assert len(again) == len(codes) - 1

    @pytest.mark.parametrize("code", [DENIED, 31, 38, 44, 42])
    def test_a_refusal_tells_the_command(self, kafka: Kafka, client: AdminClient, code: int) -> None:
        kafka.script(apis.CreateTopicsRequest, code)
        with pytest.raises(errors.CommitTopicMissing) as failure:
            ensure_commit_topic(client, "t")
        error = failure.value
        assert (error.topic, error.reason.endswith(f"(error {code}): the controller says why")) == ("t", True)
        assert error.command == "kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --create --topic t --partitions 2"

    def test_one_without_a_second_partition_is_told_with_the_command(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {("t", 0): 1}
        with pytest.raises(errors.CommitTopicTooSmall, match="has 1 partition and needs two") as failure:
            ensure_commit_topic(client, "t")
        command = "kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --alter --topic t --partitions 2"
        assert (failure.value.command, kafka.now_ms) == (command, 0)

    def test_gives_up_when_the_time_is_over(self, kafka: Kafka, client: AdminClient) -> None:
        kafka.leaders = {("t", 0): -1}
        with pytest.raises(errors.CommitTopicMissing, match="it has no leader"):
            ensure_commit_topic(client, "t")
        kafka.leaders = {}
        kafka.script(apis.CreateTopicsRequest, *[TIMED_OUT] * 100)
        with pytest.raises(errors.CommitTopicMissing, match="REQUEST_TIMED_OUT"):
            ensure_commit_topic(client, "t")


def leased(cluster_id: str | None = None, **options: Any) -> AdminClient:
    """A client that was leased and is given back."""
    with lease_admin_client(config(**options), *[cluster_id] if cluster_id else []) as client:
        return client


class TestLease:
    def test_keeps_a_client_for_the_next_commit(self, network: Network) -> None:
        first = leased()
        assert leased() is first
        assert leased(client_id="other") is not first
        assert not network.closed

    @pytest.mark.parametrize("change", [
        pytest.param({"interruptions": 1}, id="its connections ended"),
        pytest.param({"failure": errors.ClusterChanged(broker="b1:9092", expected="one", found="another")},
                     id="it failed meanwhile"),
    ])  # fmt: skip
    def test_one_that_is_of_no_use_is_not_kept(self, network: Network, change: dict[str, Any]) -> None:
        first = leased()
        vars(network).update(change)
        assert leased() is not first

    def test_one_of_another_cluster_is_not_the_one_that_is_asked_for(self, network: Network) -> None:
        first = leased("c")
        assert leased("c") is first
        assert leased("d") is not first

    def test_two_at_once_are_two(self, network: Network) -> None:
        with lease_admin_client(config()) as first, lease_admin_client(config()) as second:
            assert first is not second
        assert network.closed  # one of them is too many afterwards

    def test_a_process_has_its_own_and_closes_no_other(self, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
        parents = leased()
        with monkeypatch.context() as child:
            child.setattr(kept_clients.os, "getpid", lambda: -1)
            kept_clients.KEPT.close()
            assert not network.closed
            assert leased() is not parents
            assert not network.closed
        kept_clients.KEPT.close()
        assert network.closed
        assert leased() is not parents

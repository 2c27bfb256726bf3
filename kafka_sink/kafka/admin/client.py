"""Sends requests that are not about a row to coordinators, leaders and brokers, and waits for the answers.

    with lease_admin_client(config) as client:
        client.ask_all([(kind, key, request), ...])          # to the coordinators of the keys, all at once
        client.ask_leaders(partitions, request_of)           # to the leader of each partition
        client.ask_brokers(request)                          # to every broker
        client.broker_setting(name)                          # of any broker
        client.topic_settings(topics, names)                 # of each topic

Each method returns only definite answers, or raises a ClusterError after `max.block.ms`. An unanswered request is sent
again, unchanged, to the broker that is the right one by then. Time in which a broker throttles is not counted
(`calls.py`).

A shell: it has a clock, and no thread. Its connections are its own, and the calling thread drives them. Or they are a
producer's (`Producer.admin`), and the producer's Sender thread drives them (`driver.py`). The decisions are elsewhere:
`kafka.coordinators` (which answers are definite, which broker to ask), `commit` (what to ask).

Non-obvious:

* The leaders of a partition are cached for 1 s, because the steps of a plan or a commit follow within milliseconds. A
  broker that no longer leads the partition says so; then the metadata is requested again.
* The answers of all brokers must be from the same moment. Otherwise a transaction that moves from one broker to another
  might be missed by both. If a broker joins, leaves or fails to answer, all are asked again. So brokers are listed
  after they were asked, and that list is the one to ask the next time.

Source: Kafka's AdminClient (PartitionLeaderStrategy, AllBrokersStrategy, CoordinatorStrategy), KIP-584, KIP-890.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, overload

from kafka_sink.errors import (
    BrokerUnavailable,
    BrokerUnsupported,
    CoordinatorRefused,
    CoordinatorUnavailable,
    LeaderUnavailable,
    TopicAuthorizationFailed,
    TopicNotFound,
)
from kafka_sink.kafka.admin.calls import Call, Caller, Partitions, absent, by_leader, leaders_of, of_partitions
from kafka_sink.kafka.admin.driver import Driver, OwnConnections
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.coordinators import Ask, Next, error_code_of, next_after
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.producer.error_policy import Action, on_produce_error
from kafka_sink.kafka.protocol.api import PartitionResult, Request, Response
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.apis.offsets import ListedOffset, ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.apis.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    TopicConfigsRequest,
    TopicConfigsResponse,
)
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeProducersRequest, ProducersOfPartition
from kafka_sink.kafka.protocol.apis.transactions import EndTxnRequest, TxnOffsetCommitRequest, WriteTxnMarkersRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, error_text
from kafka_sink.kafka.protocol.needs import Guarantee
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

T = TypeVar("T")

_NUMBERS = itertools.count()
KIND_NAMES = {CoordinatorKind.GROUP: "group", CoordinatorKind.TRANSACTION: "transactional id"}
TRANSACTION_VERSION = "transaction.version"
# A broker with transactions of version 2 (KIP-890, part 2) must speak these. Produce from this version on adds its
# partitions to the transaction. EndTxn and TxnOffsetCommit know which versions they need.
IMPLICIT_PRODUCE = 12
_ANY_PRODUCE = ProduceRequest(-1, 0, (ProducePartition("", 0, None, b""),), transactional_id="")
_OF_VERSION_2: tuple[Request, ...] = (
    EndTxnRequest("", -1, -1, committed=True, transaction_version=2),
    TxnOffsetCommitRequest("", "", -1, -1, "", 0, 0, "", transaction_version=2),
)


def _is_final(code: int) -> bool:
    return on_produce_error(code) not in (Action.RETRY, Action.REFRESH_AND_RETRY)


class AdminClient:
    """For one thread at a time. Connects with the first request."""

    def __init__(self, config: ClientConfig, cluster_id: str | None = None, *, driver: Driver | None = None) -> None:
        """`cluster_id`: the only cluster to ask; None for any cluster.
        `driver`: None for connections of its own.
        """
        self.config = config
        # Of the clients of this process, to tell one from another.
        self.number = next(_NUMBERS)
        self.used_at_ms = monotonic_ms()
        rng = random.Random()
        # For operations of more than one step.
        self.caller = Caller(config, driver or OwnConnections(config, cluster_id, rng), rng)
        self.outage = self.caller.outage

    def within(self, milliseconds: int) -> AbstractContextManager[None]:
        """Limit all requests in this context together to this time, if it is shorter than `max.block.ms`."""
        return self.caller.within(milliseconds)

    def rest(self) -> None:
        """Does nothing: between requests nothing is in flight."""

    def close(self) -> None:
        """Close the connections, if they are its own. Requests in flight stay unanswered."""
        self.caller.close()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, or None while unknown."""
        return self.caller.network.cluster_id

    def may_go_on(self, cluster_id: str | None = None) -> bool:
        """Return True if the client may be used again, in `cluster_id` unless that is None.

        Return False if all connections ended: what the client knows may be about a cluster that is gone. A connection
        that only looks open does no harm, because the client keeps no ids, and a new connection asks for the cluster id
        first.
        """
        self.caller.collect()
        network = self.caller.network
        return network.failure is None and not network.interruptions and cluster_id in (None, self.cluster_id)

    # --- coordinators -------------------------------------------------------------------------------------------------

    def ask_all(self, requests: Sequence[tuple[CoordinatorKind, str, Request]]) -> list[Response]:
        """Send each request (kind of key, key, request) to the coordinator of its key. Return the definite answers in
        order. All requests are in flight at once, so none may depend on another. Raises as `await_all`."""
        return self.await_all(self.begin_all(requests))

    def begin_all(self, requests: Sequence[tuple[CoordinatorKind, str, Request]]) -> Sequence[Ask]:
        """Queue `requests`, to be sent with the next requests of any kind. `await_all` returns the answers."""
        now_ms = self.caller.now_ms()
        deadline_ms = now_ms + self.caller.deadline_ms() - self.caller.clock_ms()
        return [
            self.caller.coordinators.ask(kind, key, request, now_ms=now_ms, deadline_ms=deadline_ms)
            for kind, key, request in requests
        ]

    def await_all(self, asks: Sequence[Ask]) -> list[Response]:
        """Wait until all `asks` are answered, or `max.block.ms` has passed since they were begun. Return the answers.

        Raises CoordinatorUnavailable or CoordinatorRefused for the first ask without an answer.
        """
        self.caller.await_asks(asks)
        return [self._response(ask) for ask in asks]

    def _response(self, ask: Ask) -> Response:
        if ask.response is not None:
            return ask.response
        kind = KIND_NAMES[ask.kind]
        if ask.refused:
            raise CoordinatorRefused(kind=kind, key=ask.key, code=ask.refused, name=error_name(ask.refused))
        raise CoordinatorUnavailable(kind=kind, key=ask.key, waited_ms=self.caller.limit_ms, last_error=ask.error)

    # --- leaders ------------------------------------------------------------------------------------------------------

    @overload
    def ask_leaders(
        self, partitions: Iterable[TopicPartition], request_of: Callable[[Partitions], DescribeProducersRequest]
    ) -> dict[TopicPartition, ProducersOfPartition]: ...
    @overload
    def ask_leaders(
        self, partitions: Iterable[TopicPartition], request_of: Callable[[Partitions], WriteTxnMarkersRequest]
    ) -> dict[TopicPartition, PartitionResult]: ...
    @overload
    def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request_of: Callable[[Partitions], ListOffsetsRequest],
        is_final: Callable[[int], bool],
        *,
        may_be_absent: bool = False,
    ) -> dict[TopicPartition, ListedOffset]: ...
    def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request_of: Callable[[Partitions], Request],
        is_final: Callable[[int], bool] = _is_final,
        *,
        may_be_absent: bool = False,
    ) -> dict[TopicPartition, Any]:
        """Ask the leader of each partition. Return its answer by partition. `request_of` makes the request for the
        partitions that one broker leads. `is_final`: whether an answer with this error code is not asked for again.
        `may_be_absent`: leave out what brokers have called absent for ABSENT_PATIENCE_MS.

        Raises LeaderUnavailable after `max.block.ms`, or for what brokers have called absent for ABSENT_PATIENCE_MS.
        Raises BrokersUnreachable after `max.block.ms`.
        """
        deadline_ms = self.caller.deadline_ms()
        results: dict[TopicPartition, Any] = {}
        missing = [TopicPartition(*each) for each in dict.fromkeys(partitions)]
        # Since when each partition is absent in every answer.
        since_ms: dict[TopicPartition, int] = {}
        tries = 0
        while missing:
            names = tuple(dict.fromkeys(topic for topic, _ in missing))
            known, asked_ms = self.caller.cached(names), self.caller.now_ms()
            topics = self.caller.metadata(names, deadline_ms).topics if known is None else known
            since_ms = {each: since_ms.get(each, self.caller.now_ms()) for each in absent(missing, topics)}
            gone = [each for each in missing if asked_ms - since_ms.get(each, asked_ms) >= ABSENT_PATIENCE_MS]
            if gone and not may_be_absent:
                raise self._unavailable(gone[0], error_text(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), is_absent=True)
            missing = [each for each in missing if each not in gone]
            led, reasons = by_leader(missing, topics)
            calls = [Call(leader, request_of(of_leader)) for leader, of_leader in led.items()]
            self.caller.run(calls, deadline_ms)
            for call, of_leader in zip(calls, led.values(), strict=True):
                reasons |= dict.fromkeys(of_leader, call.error)
                for result in of_partitions(call.response):
                    partition = TopicPartition(result.topic, result.partition)
                    if is_final(result.error_code):
                        results[partition] = result
                    else:
                        reasons[partition] = error_text(result.error_code)
            missing = [partition for partition in missing if partition not in results]
            for topic, _ in missing:
                self.caller.forget(topic)
            if known is not None:
                continue
            tries += 1
            if missing and not self.caller.pause(tries, deadline_ms, _why(missing[0], reasons)):
                raise self._unavailable(missing[0], reasons[missing[0]] or "no answer")
        return results

    def _unavailable(self, partition: TopicPartition, last_error: str, *, is_absent: bool = False) -> LeaderUnavailable:
        return LeaderUnavailable(
            **partition._asdict(),
            waited_ms=ABSENT_PATIENCE_MS if is_absent else self.caller.limit_ms,
            timeout_option=self.config.api_timeout_option,
            last_error=last_error,
            is_absent=is_absent,
        )

    def partitions(self, topics: tuple[str, ...] | None) -> tuple[Partitions, Partitions]:
        """Return the partitions of `topics` (None: of every topic that the principal may describe) in two groups: those
        with a leader, and those without a leader now.

        Raises TopicNotFound, TopicAuthorizationFailed or BrokersUnreachable.
        """
        of = self.topics(topics)
        for name in topics or ():
            if of[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicNotFound(topic=name, waited_ms=0)
            if of[name].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise TopicAuthorizationFailed(topic=name)
        leaders = leaders_of(of.values())
        led = sorted(partition for partition, leader_id in leaders.items() if leader_id >= 0)
        return tuple(led), tuple(sorted(leaders.keys() - set(led)))

    def topics(self, names: tuple[str, ...] | None) -> dict[str, TopicMetadata]:
        """Return the metadata of topics by name (None: of every topic that the principal may describe). Raises
        BrokersUnreachable."""
        deadline_ms = self.caller.deadline_ms()
        cached = None if names is None else self.caller.cached(names)
        answer = cached or self.caller.metadata(names, deadline_ms).topics
        is_unknown = any(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in answer)
        # A broker that has just started may know no topic yet.
        if is_unknown and self.caller.pause(1, deadline_ms):
            answer = self.caller.metadata(names, deadline_ms).topics
        return {topic.name: topic for topic in answer}

    def topic_ids(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Return topic -> id, or None if brokers have no ids or no such topic. Raises BrokersUnreachable."""
        return {
            name: None if topic.topic_id is None else str(topic.topic_id)
            for name, topic in (self.topics(names) if names else {}).items()
        }

    # --- brokers ------------------------------------------------------------------------------------------------------

    def ask_brokers(self, request: Request) -> dict[int, Response]:
        """Return the answer of every broker of the cluster, by node id.

        Raises BrokerUnavailable or BrokersUnreachable after `max.block.ms`.
        """
        deadline_ms = self.caller.deadline_ms()
        tries = 0
        while True:
            if tries or not self.caller.broker_ids:
                self.caller.metadata((), deadline_ms)
            calls = {node_id: Call(node_id, request) for node_id in self.caller.broker_ids}
            self.caller.run(tuple(calls.values()), deadline_ms)
            failed = [node_id for node_id, call in calls.items() if not _is_definite(call)]
            if not failed:
                self.caller.metadata((), deadline_ms)
                if calls.keys() == set(self.caller.broker_ids):
                    return {node_id: call.response for node_id, call in calls.items() if call.response is not None}
            tries += 1
            node_id = (failed or list(calls))[0]
            call = calls[node_id]
            code = ErrorCode.NONE if call.response is None else error_code_of(call.response)
            last_error = call.error or (error_text(code) if code else "the brokers came and went")
            if not self.caller.pause(tries, deadline_ms, f"broker {node_id}: {last_error}"):
                raise BrokerUnavailable(
                    node_id=node_id,
                    waited_ms=self.caller.limit_ms,
                    timeout_option=self.config.api_timeout_option,
                    last_error=last_error,
                )

    def broker_setting(self, name: str) -> str | None:
        """Return the setting `name` of any broker, or None if the brokers do not show it, which requires the ACL
        CLUSTER DESCRIBE_CONFIGS, or do not take the request. Raises BrokersUnreachable."""
        deadline_ms = self.caller.deadline_ms()
        tries = 0
        if not self.caller.takes(DescribeConfigsRequest(0, name), deadline_ms):
            return None
        while True:
            for broker in self.caller.metadata((), deadline_ms).brokers:
                call = Call(broker.node_id, DescribeConfigsRequest(broker.node_id, name))
                self.caller.run([call], deadline_ms)
                if isinstance(call.response, DescribeConfigsResponse):
                    return call.response.value
            tries += 1
            if not self.caller.pause(tries, deadline_ms):
                raise self.caller.unreachable()

    def topic_settings(
        self, topics: Iterable[str], names: tuple[str, ...], *, waits: bool = True
    ) -> dict[str, Mapping[str, str]]:
        """Return each topic's settings `names`, as far as its brokers have them.

        A topic has no settings here without the ACL TOPIC DESCRIBE_CONFIGS, if it does not exist (within
        `max.block.ms` if it `waits`), or if the brokers do not take the request. Raises BrokersUnreachable.
        """
        deadline_ms = self.caller.deadline_ms()
        found: dict[str, Mapping[str, str]] = {}
        missing = tuple(sorted(topics))
        if missing and not self.caller.takes(TopicConfigsRequest(missing, names), deadline_ms):
            return {topic: {} for topic in missing}
        tries = 0
        while missing:
            answer = self.caller.ask_any(TopicConfigsRequest(missing, names), deadline_ms)
            assert isinstance(answer, TopicConfigsResponse)
            for topic in answer.topics:
                # A broker may not know a topic yet that was just created through another.
                if _is_final(topic.error_code):
                    found[topic.topic] = topic.values
            missing = tuple(topic for topic in missing if topic not in found)
            tries += 1
            if missing and not (waits and self.caller.pause(tries, deadline_ms)):
                return found | {topic: {} for topic in missing}
        return found

    def require(self, guarantee: Guarantee) -> None:
        """Ask any broker what it can. Raises BrokerUnsupported, BrokersUnreachable."""
        network = self.caller.network
        broker, missing = self._look(lambda node_id: (network.name(node_id), network.lacks(node_id, guarantee)))
        if missing:
            raise BrokerUnsupported(broker=broker, guarantee=guarantee.name, missing=missing)

    def can_repair(self) -> bool:
        """Return False if a broker has no WriteTxnMarkers. Raises BrokersUnreachable."""
        from kafka_sink.kafka.protocol.transaction_needs import REPAIR

        return not self._look(lambda node_id: self.caller.network.lacks(node_id, REPAIR))

    def transaction_version(self) -> int:
        """Return 2 if the cluster has the transactions of KIP-890, or else 1. Raises BrokersUnreachable."""
        return self._look(self._transaction_version_of)

    def _transaction_version_of(self, node_id: int) -> int:
        network = self.caller.network
        level = (network.finalized_features(node_id) or {}).get(TRANSACTION_VERSION, 0)
        speaks_2 = (network.api_version(node_id, _ANY_PRODUCE) or 0) >= IMPLICIT_PRODUCE and all(
            network.api_version(node_id, request) is not None for request in _OF_VERSION_2
        )
        return 2 if level >= 2 and speaks_2 else 1

    def _look(self, question: Callable[[int], T]) -> T:
        return self.caller.look(question, self.caller.deadline_ms())


def _why(partition: TopicPartition, reasons: Mapping[TopicPartition, str]) -> str:
    topic, number = partition
    return f"the leader of {topic}-{number}: {reasons[partition] or 'no answer'}"


def _is_definite(call: Call) -> bool:
    return call.response is not None and next_after(error_code_of(call.response)) is Next.DONE

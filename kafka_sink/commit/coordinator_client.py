"""Asks coordinators, leaders and brokers what a commit needs, and waits for the answers.

    with lease(config) as client:
        client.ask_all([(kind, key, request), ...])          # to the coordinators of the keys, all at once
        client.ask_leaders(partitions, request_of)           # to whoever leads each partition
        client.ask_brokers(request)                          # to every broker
        client.broker_setting(name)                          # of any
        client.topic_settings(topics, names)                 # of each topic

Each returns definite answers only, or raises a ClusterError when `max.block.ms` has passed without them: what has
none is sent again, the same request, to whoever is the right one by then. Time in which a broker throttles is not
counted; deadlines are of the clock that stands meanwhile (`_clock_ms`).

A shell: connections and a clock of its own, driven by the thread that calls, none of its own. The decisions are
elsewhere: `producer.coordinators` (which answers are definite, who is asked), `commit.two_phase` (what to ask).

Non-obvious:

* More requests are in flight on a connection than a producer may have: they are independent of each other, and a
  broker answers them in their order anyway.
* Who leads a partition is taken from what was said of it within a second: the steps of a plan or a commit follow each
  other within milliseconds. A broker that does not lead it any more says so, and then it is asked for anew.
* An answer of every broker is one of a moment: when a broker comes, goes or fails to answer, all are asked again, or a
  transaction that moves from one to the other would be seen by neither. So brokers are listed after they were asked;
  that list is the one to ask the next time.

Source: Kafka's AdminClient (PartitionLeaderStrategy, AllBrokersStrategy, CoordinatorStrategy), KIP-584, KIP-890.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, overload

from kafka_sink.backoff import backoff_ms
from kafka_sink.client import network_settings
from kafka_sink.clock import monotonic_ms
from kafka_sink.config import COMMIT_TOPIC_PARTITIONS, ProducerConfig, commit_topic_command, warn_once
from kafka_sink.doctor.first_aid import look_at_hosts
from kafka_sink.errors import (
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
from kafka_sink.exhaustion import exhaustion_named
from kafka_sink.kept import Kept
from kafka_sink.metrics import Metrics
from kafka_sink.net.network_client import NetworkClient
from kafka_sink.net.selector import Selector
from kafka_sink.producer.coordinators import Ask, Coordinators, Next, error_code_of, next_after
from kafka_sink.producer.error_policy import Action, on_produce_error
from kafka_sink.protocol.client_response import ClientResponse
from kafka_sink.protocol.describing import TopicConfigsRequest, TopicConfigsResponse
from kafka_sink.protocol.error_codes import ErrorCode, error_name
from kafka_sink.protocol.requests import (
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    Request,
    Response,
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
    PartitionResult,
    ProducersOfPartition,
    TopicAndPartition,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka_sink.security import authenticator, tls_contexts

IN_FLIGHT = 100
# What was said of topics is good for so long.
TOPICS_FRESH_MS = 1_000
KIND_NAMES = {CoordinatorKind.GROUP: "group", CoordinatorKind.TRANSACTION: "transactional id"}
TRANSACTION_VERSION = "transaction.version"
# What a broker must speak to take part in transactions of version 2 (KIP-890, part 2): Produce from this version on
# adds its partitions to the transaction; EndTxn and TxnOffsetCommit say themselves which versions they need.
IMPLICIT_PRODUCE = 12
_ANY_PRODUCE = ProduceRequest(-1, 0, (ProducePartition("", 0, None, b""),), transactional_id="")
_OF_VERSION_2: tuple[Request, ...] = (
    EndTxnRequest("", -1, -1, committed=True, transaction_version=2),
    TxnOffsetCommitRequest("", "", -1, -1, "", 0, 0, "", transaction_version=2),
)

Partitions = tuple[TopicAndPartition, ...]


@dataclass(slots=True, eq=False)
class _Errand:
    """A request to one node. `done`: with its `response`, or with an `error`."""

    node_id: int
    request: Request
    response: Response | None = None
    error: str = ""
    sent: bool = False
    done: bool = False


# The token of the Metadata request that nobody waits for.
_BROKERS = object()


class CoordinatorClient:
    """For one thread at a time. Connects when it is first asked for something."""

    def __init__(self, config: ProducerConfig, cluster_id: str | None = None) -> None:
        """`cluster_id`: the only cluster to ask; None: the one that is there."""
        self.config = config
        warn_once(config.security)
        self.used_at_ms = monotonic_ms()
        self._rng = random.Random()
        metrics = Metrics()
        self._network = NetworkClient(
            Selector(
                metrics=metrics,
                send_buffer_bytes=config.send_buffer_bytes,
                receive_buffer_bytes=config.receive_buffer_bytes,
                tls=tls_contexts(config.security),
            ),
            clock_ms=monotonic_ms,
            rng=self._rng,
            settings=replace(network_settings(config), max_in_flight=IN_FLIGHT),
            metrics=metrics,
            authenticate=authenticator(config.security),
            cluster_id=cluster_id,
        )
        self._coordinators = Coordinators(
            network=self._network,
            rng=self._rng,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )
        # When all brokers are to be listed anew: who is asked for coordinators must not be those of long ago.
        self._brokers_due_ms = self.used_at_ms
        # As listed last; the network knows them all.
        self._broker_ids: tuple[int, ...] = ()
        # With the time of the answer.
        self._topics: dict[str, tuple[int, TopicMetadata]] = {}
        self._ends_ms: int | None = None

    @contextmanager
    def within(self, milliseconds: int) -> Iterator[None]:
        """All that is asked in it together has so much time, where `max.block.ms` for each is more."""
        self._ends_ms = self._clock_ms() + milliseconds
        try:
            yield
        finally:
            self._ends_ms = None

    def close(self) -> None:
        """Ends its connections. What is under way stays unanswered."""
        self._network.close()

    @property
    def cluster_id(self) -> str | None:
        """None before it is known."""
        return self._network.cluster_id

    def may_go_on(self, cluster_id: str | None = None) -> bool:
        """Whether another commit may begin, in `cluster_id` unless that is None. Not where the connections ended: what
        this client knows may be of a cluster that is gone. It keeps no ids, so a connection that only looks open does
        no harm: the next one names its cluster before it carries a request."""
        self._collect()
        network = self._network
        return network.failure is None and not network.interruptions and cluster_id in (None, self.cluster_id)

    def _collect(self) -> None:
        """Takes what came meanwhile; between commits nobody does."""
        for answer in self._network.poll(0):
            self._take(answer)

    # --- coordinators -------------------------------------------------------------------------------------------------

    def ask_all(self, requests: Sequence[tuple[CoordinatorKind, str, Request]]) -> list[Response]:
        """The definite answers to `requests`, each (kind of key, key, request) to the coordinator of its key, in their
        order. Under way all at once: none may depend on another. Raises as `await_all`."""
        return self.await_all(self.begin_all(requests))

    def begin_all(self, requests: Sequence[tuple[CoordinatorKind, str, Request]]) -> Sequence[Ask]:
        """Has `requests` go out with whatever is asked next; `await_all` has their answers."""
        now_ms = monotonic_ms()
        deadline_ms = now_ms + self._deadline_ms() - self._clock_ms()
        return [
            self._coordinators.ask(kind, key, request, now_ms=now_ms, deadline_ms=deadline_ms)
            for kind, key, request in requests
        ]

    def await_all(self, asks: Sequence[Ask]) -> list[Response]:
        """Raises CoordinatorUnavailable or CoordinatorRefused for the first without an answer, once all are answered
        or `max.block.ms` has passed since they were begun."""
        while not all(ask.done for ask in asks):
            self._turn((), max(ask.deadline_ms for ask in asks))
        return [self._response(ask) for ask in asks]

    def _response(self, ask: Ask) -> Response:
        if ask.response is not None:
            return ask.response
        kind = KIND_NAMES[ask.kind]
        if ask.refused:
            raise CoordinatorRefused(kind=kind, key=ask.key, code=ask.refused, name=error_name(ask.refused))
        raise CoordinatorUnavailable(kind=kind, key=ask.key, waited_ms=self.config.max_block_ms, last_error=ask.error)

    # --- leaders ------------------------------------------------------------------------------------------------------

    @overload
    def ask_leaders(
        self, partitions: Iterable[TopicAndPartition], request_of: Callable[[Partitions], DescribeProducersRequest]
    ) -> dict[TopicAndPartition, ProducersOfPartition]: ...
    @overload
    def ask_leaders(
        self, partitions: Iterable[TopicAndPartition], request_of: Callable[[Partitions], WriteTxnMarkersRequest]
    ) -> dict[TopicAndPartition, PartitionResult]: ...
    def ask_leaders(
        self, partitions: Iterable[TopicAndPartition], request_of: Callable[[Partitions], Request]
    ) -> dict[TopicAndPartition, Any]:
        """What the leader of each partition says, by partition. `request_of` makes the request for those that one
        broker leads.

        Raises LeaderUnavailable or BrokersUnreachable after `max.block.ms`.
        """
        deadline_ms = self._deadline_ms()
        results: dict[TopicAndPartition, Any] = {}
        missing = list(dict.fromkeys(partitions))
        tries = 0
        while missing:
            names = tuple(dict.fromkeys(topic for topic, _ in missing))
            known = self._said_of(names)
            topics = self._metadata(names, deadline_ms).topics if known is None else known
            led, reasons = _by_leader(missing, topics)
            errands = [_Errand(leader, request_of(of_leader)) for leader, of_leader in led.items()]
            self._run(errands, deadline_ms)
            for errand, of_leader in zip(errands, led.values(), strict=True):
                reasons |= dict.fromkeys(of_leader, errand.error)
                for result in _of_partitions(errand.response):
                    if on_produce_error(result.error_code) in (Action.RETRY, Action.REFRESH_AND_RETRY):
                        reasons[result.topic, result.partition] = _named(result.error_code)
                    else:
                        results[result.topic, result.partition] = result
            missing = [partition for partition in missing if partition not in results]
            for topic, _ in missing:
                self._topics.pop(topic, None)
            if known is not None:
                continue
            tries += 1
            if missing and not self._pause(tries, deadline_ms):
                topic, number = missing[0]
                raise LeaderUnavailable(
                    topic=topic,
                    partition=number,
                    waited_ms=self.config.max_block_ms,
                    last_error=reasons[missing[0]] or "no answer",
                )
        return results

    def partitions(self, topics: tuple[str, ...] | None) -> tuple[Partitions, Partitions]:
        """The partitions of `topics` (None: of every topic that the principal may describe): those that have a leader,
        and those that have none now.

        Raises TopicNotFound, TopicAuthorizationFailed or BrokersUnreachable.
        """
        of = self.topics(topics)
        for name in topics or ():
            if of[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicNotFound(topic=name, waited_ms=0)
            if of[name].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise TopicAuthorizationFailed(topic=name)
        every = [(name, each) for name, topic in of.items() for each in topic.partitions]
        led = sorted((name, each.partition) for name, each in every if each.leader_id >= 0)
        return tuple(led), tuple(sorted((name, each.partition) for name, each in every if each.leader_id < 0))

    def topics(self, names: tuple[str, ...] | None) -> dict[str, TopicMetadata]:
        """What brokers say of topics (None: of every topic that the principal may describe), by name. Raises
        BrokersUnreachable."""
        deadline_ms = self._deadline_ms()
        said = None if names is None else self._said_of(names)
        answer = said or self._metadata(names, deadline_ms).topics
        is_unknown = any(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in answer)
        # A broker that has just started may know of none yet.
        if is_unknown and self._pause(1, deadline_ms):
            answer = self._metadata(names, deadline_ms).topics
        return {topic.name: topic for topic in answer}

    def topic_ids(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """None where brokers have no ids, or no such topic. Raises BrokersUnreachable."""
        return {
            name: None if topic.topic_id is None else str(topic.topic_id)
            for name, topic in (self.topics(names) if names else {}).items()
        }

    def _said_of(self, names: Sequence[str]) -> Sequence[TopicMetadata] | None:
        """What was said of these topics a moment ago, if all of them are there, led and known."""
        since_ms = monotonic_ms() - TOPICS_FRESH_MS
        said = [found[1] for name in names if (found := self._topics.get(name)) is not None and found[0] > since_ms]
        return said if len(said) == len(names) else None

    # --- brokers ------------------------------------------------------------------------------------------------------

    def ask_brokers(self, request: Request) -> dict[int, Response]:
        """The answer of every broker of the cluster, by node id.

        Raises BrokerUnavailable or BrokersUnreachable after `max.block.ms`.
        """
        deadline_ms = self._deadline_ms()
        tries = 0
        while True:
            if tries or not self._broker_ids:
                self._metadata((), deadline_ms)
            errands = [_Errand(node_id, request) for node_id in self._broker_ids]
            self._run(errands, deadline_ms)
            failed = [errand for errand in errands if not _is_definite(errand)]
            if not failed:
                self._metadata((), deadline_ms)
                if {errand.node_id for errand in errands} == set(self._broker_ids):
                    return {errand.node_id: errand.response for errand in errands if errand.response is not None}
            tries += 1
            if not self._pause(tries, deadline_ms):
                errand = (failed or errands)[0]
                code = ErrorCode.NONE if errand.response is None else error_code_of(errand.response)
                raise BrokerUnavailable(
                    node_id=errand.node_id,
                    waited_ms=self.config.max_block_ms,
                    last_error=errand.error or (_named(code) if code else "the brokers came and went"),
                )

    def broker_setting(self, name: str) -> str | None:
        """What a broker, any, says that its setting `name` is; None where it does not tell, which takes the ACL CLUSTER
        DESCRIBE_CONFIGS. Raises BrokersUnreachable."""
        deadline_ms = self._deadline_ms()
        tries = 0
        while True:
            for broker in self._metadata((), deadline_ms).brokers:
                errand = _Errand(broker.node_id, DescribeConfigsRequest(broker.node_id, name))
                self._run([errand], deadline_ms)
                if isinstance(errand.response, DescribeConfigsResponse):
                    return errand.response.value
            tries += 1
            if not self._pause(tries, deadline_ms):
                raise self._unreachable()

    def topic_settings(self, topics: Iterable[str], names: tuple[str, ...]) -> dict[str, Mapping[str, str]]:
        """Each topic's settings `names`, those that its brokers have; none where they do not tell, which takes the ACL
        TOPIC DESCRIBE_CONFIGS, or where there is no such topic within `max.block.ms`. Raises BrokersUnreachable."""
        deadline_ms = self._deadline_ms()
        found: dict[str, Mapping[str, str]] = {}
        missing = tuple(sorted(topics))
        tries = 0
        while missing:
            answer = self._ask_any(TopicConfigsRequest(missing, names), deadline_ms)
            assert isinstance(answer, TopicConfigsResponse)
            for told in answer.topics:
                # A broker may not have heard of a topic that another has just made.
                if on_produce_error(told.error_code) not in (Action.RETRY, Action.REFRESH_AND_RETRY):
                    found[told.topic] = told.values
            missing = tuple(topic for topic in missing if topic not in found)
            tries += 1
            if missing and not self._pause(tries, deadline_ms):
                return found | {topic: {} for topic in missing}
        return found

    def finalized_features(self) -> Mapping[str, int]:
        """Feature -> level, the same on every broker of a cluster. Raises BrokersUnreachable."""
        return self._network.finalized_features(self._any_node(self._deadline_ms())) or {}

    def transaction_version(self) -> int:
        """2 where the cluster has KIP-890's transactions, and 1 elsewhere. Raises BrokersUnreachable."""
        node_id = self._any_node(self._deadline_ms())
        level = (self._network.finalized_features(node_id) or {}).get(TRANSACTION_VERSION, 0)
        speaks_2 = (self._network.api_version(node_id, _ANY_PRODUCE) or 0) >= IMPLICIT_PRODUCE and all(
            self._network.api_version(node_id, request) is not None for request in _OF_VERSION_2
        )
        return 2 if level >= 2 and speaks_2 else 1

    # --- the commit topic ---------------------------------------------------------------------------------------------

    def ensure_topic(self, name: str, *, ask_also: tuple[str, ...] = ()) -> None:
        """Returns once topic `name` exists, its partition 0 with a leader. Makes it, if it is not there, of two
        partitions with the brokers' default replication factor. `ask_also`: topics of which something is to be known
        next.

        Raises CommitTopicMissing, TopicAuthorizationFailed, TopicNameInvalid or BrokersUnreachable.
        """
        deadline_ms = self._deadline_ms()
        reason, tries = "", 0
        while True:
            topics = self._metadata((name, *ask_also), deadline_ms).topics
            topic = next(each for each in topics if each.name == name)
            if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise TopicAuthorizationFailed(topic=name, operation="READ")
            if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise TopicNameInvalid(topic=name)
            if any(partition.partition == 0 and partition.leader_id >= 0 for partition in topic.partitions):
                if len(topic.partitions) >= COMMIT_TOPIC_PARTITIONS:
                    return
                raise CommitTopicTooSmall(
                    topic=name,
                    partition_count=len(topic.partitions),
                    command=commit_topic_command("--alter", name, self.config),
                )
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reason = self._create(name, deadline_ms)
            tries += 1
            if not self._pause(tries, deadline_ms):
                raise self._commit_topic_missing(name, reason or "it has no leader")

    def _create(self, name: str, deadline_ms: int) -> str:
        """Asks for topic `name`. Why it may not be there yet; raises CommitTopicMissing if it never will be."""
        request = CreateTopicsRequest(name, COMMIT_TOPIC_PARTITIONS, self.config.request_timeout_ms)
        response = self._ask_any(request, deadline_ms)
        assert isinstance(response, CreateTopicsResponse)
        code = response.error_code
        reason = _named(code) + (f": {response.error_message}" if response.error_message else "")
        if code not in _TOPIC_WILL_BE_THERE:
            raise self._commit_topic_missing(name, reason)
        return reason

    def _commit_topic_missing(self, name: str, reason: str) -> CommitTopicMissing:
        command = commit_topic_command("--create", name, self.config)
        return CommitTopicMissing(topic=name, reason=reason, command=command)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _clock_ms(self) -> int:
        now_ms = monotonic_ms()
        return now_ms - self._network.throttled_ms(now_ms)

    def _deadline_ms(self) -> int:
        deadline_ms = self._clock_ms() + self.config.max_block_ms
        return deadline_ms if self._ends_ms is None else min(deadline_ms, self._ends_ms)

    def _metadata(self, topics: tuple[str, ...] | None, deadline_ms: int) -> MetadataResponse:
        response = self._ask_any(MetadataRequest(topics, allow_auto_topic_creation=False), deadline_ms)
        assert isinstance(response, MetadataResponse)
        self._take_brokers(response)
        now_ms = monotonic_ms()
        for topic in response.topics:
            is_whole = not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions)
            if is_whole:
                self._topics[topic.name] = now_ms, topic
            else:
                self._topics.pop(topic.name, None)
        return response

    def _take_brokers(self, response: MetadataResponse) -> None:
        self._network.update_brokers(response.brokers)
        # A broker that knows of none has just started; the network keeps those it had, too.
        self._broker_ids = tuple(broker.node_id for broker in response.brokers) or self._broker_ids

    def _ask_any(self, request: Request, deadline_ms: int) -> Response:
        """The answer of any broker."""
        tries = 0
        while True:
            errand = _Errand(self._any_node(deadline_ms), request)
            self._run([errand], deadline_ms)
            if errand.response is not None:
                return errand.response
            tries += 1
            if not self._pause(tries, deadline_ms):
                raise self._unreachable()

    def _any_node(self, deadline_ms: int) -> int:
        """A node that takes a request now."""
        while (node_id := self._network.least_loaded_node(monotonic_ms())) is None:
            if self._clock_ms() >= deadline_ms:
                raise self._unreachable()
            self._turn((), deadline_ms)
        return node_id

    def _unreachable(self) -> KafkaSinkError:
        return BrokersUnreachable(
            bootstrap_servers=self.config.bootstrap_servers_text,
            waited_ms=self.config.max_block_ms,
            last_error=self._network.last_error,
        )

    def _run(self, errands: Sequence[_Errand], deadline_ms: int) -> None:
        """Until each is done or `deadline_ms` is there."""
        while not all(errand.done for errand in errands) and self._clock_ms() < deadline_ms:
            self._turn(errands, deadline_ms)

    def _pause(self, tries: int, deadline_ms: int) -> bool:
        """Backs off after `tries` in a row; False, at once, if `deadline_ms` would be there before that is over."""
        pause_ms = backoff_ms(tries, self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self._rng)
        until_ms = self._clock_ms() + pause_ms
        if until_ms >= deadline_ms:
            return False
        while self._clock_ms() < until_ms:
            self._turn((), until_ms)
        return True

    def _turn(self, errands: Iterable[_Errand], until_ms: int) -> None:
        """Sends what can go and takes what has come, waiting for it until `until_ms` at most."""
        now_ms = monotonic_ms()
        wait_ms = self._coordinators.run_once(now_ms)
        self._list_brokers(now_ms)
        for errand in errands:
            self._send(errand, now_ms)
        if any(errand.done and not errand.sent for errand in errands):
            wait_ms = 0
        for answer in self._network.poll(max(0, min(wait_ms, until_ms - self._clock_ms()))):
            self._take(answer)
        if self._network.failure is not None:
            raise self._network.failure

    def _take(self, answer: ClientResponse) -> None:
        token = answer.token
        if isinstance(token, _Errand):
            token.response, token.error, token.done = answer.response, answer.error or "", True
        elif token is _BROKERS:
            self._on_brokers(answer.response)
        else:
            self._coordinators.handle(answer, monotonic_ms())

    def _send(self, errand: _Errand, now_ms: int) -> None:
        if errand.sent or errand.done:
            return
        if self._network.ready(errand.node_id, now_ms):
            errand.sent = True
            self._network.send(errand.node_id, errand.request, now_ms, errand)
        elif self._network.is_down(errand.node_id):
            errand.error, errand.done = self._network.last_error, True

    def _list_brokers(self, now_ms: int) -> None:
        if now_ms < self._brokers_due_ms:
            return
        node_id = self._network.least_loaded_node(now_ms)
        if node_id is not None:
            self._brokers_due_ms = now_ms + self.config.metadata_max_age_ms
            self._network.send(node_id, MetadataRequest((), allow_auto_topic_creation=False), now_ms, _BROKERS)

    def _on_brokers(self, response: object) -> None:
        if isinstance(response, MetadataResponse):
            self._take_brokers(response)
        else:
            self._brokers_due_ms = monotonic_ms() + self.config.retry_backoff_ms


def _by_leader(
    partitions: Iterable[TopicAndPartition], topics: Iterable[TopicMetadata]
) -> tuple[dict[int, Partitions], dict[TopicAndPartition, str]]:
    """Which of `partitions` each node leads, and why nobody leads the others."""
    leaders: dict[TopicAndPartition, int] = {}
    codes: dict[TopicAndPartition, int] = {}
    of_topic = {topic.name: topic for topic in topics}
    for topic in of_topic.values():
        for each in topic.partitions:
            leaders[topic.name, each.partition] = each.leader_id
            codes[topic.name, each.partition] = each.error_code
    led: dict[int, Partitions] = {}
    reasons = {}
    for partition in partitions:
        leader_id = leaders.get(partition, -1)
        if leader_id >= 0:
            led[leader_id] = (*led.get(leader_id, ()), partition)
        else:
            code = of_topic[partition[0]].error_code or codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            reasons[partition] = _named(code)
    return led, reasons


def _of_partitions(response: Response | None) -> Sequence[ProducersOfPartition | PartitionResult]:
    match response:
        case DescribeProducersResponse(partitions=partitions):
            return partitions
        case WriteTxnMarkersResponse(results=results):
            return results
        case _:
            return ()


def _is_definite(errand: _Errand) -> bool:
    return errand.response is not None and next_after(error_code_of(errand.response)) is Next.DONE


def _named(code: int) -> str:
    return f"{error_name(code)} (error {code})"


# Made now or by somebody else before, or to be asked for again: the controller is busy or moving.
_TOPIC_WILL_BE_THERE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


# --- the clients this process keeps -----------------------------------------------------------------------------------

KEPT: Kept[CoordinatorClient] = Kept()


@contextmanager
def lease(config: ProducerConfig, cluster_id: str | None = None) -> Iterator[CoordinatorClient]:
    """A client for one commit, in `cluster_id` unless that is None: the kept one of this configuration if there is one
    that may go on. Kept again afterwards unless the commit raised."""
    client = KEPT.take(config)
    if client is not None and not client.may_go_on(cluster_id):
        client.close()
        client = None
    with exhaustion_named():
        if client is None:
            client = CoordinatorClient(config, cluster_id)
        try:
            yield client
        except BaseException as error:
            # Whatever it was, an interrupt too: requests of this commit may be under way, or wait to be sent.
            client.close()
            if isinstance(error, KafkaSinkError):
                error.of_principal(config.security.principal)
                look_at_hosts(error, config)
            raise
    KEPT.put(client)

"""The examination: checks everything that a write needs of a cluster, in the order of the steps, and writes no row.

    bootstrap servers ─> list of brokers ─> each broker at its advertised address ─> the topic ─> permissions

`examine` runs all steps, for `pykafka check` and `kafka_sink.validate`. `examine_hosts` runs the first half. Executors
run it too, and so does a write that cannot reach its brokers. The doctor connects to all hosts in parallel, then sends
the other requests over these connections. `reaching` and `judging` make the findings. This module sends the requests.

With `createTopics` the examination creates the topic. It leaves nothing else in the cluster. A producer id without a
transactional id is not stored. The check of a transactional id asks to end a transaction that never existed, under a
random id. Brokers check the ACL first (KafkaApis.handleEndTxnRequest), and create nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from kafka_sink.doctor import judging, service
from kafka_sink.doctor.dialogue import Dialogue, NoAnswer, NotTaken, dial
from kafka_sink.doctor.reaching import Attempt, address_text, advertised, dispensable, host_verdicts
from kafka_sink.doctor.report import DRIVER, Finding, Report, Status, Verdict, failed, skipped
from kafka_sink.doctor.steps import HOST_STEPS, STEPS, because_of
from kafka_sink.kafka.admin.topics import create_request, is_busy, not_taken
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.acl_operation import (
    AclOperation,
)
from kafka_sink.kafka.protocol.apis.create_topics import (
    CreateTopicsResponse,
)
from kafka_sink.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    TopicConfigsRequest,
    TopicConfigsResponse,
)
from kafka_sink.kafka.protocol.apis.describe_groups import (
    DescribeGroupRequest,
    DescribeGroupResponse,
)
from kafka_sink.kafka.protocol.apis.end_txn import (
    EndTxnRequest,
    EndTxnResponse,
)
from kafka_sink.kafka.protocol.apis.find_coordinator import (
    CoordinatorKind,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_sink.kafka.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    TopicMetadata,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning
from kafka_sink.kafka.protocol.requests import (
    Request,
)
from kafka_sink.options.config import COMMIT_TOPIC_PARTITIONS, EXACTLY_ONCE, SinkConfig

# Hosts that the doctor connects to in parallel.
AT_ONCE = 16
# No new connection starts after this time, because a peer's answer may name any number of brokers.
HOSTS_TIMEOUT_S = 20.0
# Brokers create a coordinator's internal topic at the first request, and a new topic needs time to get leaders.
PATIENCE_S = 4.0
PAUSE_S = 0.2
# Without transactionalIdPrefix and txnAppId, all derived ids begin with this.
DERIVED_PREFIX = "pykafka-"


def examine(config: SinkConfig) -> Report:
    """Take all steps from this host. Create the topic only if `createTopics` is set."""
    with reached(config.producer) as hosts:
        examination = _WriteExamination(config, hosts)
        examination.take_all()
        return Report((*hosts.verdicts, *examination.verdicts))


def examine_hosts(config: ClientConfig) -> Report:
    """Take the steps of the bootstrap servers, and of every broker that they name, from this host."""
    with reached(config) as hosts:
        return Report(tuple(hosts.verdicts))


# --- hosts ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Hosts:
    """The open connections: one to a bootstrap server, and one to each broker by node id."""

    verdicts: list[Verdict] = field(default_factory=list)
    bootstrap: Dialogue | None = None
    brokers: dict[int, Dialogue] = field(default_factory=dict)

    @property
    def any(self) -> Dialogue | None:
        return next(iter(self.brokers.values()), self.bootstrap)


@contextmanager
def reached(config: ClientConfig) -> Iterator[Hosts]:
    hosts = Hosts()
    opened: list[Dialogue] = []
    try:
        by_address: dict[tuple[str, int], Dialogue | None] = {}
        attempts = []
        for (host, port), (attempt, dialogue) in _dialled(config.bootstrap_servers, config):
            attempts.append(attempt)
            by_address[host, port] = dialogue
            opened += [] if dialogue is None else [dialogue]
        hosts.bootstrap = next(iter(opened), None)
        for attempt in attempts:
            verdicts = host_verdicts(attempt, address_text(attempt.host, attempt.port), config.security)
            hosts.verdicts += verdicts if hosts.bootstrap is None else map(dispensable, verdicts)
        brokers: Sequence[Broker] = ()
        if hosts.bootstrap is not None and hosts.bootstrap.cluster is not None:
            brokers = hosts.bootstrap.cluster.brokers
        # A broker that is a bootstrap server too already has its verdicts.
        others = {(each.host, each.port): each.node_id for each in brokers if (each.host, each.port) not in by_address}
        for (host, port), (attempt, dialogue) in _dialled(tuple(others), config):
            node_id = others.pop((host, port))
            if attempt.failure is not None:
                attempt = replace(attempt, failure=advertised(attempt.failure))
            where = f"broker {node_id}, {address_text(host, port)}"
            hosts.verdicts += host_verdicts(attempt, where, config.security)
            by_address[host, port] = dialogue
            opened += [] if dialogue is None else [dialogue]
        if others:
            left_out = skipped(f"not checked: {HOSTS_TIMEOUT_S:g} s were not enough for all brokers of the cluster")
            hosts.verdicts.append(Verdict(HOST_STEPS[0], f"{len(others)} more brokers", left_out))
        reached = {each.node_id: by_address.get((each.host, each.port)) for each in brokers}
        hosts.brokers = {node_id: dialogue for node_id, dialogue in reached.items() if dialogue is not None}
        yield hosts
    finally:
        for each in opened:
            each.close()


def _dialled(
    addresses: Sequence[tuple[str, int]], config: ClientConfig
) -> Iterable[tuple[tuple[str, int], tuple[Attempt, Dialogue | None]]]:
    """Return the attempts that could start in time, by address."""
    addresses = tuple(dict.fromkeys(addresses))
    until_s = time.monotonic() + HOSTS_TIMEOUT_S

    def in_time(address: tuple[str, int]) -> tuple[Attempt, Dialogue | None] | None:
        return dial(address[0], address[1], config) if time.monotonic() < until_s else None

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kafka_sink-doctor") as pool:
        dialled = zip(addresses, pool.map(in_time, addresses), strict=True)
        return [(address, done) for address, done in dialled if done is not None]


# --- the cluster ------------------------------------------------------------------------------------------------------


class _NotReached(Exception):
    """The step's broker has no connection. The broker's own verdicts give the reason."""


class _NotMade(Exception):
    """The topic does not exist. Brokers may create it when the write sends rows."""


class Examination:
    """Takes steps at a cluster, over connections that are open."""

    def __init__(self, client: ClientConfig, hosts: Hosts) -> None:
        self.verdicts: list[Verdict] = []
        self._client = client
        self._hosts = hosts

    def take(self, step: str, where: str, judge: Callable[[], Finding]) -> None:
        blocking = because_of(STEPS[step], self.verdicts)
        if blocking is not None:
            finding = skipped(f"because of {blocking.step}")
        else:
            try:
                finding = judge()
            except _NotReached as error:
                finding = skipped(f"because of {error}, which was not reached")
            except _NotMade:
                finding = skipped("because of topic, which does not exist yet")
            except NotTaken as error:
                finding = skipped(f"because {error}")
            except NoAnswer as error:
                finding = failed(str(error), "check that the brokers run and are not overloaded, then check again")
        self.verdicts.append(Verdict(step, where, finding))

    def look_at_cluster(self) -> Finding:
        if self._hosts.bootstrap is None:
            return skipped("because no bootstrap server was reached")
        assert self._hosts.bootstrap.cluster is not None
        return judging.cluster(self._hosts.bootstrap.cluster)

    def look_at_service(self) -> Finding:
        bootstrap = self._hosts.bootstrap
        assert bootstrap is not None and bootstrap.cluster is not None, "the step of the cluster needs it"
        hosts = {host for host, _ in self._client.bootstrap_servers}
        hosts |= {broker.host for broker in bootstrap.cluster.brokers}
        return service.service(hosts, bootstrap.cluster.cluster_id, bootstrap.ranges)

    def ranges(self) -> Mapping[str, service.Ranges]:
        """What each broker that was reached takes, or a bootstrap server where none was."""
        reached = {f"broker {node_id}": dialogue.ranges for node_id, dialogue in self._hosts.brokers.items()}
        assert self._hosts.bootstrap is not None, "the step of the cluster needs it"
        return reached or {"the bootstrap server": self._hosts.bootstrap.ranges}

    def ask(self, request: Request) -> object:
        """Ask any broker. Raises NoAnswer."""
        dialogue = self._hosts.any
        assert dialogue is not None, "every step here needs the cluster"
        return dialogue.ask(request)

    def metadata_of(self, name: str) -> TopicMetadata:
        response = self.ask(MetadataRequest((name,), allow_auto_topic_creation=False, describe=True))
        assert isinstance(response, MetadataResponse)
        return response.topics[0]

    def operations_on(self, group_id: str) -> tuple[int, int]:
        """Return the error code of its coordinator, and the operations that are allowed on a group, which need not
        exist. Raises NoAnswer, _NotReached."""

        def code_of(response: object) -> int:
            assert isinstance(response, DescribeGroupResponse)
            return response.error_code

        request = DescribeGroupRequest(group_id)
        code, response = self.of_coordinator(CoordinatorKind.GROUP, group_id, request, code_of)
        return code, response.authorized_operations if isinstance(response, DescribeGroupResponse) else 0

    def of_coordinator(
        self, kind: CoordinatorKind, key: str, request: Request, code_of: Callable[[object], int]
    ) -> tuple[int, object]:
        """Return the error code and the answer of the coordinator of `key`. The answer is None if no coordinator is
        found. Raises NoAnswer, _NotReached."""
        code, response = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), None
        for _ in _tries():
            found = self.ask(FindCoordinatorRequest(kind, (key,)))
            assert isinstance(found, FindCoordinatorResponse)
            (coordinator,) = found.coordinators
            code = coordinator.error_code
            if code == ErrorCode.NONE:
                dialogue = self._hosts.brokers.get(coordinator.node_id)
                if dialogue is None:
                    raise _NotReached(f"broker {coordinator.node_id}")
                response = dialogue.ask(request)
                code = code_of(response)
            if not _is_too_early(code):
                break
        return code, response


class _WriteExamination(Examination):
    """The steps that follow the steps of the hosts."""

    def __init__(self, config: SinkConfig, hosts: Hosts) -> None:
        super().__init__(config.producer, hosts)
        self._config = config
        self._topic: TopicMetadata | None = None
        self._values: dict[str, str] = {}

    def take_all(self) -> None:
        config, cluster = self._config, "cluster"
        topic = self.take_topic().where
        self.take("write acl", topic, lambda: judging.may(AclOperation.WRITE, self._said, config.producer))
        self.take("leaders", topic, lambda: judging.leaders(self._said))
        self.take("replication", topic, lambda: judging.replication(self._said))
        self.take("settings", topic, self._settings)
        acks = config.producer.acks
        self.take("in-sync replicas", topic, lambda: judging.in_sync(self._said, self._values, acks))
        self.take("unclean election", topic, lambda: judging.unclean(self._values))
        self.take("message size", topic, lambda: judging.message_size(self._values, config.producer))
        self.take("timestamps", topic, lambda: judging.timestamps(self._values))
        self.take("acks", topic, lambda: judging.acks(config.producer))
        letters = config.dead_letter_topic
        if letters is not None:
            self.take(
                "dead letter topic",
                f"topic {letters}",
                lambda: self._dead_letter_topic(letters),
            )
        if config.delivery_guarantee == EXACTLY_ONCE:
            prefix = config.transactional_id_prefix or config.txn_app_id or DERIVED_PREFIX
            self.take("read acl", topic, lambda: judging.may(AclOperation.READ, self._said, config.producer))
            self.take("commit topic", f"topic {config.commit_topic}", self._commit_topic)
            self.take("transactional id acl", f"{prefix}*", lambda: self._transactional_id(prefix))
            self.take("group acl", f"{prefix}*", lambda: self._group(prefix))
            self.take("transaction timeout", cluster, self._ceiling)
            self.take("retention of state", cluster, self._retention)
        elif config.producer.enable_idempotence:
            self.take("producer id", cluster, self._producer_id)

    def take_topic(self) -> Verdict:
        """Take the steps of the cluster and the topic. Return the topic's verdict."""
        name = self._config.topic
        self.take("cluster", "cluster", self.look_at_cluster)
        self.take("service", "cluster", self.look_at_service)
        self.take("at-least-once", "cluster", self._at_least_once)
        self.take("exactly-once", "cluster", self._exactly_once)
        self.take("topic", "topic" if name is None else f"topic {name}", self._look_at_topic)
        return self.verdicts[-1]

    @property
    def _said(self) -> TopicMetadata:
        assert self._topic is not None, "a step of the topic needs it"
        if not self._topic.partitions:
            raise _NotMade
        return self._topic

    def _at_least_once(self) -> Finding:
        return service.at_least_once(self.ranges(), is_idempotent=self._config.producer.enable_idempotence)

    def _exactly_once(self) -> Finding:
        return service.exactly_once(self.ranges(), is_wanted=self._config.delivery_guarantee == EXACTLY_ONCE)

    # --- the topic ----------------------------------------------------------------------------------------------------

    def _look_at_topic(self) -> Finding:
        name = self._config.topic
        if name is None:
            return skipped(
                "no topic option: rows name their topics themselves",
                "name one of them with the topic option to have it checked",
            )
        self._topic = self.metadata_of(name)
        if self._topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return judging.topic(self._topic, self._config)
        if self._config.create_topics:
            return self._make(name)
        return judging.missing(name, self._told(judging.AUTO_CREATE), self._config)

    def _dead_letter_topic(self, name: str) -> Finding:
        said = self.metadata_of(name)
        if said.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return judging.dead_letter_topic(said, self._config)
        return judging.missing(name, self._told(judging.AUTO_CREATE), self._config, option="deadLetterTopic")

    def _make(self, name: str) -> Finding:
        wanted = self._config.create_topics
        assert wanted, "asked for by createTopics"
        finding = judging.created(self._create(name, wanted), name, wanted, self._config)
        if finding.status is Status.FAILED:
            return finding
        for _ in _tries():
            said = self._topic = self.metadata_of(name)
            # Wait until each partition has a leader. If one has none in time, the following steps report it.
            if said.partitions and all(each.leader_id >= 0 for each in said.partitions):
                break
        return finding if said.partitions else judging.topic(said, self._config)

    def _create(self, name: str, wanted: NewTopic, *, validate_only: bool = False) -> CreateTopicsResponse:
        """Create the topic. Ask a busy controller again for `PATIENCE_S`, as a write does. Raises NoAnswer."""
        request = create_request(self._config.producer, name, wanted, validate_only=validate_only)
        for _ in _tries():
            try:
                response = cast(CreateTopicsResponse, self.ask(request))
            except NotTaken:
                return not_taken(request)
            if not is_busy(response.error_code):
                break
        return response

    def _settings(self) -> Finding:
        name = self._said.name
        response = self.ask(TopicConfigsRequest((name,), judging.TOPIC_SETTINGS))
        assert isinstance(response, TopicConfigsResponse)
        (told,) = response.topics
        self._values = dict(told.values)
        return judging.settings(told, self._config)

    def _producer_id(self) -> Finding:
        code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        # A broker answers COORDINATOR_LOAD_IN_PROGRESS while it fetches a block of ids from the controller (KIP-730).
        for _ in _tries():
            response = self.ask(InitProducerIdRequest(self._config.producer.request_timeout_ms))
            assert isinstance(response, InitProducerIdResponse)
            code = response.error_code
            if not _is_too_early(code):
                break
        return judging.producer_id(code, self._said.name, self._config)

    # --- exactly-once -------------------------------------------------------------------------------------------------

    def _commit_topic(self) -> Finding:
        said = self.metadata_of(self._config.commit_topic)
        made = None
        if said.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            made = self._create(said.name, NewTopic(COMMIT_TOPIC_PARTITIONS), validate_only=True)
        return judging.commit_topic(said, made, self._config)

    def _transactional_id(self, prefix: str) -> Finding:
        # A random id, so that the request cannot end a real transaction.
        name = f"{prefix}.check-{uuid.uuid4().hex}"
        request = EndTxnRequest(name, 0, 0, committed=False, transaction_version=1)

        def code_of(response: object) -> int:
            assert isinstance(response, EndTxnResponse)
            return response.error_code

        code, _ = self.of_coordinator(CoordinatorKind.TRANSACTION, name, request, code_of)
        return judging.transactional_id(code, prefix, self._config)

    def _group(self, prefix: str) -> Finding:
        return judging.group(*self.operations_on(f"{prefix}.check"), prefix, self._config)

    def _ceiling(self) -> Finding:
        if not self._hosts.brokers:
            raise _NotReached("every broker")
        return judging.ceiling(self._told(judging.CEILING), self._config.transaction_timeout_ms)

    def _retention(self) -> Finding:
        if not self._hosts.brokers:
            raise _NotReached("every broker")
        offsets, ids = self._told(judging.OFFSETS_RETENTION), self._told(judging.IDS_EXPIRATION)
        return judging.retention(offsets, ids, self._config.transaction_timeout_ms)

    def _told(self, setting: str) -> str | None:
        """Return a broker's value of `setting`, or None if it is unknown or no broker is reached. Raises NoAnswer."""
        for node_id, dialogue in self._hosts.brokers.items():
            try:
                response = dialogue.ask(DescribeConfigsRequest(node_id, setting))
            except NotTaken:
                return None
            assert isinstance(response, DescribeConfigsResponse)
            return response.value
        return None


def _is_too_early(code: int) -> bool:
    """Return True if the coordinator, or the leader of its new internal topic, is not ready yet."""
    return meaning(code).coordinator_not_ready or code == ErrorCode.LEADER_NOT_AVAILABLE


def _tries() -> Iterator[None]:
    """Yield at once, then again after each pause of `PAUSE_S`, for `PATIENCE_S`."""
    until_s = time.monotonic() + PATIENCE_S
    yield
    while time.monotonic() < until_s:
        time.sleep(PAUSE_S)
        yield


def first_failure(report: Report) -> Verdict | None:
    """Return the first failure that this host found, which the user has to fix first."""
    return next((verdict for verdict in report.failures if verdict.seen_from == DRIVER), None)

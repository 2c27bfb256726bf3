"""The examination of a write, and that of a read: everything that they need of a cluster, in the order of the steps.

    the hosts (`engine.py`) ─> the topic ─> permissions ─> settings ─> with exactly-once: ids, groups, the commit topic

For `pykafka check` and `kafka_sink.validate`. With `createTopics` the examination creates the topic. It leaves nothing
else in the cluster. A producer id without a transactional id is not stored. The check of a transactional id asks to end
a transaction that never existed, under a random id. Brokers check the ACL first (KafkaApis.handleEndTxnRequest), and
create nothing.
"""

from __future__ import annotations

import uuid

from kafka_sink.doctor import engine, findings
from kafka_sink.doctor.dialogue import NotTaken
from kafka_sink.doctor.engine import Examination, Hosts, NotMade, NotReached, is_too_early, reached, tries
from kafka_sink.doctor.report import Finding, Report, Status, Verdict, failed, ok, skipped
from kafka_sink.errors import BrokersUnreachable, KafkaSinkError, WorkerExhausted
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.errors.quoting import shell_command
from kafka_sink.kafka.admin.topics import create_request, is_busy, not_taken
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.api import AclOperation
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse, TopicMetadata
from kafka_sink.kafka.protocol.apis.topics import (
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    TopicConfigs,
    TopicConfigsRequest,
    TopicConfigsResponse,
)
from kafka_sink.kafka.protocol.apis.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import COMMIT_TOPIC_PARTITIONS, EXACTLY_ONCE, SinkConfig
from kafka_sink.options.reading import ReadConfig

# Without transactionalIdPrefix and txnAppId, all derived ids begin with this.
DERIVED_PREFIX = "pykafka-"


def examine(config: SinkConfig) -> Report:
    """Take all steps from this host. Create the topic only if `createTopics` is set."""
    with reached(config.producer) as hosts:
        examination = _WriteExamination(config, hosts)
        examination.take_all()
        return Report((*hosts.verdicts, *examination.verdicts))


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
        self.take("write acl", topic, lambda: findings.may(AclOperation.WRITE, self._metadata, config.producer))
        self.take("leaders", topic, lambda: findings.leaders(self._metadata))
        self.take("replication", topic, lambda: findings.replication(self._metadata))
        self.take("settings", topic, self._settings)
        acks = config.producer.acks
        self.take("in-sync replicas", topic, lambda: findings.in_sync(self._metadata, self._values, acks))
        self.take("unclean election", topic, lambda: findings.unclean(self._values))
        self.take("message size", topic, lambda: findings.message_size(self._values, config.producer))
        self.take("timestamps", topic, lambda: findings.timestamps(self._values))
        self.take("acks", topic, lambda: findings.acks(config.producer))
        letters = config.dead_letter_topic
        if letters is not None:
            self.take("dead letter topic", f"topic {letters}", lambda: self._dead_letter_topic(letters))
        if config.delivery_guarantee == EXACTLY_ONCE:
            prefix = config.transactional_id_prefix or config.txn_app_id or DERIVED_PREFIX
            self.take("read acl", topic, lambda: findings.may(AclOperation.READ, self._metadata, config.producer))
            self.take("commit topic", f"topic {config.commit_topic}", self._commit_topic)
            self.take("transactional id acl", f"{prefix}*", lambda: self._transactional_id(prefix))
            self.take("group acl", f"{prefix}*", lambda: self._group(prefix))
            self.take("transaction timeout", cluster, self._ceiling)
            self.take("retention of state", cluster, self._retention)
            self.take("topics of state", cluster, self._state_topics)
        elif config.producer.enable_idempotence:
            self.take("producer id", cluster, self._producer_id)
        self.look_at_throttles()

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
    def _metadata(self) -> TopicMetadata:
        assert self._topic is not None, "a step of the topic needs it"
        if not self._topic.partitions:
            raise NotMade
        return self._topic

    def _at_least_once(self) -> Finding:
        return engine.at_least_once(self.ranges(), is_idempotent=self._config.producer.enable_idempotence)

    def _exactly_once(self) -> Finding:
        return engine.exactly_once(self.ranges(), is_wanted=self._config.delivery_guarantee == EXACTLY_ONCE)

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
            return findings.topic(self._topic, self._config)
        if self._config.create_topics:
            return self._make(name)
        return findings.missing(name, self._broker_setting(findings.AUTO_CREATE), self._config)

    def _dead_letter_topic(self, name: str) -> Finding:
        answer = self.metadata_of(name)
        if answer.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return findings.dead_letter_topic(answer, self._config)
        return findings.missing(
            name, self._broker_setting(findings.AUTO_CREATE), self._config, option="deadLetterTopic"
        )

    def _make(self, name: str) -> Finding:
        wanted = self._config.create_topics
        assert wanted, "asked for by createTopics"
        finding = findings.created(self._create(name, wanted), name, wanted, self._config)
        if finding.status is Status.FAILED:
            return finding
        for _ in tries():
            answer = self._topic = self.metadata_of(name)
            # Wait until each partition has a leader. If one has none in time, the following steps report it.
            if answer.partitions and all(each.leader_id >= 0 for each in answer.partitions):
                break
        return finding if answer.partitions else findings.topic(answer, self._config)

    def _create(self, name: str, wanted: NewTopic, *, validate_only: bool = False) -> CreateTopicsResponse:
        """Create the topic. Ask a busy controller again for `PATIENCE_S`, as a write does. Raises NoAnswer."""
        request = create_request(self._config.producer, name, wanted, validate_only=validate_only)
        for _ in tries():
            try:
                response = self.ask(request, CreateTopicsResponse)
            except NotTaken:
                return not_taken(request)
            if not is_busy(response.error_code):
                break
        return response

    def _settings(self) -> Finding:
        name = self._metadata.name
        request = TopicConfigsRequest((name,), findings.TOPIC_SETTINGS)
        (configs,) = self.ask(request, TopicConfigsResponse).topics
        self._values = dict(configs.values)
        return findings.settings(configs, self._config)

    def _producer_id(self) -> Finding:
        code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        # A broker answers COORDINATOR_LOAD_IN_PROGRESS while it fetches a block of ids from the controller (KIP-730).
        for _ in tries():
            request = InitProducerIdRequest(self._config.producer.request_timeout_ms)
            code = self.ask(request, InitProducerIdResponse).error_code
            if not is_too_early(code):
                break
        return findings.producer_id(code, self._metadata.name, self._config)

    # --- exactly-once -------------------------------------------------------------------------------------------------

    def _commit_topic(self) -> Finding:
        answer = self.metadata_of(self._config.commit_topic)
        made = None
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            made = self._create(answer.name, NewTopic(COMMIT_TOPIC_PARTITIONS), validate_only=True)
        return findings.commit_topic(answer, made, self._config)

    def _transactional_id(self, prefix: str) -> Finding:
        # A random id, so that the request cannot end a real transaction.
        name = f"{prefix}.check-{uuid.uuid4().hex}"
        request = EndTxnRequest(name, 0, 0, committed=False, transaction_version=1)
        code, _ = self.of_coordinator(CoordinatorKind.TRANSACTION, name, request, EndTxnResponse)
        return findings.transactional_id(code, prefix, self._config)

    def _group(self, prefix: str) -> Finding:
        return findings.group(*self.operations_on(f"{prefix}.check"), prefix, self._config)

    def _ceiling(self) -> Finding:
        if not self._hosts.brokers:
            raise NotReached("every broker")
        return findings.ceiling(self._broker_setting(findings.CEILING), self._config.transaction_timeout_ms)

    def _retention(self) -> Finding:
        if not self._hosts.brokers:
            raise NotReached("every broker")
        offsets, ids = self._broker_setting(findings.OFFSETS_RETENTION), self._broker_setting(findings.IDS_EXPIRATION)
        return findings.retention(offsets, ids, self._config.transaction_timeout_ms)

    def _state_topics(self) -> Finding:
        topics = [self.metadata_of(name) for name in findings.STATE_TOPICS]
        there = tuple(each.name for each in topics if each.error_code == ErrorCode.NONE and each.partitions)
        configs: tuple[TopicConfigs, ...] = ()
        if there:
            configs = self.ask(TopicConfigsRequest(there, findings.STATE_SETTINGS), TopicConfigsResponse).topics
        return findings.state_topics(topics, configs, self._config)

    def _broker_setting(self, setting: str) -> str | None:
        """Return a broker's value of `setting`, or None if it is unknown or no broker is reached. Raises NoAnswer."""
        for node_id, dialogue in self._hosts.brokers.items():
            try:
                return self.ask(DescribeConfigsRequest(node_id, setting), DescribeConfigsResponse, dialogue).value
            except NotTaken:
                return None
        return None


# --- a write that cannot reach its brokers ----------------------------------------------------------------------------

CHECK = "pykafka check"


def look_at_hosts(error: KafkaSinkError, config: ClientConfig) -> None:
    """Add the failing step to a BrokersUnreachable error. Other errors are not changed.

    The failed process takes the steps of `pykafka check` for some seconds more, after `kafka.max.block.ms` has passed.
    A write that works does not even import the doctor.
    """
    if not isinstance(error, BrokersUnreachable):
        return
    try:
        with exhaustion_named():
            verdict = engine.first_failure(engine.examine_hosts(config))
    except WorkerExhausted:
        # A lack of memory or files in the examination must not hide the original error.
        return
    if verdict is not None:
        error.examined(
            step=verdict.step,
            where=verdict.where,
            found=verdict.finding.found,
            remedy=verdict.finding.remedy,
            command=f"All steps, one by one: {command(config)}.",
        )


def command(config: ClientConfig) -> str:
    """Return the command that takes the same steps, in backticks. It contains no secret options."""
    line = shell_command(CHECK, {"--bootstrap-servers": config.bootstrap_servers_text})
    if config.security.security_protocol == "PLAINTEXT":
        return f"`{line}`"
    return f"`{line} --preset FILE`, where FILE has the write's kafka.security, kafka.ssl and kafka.sasl options"


# --- a read -----------------------------------------------------------------------------------------------------------
#
# bootstrap servers ─> each broker at its advertised address ─> each topic: is it there, may it be read, is it led
#                                                            ─> the group of groupId: may it be committed to

# Topics of a pattern that are examined. The others are counted.
MOST_TOPICS = 20


def examine_read(config: ReadConfig) -> Report:
    """Take all steps from this host."""
    with reached(config.consumer) as hosts:
        examination = _ReadExamination(config, hosts)
        examination.take_all()
        return Report((*hosts.verdicts, *examination.verdicts))


class _ReadExamination(Examination):
    def __init__(self, config: ReadConfig, hosts: Hosts) -> None:
        super().__init__(config.consumer, hosts)
        self._config = config
        self._names: tuple[str, ...] = ()

    def take_all(self) -> None:
        self.take("cluster", "cluster", self.look_at_cluster)
        self.take("service", "cluster", self.look_at_service)
        self.take("reading", "cluster", lambda: engine.reading(self.ranges()))
        if self._config.subscribe_pattern is not None:
            self.take("topic", "subscribePattern", self._matching)
        elif self._config.subscribe is not None:
            self._names = self._config.subscribe
        else:
            self._names = tuple(dict.fromkeys(each.topic for each in self._config.assign or ()))
        for name in self._names[:MOST_TOPICS]:
            self._take_topic(name)
        group_id = self._config.group_id
        if group_id is not None:
            self.take("group acl", f"group {group_id}", lambda: self._group(group_id))
        self.look_at_throttles()

    def _group(self, group_id: str) -> Finding:
        return findings.progress_group(*self.operations_on(group_id), group_id, self._client)

    def _matching(self) -> Finding:
        pattern = self._config.subscribe_pattern
        assert pattern is not None, "asked for by subscribePattern"
        response = self.ask(MetadataRequest(None, allow_auto_topic_creation=False), MetadataResponse)
        matching = (each.name for each in response.topics if not each.is_internal and pattern.search(each.name))
        self._names = tuple(sorted(matching))
        if not self._names:
            return failed("it matches none of the topics that this principal may see", "correct the pattern")
        count = len(self._names)
        more = f"; {MOST_TOPICS} are examined" if count > MOST_TOPICS else ""
        return ok(f"it matches {count} topic{'s' if count != 1 else ''}{more}")

    def _take_topic(self, name: str) -> None:
        where = f"topic {name}"
        found: list[TopicMetadata] = []

        def look() -> Finding:
            found.append(self.metadata_of(name))
            return self._judge(found[0])

        before = len(self.verdicts)
        self.take("topic", where, look)
        # Steps of this topic depend on this topic's verdict alone.
        others, self.verdicts = self.verdicts[:before], self.verdicts[before:]
        self.take("read acl", where, lambda: findings.may(AclOperation.READ, found[0], self._client))
        self.take("leaders", where, lambda: findings.leaders(found[0]))
        self.verdicts = others + self.verdicts

    def _judge(self, answer: TopicMetadata) -> Finding:
        match answer.error_code:
            case ErrorCode.NONE if answer.partitions:
                return ok(f"{len(answer.partitions)} partitions")
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return failed("there is no such topic", "correct subscribe or assign, or create it")
            case _:
                return findings.not_described(answer, AclOperation.READ, self._client)

"""Findings about the cluster, the topic and the principal's permissions, made from answers of brokers.

Pure: one function for each step. Its inputs are a broker's answer and the write's configuration.

Non-obvious:

* Without the ACL DESCRIBE brokers answer TOPIC_AUTHORIZATION_FAILED, also for a topic that does not exist. WRITE
  implies DESCRIBE.
* A missing topic fails a write only if the brokers do not create topics automatically. By default Kafka creates them:
  a producer's first Metadata request causes that.
* `min.insync.replicas` applies to acks=all only. With fewer replicas in sync the leader refuses every batch
  (NOT_ENOUGH_REPLICAS). With fewer replicas in total it refuses batches until the topic is changed.
* The sink splits a batch that is larger than `max.message.bytes` and sends it again, at a cost. A single row that is
  too large is an error. `replica.fetch.max.bytes` is not checked: followers fetch at least one batch (KIP-74).

Source: KIP-430 (authorized operations), KIP-679, KIP-937 (timestamp bounds), Kafka's broker and topic configs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_sink.doctor.report import Finding, Status, failed, ok, skipped, warning
from kafka_sink.errors import named_principal
from kafka_sink.errors.quoting import several
from kafka_sink.kafka.config import ClientConfig, ProducerConfig
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.api import AclOperation, allows
from kafka_sink.kafka.protocol.apis.metadata import MetadataResponse, PartitionMetadata, TopicMetadata
from kafka_sink.kafka.protocol.apis.topics import CreateTopicsResponse, TopicConfigs, number_in
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_text
from kafka_sink.kafka.protocol.transaction_needs import DISKLESS, diskless
from kafka_sink.options.config import (
    COMMIT_TOPIC_PARTITIONS,
    EXACTLY_ONCE,
    SinkConfig,
    commit_topic_command,
    topics_command,
)

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
MAX_MESSAGE = "max.message.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
TOPIC_SETTINGS = (MIN_ISR, UNCLEAN, MAX_MESSAGE, TIMESTAMP_TYPE, BEFORE, AFTER, *DISKLESS)
CEILING = "transaction.max.timeout.ms"
AUTO_CREATE = "auto.create.topics.enable"
# How long brokers keep the markers and decisions of exactly-once, and its transactional ids. A query may be stopped
# for the shorter of both. Kafka's default is 7 days for each.
OFFSETS_RETENTION, IDS_EXPIRATION = "offsets.retention.minutes", "transactional.id.expiration.ms"
RETENTION_MS = 7 * 24 * 3_600_000
# The brokers' topics with markers and decisions, and with the ends of transactions.
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")
STATE_SETTINGS = (MIN_ISR, UNCLEAN)
# Kafka's value for "no limit" of timestamps, and its default limit for future timestamps (4.0, KIP-1030).
UNBOUNDED_MS = 2**63 - 1
DEFAULT_AFTER_MS = 3_600_000
# A step that is delayed for longer than this looks stuck.
LONG_THROTTLE_MS = 60_000
# Partitions named in one finding. Kafka's own tools list all of them.
MOST_SHOWN = 5


def _acl_remedy(acl: str, config: ClientConfig) -> str:
    return f"add the ACL {acl} for {named_principal(config.security.principal)}"


def cluster(response: MetadataResponse) -> Finding:
    if not response.brokers:
        return failed(
            "the bootstrap server knows no broker", "it has just started, or lost its controllers: look at its log"
        )
    brokers = ", ".join(f"{each.node_id}" for each in sorted(response.brokers, key=lambda each: each.node_id))
    return ok(f"{response.cluster_id or 'without an id'}; brokers {brokers}")


def throttled(throttle_time_ms: int, client: ClientConfig) -> Finding:
    """Judge the longest throttle (KIP-219) in a broker's answers to a few small requests."""
    found = f"it throttles this client for {throttle_time_ms / 1_000:,.0f} s, after a few small requests"
    remedy = (
        f"raise the quota of the user or of client id {client.client_id!r} (producer_byte_rate, consumer_byte_rate, "
        "request_percentage); if no quota explains the time, check what answers at this address"
    )
    return failed(found, remedy) if throttle_time_ms >= LONG_THROTTLE_MS else warning(found, remedy)


# --- the topic --------------------------------------------------------------------------------------------------------


def topic(answer: TopicMetadata, config: SinkConfig, *, option: str = "topic") -> Finding:
    """Judge the metadata of a topic. `option` is the option that names the topic."""
    match answer.error_code:
        case ErrorCode.NONE | ErrorCode.LEADER_NOT_AVAILABLE if answer.partitions:
            count = len(answer.partitions)
            return ok(f"{count} partition{'s' if count != 1 else ''}")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return missing(answer.name, "false", config, option=option)
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return failed("no topic can have this name", f"correct the {option} option")
        case _:
            return not_described(answer, AclOperation.WRITE, config.producer)


def not_described(answer: TopicMetadata, operation: AclOperation, client: ClientConfig) -> Finding:
    """Judge an error code instead of a topic's metadata. `operation` is what the topic is for."""
    if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return failed(
            "not allowed to see it, whether it exists or not (TOPIC_AUTHORIZATION_FAILED)",
            _acl_remedy(f"TOPIC {answer.name} {operation.name} (it implies DESCRIBE)", client),
        )
    return failed(
        f"the cluster does not describe it: {error_text(answer.error_code)}",
        "look at the brokers' logs, then check again",
    )


def missing(name: str, auto_create: str | None, config: SinkConfig, *, option: str = "topic") -> Finding:
    """Judge a missing topic. `auto_create` is a broker's value of AUTO_CREATE, or None if it is unknown."""
    create = topics_command(config.producer, {"--create": None, "--topic": name})
    remedy = f"correct the {option} option, or create it ({create})"
    if option == "topic":
        remedy += ", or set createTopics=true, which creates it with the brokers' defaults"
    match auto_create:
        case "true":
            return warning(
                "there is no such topic yet: the brokers create it for the write, with their defaults "
                f"({AUTO_CREATE}=true)",
                remedy,
            )
        case None:
            return warning(
                "there is no such topic, and it is created only if the brokers create topics automatically "
                f"({AUTO_CREATE}; its value is unknown)",
                remedy,
            )
        case _:
            return failed("there is no such topic", remedy)


def created(answer: CreateTopicsResponse, name: str, wanted: NewTopic, config: SinkConfig) -> Finding:
    """Judge the answer to a request that creates a missing topic."""
    if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return ok("another client created it at the same time; it is not changed")
    if answer.error_code == ErrorCode.NONE:
        what = "the brokers' defaults" if wanted == NewTopic() else wanted.shown
        return ok(f"created, with {what} (createTopics)")
    create = f"create it ({topics_command(config.producer, {'--create': None, '--topic': name})})"
    match answer.error_code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED | ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            remedy = f"{create}, or {_acl_remedy(f'TOPIC {name} CREATE', config.producer)}"
        case ErrorCode.UNSUPPORTED_VERSION:
            remedy = (
                f"{create}, or name both counts, which Kafka before 2.4 needs: createTopics=partitions=12,replicas=3"
            )
        case ErrorCode.INVALID_REPLICATION_FACTOR:
            remedy = "ask for as many replicas as there are brokers, or fewer: createTopics=replicas=1 for one broker"
        case ErrorCode.INVALID_CONFIG:
            remedy = "correct the topic settings in createTopics (kafka.apache.org/documentation/#topicconfigs)"
        case ErrorCode.INVALID_PARTITIONS | ErrorCode.POLICY_VIOLATION:
            remedy = f"set createTopics to values that the cluster allows, or ask an administrator to {create}"
        case _:
            remedy = f"{create}, or correct the setting that the broker refuses"
    asked = "" if wanted == NewTopic() else f" with {wanted.shown}"
    # The broker's message quotes the refused setting, so it is shown only if no setting is redacted.
    why = _with_message(answer) if wanted.shown == str(wanted) else error_text(answer.error_code)
    return failed(f"there is no such topic, and it was not created{asked}: {why}", remedy)


def _with_message(answer: CreateTopicsResponse) -> str:
    return error_text(answer.error_code) + (f": {answer.error_message.rstrip('.')}" if answer.error_message else "")


def leaders(answer: TopicMetadata) -> Finding:
    leaderless = [each.partition for each in answer.partitions if each.leader_id < 0]
    if leaderless:
        return failed(
            f"no leader for {_partitions(leaderless)}",
            "start the brokers that have their replicas: without a leader, rows wait for kafka.delivery.timeout.ms, "
            "then fail",
        )
    brokers = len({each.leader_id for each in answer.partitions})
    return ok(f"every partition has a leader, on {brokers} broker{'s' if brokers != 1 else ''}")


def replication(answer: TopicMetadata) -> Finding:
    alone = [each.partition for each in answer.partitions if len(each.replica_nodes) < 2]
    factor = min(len(each.replica_nodes) for each in answer.partitions)
    if alone:
        return warning(
            f"replication factor 1: {_partitions(alone)} {'is' if len(alone) == 1 else 'are'} on one broker only",
            "acknowledged rows are lost if that broker's disk fails, and the partition is unavailable while the broker "
            "is down: raise the factor to 3 (kafka-reassign-partitions.sh), or accept this for data that you can write "
            "again",
        )
    return ok(f"replication factor {factor}")


def settings(answer: TopicConfigs, config: SinkConfig) -> Finding:
    named = diskless(answer.values)
    if named is not None and config.delivery_guarantee == EXACTLY_ONCE:
        return failed(
            f"{named}: brokers take no transaction for a diskless topic, so every row would be refused",
            "write to a topic that is not diskless, or set deliveryGuarantee=at-least-once",
        )
    if answer.error_code == ErrorCode.NONE:
        return ok("known")
    return skipped(
        f"the cluster does not show them: {error_text(answer.error_code)}",
        f"nothing, a write does not need them; to check them, "
        f"{_acl_remedy(f'TOPIC {answer.topic} DESCRIBE_CONFIGS', config.producer)}",
    )


def in_sync(answer: TopicMetadata, values: Mapping[str, str], acks: str) -> Finding:
    minimum = _number(values, MIN_ISR, 1)
    factor = min(len(each.replica_nodes) for each in answer.partitions)
    short = [each.partition for each in answer.partitions if len(each.isr_nodes) < minimum]
    if acks == "all" and minimum > factor:
        return failed(
            f"{MIN_ISR}={minimum} is more than the {factor} replicas there are: every batch would be refused",
            f"set {MIN_ISR} to at most {max(1, factor - 1)}, or raise the topic's replication factor",
        )
    if acks == "all" and short:
        return failed(
            f"fewer than {MIN_ISR}={minimum} replicas in sync: {_partitions(short)} ({_isr_of(answer.partitions)}); "
            "batches would be refused (NOT_ENOUGH_REPLICAS)",
            "start the brokers that are down, or wait until their replicas have caught up",
        )
    if acks == "all" and minimum == 1 and factor > 1:
        return warning(
            f"{MIN_ISR}=1: with acks=all a row may be acknowledged while only the leader has it",
            f"set {MIN_ISR} of the topic to 2: such a row is lost if the leader dies",
        )
    return ok(f"{MIN_ISR}={minimum}; {_isr_of(answer.partitions)}")


def _number(values: Mapping[str, str], name: str, otherwise: int) -> int:
    number = number_in(values.get(name))
    return otherwise if number is None else number


def _isr_of(partitions: Sequence[PartitionMetadata]) -> str:
    fewest = min(len(each.isr_nodes) for each in partitions)
    most = max(len(each.isr_nodes) for each in partitions)
    return f"{fewest} in sync" if fewest == most else f"{fewest} to {most} in sync"


def unclean(values: Mapping[str, str]) -> Finding:
    if values.get(UNCLEAN) == "true":
        return warning(
            f"{UNCLEAN}=true: a replica without all acknowledged rows may become leader, and the others are lost",
            f"set {UNCLEAN}=false for the topic, unless availability matters more than the rows",
        )
    return ok(f"{UNCLEAN}={values.get(UNCLEAN, 'unknown')}")


def message_size(values: Mapping[str, str], config: ProducerConfig) -> Finding:
    limit = number_in(values.get(MAX_MESSAGE))
    if limit is None:
        return ok("unknown")
    if config.max_request_size > limit:
        return warning(
            f"{MAX_MESSAGE}={limit} is below kafka.max.request.size={config.max_request_size}: a row of a size between "
            "the two is sent, and the leader refuses it (MESSAGE_TOO_LARGE)",
            f"set {MAX_MESSAGE} of the topic to {config.max_request_size}, or kafka.max.request.size to {limit}",
        )
    if config.batch_size > limit:
        return warning(
            f"{MAX_MESSAGE}={limit} is below kafka.batch.size={config.batch_size}: the leader refuses full batches "
            "that do not compress, and the sink splits them and sends them again",
            f"set kafka.batch.size to at most {limit}, or raise {MAX_MESSAGE} of the topic",
        )
    return ok(f"{MAX_MESSAGE}={limit}, kafka.max.request.size={config.max_request_size}")


def timestamps(values: Mapping[str, str]) -> Finding:
    if values.get(TIMESTAMP_TYPE) == "LogAppendTime":
        return warning(
            f"{TIMESTAMP_TYPE}=LogAppendTime: brokers replace the `timestamp` column with the time of the write",
            f"set {TIMESTAMP_TYPE}=CreateTime for the topic if readers need that column",
        )
    before = _number(values, BEFORE, UNBOUNDED_MS)
    if before < UNBOUNDED_MS:
        return warning(
            f"{BEFORE}={before}: the leader refuses a row with an older timestamp (INVALID_TIMESTAMP), and the whole "
            "batch of that row",
            f"leave the `timestamp` column null for old rows, or raise {BEFORE}",
        )
    after = _number(values, AFTER, DEFAULT_AFTER_MS)
    return ok(f"CreateTime, up to {after} ms ahead" if after < UNBOUNDED_MS else "CreateTime")


def acks(config: ProducerConfig) -> Finding:
    if config.acks == "all":
        return ok("all")
    lost = {"1": "its leader dies before a follower has it", "0": "its connection breaks, or a broker refuses it"}
    return warning(
        f"kafka.acks={config.acks}: a row is lost, without an error, when {lost[config.acks]}",
        "set kafka.acks=all, unless the rows may be lost",
    )


def _partitions(numbers: Collection[int]) -> str:
    return f"partition{'s' if len(numbers) > 1 else ''} {several(sorted(numbers), MOST_SHOWN)}"


# --- permissions ------------------------------------------------------------------------------------------------------


def dead_letter_topic(answer: TopicMetadata, config: SinkConfig) -> Finding:
    """Judge an existing dead letter topic. The write sends its rows in its own requests and transactions."""
    operations = [AclOperation.WRITE]
    if config.delivery_guarantee == EXACTLY_ONCE:
        operations.append(AclOperation.READ)
    there = topic(answer, config, option="deadLetterTopic")
    findings = [there, *(may(operation, answer, config.producer) for operation in operations)]
    return next((each for each in findings if each.status is not Status.OK), there)


def may(operation: AclOperation, answer: TopicMetadata, client: ClientConfig) -> Finding:
    return _permission(answer.authorized_operations, operation, f"TOPIC {answer.name} {operation.name}", client)


def _permission(authorized_operations: int, operation: AclOperation, acl: str, client: ClientConfig) -> Finding:
    match allows(authorized_operations, operation):
        case None:
            return skipped("the broker does not list the permissions")
        case True:
            return ok(acl)
        case _:
            return _denied(acl, client)


def _denied(acl: str, client: ClientConfig) -> Finding:
    return failed(f"not allowed: {acl}", _acl_remedy(acl, client))


def producer_id(code: int, name: str, config: SinkConfig) -> Finding:
    """Judge the answer to an InitProducerId without a transactional id. Idempotent writes begin with this request."""
    if code == ErrorCode.NONE:
        return ok("received: idempotent writes are allowed")
    if code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        remedy = f"{_acl_remedy(f'TOPIC {name} WRITE', config.producer)}, or CLUSTER IDEMPOTENT_WRITE"
    else:
        remedy = "look at the log of the controller, which assigns the ids"
    return failed(f"no producer id for idempotent writes: {error_text(code)}", remedy)


# --- exactly-once, and the group of a read ----------------------------------------------------------------------------


def transactional_id(code: int, prefix: str, config: SinkConfig) -> Finding:
    """Judge the answer to an EndTxn for a transactional id that never existed.

    If the ACL allows it, the coordinator answers INVALID_PRODUCER_ID_MAPPING.
    """
    acl = f"TRANSACTIONAL_ID {prefix} WRITE (prefixed)"
    match code:
        case ErrorCode.INVALID_PRODUCER_ID_MAPPING | ErrorCode.NONE:
            return ok(acl)
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return _denied(acl, config.producer)
        case _:
            return _no_coordinator(code, "__transaction_state")


def group(code: int, authorized_operations: int, prefix: str, config: SinkConfig) -> Finding:
    """Judge the groups of an exactly-once write."""
    return _group_read(code, authorized_operations, f"GROUP {prefix} READ (prefixed)", config.producer)


def progress_group(code: int, authorized_operations: int, group_id: str, config: ClientConfig) -> Finding:
    """Judge the group of the option groupId, which no read needs."""
    found = _group_read(code, authorized_operations, f"GROUP {group_id} READ", config)
    if found.status is not Status.FAILED:
        return found
    return warning(f"{found.found}; a stream reads even so, and its progress is not committed", found.remedy)


def _group_read(code: int, authorized_operations: int, acl: str, config: ClientConfig) -> Finding:
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return _denied(acl, config)
    if code != ErrorCode.NONE:
        return _no_coordinator(code, "__consumer_offsets")
    return _permission(authorized_operations, AclOperation.READ, acl, config)


def _no_coordinator(code: int, internal_topic: str) -> Finding:
    return failed(
        f"no definite answer from the coordinator: {error_text(code)}",
        f"check that every partition of {internal_topic} has a leader and enough replicas in sync",
    )


def commit_topic(answer: TopicMetadata, made: CreateTopicsResponse | None, config: SinkConfig) -> Finding:
    """Judge the commit topic. `made` is the answer to a validate-only creation of a missing topic, else None."""
    name = answer.name
    if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return failed("not allowed to see it", _acl_remedy(f"TOPIC {name} READ", config.producer))
    if made is None and (found := topic(answer, config, option="commitTopic")).status is not Status.OK:
        return found
    if made is None and len(answer.partitions) < COMMIT_TOPIC_PARTITIONS:
        return failed(
            f"{len(answer.partitions)} partition, but {COMMIT_TOPIC_PARTITIONS} are needed",
            f"add one (the topic holds no records): {commit_topic_command('--alter', name, config.producer)}",
        )
    if made is None:
        return may(AclOperation.READ, answer, config.producer)
    if made.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ok("missing; the first write creates it")
    return failed(
        f"missing, and the sink may not create it: {_with_message(made)}",
        f"create it ({commit_topic_command('--create', name, config.producer)}), or "
        f"{_acl_remedy(f'TOPIC {name} CREATE', config.producer)}",
    )


def ceiling(value: str | None, timeout_ms: int) -> Finding:
    highest_ms = number_in(value)
    if highest_ms is None:
        return skipped(
            f"{CEILING} of the brokers is unknown: this needs the ACL CLUSTER DESCRIBE_CONFIGS. If the timeout is "
            "above it, the write fails when it is planned"
        )
    if timeout_ms > highest_ms:
        return failed(
            f"kafka.transaction.timeout.ms={timeout_ms} is above the brokers' {CEILING}={value}",
            f"set kafka.transaction.timeout.ms to at most {value}, or raise {CEILING} on the brokers",
        )
    return ok(f"kafka.transaction.timeout.ms={timeout_ms}, {CEILING}={value}")


def retention(offsets_minutes: str | None, ids_ms: str | None, timeout_ms: int) -> Finding:
    """Judge how long brokers keep the state of commits.

    `offsets_minutes` is the brokers' OFFSETS_RETENTION, `ids_ms` their IDS_EXPIRATION; None: unknown.
    """
    if offsets_minutes is None or ids_ms is None:
        return skipped(
            "the settings of the brokers are unknown: this needs the ACL CLUSTER DESCRIBE_CONFIGS",
            f"look up {OFFSETS_RETENTION} and {IDS_EXPIRATION}: a query that is stopped for longer cannot continue",
        )
    kept = {OFFSETS_RETENTION: int(offsets_minutes) * 60_000, IDS_EXPIRATION: int(ids_ms)}
    name = min(kept, key=lambda each: kept[each])
    shown = f"{OFFSETS_RETENTION}={offsets_minutes}, {IDS_EXPIRATION}={ids_ms}"
    if kept[name] <= timeout_ms:
        return failed(
            f"{shown}: brokers delete the state of commits within kafka.transaction.timeout.ms={timeout_ms}",
            f"raise {name} on the brokers to 7 days, or lower kafka.transaction.timeout.ms",
        )
    if kept[name] < RETENTION_MS:
        return warning(
            f"{shown}: brokers delete the state of commits {kept[name] // 60_000} minutes after the last "
            "micro-batch, and a query that was stopped for longer fails with StateExpired",
            f"raise {name} on the brokers to 7 days",
        )
    return ok(shown)


def state_topics(topics: Sequence[TopicMetadata], configs: Sequence[TopicConfigs], config: SinkConfig) -> Finding:
    """Judge if the brokers' topics with the state of exactly-once can lose their last records."""
    values = {each.topic: dict(each.values) for each in configs if each.error_code == ErrorCode.NONE}
    weak, unseen, shown = [], [], []
    for each in topics:
        if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            shown.append(f"{each.name} is not created yet")
            continue
        if each.error_code != ErrorCode.NONE or not each.partitions:
            unseen.append(f"{each.name} ({error_text(each.error_code)})")
            continue
        factor = min(len(partition.replica_nodes) for partition in each.partitions)
        weak += [f"{each.name} has one replica"] * (factor < 2)
        of_topic = values.get(each.name)
        if of_topic is None:
            unseen.append(f"the settings of {each.name}")
        else:
            weak += [f"{each.name} has {UNCLEAN}=true"] * (of_topic.get(UNCLEAN) == "true")
            weak += [f"{each.name} has {MIN_ISR}=1"] * (factor > 1 and _number(of_topic, MIN_ISR, 1) < 2)
        shown.append(f"{each.name} has replication factor {factor}")
    not_seen = f"; not seen: {', '.join(unseen)}" if unseen else ""
    if weak:
        return warning(
            f"{', '.join(weak)}: if it loses its last records, rows of one micro-batch can be written twice{not_seen}",
            f"give both topics 3 replicas, {MIN_ISR}=2 and {UNCLEAN}=false",
        )
    if unseen:
        acl = f"TOPIC {' and '.join(STATE_TOPICS)} DESCRIBE and DESCRIBE_CONFIGS"
        return skipped(
            f"the cluster does not show {', '.join(unseen)}",
            f"nothing, a write does not need them; to check them, {_acl_remedy(acl, config.producer)}",
        )
    return ok("; ".join(shown))

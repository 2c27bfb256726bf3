"""Verdicts about the cluster, the topic and what the principal may do: from answers to findings, with remedies.

Pure: one function a step, of what brokers said and the write's configuration.

Non-obvious:

* A topic that the principal may not describe and one that does not exist look the same only without CREATE; brokers
  say TOPIC_AUTHORIZATION_FAILED for both then, and WRITE implies DESCRIBE.
* A topic that is missing fails a write only where brokers do not make topics by themselves, as Kafka's default has
  them do: a producer's first Metadata request lets them.
* `min.insync.replicas` counts for acks=all alone. With fewer replicas in sync every batch is refused
  (NOT_ENOUGH_REPLICAS); with fewer replicas at all, for ever.
* A batch that is larger than `max.message.bytes` is split and sent again, at a cost; a single row is an error.
  Followers fetch one batch at least, whatever `replica.fetch.max.bytes` says (KIP-74), so that is not looked at.

Source: KIP-430 (authorized operations), KIP-679, KIP-937 (timestamp bounds), Kafka's broker and topic configs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_sink.doctor.report import Finding, Status, failed, ok, skipped, warning
from kafka_sink.errors import named_principal
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.acl_operation import (
    AclOperation,
    allows,
)
from kafka_sink.kafka.protocol.apis.create_topics import (
    CreateTopicsResponse,
)
from kafka_sink.kafka.protocol.apis.describe_configs import (
    TopicConfigs,
    number_in,
)
from kafka_sink.kafka.protocol.apis.metadata import (
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
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
TOPIC_SETTINGS = (MIN_ISR, UNCLEAN, MAX_MESSAGE, TIMESTAMP_TYPE, BEFORE, AFTER)
CEILING = "transaction.max.timeout.ms"
AUTO_CREATE = "auto.create.topics.enable"
# How long brokers keep exactly-once's markers and decisions, and the ids of its transactions; of both, what a query may
# stand still, and Kafka's default.
OFFSETS_RETENTION, IDS_EXPIRATION = "offsets.retention.minutes", "transactional.id.expiration.ms"
RETENTION_MS = 7 * 24 * 3_600_000
# Kafka's "no bound" of timestamps, and its own default of what may be ahead (4.0, KIP-1030).
UNBOUNDED_MS = 2**63 - 1
DEFAULT_AFTER_MS = 3_600_000
# Partitions named in one finding; whoever needs more has Kafka's own tools.
MOST_SHOWN = 5


def named(code: int) -> str:
    return f"{error_name(code)} (error {code})"


def acl_remedy(acl: str, config: ProducerConfig) -> str:
    return f"add the ACL {acl} for {named_principal(config.security.principal)}"


# --- the cluster ------------------------------------------------------------------------------------------------------


def cluster(response: MetadataResponse) -> Finding:
    if not response.brokers:
        return failed(
            "the bootstrap server knows of no broker", "it has just started, or lost its controllers: look at its log"
        )
    brokers = ", ".join(f"{each.node_id}" for each in sorted(response.brokers, key=lambda each: each.node_id))
    return ok(f"{response.cluster_id or 'without an id'}; brokers {brokers}")


# --- the topic --------------------------------------------------------------------------------------------------------


def topic(said: TopicMetadata, config: SinkConfig, *, option: str = "topic") -> Finding:
    """`option`: that which names it."""
    match said.error_code:
        case ErrorCode.NONE | ErrorCode.LEADER_NOT_AVAILABLE if said.partitions:
            count = len(said.partitions)
            return ok(f"{count} partition{'s' if count != 1 else ''}")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return missing(said.name, "false", config, option=option)
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            acl = f"TOPIC {said.name} WRITE (it implies DESCRIBE)"
            return failed(
                "not allowed to see it, whether it exists or not (TOPIC_AUTHORIZATION_FAILED)",
                acl_remedy(acl, config.producer),
            )
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return failed("no topic can have this name", f"correct the {option} option")
        case code:
            return failed(f"the cluster does not tell: {named(code)}", "look at the brokers' logs, then check again")


def missing(name: str, auto_create: str | None, config: SinkConfig, *, option: str = "topic") -> Finding:
    """Of a topic that is not there. `auto_create`: what a broker has AUTO_CREATE set to; None: not told."""
    create = topics_command(config.producer, {"--create": None, "--topic": name})
    remedy = f"correct the {option} option, or create it ({create})"
    if option == "topic":
        remedy += ", or set createTopics=true, which makes it with the brokers' defaults"
    match auto_create:
        case "true":
            return warning(
                "there is no such topic yet: the brokers make it for the write, with their defaults "
                f"({AUTO_CREATE}=true)",
                remedy,
            )
        case None:
            return warning(
                "there is no such topic, and it is made only if the brokers make topics by themselves "
                f"({AUTO_CREATE}, which they do not tell)",
                remedy,
            )
        case _:
            return failed("there is no such topic", remedy)


def created(said: CreateTopicsResponse, name: str, wanted: NewTopic, config: SinkConfig) -> Finding:
    """What became of the request to make a topic that is missing."""
    if said.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return ok("made by another at the same time, and left as it is")
    if said.error_code == ErrorCode.NONE:
        what = "the brokers' defaults" if wanted == NewTopic() else wanted.shown
        return ok(f"made, with {what} (createTopics)")
    create = f"create it ({topics_command(config.producer, {'--create': None, '--topic': name})})"
    match said.error_code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED | ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            remedy = f"{create}, or {acl_remedy(f'TOPIC {name} CREATE', config.producer)}"
        case ErrorCode.INVALID_REPLICATION_FACTOR:
            remedy = "ask for as many replicas as there are brokers, or fewer: createTopics=replicas=1 for one broker"
        case ErrorCode.INVALID_CONFIG:
            remedy = "correct the topic settings in createTopics (kafka.apache.org/documentation/#topicconfigs)"
        case ErrorCode.INVALID_PARTITIONS | ErrorCode.POLICY_VIOLATION:
            remedy = f"ask in createTopics for what the cluster allows, or have who runs the cluster {create}"
        case _:
            remedy = f"{create}, or correct what the broker refuses"
    asked = "" if wanted == NewTopic() else f" with {wanted.shown}"
    # A broker's message quotes the setting that it refuses.
    why = _with_message(said) if wanted.shown == str(wanted) else named(said.error_code)
    return failed(f"there is no such topic, and it was not made{asked}: {why}", remedy)


def _with_message(said: CreateTopicsResponse) -> str:
    return named(said.error_code) + (f": {said.error_message.rstrip('.')}" if said.error_message else "")


def leaders(said: TopicMetadata) -> Finding:
    leaderless = [each.partition for each in said.partitions if each.leader_id < 0]
    if leaderless:
        return failed(
            f"no leader for {_partitions(leaderless)}",
            "start the brokers that have their replicas: without a leader their rows wait until "
            "kafka.delivery.timeout.ms and fail",
        )
    brokers = len({each.leader_id for each in said.partitions})
    return ok(f"every partition has one, on {brokers} broker{'s' if brokers != 1 else ''}")


def replication(said: TopicMetadata) -> Finding:
    alone = [each.partition for each in said.partitions if len(each.replica_nodes) < 2]
    factor = min(len(each.replica_nodes) for each in said.partitions)
    if alone:
        return warning(
            f"replication factor 1: {_partitions(alone)} {'is' if len(alone) == 1 else 'are'} on one broker alone",
            "acknowledged rows are lost with that broker's disk, and the partition stands still while it is down: "
            "raise the factor to 3 (kafka-reassign-partitions.sh), or accept it for data that can be had again",
        )
    return ok(f"replication factor {factor}")


def settings(said: TopicConfigs, config: SinkConfig) -> Finding:
    if said.error_code == ErrorCode.NONE:
        return ok("told")
    return skipped(
        f"the cluster does not tell them: {named(said.error_code)}",
        f"nothing, as a write does not need them; to have them checked, "
        f"{acl_remedy(f'TOPIC {said.topic} DESCRIBE_CONFIGS', config.producer)}",
    )


def in_sync(said: TopicMetadata, values: Mapping[str, str], acks: str) -> Finding:
    minimum = _number(values, MIN_ISR, 1)
    factor = min(len(each.replica_nodes) for each in said.partitions)
    short = [each.partition for each in said.partitions if len(each.isr_nodes) < minimum]
    if acks == "all" and minimum > factor:
        return failed(
            f"{MIN_ISR}={minimum} is more than the {factor} replicas there are: every batch would be refused",
            f"set {MIN_ISR} to at most {max(1, factor - 1)}, or raise the topic's replication factor",
        )
    if acks == "all" and short:
        return failed(
            f"fewer than {MIN_ISR}={minimum} replicas in sync: {_partitions(short)} ({_isr_of(said.partitions)}); "
            "batches would be refused (NOT_ENOUGH_REPLICAS)",
            "start the brokers that are down, or wait until their replicas have caught up",
        )
    if acks == "all" and minimum == 1 and factor > 1:
        return warning(
            f"{MIN_ISR}=1: with acks=all a row counts while its leader alone has it",
            f"set {MIN_ISR} of the topic to 2: rows acknowledged in such a moment are lost with that leader",
        )
    return ok(f"{MIN_ISR}={minimum}; {_isr_of(said.partitions)}")


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
            f"{UNCLEAN}=true: a replica that lacks acknowledged rows may become leader, and they are gone",
            f"set {UNCLEAN}=false for the topic, unless being able to write matters more than what was written",
        )
    return ok(f"{UNCLEAN}={values.get(UNCLEAN, 'not told')}")


def message_size(values: Mapping[str, str], config: ProducerConfig) -> Finding:
    limit = number_in(values.get(MAX_MESSAGE))
    if limit is None:
        return ok("not told")
    if config.max_request_size > limit:
        return warning(
            f"{MAX_MESSAGE}={limit} is below kafka.max.request.size={config.max_request_size}: a row between the two "
            "is sent, and refused as too large (MESSAGE_TOO_LARGE)",
            f"set {MAX_MESSAGE} of the topic to {config.max_request_size}, or kafka.max.request.size to {limit}",
        )
    if config.batch_size > limit:
        return warning(
            f"{MAX_MESSAGE}={limit} is below kafka.batch.size={config.batch_size}: full batches that do not compress "
            "are refused, split and sent again",
            f"set kafka.batch.size to at most {limit}, or raise {MAX_MESSAGE} of the topic",
        )
    return ok(f"{MAX_MESSAGE}={limit}, kafka.max.request.size={config.max_request_size}")


def timestamps(values: Mapping[str, str]) -> Finding:
    if values.get(TIMESTAMP_TYPE) == "LogAppendTime":
        return warning(
            f"{TIMESTAMP_TYPE}=LogAppendTime: brokers replace the `timestamp` column by the time of the write",
            f"set {TIMESTAMP_TYPE}=CreateTime for the topic if readers need that column",
        )
    before = _number(values, BEFORE, UNBOUNDED_MS)
    if before < UNBOUNDED_MS:
        return warning(
            f"{BEFORE}={before}: a row whose timestamp is older than that is refused (INVALID_TIMESTAMP), and its "
            "batch with it",
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
    ordered = sorted(numbers)
    shown = ", ".join(map(str, ordered[:MOST_SHOWN]))
    more = f" and {len(ordered) - MOST_SHOWN} more" if len(ordered) > MOST_SHOWN else ""
    return f"partition{'s' if len(ordered) > 1 else ''} {shown}{more}"


# --- what is allowed --------------------------------------------------------------------------------------------------


def dead_letter_topic(said: TopicMetadata, config: SinkConfig) -> Finding:
    """Of one that is there. Rows go there in the write's own requests, and transactions."""
    operations = [AclOperation.WRITE]
    if config.delivery_guarantee == EXACTLY_ONCE:
        operations.append(AclOperation.READ)
    there = topic(said, config, option="deadLetterTopic")
    findings = [there, *(may(operation, said, config) for operation in operations)]
    return next((each for each in findings if each.status is not Status.OK), there)


def may(operation: AclOperation, said: TopicMetadata, config: SinkConfig) -> Finding:
    acl = f"TOPIC {said.name} {operation.name}"
    match allows(said.authorized_operations, operation):
        case None:
            return skipped("the broker does not tell what is allowed")
        case True:
            return ok(acl)
        case _:
            return failed(f"not allowed: {acl}", acl_remedy(acl, config.producer))


def producer_id(code: int, name: str, config: SinkConfig) -> Finding:
    """The answer to an InitProducerId without a transactional id, as idempotent writes begin with."""
    if code == ErrorCode.NONE:
        return ok("handed out: idempotent writes are allowed")
    if code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        remedy = f"{acl_remedy(f'TOPIC {name} WRITE', config.producer)}, or CLUSTER IDEMPOTENT_WRITE"
    else:
        remedy = "look at the log of the controller, which hands them out"
    return failed(f"no producer id for idempotent writes: {named(code)}", remedy)


def transactional_id(code: int, prefix: str, config: SinkConfig) -> Finding:
    """The answer to an EndTxn of a transactional id that never was: allowed, and then unknown to its coordinator."""
    acl = f"TRANSACTIONAL_ID {prefix} WRITE (prefixed)"
    match code:
        case ErrorCode.INVALID_PRODUCER_ID_MAPPING | ErrorCode.NONE:
            return ok(acl)
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return failed(f"not allowed: {acl}", acl_remedy(acl, config.producer))
        case _:
            return _no_coordinator(code, "__transaction_state")


def group(code: int, authorized_operations: int, prefix: str, config: SinkConfig) -> Finding:
    acl = f"GROUP {prefix} READ (prefixed)"
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return failed(f"not allowed: {acl}", acl_remedy(acl, config.producer))
    if code != ErrorCode.NONE:
        return _no_coordinator(code, "__consumer_offsets")
    match allows(authorized_operations, AclOperation.READ):
        case None:
            return skipped("the broker does not tell what is allowed")
        case True:
            return ok(acl)
        case _:
            return failed(f"not allowed: {acl}", acl_remedy(acl, config.producer))


def _no_coordinator(code: int, internal_topic: str) -> Finding:
    return failed(
        f"no definite answer of the coordinator: {named(code)}",
        f"check that every partition of {internal_topic} has a leader and enough replicas in sync",
    )


def commit_topic(said: TopicMetadata, made: CreateTopicsResponse | None, config: SinkConfig) -> Finding:
    """`made`: whether it would be made, where it is missing."""
    name = said.name
    if said.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return failed("not allowed to see it", acl_remedy(f"TOPIC {name} READ", config.producer))
    if made is None and (found := topic(said, config, option="commitTopic")).status is not Status.OK:
        return found
    if made is None and len(said.partitions) < COMMIT_TOPIC_PARTITIONS:
        return failed(
            f"{len(said.partitions)} partition, and {COMMIT_TOPIC_PARTITIONS} are needed",
            f"add one, it holds no records: {commit_topic_command('--alter', name, config.producer)}",
        )
    if made is None:
        return may(AclOperation.READ, said, config)
    if made.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ok("missing; the first write makes it")
    return failed(
        f"missing, and the sink may not make it: {_with_message(made)}",
        f"create it ({commit_topic_command('--create', name, config.producer)}), or "
        f"{acl_remedy(f'TOPIC {name} CREATE', config.producer)}",
    )


def ceiling(value: str | None, timeout_ms: int) -> Finding:
    highest_ms = number_in(value)
    if highest_ms is None:
        return skipped(
            "the brokers do not tell theirs, which takes the ACL CLUSTER DESCRIBE_CONFIGS; a timeout above it is "
            "refused when the write is planned"
        )
    if timeout_ms > highest_ms:
        return failed(
            f"kafka.transaction.timeout.ms={timeout_ms} is above the brokers' {CEILING}={value}",
            f"set kafka.transaction.timeout.ms to at most {value}, or raise {CEILING} on the brokers",
        )
    return ok(f"kafka.transaction.timeout.ms={timeout_ms}, {CEILING}={value}")


def retention(offsets_minutes: str | None, ids_ms: str | None, timeout_ms: int) -> Finding:
    """Of what tells that rows are committed. `offsets_minutes`, `ids_ms`: OFFSETS_RETENTION and IDS_EXPIRATION."""
    if offsets_minutes is None or ids_ms is None:
        return skipped(
            "the brokers do not tell theirs, which takes the ACL CLUSTER DESCRIBE_CONFIGS",
            f"look up {OFFSETS_RETENTION} and {IDS_EXPIRATION}: a query that is stopped for longer cannot go on",
        )
    kept = {OFFSETS_RETENTION: int(offsets_minutes) * 60_000, IDS_EXPIRATION: int(ids_ms)}
    name = min(kept, key=lambda each: kept[each])
    shown = f"{OFFSETS_RETENTION}={offsets_minutes}, {IDS_EXPIRATION}={ids_ms}"
    if kept[name] <= timeout_ms:
        return failed(
            f"{shown}: within kafka.transaction.timeout.ms={timeout_ms} brokers forget which rows are committed",
            f"raise {name} on the brokers to 7 days, or lower kafka.transaction.timeout.ms",
        )
    if kept[name] < RETENTION_MS:
        return warning(
            f"{shown}: brokers forget which rows are committed {kept[name] // 60_000} minutes after the last "
            "micro-batch, and a query that was stopped for longer ends with StateExpired",
            f"raise {name} on the brokers to 7 days",
        )
    return ok(shown)

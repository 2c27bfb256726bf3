"""Errors about the cluster: a write needs its answers to begin and to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError
from kafka_sink.errors.quoting import quoted
from kafka_sink.errors.redaction import redacted, shown_user

__all__ = [
    "AuthenticationFailed", "BrokerUnavailable", "BrokerUnsupported", "BrokersUnreachable", "ClusterChanged",
    "ClusterError", "CommitTopicMissing", "CommitTopicTooSmall", "CoordinatorRefused", "CoordinatorUnavailable",
    "LeaderUnavailable", "ProducerIdRefused", "RecordsUnreadable", "TlsFailed", "TokenUnavailable",
    "TopicAuthorizationFailed", "TopicNotCreated", "TopicNotFound",
]  # fmt: skip


class ClusterError(KafkaSinkError):
    """The cluster did not answer or refused a request that a write needs."""

    _data = DataState.SENT_AGAIN


class BrokersUnreachable(ClusterError):
    """`step`, `where`, `found` and `remedy`: the step of `pykafka check` that fails, the address, the cause and the
    fix.

    They are empty if no check was made, or if the check found no problem. `is_first`: no broker has ever answered, so
    the client has not waited for as long as `timeout_option` says.
    """

    bootstrap_servers: str
    waited_ms: int
    last_error: str
    timeout_option: str = "kafka.max.block.ms"
    is_first: bool = False
    step: str = field(default="", init=False)
    where: str = field(default="", init=False)
    found: str = field(default="", init=False)
    remedy: str = field(default="", init=False)
    command: str = field(default="", init=False)

    def examined(self, *, step: str, where: str, found: str, remedy: str, command: str) -> None:
        """Store the result of a check from the same host. `command`: a sentence with the command that repeats it."""
        self.step, self.where, self.found, self.remedy, self.command = step, where, quoted(found), remedy, command

    def explanation(self) -> Explanation:
        limit = "and none has answered before" if self.is_first else f"({self.timeout_option})"
        happened = (
            f"no broker of {self.bootstrap_servers} answered within {self.waited_ms} ms{',' if self.is_first else ''} "
            f"{limit}; last: {self.last_error or 'no answer'}."
        )
        advice = "Check kafka.bootstrap.servers, and that the executors can reach the addresses which the brokers "
        advice += "advertise."
        if self.step:
            happened += f" Looked at from this host, step {self.step!r} of {self.where} fails: {self.found}."
            advice = f"To fix it: {self.remedy}. {self.command}"
        if not self.is_first:
            advice += f" To outlast a longer outage, raise {self.timeout_option}."
        return self._told(happened, advice, known="Rows waiting for an answer were not sent.")


# By what a broker lacks something for: see `kafka.protocol.needs`.
_OTHER_BROKERS = {
    "at-least-once": "Write to brokers of Kafka 2.1 or later.",
    "idempotence": "Set kafka.enable.idempotence=false; a retry may then double rows. Or write to other brokers.",
    "exactly-once": "Write to brokers of Kafka 3.0 or later, or with deliveryGuarantee=at-least-once.",
}


class BrokerUnsupported(ClusterError):
    """`guarantee`: at-least-once, idempotence or exactly-once. `missing`: what `broker` lacks for it, in words."""

    broker: str
    guarantee: str
    missing: Sequence[str]

    def explanation(self) -> Explanation:
        return self._told(
            f"{self.broker} lacks what {self.guarantee} needs: {'; '.join(self.missing)}.",
            f"{_OTHER_BROKERS.get(self.guarantee, '')} 'pykafka check' shows what the brokers offer.",
        )


class ClusterChanged(ClusterError):
    """`broker` belongs to cluster `found`, but the write began with cluster `expected`."""

    broker: str
    expected: str
    found: str

    @property
    def what(self) -> str:
        """The problem with that broker, for a log."""
        return f"it belongs to cluster {self.found!r}, not to cluster {self.expected!r} of this write"

    _happened = "{broker}: {what}. The cluster was replaced, or the address leads to another one."
    _advice = (
        "Check kafka.bootstrap.servers and the addresses which the brokers advertise; if the cluster was replaced, "
        "write the rows of earlier writes again."
    )
    _known = "Rows that were written before are in cluster {expected!r} only."


class TlsFailed(ClusterError):
    """A connection could not be encrypted, or its peer could not be verified. A retry cannot help."""

    broker: str
    step: str
    advice: str

    _happened = "no secure connection to {broker}: {step}."
    _advice = "To fix it: {advice}."
    _known = "Neither credentials nor rows went over it."


class AuthenticationFailed(ClusterError):
    """`user`: the user name, client id or principal. `reason`: the broker's reason, the problem with the broker's
    answer, or Kerberos' reason. `remedy`: what to do; empty: check the credentials."""

    broker: str
    mechanism: str
    user: str
    reason: str
    remedy: str = ""

    def __post_init__(self) -> None:
        self.user = shown_user(self.mechanism, self.user)

    def explanation(self) -> Explanation:
        return self._told(
            f"{self.broker} and user {self.user!r} were not authenticated to each other by {self.mechanism}: "
            f"{self.reason}.",
            f"To fix it: {self.remedy}."
            if self.remedy
            else "Check kafka.sasl.mechanism and the credentials (kafka.sasl.jaas.config, or kafka.sasl.username and "
            "kafka.sasl.password), and that the cluster has this user.",
        )


class TokenUnavailable(ClusterError):
    """`source`: the token endpoint's URL, the user's callable, or the credentials that would sign the token."""

    source: str
    reason: str
    mechanism: str = "OAUTHBEARER"
    advice: str = "check the client id, the client secret and the scope, and that the executors can reach it"

    def __post_init__(self) -> None:
        self.source = redacted(self.source)

    _happened = "no token for {mechanism} from {source}: {reason}."
    _advice = "To fix it: {advice}."


class TopicNotFound(ClusterError):
    """`waited_ms`: how long the write waited for the topic."""

    topic: str
    waited_ms: int

    _happened = "topic {topic!r} does not exist on the cluster, which was asked for {waited_ms} ms."
    _advice = (
        "Create it, or set the option createTopics=true, which creates the topic of the 'topic' option, or correct the "
        "'topic' option or column."
    )
    _known = "No row of this Arrow batch was sent."


class TopicNotCreated(ClusterError):
    """The option createTopics is set, and the topic could not be created."""

    topic: str
    reason: str
    remedy: str

    _data = DataState.NOTHING_SENT
    _happened = "createTopics is set, and topic {topic!r} was not created: {reason}."
    _advice = "To fix it: {remedy}."


class TopicAuthorizationFailed(ClusterError):
    """`operation`: the ACL operation that is not allowed."""

    topic: str
    operation: str = "WRITE"

    def explanation(self) -> Explanation:
        to = "write to" if self.operation == "WRITE" else self.operation.lower()
        return self._told(
            f"not allowed to {to} topic {self.topic!r}.",
            f"Add the ACL: TOPIC {self.topic} {self.operation} (it implies DESCRIBE) for {self._whom}.",
        )


class ProducerIdRefused(ClusterError):
    code: int
    name: str

    _happened = "the cluster refused to hand out a producer id: {name} (error {code})."
    _advice = (
        "Idempotent writes need the ACL TOPIC WRITE on the topic for {_whom}, or CLUSTER IDEMPOTENT_WRITE on brokers "
        "before 2.8."
    )
    _known = "No row was sent."


class CoordinatorUnavailable(ClusterError):
    """`kind`: what `key` is, "transactional id" or "group"."""

    kind: str
    key: str
    waited_ms: int
    last_error: str

    def explanation(self) -> Explanation:
        advice = "Check the brokers, and that a leader exists for every partition of __transaction_state and "
        advice += "__consumer_offsets."
        if "UNSTABLE_OFFSET_COMMIT" in self.last_error:
            advice = "A transaction that writes the group's offset stays open: pykafka transactions "
            advice += "describe --prefix <transactionalIdPrefix> tells which, and what ends it."
        return self._told(
            f"the coordinator of {self.kind} {self.key!r} gave no definite answer within {self.waited_ms} ms "
            f"(kafka.max.block.ms); last: {self.last_error}.",
            advice,
            data=DataState.OUTCOME_UNKNOWN,
        )


class CoordinatorRefused(ClusterError):
    """`kind`: what `key` is, "transactional id" or "group"."""

    kind: str
    key: str
    code: int
    name: str

    def explanation(self) -> Explanation:
        acl = "GROUP READ" if self.kind == "group" else "TRANSACTIONAL_ID WRITE"
        return self._told(
            f"the cluster did not name the coordinator of {self.kind} {self.key!r}: {self.name} (error {self.code}).",
            f"Exactly-once writes need the ACL {acl}, prefixed with the transactionalIdPrefix, for {self._whom}.",
            data=DataState.STAYS_INVISIBLE,
        )


class LeaderUnavailable(ClusterError):
    """`is_absent`: brokers have said for `waited_ms` that there is no such partition."""

    topic: str
    partition: int
    waited_ms: int
    last_error: str
    timeout_option: str = "kafka.max.block.ms"
    is_absent: bool = False

    def explanation(self) -> Explanation:
        if self.is_absent:
            return self._told(
                f"{self.topic}-{self.partition} does not exist any more: brokers have said so for {self.waited_ms} ms.",
                "The topic was deleted, or created again with fewer partitions. The rows that it had are gone.",
                data=DataState.OUTCOME_UNKNOWN,
            )
        return self._told(
            f"the leader of {self.topic}-{self.partition} gave no definite answer within {self.waited_ms} ms "
            f"({self.timeout_option}); last: {self.last_error}.",
            "Check that the partition has a leader.",
            data=DataState.OUTCOME_UNKNOWN,
        )


class BrokerUnavailable(ClusterError):
    node_id: int
    waited_ms: int
    last_error: str
    timeout_option: str = "kafka.max.block.ms"

    _data = DataState.OUTCOME_UNKNOWN
    _happened = (
        "broker {node_id} gave no definite answer within {waited_ms} ms ({timeout_option}), and one of every broker is "
        "needed; last: {last_error}."
    )
    _advice = "Check the broker."


class RecordsUnreadable(ClusterError):
    """`pykafka verify` could not read records to compare them with receipts."""

    what: str
    reason: str

    _data = DataState.NOT_PROVEN
    _happened = "{what} cannot be read: {reason}."
    _advice = "Once it is fixed, verify again."


_COMMIT_TOPIC = "whose committed offsets record what was written"


class CommitTopicMissing(ClusterError):
    """`command`: the command that creates the topic."""

    topic: str
    reason: str
    command: str

    _data = DataState.NOTHING_SENT
    _happened = f"topic {{topic!r}}, {_COMMIT_TOPIC}, is not there and could not be created: {{reason}}."
    _advice = (
        "It holds no records and needs two partitions. Create it with: `{command}`. Or add the ACL TOPIC CREATE on it "
        "for {_whom}."
    )


class CommitTopicTooSmall(ClusterError):
    """`command`: the command that adds a partition."""

    topic: str
    partition_count: int
    command: str

    _data = DataState.NOTHING_SENT
    _happened = (
        f"topic {{topic!r}}, {_COMMIT_TOPIC}, has {{partition_count}} partition and needs two: offsets of "
        "the second prove that a coordinator's answer is not stale."
    )
    _advice = "It holds no records, so another partition is harmless. Add one with: `{command}`."

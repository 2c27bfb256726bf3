"""Errors about the delivery of records to the leaders, and about the bytes of peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError
from kafka_sink.errors.quoting import quoted
from kafka_sink.errors.redaction import shown_user

__all__ = [
    "AcknowledgedRowsGone", "ApisMissing", "BufferExhausted", "DeliveryError", "DeliveryTimeout", "ProduceRejected",
    "ProducerClosed", "ProtocolError", "ReceiptMismatch", "SaslRefused", "TlsExpected", "TopicRecreated",
]  # fmt: skip


class DeliveryError(KafkaSinkError):
    """The producer accepted rows, and the broker did not acknowledge them."""

    _data = DataState.SENT_AGAIN


class DeliveryTimeout(DeliveryError):
    """`was_sent`: the records were sent at least once, perhaps in a larger batch that was split later.

    `elapsed_ms`: the age of the batch, without the time of throttling by its leader. `throttled_ms`: how long brokers
    throttled this write. `is_quota`: that was more than ten times kafka.delivery.timeout.ms, which ended the write.
    """

    topic: str
    partition: int
    records: int
    elapsed_ms: int
    attempts: int
    was_sent: bool
    last_error: str
    throttled_ms: int = 0
    is_quota: bool = False

    def explanation(self) -> Explanation:
        records = f"{self.records} records for {self.topic}-{self.partition} were not acknowledged"
        ended = f"after {self.attempts} attempts; last: {self.last_error or 'no answer'}."
        throttled = f"throttled this write for {self.throttled_ms} ms, by a quota of its user or client id"
        if self.is_quota:
            happened = f"Brokers {throttled}, over ten times kafka.delivery.timeout.ms: {records} {ended}"
        else:
            happened = f"{records} within {self.elapsed_ms} ms (kafka.delivery.timeout.ms) {ended}"
            if self.throttled_ms:
                happened += f" Brokers also {throttled}; that time does not count."
        return self._told(
            happened,
            "Raise the quota or kafka.delivery.timeout.ms."
            if self.is_quota
            else "Check the partition's leader and in-sync replicas.",
            known="Whether the last attempt was written is unknown." if self.was_sent else "None of them was sent.",
        )


class ProduceRejected(DeliveryError):
    """`refused`: the number of records that the leader names, 0 if none. `place` (from 0 in the batch), `timestamp_ms`
    and `reason` belong to the first of them. `acl`: the missing ACL, if that is the cause."""

    topic: str
    partition: int
    code: int
    name: str
    records: int
    size_bytes: int
    detail: str
    advice: str
    refused: int = 0
    place: int | None = None
    timestamp_ms: int | None = None
    reason: str = ""
    acl: str = ""

    def __post_init__(self) -> None:
        self.detail, self.reason = quoted(self.detail), quoted(self.reason)

    def explanation(self) -> Explanation:
        detail = f": {self.detail}" if self.detail else ""
        happened = (
            f"the leader of {self.topic}-{self.partition} refused a batch of {self.records} records, "
            f"{self.size_bytes} bytes: {self.name} (error {self.code}{detail})."
        )
        if self.refused:
            happened += (
                f" It names {self.refused} of them; the first is record {self.place} of the batch (from 0), whose "
                f"timestamp is {self.timestamp_ms} ms from 1970: {self.reason}."
            )
        advice = f"Add the ACL {self.acl} for {self._whom}. {self.advice}".rstrip() if self.acl else self.advice
        return self._told(happened, advice)


class AcknowledgedRowsGone(DeliveryError):
    """`offset`: where the leader wrote rows. `before`: up to where it had acknowledged earlier rows of the transaction;
    or from where later ones, if those came first."""

    topic: str
    partition: int
    offset: int
    before: int
    transactional_id: str

    _happened = (
        "rows of transaction {transactional_id!r} that were acknowledged are gone: the leader of {topic}-{partition} "
        "wrote the next ones at offset {offset}, and offset {before} had been acknowledged before. A replica that "
        "lacks rows became leader (unclean election), or the topic was created again."
    )
    _advice = "Set unclean.leader.election.enable=false for the topic."


class TopicRecreated(DeliveryError):
    topic: str
    old_topic_id: str
    new_topic_id: str

    _happened = (
        "topic {topic!r} was deleted and created again during the write (topic id {old_topic_id} is now "
        "{new_topic_id})."
    )
    _advice = "Write the rows of earlier writes again, if they are needed."
    _known = "Rows sent to the old topic are gone with it."


class BufferExhausted(DeliveryError):
    needed_bytes: int
    buffer_memory: int
    waited_ms: int

    _happened = (
        "no {needed_bytes} bytes of kafka.buffer.memory ({buffer_memory} bytes) became free within {waited_ms} ms "
        "(kafka.max.block.ms): the brokers acknowledge more slowly than Spark delivers rows, or not at all."
    )
    _advice = "Check the brokers; raise kafka.max.block.ms or kafka.buffer.memory if they are merely slow."


class ReceiptMismatch(DeliveryError):
    """`dropped`: bad rows that were left out on purpose."""

    received: int
    acknowledged: int
    dropped: int = 0

    def explanation(self) -> Explanation:
        bad = f", {self.dropped} were dropped as bad" if self.dropped else ""
        return self._told(
            f"Spark delivered {self.received} rows{bad} and the leaders acknowledged {self.acknowledged}.",
            "This is a defect of the sink: please report it with the task's log.",
        )


class ProducerClosed(DeliveryError):
    reason: str

    _happened = "the producer is closed ({reason})."
    _advice = "The next attempt has a new producer: if this comes once, there is nothing to do."


class ProtocolError(KafkaSinkError):
    """A peer's bytes break the protocol. The connection is closed, and its requests are retried on another one.

    `detail` may quote the peer.
    """

    detail: str = field(kw_only=False)

    def __post_init__(self) -> None:
        self.detail = quoted(self.detail)

    _data = DataState.NO_DATA
    _has_page = False
    _happened = "not a Kafka response: {detail}"


class ApisMissing(ProtocolError):
    """The broker lacks requests that `guarantee` needs. `missing`: each in words."""

    detail: str = field(init=False, default="")
    guarantee: str
    missing: Sequence[str]

    def explanation(self) -> Explanation:
        return self._told(f"the broker lacks what {self.guarantee} needs: {'; '.join(self.missing)}")


class TlsExpected(ProtocolError):
    """The peer of a plaintext connection speaks TLS."""


class SaslRefused(ProtocolError):
    """The broker refused to authenticate `user`, or did not authenticate itself. `reason` shows no secret.

    `remedy`: what to do; empty: check the credentials. `is_final`: no retry helps.
    """

    detail: str = field(init=False, default="")
    mechanism: str
    user: str
    reason: str
    remedy: str = ""
    is_final: bool = True

    def __post_init__(self) -> None:
        self.user = shown_user(self.mechanism, self.user)

    _happened = "{mechanism}, user {user!r}: {reason}"

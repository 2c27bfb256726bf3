"""OffsetCommit, TxnOffsetCommit and OffsetFetch, by the names of topics.

Source: KafkaApis (handleOffsetCommitRequest, handleTxnOffsetCommitRequest, handleOffsetFetchRequest)
in Kafka; KIP-709 (several groups in one OffsetFetch), KIP-890.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Handlers
from model.committed_offsets import CommittedOffset
from model.connection import Connection
from model.group_coordinator import Codes, Fetched, GroupCoordinator, Member, OffsetToCommit
from model.replica_manager import ReplicaManager
from model.settings import OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT
from model.transaction_metadata import TopicPartition
from model.transaction_partitions import TransactionalWrite
from model.wire import Request, build, kio_module

# The first versions of TxnOffsetCommit that know TRANSACTION_ABORTABLE, and that expect brokers to add the group.
_KNOWS_ABORTABLE, _ADDS_PARTITIONS = 4, 5
# The first of OffsetFetch (KIP-709).
_SEVERAL_GROUPS = 8
# The first of OffsetCommit (KIP-848).
_KNOWS_GROUP_ID_NOT_FOUND = 9


Answered = tuple[ErrorCode, Fetched]


@dataclass(frozen=True, slots=True, eq=False)
class OffsetsApi:
    _broker: Broker
    _replicas: ReplicaManager
    _coordinator: GroupCoordinator

    @property
    def handlers(self) -> Handlers:
        return {
            OFFSET_COMMIT: self._commit, TXN_OFFSET_COMMIT: self._commit, OFFSET_FETCH: self._fetch
        }  # fmt: skip

    def _commit(self, connection: Connection, request: Request) -> None:
        message = request.message
        asked = [(topic.name, partition) for topic in message.topics for partition in topic.partitions]
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        codes: Codes = {}
        refusal = self._broker.next_refusal(request.api_key)
        for topic, partition in asked:
            key = (topic, partition.partition_index)
            if refusal is not ErrorCode.none:
                codes[key] = refusal
            elif not self._replicas.image.has_partition(*key):
                codes[key] = ErrorCode.unknown_topic_or_partition
            else:
                leader_epoch = getattr(partition, "committed_leader_epoch", -1)
                offsets[key] = OffsetToCommit(partition.committed_offset, leader_epoch, partition.committed_metadata)

        def committed(others: Codes) -> None:
            self._answer_commit(connection, request, codes | others)

        if not offsets:
            committed({})
        elif request.api_key == OFFSET_COMMIT:
            generation = getattr(message, "generation_id_or_member_epoch", -1)
            self._coordinator.commit(
                message.group_id, _member(message, generation), offsets,
                request.version >= _KNOWS_GROUP_ID_NOT_FOUND, committed,
            )  # fmt: skip
        else:
            member = _member(message, getattr(message, "generation_id", -1))
            self._coordinator.commit_in_transaction(
                message.group_id, member, offsets, _transactional_write(request), committed
            )

    def _answer_commit(self, connection: Connection, request: Request, codes: Codes) -> None:
        name = "OffsetCommit" if request.api_key == OFFSET_COMMIT else "TxnOffsetCommit"
        kio_version = kio_module(request.api_key, request.version, "response")
        topics: dict[str, list[Any]] = {}
        for (topic, number), code in codes.items():
            result = getattr(kio_version, f"{name}ResponsePartition")(partition_index=number, error_code=code)
            topics.setdefault(topic, []).append(result)
        answered = tuple(
            getattr(kio_version, f"{name}ResponseTopic")(name=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        )
        self._broker.answer(connection, request, f"{name}Response", topics=answered)

    def _fetch(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(OFFSET_FETCH, request.version, "response")
        asked = request.message.groups if request.version >= _SEVERAL_GROUPS else (request.message,)
        answered: dict[int, Answered] = {}

        def fetched(number: int, code: ErrorCode, offsets: Fetched) -> None:
            answered[number] = code, offsets
            if len(answered) == len(asked):
                groups = [(asked[place].group_id, *answered[place]) for place in range(len(asked))]
                self._answer_fetch(connection, request, kio_version, groups)

        refusal = self._broker.next_refusal(OFFSET_FETCH)
        if not asked:
            self._broker.answer(connection, request, "OffsetFetchResponse", groups=())
        for number, group in enumerate(asked):
            if refusal is not ErrorCode.none:
                fetched(number, refusal, {})
                continue
            partitions = None
            if group.topics is not None:
                partitions = [(topic.name, index) for topic in group.topics for index in topic.partition_indexes]
            is_stable = getattr(request.message, "require_stable", False)
            self._coordinator.fetch(group.group_id, partitions, is_stable, partial(fetched, number))

    def _answer_fetch(
        self, connection: Connection, request: Request, kio_version: Any,
        groups: Sequence[tuple[str, ErrorCode, Fetched]],
    ) -> None:  # fmt: skip
        if request.version < _SEVERAL_GROUPS:
            ((_, code, offsets),) = groups
            topics = _fetched_topics(kio_version, "OffsetFetchResponseTopic", offsets)
            self._broker.answer(connection, request, "OffsetFetchResponse", topics=topics, error_code=code)
            return
        answered = tuple(
            kio_version.OffsetFetchResponseGroup(
                group_id=group_id,
                topics=_fetched_topics(kio_version, "OffsetFetchResponseTopics", offsets),
                error_code=code,
            )
            for group_id, code, offsets in groups
        )
        self._broker.answer(connection, request, "OffsetFetchResponse", groups=answered)


def _member(message: Any, generation: int) -> Member:
    return Member(getattr(message, "member_id", ""), generation, getattr(message, "group_instance_id", None))


def _transactional_write(request: Request) -> TransactionalWrite:
    message = request.message
    return TransactionalWrite(
        message.transactional_id, message.producer_id, message.producer_epoch,
        adds=request.version >= _ADDS_PARTITIONS, knows_abortable=request.version >= _KNOWS_ABORTABLE,
    )  # fmt: skip


def _fetched_topics(kio_version: Any, entity: str, offsets: Fetched) -> tuple[Any, ...]:
    """`entity`: kio's name of a topic, whose partitions have its name but for the last letters."""
    partition_type = getattr(kio_version, entity.replace("Topic", "Partition"))
    topics: dict[str, list[Any]] = {}
    for (topic, partition), (code, committed) in offsets.items():
        topics.setdefault(topic, []).append(_fetched_partition(partition_type, partition, code, committed))
    topic_type = getattr(kio_version, entity)
    return tuple(topic_type(name=topic, partitions=tuple(partitions)) for topic, partitions in topics.items())


def _fetched_partition(partition_type: Any, partition: int, code: ErrorCode, committed: CommittedOffset | None) -> Any:
    return build(
        partition_type, partition_index=partition, committed_offset=committed.offset if committed is not None else -1,
        committed_leader_epoch=committed.leader_epoch if committed is not None else -1,
        metadata=committed.metadata if committed is not None else "", error_code=code,
    )  # fmt: skip

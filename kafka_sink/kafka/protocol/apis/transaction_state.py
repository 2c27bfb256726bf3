"""The state of transactions, as coordinators and leaders know it (KIP-664). Nothing here changes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import (
    MOST_PARTITIONS,
    Api,
    Message,
    Request,
    by_topic,
    check_answered,
    check_number,
    check_partitions,
    check_topic_name,
    each_asked,
    partitions_of,
    read,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# --- DescribeTransactions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest(Request):
    """Transactional ids of one coordinator: their state, ids and partitions."""

    api = Api("DescribeTransactions", 65, 0, 0)

    transactional_ids: tuple[str, ...]

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.DescribeTransactionsRequest(transactional_ids=self.transactional_ids)

    def response(self, message: Message) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            throttle_time_ms=message["throttle_time"],
            transactions=tuple(
                read(
                    TransactionDescription,
                    state,
                    state=state["transaction_state"],
                    timeout_ms=state["transaction_timeout"],
                    start_time_ms=state["transaction_start_time"],
                    partitions=tuple(
                        TopicPartition(topic["topic"], partition)
                        for topic in state["topics"]
                        for partition in topic["partitions"]
                    ),
                )
                for state in message["transaction_states"]
            ),
        )

    def check(self, response: DescribeTransactionsResponse) -> None:
        """Raise ProtocolError unless each transactional id occurs once, with ids and partitions that can be ones."""
        answered = (transaction.transactional_id for transaction in response.transactions)
        check_answered("DescribeTransactions", self.transactional_ids, answered)
        for transaction in response.transactions:
            check_number("DescribeTransactions", "producer id", transaction.producer_id)
            check_number("DescribeTransactions", "producer epoch", transaction.producer_epoch)
            for topic, partition in transaction.partitions:
                check_topic_name("DescribeTransactions", topic)
                check_number("DescribeTransactions", "partition", partition, least=0)

    def most(self) -> Mapping[str, int]:
        transactions = each_asked(len(self.transactional_ids), "transaction_states")
        return transactions | each_asked(MOST_PARTITIONS, "topics", "partitions")


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`state`: Empty, Ongoing, PrepareCommit, CompleteAbort, ... `start_time_ms`: since 1970; -1 without an open
    transaction. `partitions`: while Ongoing, those written to; while being completed, those without a marker."""

    transactional_id: str
    error_code: int
    state: str
    timeout_ms: int
    start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int
    transactions: tuple[TransactionDescription, ...]


# --- ListTransactions -------------------------------------------------------------------------------------------------

# From this version on brokers filter by transactional id, with an RE2 expression for the whole id (KIP-1152).
LIST_BY_PATTERN = 2


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest(Request):
    """Lists transactions of one broker, open or not: of `producer_ids` (empty: all), in `states` (empty: any), with a
    transactional id that begins with `transactional_id_prefix`."""

    api = Api("ListTransactions", 66, 0, 2)

    producer_ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    transactional_id_prefix: str = ""

    def to_kio(self, kio: Any, version: int) -> Any:
        prefix = self.transactional_id_prefix
        by_pattern = version >= LIST_BY_PATTERN and prefix
        # Any character may follow, also a line break.
        pattern = {"transactional_id_pattern": re.escape(prefix) + "(?s:.*)"} if by_pattern else {}
        return kio.ListTransactionsRequest(state_filters=self.states, producer_id_filters=self.producer_ids, **pattern)

    def response(self, message: Message) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            throttle_time_ms=message["throttle_time"],
            error_code=message["error_code"],
            transactions=tuple(
                read(ListedTransaction, state, state=state["transaction_state"])
                for state in message["transaction_states"]
                if state["transactional_id"].startswith(self.transactional_id_prefix)
            ),
        )

    def check(self, response: ListTransactionsResponse) -> None:
        """Raise ProtocolError if a transactional id occurs twice, or does not pass the filters."""
        listed = [transaction.transactional_id for transaction in response.transactions]
        check_answered("ListTransactions", set(listed), listed)
        for transaction in response.transactions:
            check_number("ListTransactions", "producer id", transaction.producer_id)
            wanted_producer = not self.producer_ids or transaction.producer_id in self.producer_ids
            if not wanted_producer or (self.states and transaction.state not in self.states):
                raise ProtocolError(f"a ListTransactions answer with what was filtered out: {transaction}")

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.states), "unknown_state_filters")


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    throttle_time_ms: int
    error_code: int
    transactions: tuple[ListedTransaction, ...]


# --- DescribeProducers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest(Request):
    """Sent to a broker that leads `partitions`. Asks for the producers that it remembers there."""

    api = Api("DescribeProducers", 61, 0, 0)

    partitions: tuple[TopicPartition, ...]

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.DescribeProducersRequest(
            topics=tuple(
                kio.TopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(self.partitions).items()
            )
        )

    def response(self, message: Message) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            throttle_time_ms=message["throttle_time"],
            partitions=tuple(
                read(
                    ProducersOfPartition,
                    each,
                    producers=tuple(read(ActiveProducer, producer) for producer in each["active_producers"]),
                )
                for each in partitions_of(message["topics"])
            ),
        )

    def check(self, response: DescribeProducersResponse) -> None:
        """Raise ProtocolError unless each partition occurs once, with ids, epochs and offsets that can be ones."""
        check_partitions("DescribeProducers", self.partitions, response.partitions)
        for found in response.partitions:
            for producer in found.producers:
                check_number("DescribeProducers", "producer id", producer.producer_id)
                check_number("DescribeProducers", "producer epoch", producer.producer_epoch)
                check_number("DescribeProducers", "start of a transaction", producer.current_txn_start_offset)
                check_number("DescribeProducers", "coordinator epoch", producer.coordinator_epoch)
                check_number("DescribeProducers", "last sequence", producer.last_sequence)

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.partitions), "topics", "partitions")


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """`current_txn_start_offset`: the first record of the open transaction, -1 without one. `coordinator_epoch`: that
    of the last marker, -1 without one. The leader refuses a marker with a lower epoch. `last_sequence`: that of the
    last record of this epoch, -1 if the leader knows none."""

    producer_id: int
    producer_epoch: int
    current_txn_start_offset: int
    coordinator_epoch: int = -1
    last_sequence: int = -1


@dataclass(frozen=True, slots=True)
class ProducersOfPartition:
    topic: str
    partition: int
    error_code: int
    error_message: str | None
    producers: tuple[ActiveProducer, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int
    partitions: tuple[ProducersOfPartition, ...]

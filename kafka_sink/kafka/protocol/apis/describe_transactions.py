"""DescribeTransactions: state, ids and partitions of transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import (
    MOST_PARTITIONS,
    Api,
    check_answered,
    check_number,
    check_topic_name,
    each_asked,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    """Transactional ids of one coordinator. Changes nothing."""

    transactional_ids: tuple[str, ...]


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


def kio_describe_transactions(kio: Any, version: int, request: DescribeTransactionsRequest) -> Any:
    return kio.DescribeTransactionsRequest(transactional_ids=request.transactional_ids)


def describe_transactions_response(
    request: DescribeTransactionsRequest, message: Mapping[str, Any]
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time_ms=message["throttle_time"],
        transactions=tuple(
            TransactionDescription(
                transactional_id=state["transactional_id"],
                error_code=state["error_code"],
                state=state["transaction_state"],
                timeout_ms=state["transaction_timeout"],
                start_time_ms=state["transaction_start_time"],
                producer_id=state["producer_id"],
                producer_epoch=state["producer_epoch"],
                partitions=tuple(
                    TopicPartition(topic["topic"], partition)
                    for topic in state["topics"]
                    for partition in topic["partitions"]
                ),
            )
            for state in message["transaction_states"]
        ),
    )


def check_describe_transactions_response(
    request: DescribeTransactionsRequest, response: DescribeTransactionsResponse
) -> None:
    """Raise ProtocolError unless each transactional id occurs once, with ids and partitions that can be ones."""
    answered = (transaction.transactional_id for transaction in response.transactions)
    check_answered("DescribeTransactions", request.transactional_ids, answered)
    for transaction in response.transactions:
        check_number("DescribeTransactions", "producer id", transaction.producer_id)
        check_number("DescribeTransactions", "producer epoch", transaction.producer_epoch)
        for topic, partition in transaction.partitions:
            check_topic_name("DescribeTransactions", topic)
            check_number("DescribeTransactions", "partition", partition, least=0)


API = Api(
    "DescribeTransactions",
    65,
    0,
    0,
    DescribeTransactionsRequest,
    kio_describe_transactions,
    describe_transactions_response,
    check_describe_transactions_response,
    most=lambda request: (
        each_asked(len(request.transactional_ids), "transaction_states")
        | each_asked(MOST_PARTITIONS, "topics", "partitions")
    ),
)

"""ListTransactions: the transactions that a broker coordinates (KIP-664; filters: KIP-994, KIP-1152)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Api, check_answered, check_number, each_asked


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """Lists transactions of one broker, open or not: of `producer_ids` (empty: all), in `states` (empty: any), with a
    transactional id that begins with `transactional_id_prefix`."""

    producer_ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    transactional_id_prefix: str = ""


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


# From this version on brokers filter by transactional id, with an RE2 expression for the whole id (KIP-1152).
LIST_BY_PATTERN = 2


def kio_list_transactions(kio: Any, version: int, request: ListTransactionsRequest) -> Any:
    prefix = request.transactional_id_prefix
    by_pattern = version >= LIST_BY_PATTERN and prefix
    # Any character may follow, also a line break.
    pattern = {"transactional_id_pattern": re.escape(prefix) + "(?s:.*)"} if by_pattern else {}
    return kio.ListTransactionsRequest(
        state_filters=request.states, producer_id_filters=request.producer_ids, **pattern
    )


def list_transactions_response(
    request: ListTransactionsRequest, message: Mapping[str, Any]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        transactions=tuple(
            ListedTransaction(state["transactional_id"], state["producer_id"], state["transaction_state"])
            for state in message["transaction_states"]
            if state["transactional_id"].startswith(request.transactional_id_prefix)
        ),
    )


def check_list_transactions_response(request: ListTransactionsRequest, response: ListTransactionsResponse) -> None:
    """Raise ProtocolError if a transactional id occurs twice, or does not pass the filters."""
    listed = [transaction.transactional_id for transaction in response.transactions]
    check_answered("ListTransactions", set(listed), listed)
    for transaction in response.transactions:
        check_number("ListTransactions", "producer id", transaction.producer_id)
        wanted_producer = not request.producer_ids or transaction.producer_id in request.producer_ids
        if not wanted_producer or (request.states and transaction.state not in request.states):
            raise ProtocolError(f"a ListTransactions answer with what was filtered out: {transaction}")


API = Api(
    "ListTransactions",
    66,
    0,
    2,
    ListTransactionsRequest,
    kio_list_transactions,
    list_transactions_response,
    check_list_transactions_response,
    most=lambda request: each_asked(len(request.states), "unknown_state_filters"),
)

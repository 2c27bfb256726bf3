"""Requests to the coordinators of transactional ids and groups: found, sent, sent again, until there is an answer.

    ask ─> coordinator known? ── no ──> FindCoordinator, for all keys of a kind that need it
               │ yes  <────────────────────────┘
               └──> sent to it ─> definite answer ─> done
                       └─ 14, 3, 7, 89: the same again after a backoff ── 51, 88: after 1-2 ms
                       └─ 15, 16, no answer: coordinator found anew, then the same again
                       └─ none of it before the deadline: done, with the last reason

What is sent again is the same request, byte for byte: the first may have been carried out, and only the same one again
has an answer that is true of both.

Non-obvious:

* Requests to one coordinator are pipelined, as many as the network takes. Each ask is on its own: who needs one done
  before another waits for it.
* Those that only read, or delete groups, go as one request: a broker answers the requests of a connection one after
  the other, each half a millisecond or more. Each ask has its own part of the answer, and is sent again without the
  others.
* A deadline that passes leaves open whether the request was carried out. While a broker throttles it does not come
  nearer: that is an answer, and nothing is sent meanwhile (KIP-219).
* CONCURRENT_TRANSACTIONS and UNSTABLE_OFFSET_COMMIT mean that the markers of the last transaction are being written,
  which takes a few milliseconds, so the first tries come quickly (KAFKA-5477); a partition without a leader makes it
  last longer.

Pure: `network` is handed in, `now_ms` is an argument. Not thread-safe.

Source: Kafka's TransactionManager.java (TxnRequestHandler and its subclasses), KIP-98, KIP-447, KIP-588, KIP-699.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Any

from kafka_sink.kafka.backoff import backoff_ms
from kafka_sink.kafka.producer.network import LONGEST_POLL_MS, Network
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
)
from kafka_sink.kafka.protocol.apis.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kafka_sink.kafka.protocol.apis.describe_producers import (
    DescribeProducersResponse,
)
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafka_sink.kafka.protocol.apis.find_coordinator import (
    CoordinatorKind,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
)
from kafka_sink.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka_sink.kafka.protocol.apis.write_txn_markers import (
    WriteTxnMarkersResponse,
)
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, meaning
from kafka_sink.kafka.protocol.requests import (
    Request,
    Response,
    api_of,
)

# While markers are written: so many tries in a row come this soon, about 60 ms of them; then the usual backoff begins.
QUICK_TRIES = 40
QUICK_BACKOFF_MS = (1, 2)


class Next(IntEnum):
    """What an error code asks for. Of several codes in one response the highest of these counts."""

    DONE = auto()
    """It is the answer, whatever it says."""
    AGAIN_SOON = auto()
    """The same again in a moment."""
    AGAIN = auto()
    """The same again after a backoff."""
    ELSEWHERE = auto()
    """The same again after a backoff, to the coordinator that is found then."""


# Requests to coordinators: also sent again, and soon.
_MARKERS_BEING_WRITTEN = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    # A transaction on the offset is open, or its markers are on their way (KIP-447).
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
})  # fmt: skip
# Also sent again: a topic that was created a moment ago, and that the coordinator has not heard of.
_TOPIC_IS_NEW = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def next_after(code: int) -> Next:
    """For an error code of any request to a coordinator. One that nobody knows is an answer: what it asks for is
    unknown."""
    means = meaning(code)
    if means.coordinator_moved:
        return Next.ELSEWHERE
    if code in _MARKERS_BEING_WRITTEN:
        return Next.AGAIN_SOON
    # A busy broker may have carried the request out.
    if means.coordinator_not_ready or means.broker_busy or code in _TOPIC_IS_NEW:
        return Next.AGAIN
    return Next.DONE


def error_code_of(response: Response) -> int:
    """The error code that decides what to do about `response`: of several the one that asks for most, else the first
    that is an error, else NONE."""
    codes = list(_error_codes(response))
    return max(codes, key=lambda code: (next_after(code), code != ErrorCode.NONE), default=ErrorCode.NONE.value)


def _error_codes(response: Any) -> Iterable[int]:
    match response:
        case AddPartitionsToTxnResponse(results=parts) | WriteTxnMarkersResponse(results=parts):
            pass
        case DescribeProducersResponse(partitions=parts):
            pass
        case DescribeTransactionsResponse(transactions=parts):
            pass
        case OffsetFetchResponse(groups=parts) | DeleteGroupsResponse(groups=parts):
            pass
        case _:
            parts = (response,)
    return (part.error_code for part in parts)


@dataclass(slots=True, eq=False)
class Ask:
    """One request on its way to an answer. `done`: with the definite `response`, or without one, and `error` says why.
    Before that `error` is the reason why it has none yet, empty if there was none. `deadline_ms`: of the clock that
    stands while a broker throttles. `refused`: there is no response as the cluster will not say who the coordinator is,
    with this error code; 0 otherwise."""

    kind: CoordinatorKind
    key: str
    request: Request
    deadline_ms: int
    response: Response | None = None
    error: str = ""
    refused: int = 0
    done: bool = False
    in_flight: bool = False
    not_before_ms: int = 0
    # Answers in a row that were none, by how soon they let it try again.
    tries: int = 0
    quick_tries: int = 0


@dataclass(slots=True)
class _Coordinator:
    """Who serves a key: a node, or None while nobody knows."""

    node_id: int | None = None
    being_found: bool = False
    not_before_ms: int = 0
    # Times it was looked for since it last gave a definite answer.
    tries: int = 0


class _Finding:
    """The token of a FindCoordinator request."""


_FINDING = _Finding()


# --- reads that go as one ---------------------------------------------------------------------------------------------

# So many at a time: an answer stays far below what the reader of messages takes.
READS_TOGETHER = 200


def _alike(request: Request) -> Hashable | None:
    """What a request that only reads, or deletes groups, has in common with those it can go together with; None for
    all others."""
    match request:
        case OffsetFetchRequest() | DeleteGroupsRequest():
            return replace(request, group_ids=())
        case DescribeTransactionsRequest():
            return replace(request, transactional_ids=())
    return None


def _together(requests: Sequence[Any]) -> Request:
    """One request for all of `requests`, which are alike. No key is asked for twice."""
    first = requests[0]
    if isinstance(first, OffsetFetchRequest | DeleteGroupsRequest):
        return replace(first, group_ids=tuple(dict.fromkeys(key for each in requests for key in each.group_ids)))
    keys = dict.fromkeys(key for each in requests for key in each.transactional_ids)
    return DescribeTransactionsRequest(tuple(keys))


def _part_of(response: Any, request: Any) -> Response | None:
    """What `response`, to several requests together, answers to `request`."""
    match response:
        case OffsetFetchResponse(groups=groups):
            return replace(response, groups=tuple(each for each in groups if each.group_id in request.group_ids))
        case DeleteGroupsResponse(groups=deleted):
            return replace(response, groups=tuple(each for each in deleted if each.group_id in request.group_ids))
        case DescribeTransactionsResponse(transactions=found):
            asked = request.transactional_ids
            return replace(response, transactions=tuple(each for each in found if each.transactional_id in asked))
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    """The token of asks that went as one request."""

    asks: tuple[Ask, ...]


# --- asking -----------------------------------------------------------------------------------------------------------


class Coordinators:
    """`retry_backoff_ms` grows to `retry_backoff_max_ms` from one try without an answer to the next (KIP-580)."""

    def __init__(
        self, *, network: Network, rng: random.Random, retry_backoff_ms: int, retry_backoff_max_ms: int
    ) -> None:
        self._network = network
        self._rng = rng
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._asks: list[Ask] = []
        self._coordinators: dict[tuple[CoordinatorKind, str], _Coordinator] = {}

    def ask(self, kind: CoordinatorKind, key: str, request: Request, *, now_ms: int, deadline_ms: int) -> Ask:
        """Has `request` sent to the coordinator of `key` from the next `run_once` on, until it is answered or
        `deadline_ms` is there, later by the time for which brokers throttle from now on."""
        ask = Ask(kind, key, request, deadline_ms - self._network.throttled_ms(now_ms), not_before_ms=now_ms)
        self._asks.append(ask)
        self._coordinators.setdefault((kind, key), _Coordinator())
        return ask

    def _coordinator_of(self, ask: Ask) -> _Coordinator:
        return self._coordinators[ask.kind, ask.key]

    # --- what goes out ------------------------------------------------------------------------------------------------

    def run_once(self, now_ms: int) -> int:
        """Hands the network all that should go now. Returns how long (ms) a poll may wait for something to happen."""
        waited_until_ms = now_ms - self._network.throttled_ms(now_ms)
        for ask in self._asks:
            if not ask.done and waited_until_ms >= ask.deadline_ms:
                ask.error = ask.error or self._network.last_error or "no broker took the request"
                ask.done = True
        self._asks = [ask for ask in self._asks if not ask.done]
        waits = [LONGEST_POLL_MS]
        reads: dict[tuple[int, CoordinatorKind, Hashable], list[Ask]] = {}
        for ask in self._asks:
            waits.append(ask.deadline_ms - waited_until_ms)
            if not ask.in_flight:
                waits.append(self._send(ask, reads, now_ms))
        for (node_id, *_), asks in reads.items():
            self._send_reads(node_id, asks, now_ms)
        waits += [self._find(kind, now_ms) for kind in CoordinatorKind]
        return min(waits)

    def _send_reads(self, node_id: int, asks: Sequence[Ask], now_ms: int) -> None:
        for start in range(0, len(asks), READS_TOGETHER):
            if not self._network.ready(node_id, now_ms):
                return
            some = _Reads(tuple(asks[start : start + READS_TOGETHER]))
            for ask in some.asks:
                ask.in_flight = True
            self._network.send(node_id, _together([ask.request for ask in some.asks]), now_ms, some)

    def _send(self, ask: Ask, reads: dict[tuple[int, CoordinatorKind, Hashable], list[Ask]], now_ms: int) -> int:
        """Sends it, or adds it to the `reads` of its coordinator, which go together."""
        if now_ms < ask.not_before_ms:
            return ask.not_before_ms - now_ms
        node_id = self._coordinator_of(ask).node_id
        if node_id is None:
            return LONGEST_POLL_MS
        if self._network.ready(node_id, now_ms):
            alike = _alike(ask.request)
            if alike is not None:
                reads.setdefault((node_id, ask.kind, alike), []).append(ask)
                return LONGEST_POLL_MS
            ask.in_flight = True
            self._network.send(node_id, ask.request, now_ms, ask)
        elif self._network.is_down(node_id):
            # Nothing is on its way to come back with an error, and another broker may be the coordinator by now.
            ask.error = self._network.last_error
            self._forget(ask, node_id, now_ms)
        return LONGEST_POLL_MS

    def _find(self, kind: CoordinatorKind, now_ms: int) -> int:
        unknown = {
            ask.key: coordinator
            for ask in self._asks
            if ask.kind is kind and (coordinator := self._coordinator_of(ask)).node_id is None
        }
        lost = {key: coordinator for key, coordinator in unknown.items() if not coordinator.being_found}
        due = {key: coordinator for key, coordinator in lost.items() if now_ms >= coordinator.not_before_ms}
        if not due:
            return min((coordinator.not_before_ms - now_ms for coordinator in lost.values()), default=LONGEST_POLL_MS)
        node_id = self._network.least_loaded_node(now_ms)
        if node_id is None:
            return LONGEST_POLL_MS
        for coordinator in due.values():
            coordinator.being_found = True
        self._network.send(node_id, FindCoordinatorRequest(kind, tuple(due)), now_ms, _FINDING)
        return LONGEST_POLL_MS

    # --- what comes back ----------------------------------------------------------------------------------------------

    def handle(self, answer: ClientResponse, now_ms: int) -> bool:
        """Takes an answer of a poll. Whether it was to a request of this module."""
        if isinstance(answer.token, Ask):
            self._on_answer(answer.token, answer, answer.response, now_ms)
        elif isinstance(answer.token, _Reads):
            for ask in answer.token.asks:
                self._on_answer(ask, answer, _part_of(answer.response, ask.request), now_ms)
        elif answer.token is _FINDING:
            self._on_found(answer, now_ms)
        else:
            return False
        return True

    def _on_answer(self, ask: Ask, answer: ClientResponse, response: Any, now_ms: int) -> None:
        """`response`: the answer's part for this ask."""
        ask.in_flight = False
        code = ErrorCode.NONE if response is None else error_code_of(response)
        step = Next.ELSEWHERE if response is None else next_after(code)
        if step is Next.ELSEWHERE:
            self._forget(ask, answer.node_id, now_ms)
        if ask.done:
            return
        if step is Next.DONE:
            ask.response, ask.error, ask.done = response, "", True
            self._coordinator_of(ask).tries = 0
            return
        ask.error = answer.error or _refusal(ask.request, code)
        if step is Next.AGAIN_SOON and ask.quick_tries < QUICK_TRIES:
            ask.quick_tries += 1
            ask.not_before_ms = now_ms + self._rng.randint(*QUICK_BACKOFF_MS)
        else:
            ask.tries += 1
            ask.not_before_ms = now_ms + self._backoff_ms(ask.tries)

    def _on_found(self, answer: ClientResponse, now_ms: int) -> None:
        request, response = answer.request, answer.response
        assert isinstance(request, FindCoordinatorRequest)
        for key in request.keys:
            self._coordinators[request.kind, key].being_found = False
        if isinstance(response, FindCoordinatorResponse):
            for found in response.coordinators:
                self._on_found_one(request, found, now_ms)
        else:
            for key in request.keys:
                self._look_again(request.kind, key, answer.error or "the connection was lost", now_ms)

    def _on_found_one(self, request: FindCoordinatorRequest, found: FoundCoordinator, now_ms: int) -> None:
        code = found.error_code
        if code == ErrorCode.NONE:
            self._network.learn(Broker(found.node_id, found.host, found.port))
            self._coordinators[request.kind, found.key].node_id = found.node_id
        elif next_after(code) is not Next.DONE:
            self._look_again(request.kind, found.key, _refusal(request, code), now_ms)
        else:
            for ask in self._asked_of(request.kind, found.key):
                ask.error, ask.refused, ask.done = _refusal(request, code), code, True

    def _forget(self, ask: Ask, node_id: int, now_ms: int) -> None:
        """`node_id` is not the coordinator of the ask's key, or does not answer. Looked for at once the first time."""
        coordinator = self._coordinator_of(ask)
        if coordinator.node_id != node_id:
            return
        coordinator.node_id = None
        coordinator.not_before_ms = now_ms + (self._backoff_ms(coordinator.tries) if coordinator.tries else 0)
        coordinator.tries += 1

    def _look_again(self, kind: CoordinatorKind, key: str, reason: str, now_ms: int) -> None:
        coordinator = self._coordinators[kind, key]
        coordinator.tries += 1
        coordinator.not_before_ms = now_ms + self._backoff_ms(coordinator.tries)
        for ask in self._asked_of(kind, key):
            ask.error = reason

    def _asked_of(self, kind: CoordinatorKind, key: str) -> Sequence[Ask]:
        return [ask for ask in self._asks if (ask.kind, ask.key) == (kind, key) and not ask.done]

    def _backoff_ms(self, tries: int) -> int:
        return backoff_ms(tries, self._retry_backoff_ms, self._retry_backoff_max_ms, self._rng)


def _refusal(request: Request, code: int) -> str:
    return f"{api_of(request).name} was answered with {error_name(code)} (error {code})"

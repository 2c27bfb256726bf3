"""Requests to the coordinators of transactional ids and groups. Each is sent and retried until it has an answer.

    ask ─> coordinator known? ── no ──> FindCoordinator, for all keys of a kind that need it
               │ yes  <────────────────────────┘
               └──> sent to it ─> definite answer ─> done
                       └─ 14, 3, 7, 89: retry after a backoff ── 51, 88: after 1-2 ms
                       └─ 15, 16, no answer: find the coordinator again, then retry
                       └─ no answer before the deadline: done, with the last reason

A retry sends the same request, byte for byte. The coordinator may have carried out the first attempt. Only an identical
request has an answer that is true of both attempts.

Non-obvious:

* Requests to one coordinator are pipelined, as many as the network takes. Asks are independent: if one ask must be done
  before another, the caller waits for it.
* Requests that only read, or that delete groups, are combined into one request. A broker answers the requests of a
  connection one after the other, and each takes 0.5 ms or more. Each ask gets its own part of the response and is
  retried separately. A broker that takes one key a request (FindCoordinator before version 4, OffsetFetch before 8)
  gets one request for each.
* After a deadline passes, the caller does not know if the request was carried out. Time in which a broker throttles
  does not count towards the deadline: the broker has answered, and nothing is sent meanwhile (KIP-219).
* CONCURRENT_TRANSACTIONS and UNSTABLE_OFFSET_COMMIT mean that the markers of the last transaction are being written.
  This takes a few milliseconds, so the first retries come quickly (KAFKA-5477). A partition without a leader makes it
  last longer.

Pure: `network` is passed in, `now_ms` is an argument. Not thread-safe.

Source: Kafka's TransactionManager.java (TxnRequestHandler and its subclasses), KIP-98, KIP-447, KIP-588, KIP-699.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Any

from kafka_sink.kafka.backoff import backoff_ms
from kafka_sink.kafka.network import LONGEST_POLL_MS, Network
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
from kafka_sink.kafka.protocol.apis.offset_commit import ProgressCommitResponse
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

# While markers are written: 40 quick retries, about 60 ms in all. Then the usual backoff begins.
QUICK_TRIES = 40
QUICK_BACKOFF_MS = (1, 2)


class Next(IntEnum):
    """The next step for an error code. If a response has several codes, the highest step counts."""

    DONE = auto()
    """The response is the final answer, success or error."""
    AGAIN_SOON = auto()
    """Retry after 1-2 ms."""
    AGAIN = auto()
    """Retry after a backoff."""
    ELSEWHERE = auto()
    """Find the coordinator again, and retry there after a backoff."""


# Requests to coordinators: retry soon.
_MARKERS_BEING_WRITTEN = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    # A transaction on the offset is open, or its markers are being written (KIP-447).
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
})  # fmt: skip
# Retry as well: the coordinator may not know a topic that was just created.
_TOPIC_IS_NEW = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def next_after(code: int) -> Next:
    """Return the next step for the error code of any request to a coordinator. An unknown code is final, because the
    client does not know what it requires."""
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
    """Return the error code of `response` that decides the next step: the code with the highest step. Among equal
    steps it is the first error, or NONE."""
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
        case ProgressCommitResponse(results=parts):
            # A topic whose records were read is not new: it was deleted, and the other offsets are committed.
            parts = tuple(part for part in parts if part.error_code not in _TOPIC_IS_NEW)
        case _:
            parts = (response,)
    return (part.error_code for part in parts)


@dataclass(slots=True, eq=False)
class Ask:
    """One request that waits for its answer.

    `done`: final. Either `response` is the answer, or it is None and `error` says why.
    `error`: before `done`, the reason for the last failed attempt, or empty.
    `deadline_ms`: on a clock that pauses while a broker throttles.
    `refused`: the error code with which the cluster refused to name the coordinator; 0 otherwise.
    """

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
    # Retries in a row: with the usual backoff, and quick ones.
    tries: int = 0
    quick_tries: int = 0


@dataclass(slots=True)
class _Coordinator:
    """The coordinator of a key. `node_id` is None while the coordinator is unknown."""

    node_id: int | None = None
    being_found: bool = False
    not_before_ms: int = 0
    # Lookups since the coordinator last gave a final answer.
    tries: int = 0


class _Finding:
    """The token of a FindCoordinator request."""


_FINDING = _Finding()


# --- reads that go as one ---------------------------------------------------------------------------------------------

# The most asks in one request. A response of this size is far below the limit of the message reader.
READS_TOGETHER = 200


def _alike(request: Request) -> Hashable | None:
    """Return what a combinable request has in common with others of its kind, or None if it cannot be combined."""
    match request:
        case OffsetFetchRequest() | DeleteGroupsRequest():
            return replace(request, group_ids=())
        case DescribeTransactionsRequest():
            return replace(request, transactional_ids=())
    return None


def _together(requests: Sequence[Any]) -> Request:
    """Return one request for all of `requests`, which are alike. Each key occurs once."""
    first = requests[0]
    if isinstance(first, OffsetFetchRequest | DeleteGroupsRequest):
        return replace(first, group_ids=tuple(dict.fromkeys(key for each in requests for key in each.group_ids)))
    keys = dict.fromkeys(key for each in requests for key in each.transactional_ids)
    return DescribeTransactionsRequest(tuple(keys))


def _part_of(response: Any, request: Any) -> Response | None:
    """Return the part of `response` that belongs to `request`."""
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
    """The token of a request that combines several asks."""

    asks: tuple[Ask, ...]


# --- asking -----------------------------------------------------------------------------------------------------------


class Coordinators:
    """Sends asks and finds coordinators. The backoff grows from `retry_backoff_ms` to `retry_backoff_max_ms`
    (KIP-580)."""

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
        """Send `request` to the coordinator of `key`, from the next `run_once` until an answer or `deadline_ms`.
        Throttle time from now on extends the deadline."""
        ask = Ask(kind, key, request, deadline_ms - self._network.throttled_ms(now_ms), not_before_ms=now_ms)
        self._asks.append(ask)
        self._coordinators.setdefault((kind, key), _Coordinator())
        return ask

    def _coordinator_of(self, ask: Ask) -> _Coordinator:
        return self._coordinators[ask.kind, ask.key]

    # --- what goes out ------------------------------------------------------------------------------------------------

    def run_once(self, now_ms: int) -> int:
        """Hand the network everything that is due now. Return the longest time (ms) that a poll may wait."""
        waited_until_ms = self.expire(now_ms)
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

    def expire(self, now_ms: int) -> int:
        """End the asks whose deadline has passed, and forget those that are done. Return the time on the clock of
        deadlines (ms)."""
        waited_until_ms = now_ms - self._network.throttled_ms(now_ms)
        for ask in self._asks:
            if not ask.done and waited_until_ms >= ask.deadline_ms:
                ask.error = ask.error or self._network.last_error or "no broker took the request"
                ask.done = True
        self._asks = [ask for ask in self._asks if not ask.done]
        return waited_until_ms

    def _send_reads(self, node_id: int, asks: Sequence[Ask], now_ms: int) -> None:
        together = _together([ask.request for ask in asks[:READS_TOGETHER]])
        count = READS_TOGETHER if self._takes(node_id, together) else 1
        for start in range(0, len(asks), count):
            if not self._network.ready(node_id, now_ms):
                return
            some = _Reads(tuple(asks[start : start + count]))
            for ask in some.asks:
                ask.in_flight = True
            self._network.send(node_id, _together([ask.request for ask in some.asks]), now_ms, some)

    def _takes(self, node_id: int, request: Request) -> bool:
        return self._network.api_version(node_id, request) is not None

    def _send(self, ask: Ask, reads: dict[tuple[int, CoordinatorKind, Hashable], list[Ask]], now_ms: int) -> int:
        """Send `ask`, or add it to `reads`, which are combined per coordinator. Return the longest poll (ms)."""
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
            # No request is in flight that could return an error, and the key may have another coordinator by now.
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
        everything = FindCoordinatorRequest(kind, tuple(due))
        one_each = [FindCoordinatorRequest(kind, (key,)) for key in due]
        for request in [everything] if self._takes(node_id, everything) else one_each:
            if not self._network.ready(node_id, now_ms):
                break
            for key in request.keys:
                due[key].being_found = True
            self._network.send(node_id, request, now_ms, _FINDING)
        return LONGEST_POLL_MS

    # --- what comes back ----------------------------------------------------------------------------------------------

    def handle(self, answer: ClientResponse, now_ms: int) -> bool:
        """Process one response of a poll. Return True if its request came from this module."""
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
        """`response` is the part of the response that belongs to `ask`."""
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
        """Forget `node_id`: it is not the key's coordinator, or does not answer. The first lookup has no backoff."""
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

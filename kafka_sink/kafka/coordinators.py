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
* Requests that only read, or that delete groups, are combined into one request: a broker answers the requests of a
  connection one after the other, and each takes 0.5 ms or more. Each ask gets its own part of the response and is
  retried separately. A broker that takes one key a request (FindCoordinator before version 4, OffsetFetch before 8)
  gets one request for each.
* A commit has thousands of asks open at once, so a turn visits only those that can go now. Each other ask waits for its
  coordinator, for room at its node, for the end of its backoff, or for its answer.
* After a deadline passes, the caller does not know if the request was carried out. Time in which a broker throttles
  counts for a tenth: the broker has answered, and nothing is sent meanwhile (KIP-219).
* CONCURRENT_TRANSACTIONS and UNSTABLE_OFFSET_COMMIT mean that the markers of the last transaction are being written.
  This takes a few milliseconds, so the first retries come quickly (KAFKA-5477). A partition without a leader makes it
  last longer.

Pure: `network` is passed in, `now_ms` is an argument. Not thread-safe.

Source: Kafka's TransactionManager.java (TxnRequestHandler and its subclasses), KIP-98, KIP-447, KIP-588, KIP-699.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, auto
from heapq import heappop, heappush
from itertools import count
from typing import Any

from kafka_sink.kafka.network import LONGEST_POLL_MS, Network
from kafka_sink.kafka.protocol.api import ClientResponse, PartitionsResponse, Request, Response
from kafka_sink.kafka.protocol.apis.groups import (
    CoordinatorKind,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
    GroupOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProgressCommitResponse,
)
from kafka_sink.kafka.protocol.apis.metadata import Broker
from kafka_sink.kafka.protocol.apis.transaction_state import (
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_text, meaning
from kafka_sink.kafka.waits import backoff_ms, without_throttles

# --- combined requests ------------------------------------------------------------------------------------------------

# The most requests in one. A response of this size is far below the limit of the message reader.
READS_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class _Fields:
    """Names of fields: the keys of a request, the parts of its response, and the key of a part."""

    keys: str
    parts: str
    key: str


_OF_GROUPS = _Fields("group_ids", "groups", "group_id")
_FIELDS: Mapping[type, _Fields] = {
    OffsetFetchRequest: _OF_GROUPS,
    DeleteGroupsRequest: _OF_GROUPS,
    DescribeTransactionsRequest: _Fields("transactional_ids", "transactions", "transactional_id"),
}


def alike(request: Any) -> Hashable | None:
    """Return what a combinable request has in common with others of its kind, or None if it cannot be combined."""
    of = _FIELDS.get(type(request))
    return None if of is None else replace(request, **{of.keys: ()})


def together(requests: Sequence[Any]) -> Request:
    """Return one request for all of `requests`, which are alike. Each key occurs once."""
    first = requests[0]
    of = _FIELDS[type(first)]
    keys = dict.fromkeys(key for each in requests for key in getattr(each, of.keys))
    combined: Request = replace(first, **{of.keys: tuple(keys)})
    return combined


def parts(requests: Iterable[Any], response: Any) -> list[Response | None]:
    """Return the part of `response` that belongs to each of `requests`, which went together. None for no response."""
    if response is None:
        return [None for _ in requests]
    by_key: dict[str, Any] = {}
    found: list[Response | None] = []
    for request in requests:
        of = _FIELDS[type(request)]
        by_key = by_key or {getattr(part, of.key): part for part in getattr(response, of.parts)}
        of_request = tuple(by_key[key] for key in getattr(request, of.keys) if key in by_key)
        found.append(replace(response, **{of.parts: of_request}))
    return found


# --- what a response asks for -----------------------------------------------------------------------------------------

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
        case DescribeProducersResponse(partitions=parts):
            pass
        case DescribeTransactionsResponse(transactions=parts):
            pass
        case OffsetFetchResponse(groups=parts) | DeleteGroupsResponse(groups=parts):
            pass
        case ProgressCommitResponse(results=parts):
            # A topic whose records were read is not new: it was deleted, and the other offsets are committed.
            parts = tuple(part for part in parts if part.error_code not in _TOPIC_IS_NEW)
        case PartitionsResponse(results=parts):
            pass
        case GroupOffsetsResponse(error_code=code, offsets=offsets):
            return (code, *(each.error_code for each in offsets))
        case _:
            parts = (response,)
    return (part.error_code for part in parts)


# --- asks and coordinators --------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Ask:
    """One request that waits for its answer.

    `done`: final. Either `response` is the answer, or it is None and `error` says why.
    `error`: before `done`, the reason for the last failed attempt, or empty.
    `deadline_ms`: on a clock that slows down while a broker throttles.
    `refused`: the error code with which the cluster refused to name the coordinator; 0 otherwise.
    `alike`: what the requests have in common that may go with this one as one request; None if it goes alone.
    `is_due`: it goes once its coordinator is known and takes it.
    """

    kind: CoordinatorKind
    key: str
    request: Request
    deadline_ms: int
    alike: Hashable | None = None
    response: Response | None = None
    error: str = ""
    refused: int = 0
    done: bool = False
    is_due: bool = False
    # Retries in a row: with the usual backoff, and quick ones.
    tries: int = 0
    quick_tries: int = 0


@dataclass(slots=True)
class _Coordinator:
    """The coordinator of a key. `node_id` is None while the coordinator is unknown. `asks`: those that are not done."""

    node_id: int | None = None
    being_found: bool = False
    not_before_ms: int = 0
    # Lookups since the coordinator last gave a final answer.
    tries: int = 0
    asks: list[Ask] = field(default_factory=list)


class _Times:
    """Asks by time: their deadlines, or the ends of their backoffs."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Ask]] = []
        # Of equal times, the one that was added first comes first.
        self._numbers = count()

    def add(self, at_ms: int, ask: Ask) -> None:
        heappush(self._heap, (at_ms, next(self._numbers), ask))

    def first_ms(self) -> int | None:
        """Return the earliest time of an ask that is not done, or None."""
        while self._heap and self._heap[0][2].done:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> Iterator[Ask]:
        """Remove and return the asks whose time has come and that are not done."""
        while (first_ms := self.first_ms()) is not None and first_ms <= now_ms:
            yield heappop(self._heap)[2]


# The token of a FindCoordinator request.
_FINDING = object()


@dataclass(frozen=True, slots=True, eq=False)
class _Combined:
    """The token of a request that combines several asks."""

    asks: tuple[Ask, ...]


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
        self._coordinators: dict[tuple[CoordinatorKind, str], _Coordinator] = {}
        # The unknown coordinators that asks wait for, by key.
        self._lost: dict[CoordinatorKind, dict[str, _Coordinator]] = {kind: {} for kind in CoordinatorKind}
        # Due asks, by the node that is their coordinator.
        self._queues: dict[int, deque[Ask]] = {}
        self._backoffs = _Times()
        self._deadlines = _Times()

    def ask(self, kind: CoordinatorKind, key: str, request: Request, *, now_ms: int, deadline_ms: int) -> Ask:
        """Send `request` to the coordinator of `key`, from the next `run_once` until an answer or `deadline_ms`.
        Throttle time from now on extends the deadline."""
        ends_ms = without_throttles(deadline_ms, self._network.throttled_ms(now_ms))
        ask = Ask(kind, key, request, ends_ms, alike(request))
        coordinator = self._coordinators.setdefault((kind, key), _Coordinator())
        coordinator.asks.append(ask)
        if coordinator.node_id is None:
            self._lost[kind][key] = coordinator
        self._deadlines.add(ask.deadline_ms, ask)
        self._set_due(ask)
        return ask

    def _coordinator_of(self, ask: Ask) -> _Coordinator:
        return self._coordinators[ask.kind, ask.key]

    def _set_due(self, ask: Ask) -> None:
        """Let `ask` go, now or once its coordinator is known."""
        ask.is_due = True
        node_id = self._coordinator_of(ask).node_id
        if node_id is not None:
            self._queues.setdefault(node_id, deque()).append(ask)

    def _end(self, ask: Ask) -> None:
        ask.done = True
        asks = self._coordinator_of(ask).asks
        asks.remove(ask)
        if not asks:
            self._lost[ask.kind].pop(ask.key, None)

    # --- what goes out ------------------------------------------------------------------------------------------------

    def run_once(self, now_ms: int) -> int:
        """Hand the network everything that is due now. Return the longest time (ms) that a poll may wait."""
        waited_until_ms = self.expire(now_ms)
        for ask in self._backoffs.take(now_ms):
            self._set_due(ask)
        for node_id in list(self._queues):
            self._send_queue(node_id, now_ms)
        waits = [LONGEST_POLL_MS, *(self._find(kind, now_ms) for kind in CoordinatorKind)]
        if (deadline_ms := self._deadlines.first_ms()) is not None:
            waits.append(deadline_ms - waited_until_ms)
        if (backoff_ends_ms := self._backoffs.first_ms()) is not None:
            waits.append(backoff_ends_ms - now_ms)
        return min(waits)

    def expire(self, now_ms: int) -> int:
        """End the asks whose deadline has passed. Return the time on the clock of deadlines (ms)."""
        waited_until_ms = without_throttles(now_ms, self._network.throttled_ms(now_ms))
        for ask in self._deadlines.take(waited_until_ms):
            ask.error = ask.error or self._network.last_error or "no broker took the request"
            self._end(ask)
        return waited_until_ms

    def _send_queue(self, node_id: int, now_ms: int) -> None:
        """Send what the node takes now: first the requests that go alone, then reads, which are combined."""
        queue = self._queues.pop(node_id)
        reads: dict[Hashable, list[Ask]] = {}
        while queue and self._network.ready(node_id, now_ms):
            ask = queue.popleft()
            if ask.done:
                continue
            if ask.alike is None:
                ask.is_due = False
                self._network.send(node_id, ask.request, now_ms, ask)
            else:
                reads.setdefault(ask.alike, []).append(ask)
        for asks in reads.values():
            queue.extend(self._send_reads(node_id, asks, now_ms))
        if self._network.is_down(node_id):
            # No request is in flight that could return an error, and the keys may have other coordinators by now.
            for ask in queue:
                if not ask.done:
                    ask.error = self._network.last_error
                    self._forget(ask, node_id, now_ms)
        elif queue:
            self._queues[node_id] = queue

    def _send_reads(self, node_id: int, asks: Sequence[Ask], now_ms: int) -> Sequence[Ask]:
        """Send asks that are alike. Return those that the node does not take now."""
        first = together([ask.request for ask in asks[:READS_TOGETHER]])
        size = READS_TOGETHER if self._takes(node_id, first) else 1
        for start in range(0, len(asks), size):
            if not self._network.ready(node_id, now_ms):
                return asks[start:]
            some = _Combined(tuple(asks[start : start + size]))
            for ask in some.asks:
                ask.is_due = False
            self._network.send(node_id, together([ask.request for ask in some.asks]), now_ms, some)
        return ()

    def _takes(self, node_id: int, request: Request) -> bool:
        return self._network.api_version(node_id, request) is not None

    def _find(self, kind: CoordinatorKind, now_ms: int) -> int:
        """Look for the lost coordinators whose backoff is over. Return the longest poll (ms)."""
        lost = {key: coordinator for key, coordinator in self._lost[kind].items() if not coordinator.being_found}
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
            self._on_answer(answer.token, answer, answer.response, None, now_ms)
        elif isinstance(answer.token, _Combined):
            # One time for all parts of a response: reads that are refused together go again together.
            asks, soon_ms = answer.token.asks, self._soon_ms(now_ms)
            for ask, part in zip(asks, parts([ask.request for ask in asks], answer.response), strict=True):
                self._on_answer(ask, answer, part, soon_ms, now_ms)
        elif answer.token is _FINDING:
            self._on_found(answer, now_ms)
        else:
            return False
        return True

    def _soon_ms(self, now_ms: int) -> int:
        return now_ms + self._rng.randint(*QUICK_BACKOFF_MS)

    def _on_answer(self, ask: Ask, answer: ClientResponse, response: Any, soon_ms: int | None, now_ms: int) -> None:
        """`response`: the part of the response that belongs to `ask`. `soon_ms`: when a quick retry goes, if it
        goes with others."""
        code = ErrorCode.NONE if response is None else error_code_of(response)
        step = Next.ELSEWHERE if response is None else next_after(code)
        if step is Next.ELSEWHERE:
            self._forget(ask, answer.node_id, now_ms)
        if ask.done:
            return
        if step is Next.DONE:
            ask.response, ask.error = response, ""
            self._coordinator_of(ask).tries = 0
            self._end(ask)
            return
        ask.error = answer.error or _refusal(ask.request, code)
        if step is Next.AGAIN_SOON and ask.quick_tries < QUICK_TRIES:
            ask.quick_tries += 1
            self._backoffs.add(self._soon_ms(now_ms) if soon_ms is None else soon_ms, ask)
        else:
            ask.tries += 1
            self._backoffs.add(now_ms + self._backoff_ms(ask.tries), ask)

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
            self._on_known(request.kind, found.key, found.node_id)
        elif next_after(code) is not Next.DONE:
            self._look_again(request.kind, found.key, _refusal(request, code), now_ms)
        else:
            for ask in list(self._coordinators[request.kind, found.key].asks):
                ask.error, ask.refused = _refusal(request, code), code
                self._end(ask)

    def _on_known(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        coordinator = self._coordinators[kind, key]
        coordinator.node_id = node_id
        self._lost[kind].pop(key, None)
        for ask in coordinator.asks:
            if ask.is_due:
                self._set_due(ask)

    def _forget(self, ask: Ask, node_id: int, now_ms: int) -> None:
        """Forget `node_id`: it is not the key's coordinator, or does not answer. The first lookup has no backoff."""
        coordinator = self._coordinator_of(ask)
        if coordinator.node_id != node_id:
            return
        coordinator.node_id = None
        coordinator.not_before_ms = now_ms + (self._backoff_ms(coordinator.tries) if coordinator.tries else 0)
        coordinator.tries += 1
        if coordinator.asks:
            self._lost[ask.kind][ask.key] = coordinator
        for other in coordinator.asks:
            if other.is_due and node_id in self._queues:
                self._queues[node_id].remove(other)

    def _look_again(self, kind: CoordinatorKind, key: str, reason: str, now_ms: int) -> None:
        coordinator = self._coordinators[kind, key]
        coordinator.tries += 1
        coordinator.not_before_ms = now_ms + self._backoff_ms(coordinator.tries)
        for ask in coordinator.asks:
            ask.error = reason

    def _backoff_ms(self, tries: int) -> int:
        return backoff_ms(tries, self._retry_backoff_ms, self._retry_backoff_max_ms, self._rng)


def _refusal(request: Request, code: int) -> str:
    return f"{request.api.name} was answered with {error_text(code)}"

"""The requests that this process sends, seen where clients hand them to the network, and the answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.producer.coordinators import Next, next_after
from kafka_sink.kafka.producer.error_policy import Action, on_produce_error
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest, ProduceResponse
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.requests import Request, Response, api_of

_PRODUCED_AGAIN = (Action.RETRY, Action.REFRESH_AND_RETRY)
# An event: seconds of `time.perf_counter`, and the request that was sent or the answer that came.
Event = tuple[float, Request | ClientResponse]


@dataclass(slots=True)
class Traffic:
    """`events`: in order. `pauses`: how often a step of the commit waited. Counting comes later, as it takes time."""

    events: list[Event] = field(default_factory=list)
    pauses: int = 0

    def clear(self) -> None:
        self.events.clear()
        self.pauses = 0

    def span_ms(self, api: str, *, after: int) -> float:
        """Return the ms from the request of `api` that follows the first `after` ones, to the last answer."""
        sent_s = [at_s for at_s, event in self.events if not isinstance(event, ClientResponse) and _name(event) == api]
        answered_s = [
            at_s for at_s, event in self.events if isinstance(event, ClientResponse) and _name(event.request) == api
        ]
        return (answered_s[-1] - sent_s[after]) * 1e3

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """Return the requests by API: those that are sent for the first time, and those that repeat only what an answer
        refused for now."""
        first, again = Counter[str](), Counter[str]()
        owed: set[Hashable] = set()
        for _, event in self.events:
            if isinstance(event, ClientResponse):
                owed |= set(_refused_for_now(event.request, event.response))
            else:
                keys = set(_keys(event))
                (again if keys and keys <= owed else first)[_name(event)] += 1
                owed -= keys
        return first, again


@contextmanager
def recorded() -> Iterator[Traffic]:
    """Record what the clients of this process send and receive. Requests of a new connection's own do not count."""
    traffic = Traffic()
    send, poll, sleep = NetworkClient.send, NetworkClient.poll, time.sleep

    def recorded_send(network: NetworkClient, node_id: int, request: Request, *args: Any, **kwargs: Any) -> None:
        traffic.events.append((time.perf_counter(), request))
        send(network, node_id, request, *args, **kwargs)

    def recorded_poll(network: NetworkClient, timeout_ms: int) -> list[ClientResponse]:
        answers = poll(network, timeout_ms)
        now_s = time.perf_counter()
        traffic.events.extend((now_s, answer) for answer in answers)
        return answers

    def counted_sleep(seconds: float) -> None:
        traffic.pauses += 1
        sleep(seconds)

    with (
        patch.object(NetworkClient, "send", recorded_send),
        patch.object(NetworkClient, "poll", recorded_poll),
        # In this process only the steps of the commit sleep.
        patch.object(time, "sleep", counted_sleep),
    ):
        yield traffic


def _name(request: Request) -> str:
    return api_of(request).name


def _keys(request: Request) -> Iterable[Hashable]:
    """Return what a request asks for, so that a later request is recognised that asks for it again."""
    match request:
        case OffsetFetchRequest(group_ids=keys) | DescribeTransactionsRequest(transactional_ids=keys):
            return [(type(request), key) for key in keys]
        case ProduceRequest(partitions=batches):
            # All batches are for one topic.
            return [(request.transactional_id, each.partition) for each in batches]
    return (request,)


def _refused_for_now(request: Request, response: Response | None) -> Iterable[Hashable]:
    """Return the keys of `request` that the client asks for again."""
    match response:
        case None:
            return _keys(request)
        case OffsetFetchResponse(groups=groups):
            return [(type(request), each.group_id) for each in groups if _is_refused(each.error_code)]
        case DescribeTransactionsResponse(transactions=found):
            return [(type(request), each.transactional_id) for each in found if _is_refused(each.error_code)]
        case ProduceResponse(partitions=results):
            assert isinstance(request, ProduceRequest)
            refused = [each.partition for each in results if on_produce_error(each.error_code) in _PRODUCED_AGAIN]
            return [(request.transactional_id, partition) for partition in refused]
        case AddPartitionsToTxnResponse(results=results):
            return (request,) if any(_is_refused(each.error_code) for each in results) else ()
    return (request,) if _is_refused(getattr(response, "error_code", 0)) else ()


def _is_refused(code: int) -> bool:
    return next_after(code) is not Next.DONE

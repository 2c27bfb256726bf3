"""Requests that only read, or that delete groups, combined into one request for many keys, and its response in parts.

A broker answers the requests of a connection one after the other, and each takes 0.5 ms or more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from kafka_sink.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from kafka_sink.kafka.protocol.requests import Request, Response

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

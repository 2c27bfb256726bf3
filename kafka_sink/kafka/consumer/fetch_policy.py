"""Decides what to do with the error code of a Fetch, ListOffsets or OffsetForLeaderEpoch answer, as a table.

Source: org.apache.kafka.clients.consumer.internals.FetchCollector.handleInitializeErrors, OffsetFetcherUtils.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning


class Action(Enum):
    TAKE = auto()
    """The answer counts."""
    RETRY = auto()
    """Ask again, after the backoff."""
    REFRESH_AND_RETRY = auto()
    """As RETRY, and request metadata: another broker may lead, or the client may know an old leader epoch."""
    LOOK_FOR_BOUNDS = auto()
    """Ask where the log begins and ends, to find out what is lost."""
    DENIED = auto()
    """An ACL is missing."""
    FAIL = auto()
    """A retry cannot help."""


_E = ErrorCode

# Codes whose action differs from the general meaning of the code.
READ: dict[int, Action] = {
    _E.NONE: Action.TAKE,
    _E.OFFSET_OUT_OF_RANGE: Action.LOOK_FOR_BOUNDS,
    _E.TOPIC_AUTHORIZATION_FAILED: Action.DENIED,
    # The client knows a newer epoch than the broker, which is about to learn it.
    _E.UNKNOWN_LEADER_EPOCH: Action.REFRESH_AND_RETRY,
    # Java retries it: the broker's own trouble, which may pass. The limit without progress ends it.
    _E.UNKNOWN_SERVER_ERROR: Action.RETRY,
    # The batch on the broker's disk is damaged. Another answer would be the same.
    _E.CORRUPT_MESSAGE: Action.FAIL,
}


def on_read_error(code: int) -> Action:
    """Return the action for the error code of one partition. An unknown code is not retried, because the client does
    not know what it requires."""
    if (action := READ.get(code)) is not None:
        return action
    means = meaning(code)
    if not means.is_retriable:
        return Action.FAIL
    return Action.REFRESH_AND_RETRY if means.needs_new_metadata else Action.RETRY

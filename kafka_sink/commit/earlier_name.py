"""Finds out if a query without a stored name started under the name that earlier builds gave it.

This runs once in the life of a query, before the first plan. Another query may use that name now, so the check fences
nothing and writes nothing that the other query can see. It uses a barrier (`exchanges`) only if the sink exists. For a
new query the check takes two requests.
"""

from __future__ import annotations

from kafka_sink.commit.effects import Steps
from kafka_sink.commit.exchanges import described, read_decision
from kafka_sink.commit.handover import Sink
from kafka_sink.errors import TransactionRefused
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning

# Denied too, but these ACLs do not name a transactional id, group or topic.
_OTHER_ACLS = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED})


def began_as(sink: Sink, query_id: str) -> Steps[bool]:
    """Return True if `sink` belongs to the query. Raises TransactionRefused, UnreadableState.

    It does if the last decision is the query's. It may also belong to the query if the sink exists without a decision.
    """
    try:
        decision = yield from read_decision(sink)
        if decision is not None and decision.query_id == query_id:
            return True
        (driver,) = yield from described(sink, [sink.names.driver])
        if driver.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        decision = yield from read_decision(sink, barrier=f"name {query_id}")
    except TransactionRefused as refused:
        # A principal that may not read there has never written there.
        if meaning(refused.code).denied and refused.code not in _OTHER_ACLS:
            return False
        raise
    return decision is None or decision.is_nothing or decision.query_id == query_id

"""Whether a query that has no name yet began under the one that earlier builds gave it.

Asked once in a query's life, before anything is planned, and of a name that another query may use at this moment: so
nothing is fenced, and nothing written that it could see. Only a sink that is there is asked for its decision behind a
barrier (`exchanges`); a new query's costs two requests.
"""

from __future__ import annotations

from kafka_sink.commit.effects import Steps
from kafka_sink.commit.exchanges import described, read_decision
from kafka_sink.commit.handover import Sink
from kafka_sink.errors import TransactionRefused
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning

# Denied too, but these ACLs have no name of a transactional id, group or topic.
_OTHER_ACLS = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED})


def began_as(sink: Sink, query_id: str) -> Steps[bool]:
    """Whether `sink` is the query's: it was the last to decide there, or nobody ever did, and it may have been about
    to. Raises TransactionRefused, UnreadableState."""
    try:
        decision = yield from read_decision(sink)
        if decision is not None and decision.query_id == query_id:
            return True
        (driver,) = yield from described(sink, [sink.names.driver])
        if driver.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        decision = yield from read_decision(sink, barrier=f"name {query_id}")
    except TransactionRefused as refused:
        # Who may not ask there has not written there.
        if meaning(refused.code).denied and refused.code not in _OTHER_ACLS:
            return False
        raise
    return decision is None or decision.is_nothing or decision.query_id == query_id

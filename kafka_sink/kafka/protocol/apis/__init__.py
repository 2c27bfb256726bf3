"""The requests of each API, how they are written, and how their responses are read.

    Produce, Metadata, ApiVersions, SaslHandshake, SaslAuthenticate ─> rows, leaders, identity
    FindCoordinator ─> the coordinator of a transactional id or a group
    InitProducerId ─> AddPartitionsToTxn ─> Produce ─> AddOffsetsToTxn ─> TxnOffsetCommit ─> EndTxn
    OffsetFetch, DescribeTransactions, ListTransactions, DescribeProducers ─> the state of a transaction
    OffsetCommit ─> how far a reader is; a barrier behind which offsets are read
    ListOffsets, OffsetForLeaderEpoch, Fetch ─> where logs begin and end, and their records
    DeleteGroups ─> deletes groups
    WriteTxnMarkers ─> ends a hanging transaction (KIP-664)
    CreateTopics, DescribeConfigs, DescribeGroups ─> what a cluster must have and allow

The types of a response follow its request. A request `check`s its response: anything that is missing, answered twice or
not requested is a ProtocolError.

Non-obvious:

* A request in a transaction names the version of the transaction protocol (KIP-890), and only message versions of that
  protocol may carry it. A late EndTxn of version 1 ends the next transaction of its producer (KAFKA-17754), and
  version 2 of TxnOffsetCommit adds the group to the transaction itself. Mixing both versions gives false answers.
* If a broker is too old for a filter, the client filters the response.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_sink.kafka.protocol.api import Api


def all_apis() -> tuple[Api, ...]:
    """Return all APIs, for pages and tests. A process of a query imports only those of the requests that it sends."""
    modules = [importlib.import_module(each.name) for each in pkgutil.iter_modules(__path__, f"{__name__}.")]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return tuple(dict.fromkeys(each.api for each in classes if hasattr(each, "api")))

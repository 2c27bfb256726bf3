"""One module per API: its request, its response, and a row that says how both are written and read.

    Produce, Metadata, ApiVersions, SaslHandshake, SaslAuthenticate ─> rows, leaders, identity
    FindCoordinator ─> the coordinator of a transactional id or a group
    InitProducerId ─> AddPartitionsToTxn ─> Produce ─> AddOffsetsToTxn ─> TxnOffsetCommit ─> EndTxn
    OffsetFetch, DescribeTransactions, ListTransactions, DescribeProducers ─> the state of a transaction
    OffsetCommit ─> how far a reader is; a barrier behind which offsets are read
    ListOffsets, OffsetForLeaderEpoch, Fetch ─> where logs begin and end, and their records
    DeleteGroups ─> deletes groups that are not needed any more
    WriteTxnMarkers ─> ends a hanging transaction (KIP-664)
    CreateTopics, DescribeConfigs, DescribeGroups ─> what a cluster must have and allow

Each module has, in this order: the request, the response, a function that makes kio's request (given kio's module of
the version), and a function that reads kio's response. Then follows the check of a response against its request:
anything that is missing, answered twice or not requested is a ProtocolError. The last is the row of `all_apis.APIS`.

Non-obvious:

* A request in a transaction names the version of the transaction protocol (KIP-890), and only message versions of that
  protocol may carry it. A late EndTxn of version 1 ends the next transaction of its producer (KAFKA-17754), and
  version 2 of TxnOffsetCommit adds the group to the transaction itself. Mixing both versions gives false answers.
* If a broker is too old for a filter, the client filters the response.
* Allowed operations (KIP-430) are bits by AclOperation's codes. If they were not requested, the number is the lowest
  int32, which means "not reported", not "none".
* DescribeGroups is used only up to version 5. From version 6 on (KIP-1043) a group that does not exist is an error
  without operations; before, it is a dead group with operations.
"""

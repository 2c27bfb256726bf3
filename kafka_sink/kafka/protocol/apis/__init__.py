"""One module for each API: its request, its response, and a row that says how both travel.

    Produce, Metadata, ApiVersions, SaslHandshake, SaslAuthenticate ─> rows, who leads, who one is
    FindCoordinator ─> who serves a transactional id, or a group
    InitProducerId ─> AddPartitionsToTxn ─> Produce ─> AddOffsetsToTxn ─> TxnOffsetCommit ─> EndTxn
    OffsetFetch, DescribeTransactions, ListTransactions, DescribeProducers ─> what became of a transaction
    DeleteGroups ─> takes away what nobody needs any more
    WriteTxnMarkers ─> ends manually what hangs (KIP-664)
    CreateTopics, DescribeConfigs, DescribeGroups ─> what a cluster must have and allow

Each module has, in this order: the request, the response, how the one becomes kio's (given kio's module of the
version), how kio's message becomes the other, what makes an answer one to its request (whatever is left out, answered
twice or not asked for is a ProtocolError), and the row of `requests.APIS`.

Non-obvious:

* A request that belongs to a transaction says which version of the protocol (KIP-890) the transaction has, and only
  message versions of that protocol may carry it. A late EndTxn of version 1 ends the next transaction of its
  producer (KAFKA-17754), and version 2 of TxnOffsetCommit adds the group to the transaction by itself: mixing the two
  gives answers that are false.
* A filter that a broker is too old for is applied here, to its answer.
* Allowed operations (KIP-430) are bits by AclOperation's codes; without one of them the number is the lowest there is,
  which stands for "not told", not for "none".
* DescribeGroups stays at version 5: from 6 on (KIP-1043) a group that does not exist is an error without operations,
  and before it is a dead group with them.

A consumer's Fetch and ListOffsets would be two modules more.
"""

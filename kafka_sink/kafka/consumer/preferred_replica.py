"""Which replica a reader fetches from instead of the leader (KIP-392).

A client that names its rack may be told a replica that is nearer. It fetches there until `metadata.max.age.ms` later,
and then asks the leader again. Only the leader is believed, and only about another node: otherwise two brokers could
send the client back and forth.

The leader cannot know whether the client reaches the replica. So after trouble there the client names no rack for as
long, and the leader itself hands out the records. Java's consumer is told the same replica again.

Source: org.apache.kafka.clients.consumer.internals.SubscriptionState, AbstractFetch.selectReadReplica.
"""

from __future__ import annotations

from kafka_sink.kafka.metadata import NO_LEADER


class PreferredReplica:
    """`node`: the replica to fetch from, NO_LEADER for the leader."""

    def __init__(self, rack: str, max_age_ms: int) -> None:
        self.node = NO_LEADER
        self._rack = rack
        self._max_age_ms = max_age_ms
        # Of `node`.
        self._until_ms: int
        # None: no replica has been in trouble.
        self._alone_until_ms: int | None = None

    def rack(self, now_ms: int) -> str:
        """Return the rack to name; empty for none."""
        is_alone = self._alone_until_ms is not None and now_ms < self._alone_until_ms
        return "" if is_alone else self._rack

    def named(self, node_id: int, by: int, now_ms: int) -> bool:
        """Note that the answer of the node `by` names `node_id`. Return whether to fetch there."""
        if node_id in (NO_LEADER, by) or self.node != NO_LEADER:
            return False
        self.node, self._until_ms = node_id, now_ms + self._max_age_ms
        return True

    def expire(self, now_ms: int) -> None:
        """The leader must be asked anew if the replica was named too long ago."""
        if self.node != NO_LEADER and now_ms >= self._until_ms:
            self.node = NO_LEADER

    def forget(self) -> None:
        """The leader must be asked."""
        self.node = NO_LEADER

    def failed(self, now_ms: int) -> None:
        """Note trouble with the last request. If the replica had it, leave it alone."""
        if self.node != NO_LEADER:
            self.node, self._alone_until_ms = NO_LEADER, now_ms + self._max_age_ms

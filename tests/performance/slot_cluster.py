"""Where the parts of a sink's micro-batches are in its cluster, and how much the logs grow.

A transactional id or a group belongs to a partition of an internal topic, by the hash of its name. The leader of that
partition is its coordinator.

Source: Kafka's TransactionStateManager.partitionFor and GroupCoordinatorService.partitionFor.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kafka_sink.commit.exchanges import read_decision
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import Decision, Names
from kafka_sink.commit.runner import run
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import LATEST
from model.internal_topics import java_hash
from slot_model import CONSUMER_OFFSETS, LOGS, TOPIC, TRANSACTION_STATE, Compared, Layout, Measured, compare

# The node id of each partition's leader, in the order of partitions.
Leaders = Sequence[int]
# A coordinator writes a transaction's last record a moment after the markers.
LOG_TIMEOUT_S = 30.0
POLL_S = 0.05


def partition_of(name: str, leaders: Leaders) -> int:
    """Return the partition of the internal topic with these `leaders` that a transactional id or group belongs to."""
    return java_hash(name) % len(leaders)


def spread(names: Iterable[str], leaders: Leaders) -> list[int]:
    """Return the number of `names` of each coordinator. `leaders`: those of the internal topic."""
    return list(Counter(leaders[partition_of(name, leaders)] for name in names).values())


def layout(
    names: Names,
    leaders: Mapping[str, Leaders],
    *,
    rows: int,
    brokers: int,
    before: Decision,
    decision: Decision,
    most_parts: int,
    pauses: int,
) -> Layout:
    """Return the layout of a micro-batch whose slots write to all partitions of the topic.

    `leaders`: of TOPIC and of both internal topics. `before`, `decision`: of the last micro-batch and of this one.
    `most_parts`: the most groups that an earlier decision had.
    """
    slots = [names.slot(slot) for slot in range(len(decision.pinned))]
    parts_before, parts = len(before.texts()), len(decision.texts())
    groups = leaders[CONSUMER_OFFSETS]
    return Layout(
        transaction_version=decision.transaction_version,
        slots=len(slots),
        rows=rows,
        partitions=len(leaders[TOPIC]),
        brokers=brokers,
        leaders=len(set(leaders[TOPIC])),
        transactions_at=spread(slots, leaders[TRANSACTION_STATE]),
        groups_at=spread(slots, groups),
        parts_before=parts_before,
        parts=parts,
        later_parts_at=spread((names.decision(part) for part in range(1, parts_before)), groups),
        new_parts=max(0, parts - most_parts),
        parts_logs=len({partition_of(names.decision(part), groups) for part in range(parts)}),
        pauses=pauses,
    )


class Watch:
    """Compares one micro-batch of a sink after the other with the model. The leaders stay where they are."""

    def __init__(self, client: AdminClient, sink: Sink, *, topic: str, rows: int, brokers: int) -> None:
        """Begins after a micro-batch of the sink. `rows`: of a slot."""
        self._client = client
        self._sink = sink
        self._topics = {TOPIC: topic, CONSUMER_OFFSETS: CONSUMER_OFFSETS, TRANSACTION_STATE: TRANSACTION_STATE}
        self._rows = rows
        self._brokers = brokers
        self._leaders = {log: self._leaders_of(topic) for log, topic in self._topics.items()}
        self._decision = self._last_decision()
        self._most_parts = len(self._decision.texts())
        self._ends = self._log_ends()

    def compare(self, measured: Measured) -> list[Compared]:
        """Compare the micro-batch that just ended with the model. Adds the records of the logs to `measured`."""
        before, decision, ends = self._decision, self._last_decision(), self._ends
        of_it = layout(
            self._sink.names,
            self._leaders,
            rows=self._rows,
            brokers=self._brokers,
            before=before,
            decision=decision,
            most_parts=self._most_parts,
            pauses=measured.pauses,
        )
        self._decision, self._most_parts = decision, max(self._most_parts, of_it.parts)
        deadline_s = time.monotonic() + LOG_TIMEOUT_S
        while True:
            self._ends = self._log_ends()
            for log, end in self._ends.items():
                measured.first[LOGS, log] = end - ends[log]
            lines = compare(of_it, measured)
            if all(each.is_right for each in lines if each.stage == LOGS) or time.monotonic() > deadline_s:
                return lines
            # The coordinator says nothing when it has written that record.
            time.sleep(POLL_S)

    def _last_decision(self) -> Decision:
        decision = run(self._client, read_decision(self._sink))
        assert decision is not None, "a micro-batch was committed"
        return decision

    def _leaders_of(self, topic: str) -> Leaders:
        partitions = self._client.topics((topic,))[topic].partitions
        return [each.leader_id for each in sorted(partitions, key=lambda each: each.partition)]

    def _log_ends(self) -> dict[str, int]:
        """Return the sum of the end offsets of each log."""
        ends = {}
        for log, topic in self._topics.items():
            led, _ = self._client.partitions((topic,))
            found = list_offsets(self._client, dict.fromkeys(led, LATEST), IsolationLevel.READ_UNCOMMITTED)
            ends[log] = sum(end.offset for end in found.values())
        return ends

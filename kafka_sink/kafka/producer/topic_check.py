"""Were all rows of a write for one topic, or was that deleted and made again in between?

Brokers before Kafka 4.0 (Produce < 13) take rows by the topic's name, for whatever topic has it by now in their own
view, and those views differ for a while: each broker follows the controller's log at its own pace. So after the last
row every broker that took some is asked which topic that name is to it. Views only go forward: one that still has the
topic with which the write began put all its rows there, and one that has another may not have.

A broker that took rows and cannot be asked any more is stood in for by any other. That leaves one way to be deceived:
the topic is made again in mid-write, a broker takes rows for the new one and is gone when the write ends, and the one
that is asked in its place has not heard of it yet.

Source: KIP-516; ReplicaManager.appendRecords, which looks the name up; BrokerMetadataPublisher.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from kafka_sink.errors import TopicRecreated
from kafka_sink.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
)


class TopicCheck:
    """One question to several brokers, and what they said. Guarded by the accumulator's lock."""

    def __init__(self, topic_ids: Mapping[str, uuid.UUID | None], node_ids: Collection[int]) -> None:
        """`topic_ids`: each topic of the write, as the write saw it first. `node_ids`: who took rows by name."""
        # A topic that is gone must not come back to life for a question.
        self.request = MetadataRequest(topics=tuple(sorted(topic_ids)), allow_auto_topic_creation=False)
        self.recreated: TopicRecreated | None = None
        self._topic_ids = topic_ids
        self._to_ask = set(node_ids)
        # Twice the same where one stands in for another.
        self._asked: list[int] = []
        # Instead of those that cannot be asked.
        self.wants_another = False

    @property
    def settled(self) -> bool:
        """All have answered, or the topic is another one."""
        return self.recreated is not None or not (self._to_ask or self._asked or self.wants_another)

    def to_ask(self) -> tuple[int, ...]:
        return tuple(sorted(self._to_ask))

    def asked(self, node_id: int) -> None:
        if node_id in self._to_ask:
            self._to_ask.remove(node_id)
        else:
            self.wants_another = False
        self._asked.append(node_id)

    def gone(self, node_id: int) -> None:
        self._to_ask.remove(node_id)
        self.wants_another = True

    def answered(self, node_id: int, response: object | None) -> None:
        """`response`: None where the connection was lost instead."""
        self._asked.remove(node_id)
        if not isinstance(response, MetadataResponse):
            self._to_ask.add(node_id)
            return
        for topic in response.topics:
            first_id = self._topic_ids[topic.name]
            # One that is deleted here, and not made again, has taken nothing but what was for it.
            if topic.topic_id is not None and topic.topic_id != first_id:
                self.recreated = TopicRecreated(
                    topic=topic.name, old_topic_id=str(first_id), new_topic_id=str(topic.topic_id)
                )

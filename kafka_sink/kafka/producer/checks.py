"""What a producer asks besides sending its rows: is it still connected, and are its topics still the same?

Brokers before Kafka 4.0 (Produce < 13) take rows by topic name, and write them to the topic that has this name in their
own metadata. Each broker follows the controller's log at its own pace, so for a while their metadata differs. After the
last row, the producer asks every broker that took rows for the id of each topic. Metadata never goes back. So a broker
that still reports the first id wrote all its rows to the first topic; a broker that reports another id may not have.

If a broker that took rows cannot be reached, any other broker is asked instead. One failure stays undetected. The topic
is recreated during the write, and a broker takes rows for the new topic. When the write ends, this broker is
unreachable, and the other broker does not know the new topic yet.

Source: KIP-516; ReplicaManager.appendRecords, which looks the name up; BrokerMetadataPublisher.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from kafka_sink.errors import TopicRecreated
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.topic_partition import ids_differ


class TopicCheck:
    """One question to several brokers, and their answers. Guarded by the accumulator's lock."""

    def __init__(self, topic_ids: Mapping[str, uuid.UUID | None], node_ids: Collection[int]) -> None:
        """`topic_ids`: each topic of the write with the id first seen. `node_ids`: the nodes that took rows by name."""
        # The question must not create a topic that was deleted.
        self.request = MetadataRequest(topics=tuple(sorted(topic_ids)), allow_auto_topic_creation=False)
        self.recreated: TopicRecreated | None = None
        self._topic_ids = topic_ids
        self._to_ask = set(node_ids)
        # A node id occurs twice if the node also answers for another node.
        self._asked: list[int] = []
        # True if another node has to be asked, because one is unreachable.
        self.wants_another = False

    @property
    def settled(self) -> bool:
        """True if all nodes have answered, or a topic was recreated."""
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
        """`response` is None if the connection was lost instead."""
        self._asked.remove(node_id)
        if not isinstance(response, MetadataResponse):
            self._to_ask.add(node_id)
            return
        for topic in response.topics:
            first_id = self._topic_ids[topic.name]
            # A broker where the topic is deleted, and not recreated, has written rows only to the first topic.
            if ids_differ(first_id, topic.topic_id):
                self.recreated = TopicRecreated(
                    topic=topic.name, old_topic_id=str(first_id), new_topic_id=str(topic.topic_id)
                )


class Probe:
    """Is a kept producer still connected? One question to any broker, over an existing connection. Guarded by the
    accumulator's lock. `is_answered` is True only if a broker answered.

    If a host vanished silently, connections to it still look open. A question without an answer is not repeated,
    because the next connection may lead to a host that took over the address.
    """

    def __init__(self) -> None:
        self.request = MetadataRequest((), allow_auto_topic_creation=False)
        self.is_sent = self.is_settled = self.is_answered = False

    def answered(self, response: object | None) -> None:
        """`response` is None if the connection was lost instead."""
        self.is_settled, self.is_answered = True, isinstance(response, MetadataResponse)

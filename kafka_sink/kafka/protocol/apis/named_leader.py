"""The leader of a partition, in the answer of a broker that does not lead it (KIP-951): to Produce from version 10 on,
to Fetch from version 16 on. Brokers before Kafka 3.7 name none.

Source: org.apache.kafka.clients.producer.internals.Sender.completeBatch, AbstractFetch.handleFetchSuccess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Message, check_number
from kafka_sink.kafka.protocol.apis.metadata import Broker, check_broker
from kafka_sink.kafka.protocol.error_codes import ErrorCode

_OF_ANOTHER_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(frozen=True, slots=True)
class NamedLeader:
    """`broker`: where it listens; None if the answer does not tell."""

    node_id: int
    epoch: int
    broker: Broker | None = None


def endpoints_of(message: Message) -> Mapping[int, Broker]:
    """Return the brokers that an answer describes, by id."""
    return {
        each["node_id"]: Broker(each["node_id"], each["host"], each["port"], each["rack"])
        for each in message.get("node_endpoints", ())
    }


def named_leader(partition: Mapping[str, Any], endpoints: Mapping[int, Broker]) -> NamedLeader | None:
    """Return the leader that an answer names for one partition, or None. Only a broker that refuses to lead names
    another one."""
    named = partition.get("current_leader")
    if named is None or partition["error_code"] not in _OF_ANOTHER_LEADER:
        return None
    node_id, epoch = named["leader_id"], named["leader_epoch"]
    return None if node_id == -1 or epoch == -1 else NamedLeader(node_id, epoch, endpoints.get(node_id))


def check_leaders(api: str, leaders: Iterable[NamedLeader | None]) -> None:
    """Raise ProtocolError unless each leader can be one, by the rules for a Metadata answer."""
    for leader in leaders:
        if leader is not None:
            check_number(api, "leader", leader.node_id, least=0)
            check_number(api, "leader epoch", leader.epoch, least=0)
            if leader.broker is not None:
                check_broker(api, leader.broker)

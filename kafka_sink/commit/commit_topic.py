"""The commit topic: the consumer groups of markers and decisions store their offsets for this topic."""

from __future__ import annotations

from kafka_sink.errors import CommitTopicMissing, CommitTopicTooSmall, TopicAuthorizationFailed, TopicNameInvalid
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.topics import create_request, not_taken, reason_of, will_be_there
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.apis.topics import CreateTopicsResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import COMMIT_TOPIC_PARTITIONS, commit_topic_command


def ensure_commit_topic(client: AdminClient, name: str, *, ask_also: tuple[str, ...] = ()) -> None:
    """Wait until topic `name` exists and its partition 0 has a leader.

    Creates a missing topic with two partitions and the brokers' default replication factor. `ask_also`: further topics
    for the same Metadata request, because the caller needs them next.

    Raises CommitTopicMissing, CommitTopicTooSmall, TopicAuthorizationFailed, TopicNameInvalid or BrokersUnreachable.
    """
    caller = client.caller
    deadline_ms = caller.deadline_ms()
    reason, tries = "", 0
    while True:
        topics = caller.metadata((name, *ask_also), deadline_ms).topics
        topic = next(each for each in topics if each.name == name)
        if _is_led(topic, client.config):
            return
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            reason = _create(client, name, deadline_ms)
        tries += 1
        if not caller.pause(tries, deadline_ms):
            raise _missing(name, reason or "it has no leader", client.config)


def _is_led(topic: TopicMetadata, config: ClientConfig) -> bool:
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise TopicAuthorizationFailed(topic=topic.name, operation="READ")
    if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise TopicNameInvalid(topic=topic.name)
    if not any(partition.partition == 0 and partition.leader_id >= 0 for partition in topic.partitions):
        return False
    if len(topic.partitions) < COMMIT_TOPIC_PARTITIONS:
        raise CommitTopicTooSmall(
            topic=topic.name,
            partition_count=len(topic.partitions),
            command=commit_topic_command("--alter", topic.name, config),
        )
    return True


def _create(client: AdminClient, name: str, deadline_ms: int) -> str:
    """Create topic `name`. Return the reason why it may not exist yet. Raises CommitTopicMissing if it never will."""
    request = create_request(client.config, name, NewTopic(COMMIT_TOPIC_PARTITIONS))
    if client.caller.takes(request, deadline_ms):
        response = client.caller.ask_any(request, deadline_ms)
        assert isinstance(response, CreateTopicsResponse)
    else:
        response = not_taken(request)
    if not will_be_there(response.error_code):
        raise _missing(name, reason_of(response), client.config)
    return reason_of(response)


def _missing(name: str, reason: str, config: ClientConfig) -> CommitTopicMissing:
    return CommitTopicMissing(topic=name, reason=reason, command=commit_topic_command("--create", name, config))

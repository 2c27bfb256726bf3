"""Topics: their partition counts, and creating them."""

from __future__ import annotations

from kafka_sink.errors import TopicAuthorizationFailed, TopicNameInvalid, TopicNotFound
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.apis.topics import CreateTopicsRequest, CreateTopicsResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_text, meaning


def partition_count(client: AdminClient, name: str) -> int:
    """Return the number of partitions of the topic.

    Raises BrokersUnreachable or TopicNotFound after `max.block.ms`, TopicAuthorizationFailed, or TopicNameInvalid.
    Brokers that create requested topics automatically also create this one, as they do for a write.
    """
    # It waits for the topic as a producer does (`Producer.await_topics`).
    caller = client.caller
    started_ms, deadline_ms, tries = caller.clock_ms(), caller.deadline_ms(), 0
    absent_since_ms: int | None = None
    while True:
        (topic,) = caller.metadata((name,), deadline_ms, allow_auto_topic_creation=True).topics
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name)
        if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise TopicNameInvalid(topic=name)
        if topic.partitions and not topic.error_code:
            return len(topic.partitions)
        now_ms = caller.clock_ms()
        is_absent = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_absent:
            absent_since_ms = None
        elif absent_since_ms is None:
            absent_since_ms = now_ms
        is_hopeless = absent_since_ms is not None and now_ms >= absent_since_ms + ABSENT_PATIENCE_MS
        tries += 1
        if is_hopeless or not caller.pause(tries, deadline_ms, f"{error_text(topic.error_code)} for topic {name}"):
            raise TopicNotFound(topic=name, waited_ms=now_ms - started_ms)


def create_request(
    config: ClientConfig, name: str, wanted: NewTopic, *, validate_only: bool = False
) -> CreateTopicsRequest:
    """`validate_only`: brokers only check if they would create the topic."""
    return CreateTopicsRequest(
        name,
        wanted.partitions,
        config.request_timeout_ms,
        validate_only=validate_only,
        replication_factor=wanted.replicas,
        settings=wanted.settings,
    )


def create_topic(client: AdminClient, name: str, wanted: NewTopic) -> CreateTopicsResponse:
    """Create a topic. Retry until `max.block.ms` while the controller is busy. Raises BrokersUnreachable.

    A broker that does not take the request counts as one that answers UNSUPPORTED_VERSION.
    """
    request = create_request(client.config, name, wanted)
    caller = client.caller
    deadline_ms, tries = caller.deadline_ms(), 0
    if not caller.takes(request, deadline_ms):
        return not_taken(request)
    while True:
        response = caller.ask_any(request, deadline_ms)
        assert isinstance(response, CreateTopicsResponse)
        tries += 1
        if not is_busy(response.error_code) or not caller.pause(tries, deadline_ms):
            return response


def not_taken(request: CreateTopicsRequest) -> CreateTopicsResponse:
    lowest, highest = request.versions()
    return CreateTopicsResponse(
        0, ErrorCode.UNSUPPORTED_VERSION, f"brokers do not take CreateTopics {lowest} to {highest}"
    )


def is_busy(code: int) -> bool:
    """Return True if the controller is busy or moving (also retried: NOT_CONTROLLER)."""
    return meaning(code).broker_busy or code == ErrorCode.NOT_CONTROLLER


def will_be_there(code: int) -> bool:
    """Return True if the topic now exists, whoever created it, or if the request should be repeated."""
    return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) or is_busy(code)


def await_leaders(client: AdminClient, name: str, milliseconds: int) -> TopicMetadata:
    """Wait until each partition of a new topic has a leader, or for `milliseconds`. Return the topic's metadata. Raises
    BrokersUnreachable."""
    caller = client.caller
    deadline_ms, tries = caller.deadline_ms(), 0
    until_ms = min(deadline_ms, caller.clock_ms() + milliseconds)
    while True:
        (topic,) = caller.metadata((name,), deadline_ms).topics
        tries += 1
        is_led = topic.partitions and all(each.leader_id >= 0 for each in topic.partitions)
        if is_led or not caller.pause(tries, until_ms):
            return topic


def reason_of(response: CreateTopicsResponse) -> str:
    """Return why a topic was not created, in the broker's words."""
    return error_text(response.error_code) + (f": {response.error_message}" if response.error_message else "")

"""What a writer asks of a cluster beside rows: CreateTopics, DescribeConfigs, and DescribeGroups without any group.

Source: KafkaApis (handleCreateTopicsRequest, handleDescribeConfigsRequest, handleDescribeGroupRequest) in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Connection, Handlers
from model.cluster import Cluster
from model.settings import CREATE_TOPICS, DESCRIBE_CONFIGS, DESCRIBE_GROUPS
from model.wire import Request, build, kio_module

_OF_TOPIC, _OF_BROKER = 2, 4
# DescribeConfigsResponse.ConfigSource.DEFAULT_CONFIG
_FROM_DEFAULTS = 5
_PARTITIONS_OF_A_NEW_TOPIC = 1


class AdminApi:
    """`settings`: what brokers say of themselves."""

    def __init__(self, broker: Broker, cluster: Cluster, settings: Mapping[str, str]) -> None:
        self._broker = broker
        self._cluster = cluster
        self._settings = settings

    @property
    def handlers(self) -> Handlers:
        return {CREATE_TOPICS: self._create, DESCRIBE_CONFIGS: self._describe, DESCRIBE_GROUPS: self._groups}

    def _create(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(CREATE_TOPICS, request.version, "response")
        topics = tuple(
            build(
                kio_version.CreatableTopicResult,
                name=topic.name,
                error_code=self._created(topic, is_only_checked=request.message.validate_only),
                error_message=None,
                topic_id=self._cluster.topic_id(topic.name),
                configs=None,
            )
            for topic in request.message.topics
        )
        self._broker.answer(connection, request, topics=topics)

    def _created(self, topic: Any, *, is_only_checked: bool) -> ErrorCode:
        if self._cluster.topic_id(topic.name) is not None:
            return ErrorCode.topic_already_exists
        if not is_only_checked:
            partitions = topic.num_partitions if topic.num_partitions > 0 else _PARTITIONS_OF_A_NEW_TOPIC
            self._cluster.create_topic(topic.name, partitions, 1)
        return ErrorCode.none

    def _describe(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(DESCRIBE_CONFIGS, request.version, "response")
        results = tuple(self._described(kio_version, resource) for resource in request.message.resources)
        self._broker.answer(connection, request, results=results)

    def _described(self, kio_version: Any, resource: Any) -> Any:
        code, values = ErrorCode.none, self._settings
        if resource.resource_type == _OF_TOPIC:
            values = {"max.message.bytes": str(self._cluster.settings.topic_defaults.max_message_bytes)}
            if self._cluster.topic_id(resource.resource_name) is None:
                code, values = ErrorCode.unknown_topic_or_partition, {}
        elif resource.resource_type != _OF_BROKER:
            code, values = ErrorCode.invalid_request, {}
        asked = resource.configuration_keys
        configs = tuple(
            build(
                kio_version.DescribeConfigsResourceResult,
                name=name,
                value=value,
                read_only=True,
                config_source=_FROM_DEFAULTS,
                is_sensitive=False,
                synonyms=(),
                config_type=0,
                documentation=None,
            )
            for name, value in values.items()
            if asked is None or name in asked
        )
        return kio_version.DescribeConfigsResult(
            error_code=code,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )

    def _groups(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(DESCRIBE_GROUPS, request.version, "response")
        groups = tuple(
            build(
                kio_version.DescribedGroup,
                error_code=ErrorCode.none,
                group_id=group_id,
                group_state="Dead",
                protocol_type="",
                protocol_data="",
                members=(),
            )
            for group_id in request.message.groups
        )
        self._broker.answer(connection, request, groups=groups)

"""What a service does with a connection's requests before a broker executes them: ApiVersions and SASL. And what a
writer asks of a cluster beside rows: CreateTopics, DescribeConfigs, and DescribeGroups without any group. No I/O.

Source: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152 (SASL); KafkaApis (handleCreateTopicsRequest,
handleDescribeConfigsRequest, handleDescribeGroupRequest).
"""

import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_services.service import Service, TooNew
from model.broker import Broker, Connection, Handlers
from model.cluster import Cluster
from model.settings import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from model.wire import NotARequest, Request, build, decode_request, encode_response, kio_module

# API key, version and correlation id: the same in every version of the header.
_HEADER_START = struct.Struct(">hhi")
_MECHANISMS = ("PLAIN",)
_OF_TOPIC, _OF_BROKER = 2, 4
# DescribeConfigsResponse.ConfigSource.DEFAULT_CONFIG
_FROM_DEFAULTS = 5
_PARTITIONS_OF_A_NEW_TOPIC = 1


class HangUp(Exception):
    """Why the service closes the connection."""


class Front:
    """Of one connection. `password`: of the service's user; None: the service asks for no login."""

    def __init__(self, service: Service, password: str | None) -> None:
        self._service = service
        self._login = None if password is None else f"\0{service.username}\0{password}".encode()
        self._is_open = password is None
        self._awaits_token = False

    def take(self, frame: bytes) -> bytes | None:
        """Return the answer to one request without its size; None for a request that the broker is to execute. Raises
        HangUp."""
        if len(frame) < _HEADER_START.size:
            raise HangUp(f"{len(frame)} bytes")
        api_key, version, _ = _HEADER_START.unpack_from(frame)
        lowest, highest = self._service.api_versions.get(api_key, (0, -1))
        if not lowest <= version <= highest and api_key != API_VERSIONS:
            raise HangUp(f"API {api_key} version {version} is not offered")
        own = {API_VERSIONS: self._versions, SASL_HANDSHAKE: self._handshake, SASL_AUTHENTICATE: self._authenticate}
        if api_key in own:
            return own[api_key](_decoded(frame, self._service))
        if not self._is_open:
            raise HangUp(f"API {api_key} before the login")
        if api_key == FETCH:
            raise HangUp("the double has no Fetch")
        return None

    def _versions(self, request: Request) -> bytes:
        ranges, code = self._service.api_versions, ErrorCode.none
        if request.message is None:
            if self._service.too_new is TooNew.HANG_UP:
                raise HangUp(f"ApiVersions version {request.version} is not offered")
            code = ErrorCode.unsupported_version
            if self._service.too_new is TooNew.OWN_RANGE:
                ranges = {API_VERSIONS: ranges[API_VERSIONS]}
            request = Request(API_VERSIONS, 0, request.correlation_id, None)
        kio_version = kio_module(API_VERSIONS, request.version, "response")
        api_keys = tuple(
            kio_version.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in sorted(ranges.items())
        )
        return _answer(request, "ApiVersionsResponse", error_code=code, api_keys=api_keys)

    def _handshake(self, request: Request) -> bytes:
        code = ErrorCode.none
        if self._is_open:
            code = ErrorCode.illegal_sasl_state
        elif request.message.mechanism not in _MECHANISMS:
            code = ErrorCode.unsupported_sasl_mechanism
        else:
            self._awaits_token = True
        return _answer(request, "SaslHandshakeResponse", error_code=code, mechanisms=_MECHANISMS)

    def _authenticate(self, request: Request) -> bytes:
        if not self._awaits_token:
            code, message = ErrorCode.illegal_sasl_state, "no handshake"
        elif request.message.auth_bytes == self._login:
            self._is_open, code, message = True, ErrorCode.none, None
        else:
            code, message = ErrorCode.sasl_authentication_failed, "wrong user or password"
        self._awaits_token = False
        return _answer(
            request, "SaslAuthenticateResponse", error_code=code, error_message=message, auth_bytes=b"",
            session_lifetime=timedelta(0),
        )  # fmt: skip


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
                kio_version.CreatableTopicResult, name=topic.name, error_message=None, configs=None,
                error_code=self._created(topic, is_only_checked=request.message.validate_only),
                topic_id=self._cluster.topic_id(topic.name),
            )
            for topic in request.message.topics
        )  # fmt: skip
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
                kio_version.DescribeConfigsResourceResult, name=name, value=value, config_source=_FROM_DEFAULTS,
                read_only=True, is_sensitive=False, synonyms=(), config_type=0, documentation=None,
            )
            for name, value in values.items()
            if asked is None or name in asked
        )  # fmt: skip
        return kio_version.DescribeConfigsResult(
            error_code=code, error_message=None, resource_type=resource.resource_type,
            resource_name=resource.resource_name, configs=configs,
        )  # fmt: skip

    def _groups(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(DESCRIBE_GROUPS, request.version, "response")
        groups = tuple(
            build(
                kio_version.DescribedGroup, error_code=ErrorCode.none, group_id=group_id, group_state="Dead",
                protocol_type="", protocol_data="", members=(),
            )
            for group_id in request.message.groups
        )  # fmt: skip
        self._broker.answer(connection, request, groups=groups)


def _decoded(frame: bytes, service: Service) -> Request:
    try:
        return decode_request(frame, service.api_versions)
    except NotARequest as error:
        raise HangUp(str(error)) from error


def _answer(request: Request, entity: str, **fields: Any) -> bytes:
    kio_version = kio_module(request.api_key, request.version, "response")
    return encode_response(request, build(getattr(kio_version, entity), throttle_time=timedelta(0), **fields))

"""Strict doubles of services that speak Kafka's protocol and are no Apache Kafka.

A double offers what the documents of the service say, or the logs of users (docs/compatibility.md names them), and
nothing else: a version outside of the range, an API that the service does not list, a codec, or a request above the
limit is refused as the service refuses it. Behind that is the model of brokers (`tests/verification/model`), which
stores rows and executes transactions. Its table has only the APIs that a writer sends: no double can be read by a
consumer. `ServiceDouble.records` reads what was stored, by kafka-python.
Sources: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152 (SASL); KafkaApis (handleCreateTopicsRequest,
handleDescribeConfigsRequest, handleDescribeGroupRequest).
"""

import asyncio
import random
import struct
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from kio.schema.errors import ErrorCode

from certificates import Identity
from model.broker import Broker, Connection, Handlers
from model.cluster import Cluster
from model.controller import TopicIdPartition
from model.record_batches import RecordBatch, Refused, decode_records, parse_batch
from model.settings import (
    API_NAMES,
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ClusterSettings,
    Generation,
    TopicSettings,
)
from model.wire import NotARequest, Request, build, decode_request, encode_response, kio_module
from waiting import wait_until

NO_CODEC, GZIP = 0, 1
EVERY_CODEC = frozenset(range(5))


class TooNew(Enum):
    """The answer to an ApiVersions request of a version above the range."""

    OWN_RANGE = auto()
    """UNSUPPORTED_VERSION in version 0, with the range of ApiVersions alone (KIP-511)."""
    EVERY_RANGE = auto()
    """UNSUPPORTED_VERSION in version 0, with the ranges of all APIs."""
    HANG_UP = auto()


@dataclass(frozen=True, slots=True)
class Service:
    """`api_versions`: API key -> (lowest, highest). `max_request_bytes`: the connection of a larger request is closed
    before it is read. `codecs`: by the number in a batch; the code of a batch with another one is `codec_refusal`.
    `max_message_bytes`: a topic's default. `idle_ms`: the connection is closed after that time without a request."""

    name: str
    api_versions: Mapping[int, tuple[int, int]]
    too_new: TooNew
    max_request_bytes: int
    cluster_id: str = "double"
    codecs: frozenset[int] = EVERY_CODEC
    codec_refusal: ErrorCode = ErrorCode.unsupported_compression_type
    max_message_bytes: int = 1_048_588
    idle_ms: int | None = None
    # The only users are of PLAIN; None: without SASL.
    username: str | None = None
    transaction_max_timeout_ms: int = 900_000


def offered(ranges: str) -> dict[int, tuple[int, int]]:
    """Return the versions by API key, of a text as `Produce 0-7, Fetch 4-11`. The model does not execute Fetch: doubles
    list it, as librdkafka writes no batch of version 2 without it, and hang up."""
    keys = {name: key for key, name in API_NAMES.items()}
    found = {}
    for each in ranges.split(", "):
        name, _, versions = each.partition(" ")
        lowest, highest = versions.split("-")
        found[keys[name]] = int(lowest), int(highest)
    return found


# Logs disagree on the lowest Produce: 0 in 2024, 3 in 2019. Batches of version 2 need 3, and it is the stricter one.
EVENT_HUBS_STANDARD = Service(
    name="Azure Event Hubs, Standard",
    api_versions=offered(
        "Produce 3-7, Fetch 4-6, Metadata 0-5, OffsetCommit 0-8, OffsetFetch 0-8, FindCoordinator 0-4, "
        "DescribeGroups 0-1, SaslHandshake 0-1, ApiVersions 0-3, CreateTopics 0-2, InitProducerId 0-1, "
        "DescribeConfigs 0-2, SaslAuthenticate 0-1, DeleteGroups 0-0"
    ),
    too_new=TooNew.HANG_UP, max_request_bytes=1_046_527, codecs=frozenset({NO_CODEC}),
    codec_refusal=ErrorCode.unsupported_for_message_format, idle_ms=240_000, username="$ConnectionString",
)  # fmt: skip

EVENT_HUBS_PREMIUM = replace(
    EVENT_HUBS_STANDARD, name="Azure Event Hubs, Premium", codecs=frozenset({NO_CODEC, GZIP}),
    api_versions={
        **EVENT_HUBS_STANDARD.api_versions,
        **offered("InitProducerId 0-4, AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-3, EndTxn 0-3, TxnOffsetCommit 0-3"),
    },
)  # fmt: skip

REDPANDA = Service(
    name="Redpanda",
    api_versions=offered(
        "Produce 0-7, Fetch 4-11, Metadata 0-8, OffsetCommit 1-8, OffsetFetch 1-7, FindCoordinator 0-3, "
        "DescribeGroups 0-5, SaslHandshake 0-1, ApiVersions 0-3, CreateTopics 0-6, InitProducerId 0-3, "
        "AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-1, EndTxn 0-3, TxnOffsetCommit 0-3, DescribeConfigs 0-4, "
        "SaslAuthenticate 0-2, DeleteGroups 0-2, DescribeProducers 0-0, DescribeTransactions 0-0, ListTransactions 0-0"
    ),
    too_new=TooNew.EVERY_RANGE, max_request_bytes=100 * 1024 * 1024, max_message_bytes=1024 * 1024,
    cluster_id="redpanda.6b1f6f1e-0000-4000-8000-000000000000",
)  # fmt: skip

# Its documents name the APIs, and no ranges.
WARPSTREAM = Service(
    name="WarpStream",
    api_versions=offered(
        "Produce 0-11, Fetch 4-17, Metadata 0-12, OffsetCommit 2-9, OffsetFetch 1-9, FindCoordinator 0-6, "
        "DescribeGroups 0-5, ApiVersions 0-4, CreateTopics 2-7, InitProducerId 0-5, AddPartitionsToTxn 0-3, "
        "AddOffsetsToTxn 0-4, EndTxn 0-4, TxnOffsetCommit 0-4, DescribeConfigs 1-4, DeleteGroups 0-2, "
        "DescribeTransactions 0-0, ListTransactions 0-1"
    ),
    too_new=TooNew.OWN_RANGE, max_request_bytes=32 * 1024 * 1024,
)  # fmt: skip


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


NODE_ID = 0
HOST = "127.0.0.1"
SIZE_BYTES = 4
_CODEC_BITS = 0b111
_START_S = 10

Result = TypeVar("Result")


class Record(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class ServiceDouble:
    """One broker of `service`, while in `with`: sockets in front, the model of brokers behind. Its time begins
    with this machine's clock, and never jumps. One thread runs everything; a test looks at the model in that thread.

    `identity`: of TLS; None: without TLS. `password`: of the service's user; None: without SASL.

    `requests`: API key and version of each request that came. `hung_up`: why connections were closed. `connections`:
    how many came. All of them in the order of arrival.
    """

    def __init__(self, service: Service, *, identity: Identity | None = None, password: str | None = None) -> None:
        self.service = service
        self.requests: list[tuple[int, int]] = []
        self.hung_up: list[str] = []
        self.connections = 0
        self._identity = identity
        self._password = password
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=service.name, daemon=True)
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Of the double itself, which has closed a connection then.
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()
        if error is None and self._failure is not None:
            raise self._failure

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    # --- for the test -------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Return the name, once the broker knows the topic."""
        topic_id = self.look(lambda cluster: cluster.create_topic(name, partitions, 1))
        keys = {TopicIdPartition(topic_id, number) for number in range(partitions)}
        wait_until(
            lambda: self.look(lambda cluster: keys <= cluster.replicas[NODE_ID].partitions.keys()), _START_S, name
        )
        return name

    def records(self, topic: str) -> list[Record]:
        """What a read_committed reader sees, partition by partition, read by kafka-python; [] without the topic."""
        return [
            Record(partition, *record)
            for partition, batches in self.look(lambda cluster: _committed(cluster, topic))
            for batch in batches
            for record in decode_records(batch.data)
        ]

    def codecs(self, topic: str) -> set[int]:
        """The codecs of the batches that are stored, by the number in a batch."""
        stored = self.look(lambda cluster: _committed(cluster, topic))
        return {batch.attributes & _CODEC_BITS for _, batches in stored for batch in batches}

    def look(self, at: Callable[[Cluster], Result]) -> Result:
        """Call `at` with the model, between two requests."""
        found: Future[Result] = Future()

        def call() -> None:
            try:
                found.set_result(at(self._cluster))
                self._go_on()
            except BaseException as error:
                found.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return found.result(_START_S)

    # --- the server ---------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        context = self._identity and self._identity.server_context()
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=context)
        self._port: int = self._server.sockets[0].getsockname()[1]
        started_ms = time.time_ns() // 1_000_000
        self._epoch_s = started_ms / 1_000 - self._loop.time()
        self._cluster = _cluster(self.service, self._port, started_ms)
        broker = self._cluster.brokers[NODE_ID]
        settings = {"transaction.max.timeout.ms": str(self.service.transaction_max_timeout_ms)}
        broker.serve(AdminApi(broker, self._cluster, settings).handlers)
        broker.add_rule(PRODUCE, self._refuse_codec)

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._writers.values():
            writer.transport.abort()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        if connections:
            await asyncio.wait(connections)
        if self._timer is not None:
            self._timer.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number, front = self.connections, Front(self.service, self._password)
        self._writers[number] = writer
        try:
            while True:
                frame = await self._next_frame(reader)
                self.requests.append((int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")))
                answer = front.take(frame)
                if answer is None:
                    self._cluster.receive(NODE_ID, number, frame, self._now_ms())
                    self._go_on()
                else:
                    _send(writer, answer)
        except HangUp as why:
            self.hung_up.append(str(why))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        except Exception as failure:
            self._failure = failure
        finally:
            del self._writers[number]
            self._cluster.disconnected(NODE_ID, number)
            writer.close()

    async def _next_frame(self, reader: asyncio.StreamReader) -> bytes:
        idle_ms = self.service.idle_ms
        try:
            async with asyncio.timeout(None if idle_ms is None else idle_ms / 1_000):
                size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
        except TimeoutError:
            raise HangUp(f"no request for {idle_ms} ms") from None
        if size > self.service.max_request_bytes:
            raise HangUp(f"a request of {size} bytes")
        return await reader.readexactly(size)

    def _now_ms(self) -> int:
        return round((self._loop.time() + self._epoch_s) * 1_000)

    def _go_on(self) -> None:
        """Send what brokers sent, and come back when the model has something to do."""
        self._cluster.advance(self._now_ms())
        for outgoing in self._cluster.take_outgoing():
            writer = self._writers.get(outgoing.connection_id)
            if writer is None:
                continue
            if outgoing.frame is None:
                self.hung_up.append("no request that a broker can read")
                writer.close()
            else:
                _send(writer, outgoing.frame)
        if self._timer is not None:
            self._timer.cancel()
        next_ms = self._cluster.next_event_ms()
        if next_ms is not None:
            self._timer = self._loop.call_later(max(0, next_ms - self._now_ms()) / 1_000, self._go_on)

    def _refuse_codec(self, request: Request) -> ErrorCode:
        records = [data.records or b"" for topic in request.message.topic_data for data in topic.partition_data]
        if all(_codec(each) in self.service.codecs for each in records):
            return ErrorCode.none
        return self.service.codec_refusal


def _codec(records: bytes) -> int:
    try:
        return parse_batch(records).attributes & _CODEC_BITS
    except Refused:
        return 0  # the log refuses it


def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(SIZE_BYTES, "big") + frame)


def _committed(cluster: Cluster, topic: str) -> list[tuple[int, list[RecordBatch]]]:
    partitions = range(cluster.partition_count(topic)) if cluster.topic_id(topic) is not None else ()
    return [(partition, cluster.read_committed(topic, partition)) for partition in partitions]


def _cluster(service: Service, port: int, started_ms: int) -> Cluster:
    generation = Generation(
        service.api_versions, strict_min_isr=True, verifies_transactions=True, transaction_version=None,
        new_group_coordinator=False,
    )  # fmt: skip
    settings = ClusterSettings(
        cluster_id=service.cluster_id, addresses={NODE_ID: (HOST, port)}, started_ms=started_ms, generation=generation,
        topic_defaults=TopicSettings(max_message_bytes=service.max_message_bytes),
        transaction_max_timeout_ms=service.transaction_max_timeout_ms,
    )  # fmt: skip
    return Cluster(node_ids=[NODE_ID], rng=random.Random(1), settings=settings)

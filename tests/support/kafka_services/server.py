"""A service as a real server of this machine: sockets in front, the model of brokers behind.

The model's time begins with this machine's clock, and never jumps. One thread runs everything; a test looks at the
model in that thread.
"""

import asyncio
import random
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from kio.schema.errors import ErrorCode

from certificates import Identity
from kafka_services.front import AdminApi, Front, HangUp
from kafka_services.service import Service
from model.cluster import Cluster
from model.controller import TopicIdPartition
from model.record_batches import RecordBatch, Refused, decode_records, parse_batch
from model.settings import PRODUCE, ClusterSettings, Generation, TopicSettings, TransactionSettings
from model.wire import Request
from waiting import wait_until

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
    """One broker of `service`, while in `with`. `identity`: of TLS; None: without TLS. `password`: of the service's
    user; None: without SASL.

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
        context = None if self._identity is None else _tls(self._identity)
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
        transactions=TransactionSettings(transaction_max_timeout_ms=service.transaction_max_timeout_ms),
    )  # fmt: skip
    return Cluster(node_ids=[NODE_ID], rng=random.Random(1), settings=settings)


def _tls(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder, "identity.pem")
        pem.write_text(identity.pem, encoding="utf-8")
        context.load_cert_chain(pem)
    return context

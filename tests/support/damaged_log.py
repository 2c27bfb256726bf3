"""A partition whose segment file is damaged, as a broker reads it, and a reader of it: fetcher and decoder.

A broker finds an offset by its index, which knows the right offsets, and from there by the headers in the file, which
it believes. Source: LogSegment.read and translateOffset, FileLogInputStream.nextBatch, FileRecords
.searchForOffsetFromPosition, UnifiedLog.read.
"""

import random
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import apis
from kafka_sink.errors import KafkaSinkError, RecordsCorrupt
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.consumer.fetcher import Fetcher
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.records.decoder import RecordSetDecoder
from kafka_sink.records.undecodable import OldFormat, Undecodable
from scripted_logs import READ_SETTINGS, readers_metadata

CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE = 2, 1
_UP_TO_MAGIC, _LENGTH_END, _LEAST_LENGTH = 17, 12, 14
TOPIC_ID = uuid.UUID(int=9)


@dataclass
class DamagedLog:
    """`batches` in the order of the file; `damage` flips bits: batch, byte, bit. `index_bytes`: between two entries of
    the index. `high_watermarks`: of the answers, the last one from then on."""

    batches: Sequence[bytes]
    damage: Sequence[tuple[int, int, int]] = ()
    index_bytes: int = 4096
    start_offset: int = 0
    high_watermarks: list[int] = field(default_factory=list)
    asked: list[apis.FetchRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._index = [(-1, 0)]
        at = indexed = 0
        for batch in self.batches:
            last = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")
            if at - indexed > self.index_bytes:
                self._index.append((last, at))
                indexed = at
            at += len(batch)
            self.end_offset = last + 1
        self.high_watermarks = self.high_watermarks or [self.end_offset]
        damaged = [bytearray(batch) for batch in self.batches]
        for batch_number, byte, bit in self.damage:
            damaged[batch_number][byte] ^= 1 << bit
        self.file = b"".join(damaged)

    def fetch(self, request: apis.FetchRequest) -> apis.FetchResponse:
        self.asked.append(request)
        high_watermark = self.high_watermarks.pop(0) if len(self.high_watermarks) > 1 else self.high_watermarks[0]
        bounds = (high_watermark, high_watermark, self.start_offset)
        if not self.start_offset <= request.offset <= self.end_offset:
            return apis.FetchResponse(0, OFFSET_OUT_OF_RANGE, *bounds)
        at = self._index[bisect_right(self._index, (request.offset, len(self.file))) - 1][1]
        while at < len(self.file) - _UP_TO_MAGIC:
            length = int.from_bytes(self.file[at + 8 : at + 12], "big", signed=True)
            if length < _LEAST_LENGTH:
                return apis.FetchResponse(0, CORRUPT_MESSAGE, *bounds)
            size = length + _LENGTH_END
            if at + size > len(self.file):
                break
            last = int.from_bytes(self.file[at : at + 8], "big", signed=True)
            if self.file[at + 16] not in (0, 1):
                last += int.from_bytes(self.file[at + 23 : at + 27], "big", signed=True)
            if last >= request.offset:
                records = self.file[at : at + max(size, request.max_bytes)]
                return apis.FetchResponse(0, 0, *bounds, records=memoryview(records))
            at += size
        return apis.FetchResponse(0, 0, *bounds)


@dataclass
class Reading:
    """What a reader has got. `error`: a KafkaSinkError of the fetcher, or an Undecodable of the decoder."""

    values: list[tuple[int, bytes]]
    error: KafkaSinkError | Undecodable | None
    fetches: int

    @property
    def is_damage(self) -> bool:
        """The reader was told that the log is damaged."""
        return isinstance(self.error, (RecordsCorrupt, Undecodable)) and not isinstance(self.error, OldFormat)


class _Network:
    """A cluster of one broker, which answers at once."""

    def __init__(self, log: DamagedLog) -> None:
        self._log = log
        self._answers: list[ClientResponse] = []
        self.last_error = ""
        self.interruptions = self.handshakes = 0

    def ready(self, node_id: int, now_ms: int) -> bool:
        return True

    def is_down(self, node_id: int) -> bool:
        return False

    def least_loaded_node(self, now_ms: int) -> int | None:
        return 1

    def api_version(self, node_id: int, request: Any) -> int | None:
        return 1

    def throttled_ms(self, now_ms: int) -> int:
        return 0

    def throttles(self, now_ms: int) -> dict[int, tuple[int, int]]:
        return {}

    def update_brokers(self, brokers: Sequence[apis.Broker]) -> None:
        pass

    def learn(self, broker: apis.Broker) -> None:
        pass

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True) -> None:
        self._answers.append(ClientResponse(node_id, request, token, self._answer(request), None, 0))

    def _answer(self, request: Any) -> Any:
        match request:
            case apis.MetadataRequest():
                topic = apis.TopicMetadata(0, "t", TOPIC_ID, (apis.PartitionMetadata(0, 0, 1, 7),))
                return apis.MetadataResponse(0, "c", 1, (apis.Broker(1, "h", 1),), (topic,))
            case apis.FetchRequest():
                return self._log.fetch(request)
            case apis.ListOffsetsRequest(asked=(asked,)):
                offset = self._log.start_offset if asked.timestamp_ms == apis.EARLIEST else self._log.end_offset
                return apis.ListOffsetsResponse(0, (apis.ListedOffset("t", 0, 0, -1, offset, 7),))
        raise AssertionError(request)

    def poll(self) -> list[ClientResponse]:
        answers, self._answers = self._answers, []
        return answers


def read(
    log: DamagedLog,
    first: int,
    end: int,
    *,
    max_bytes: int = 1024 * 1024,
    level: IsolationLevel | None = None,
    answer_ms: int = 0,
) -> Reading:
    """Read `first` to before `end`, as a task does. `answer_ms`: what an answer takes."""
    settings = replace(READ_SETTINGS, isolation_level=level or IsolationLevel.READ_UNCOMMITTED, max_bytes=max_bytes)
    network, now_ms = _Network(log), 0
    range_ = FetchRange("t", TOPIC_ID, 0, first, end, leader_epoch=7)
    metadata, rng = readers_metadata(), random.Random(2)
    fetcher = Fetcher(range_, settings=settings, network=network, metadata=metadata, rng=rng, now_ms=0)
    values: list[tuple[int, bytes]] = []
    while not fetcher.is_done:
        record_set = fetcher.take(now_ms)
        if record_set is not None:
            decoder = RecordSetDecoder(
                record_set.records, first_offset=record_set.offset, end_offset=record_set.end,
                columns=("offset", "value"), aborted=record_set.aborted_transactions,
            )  # fmt: skip
            try:
                for batch in decoder:
                    values += [(each["offset"], each["value"]) for each in batch.to_pylist()]
            except Undecodable as error:
                return Reading(values, error, len(log.asked))
            assert decoder.next_offset == min(record_set.next_offset, record_set.end)
        wait_ms = fetcher.run_once(now_ms)
        answers = network.poll()
        now_ms += answer_ms if answers else wait_ms
        fetcher.handle(answers, now_ms)
    return Reading(values, fetcher.failure, len(log.asked))

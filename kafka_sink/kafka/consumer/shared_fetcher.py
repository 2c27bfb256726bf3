"""Fetches the record sets of many ranges for one task. Each range has a `Fetcher`; they share their requests.

    ranges ─> lanes, one for each partition ─> up to MOST_OPEN fetchers ─> SharedRequests ─> one Fetch for each leader

It is driven as a fetcher is, and `take` also tells the range. The record sets of a partition come in the order of its
ranges and offsets, those of several partitions as they arrive.

Non-obvious:

* The fetchers of a topic share its metadata. A change of leaders is asked for once, and told to each of them.
* They share one patience: the task waits for a record, whichever partition has it. Time in which the caller works on
  one partition's records does not count for the others.
* The first failure of a range is the failure of all, as it is of the task.

Pure.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings, Wait
from kafka_sink.kafka.consumer.patience import Patience
from kafka_sink.kafka.consumer.shared_requests import Sent, SharedRequests
from kafka_sink.kafka.metadata import Metadata
from kafka_sink.kafka.network import LONGEST_POLL_MS, Network
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from kafka_sink.kafka.protocol.apis.list_offsets import ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataResponse
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.requests import Request
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# A fetcher costs some microseconds in each turn. So many keep all leaders of a task busy.
MOST_OPEN = 256
# Nobody hears of a shorter wait.
_TOLD_FROM_MS = 1_000

Lane = deque[FetchRange]


@dataclass(slots=True, eq=False)
class _Reading:
    """A range that is being fetched, those of its partition that follow, and where its record set is from."""

    range_: FetchRange
    fetcher: Fetcher
    rest: Lane
    sent: Sent | None = None


class SharedFetcher:
    """`failure`: the first error of a range. `losses`: what was left out, if that is no failure."""

    def __init__(
        self,
        ranges: Sequence[FetchRange],
        *,
        settings: FetchSettings,
        network: Network,
        metadata_of: Callable[[str], Metadata],
        rng: random.Random,
        now_ms: int,
    ) -> None:
        self.failure: KafkaSinkError | None = None
        self._losses: list[tuple[FetchRange, Loss]] = []
        self._settings = settings
        self._network = network
        self._requests = SharedRequests(network, settings)
        self._patience = Patience(settings.no_progress_ms)
        self._rng = rng
        lanes: dict[TopicPartition, Lane] = {}
        for each in ranges:
            lanes.setdefault(_of(each), deque()).append(each)
        self._lanes = deque(lanes.values())
        self._metadata = {topic: metadata_of(topic) for topic in dict.fromkeys(each.topic for each in ranges)}
        self._open: dict[TopicPartition, _Reading] = {}
        self._ready: deque[_Reading] = deque()
        self._open_more(now_ms)

    @property
    def is_done(self) -> bool:
        return self.failure is not None or not self._open

    @property
    def losses(self) -> Sequence[tuple[FetchRange, Loss]]:
        return self._losses

    def take(self, now_ms: int) -> tuple[FetchRange, RecordSet] | None:
        """Return the next record set and its range, if there is one. If not, the caller waits from now on."""
        if not self._ready:
            self._requests.works_on(None)
            self._patience.begin(now_ms, self._network.throttled_ms(now_ms))
            return None
        reading = self._ready.popleft()
        self._requests.works_on(reading.sent)
        record_set = reading.fetcher.take(now_ms)
        assert record_set is not None
        self._look_after(reading, now_ms)
        return reading.range_, record_set

    def wait(self, now_ms: int) -> Wait | None:
        """Return the wait of a range, if its last request failed; None if brokers answer."""
        if self._patience.waited_ms(now_ms, self._network.throttled_ms(now_ms)) < _TOLD_FROM_MS:
            return None
        return next((wait for each in self._open.values() if (wait := each.fetcher.wait(now_ms))), None)

    def run_once(self, now_ms: int) -> int:
        """Send what is due. Return how many ms nothing else is."""
        wait_ms = LONGEST_POLL_MS
        for reading in [each for each in self._open.values() if each.fetcher.has_work]:
            wait_ms = min(wait_ms, reading.fetcher.run_once(now_ms))
            self._look_after(reading, now_ms)
        self._requests.send_due(now_ms)
        return 0 if self.is_done or self._ready or self._requests.has_answers else wait_ms

    def handle(self, answers: Sequence[ClientResponse], now_ms: int) -> None:
        """Take the answers of this fetcher's requests."""
        for answer, sent in self._requests.answered(answers):
            if answer.token is self._requests.of_metadata:
                self._learn(answer, now_ms)
                continue
            reading = self._open.get(_asked_of(answer.request))
            if reading is None:
                continue
            reading.fetcher.take_answers([answer], now_ms)
            record_set = reading.fetcher.record_set
            if record_set is not None and sent is not None:
                reading.sent = sent
                self._requests.holds(sent, record_set)
                self._ready.append(reading)
            self._look_after(reading, now_ms)
        is_over = self._patience.is_over(now_ms, self._network.throttled_ms(now_ms))
        if is_over and not any(each.fetcher.has_records for each in self._ready):
            self._look_at_clock(now_ms)

    def _look_at_clock(self, now_ms: int) -> None:
        """Fail if the task has waited for too long. A range whose requests fail says why."""
        if self.failure is None and self._open:
            reading = min(self._open.values(), key=lambda each: each.fetcher.wait(now_ms) is None)
            reading.fetcher.look_at_clock(now_ms)
            self._look_after(reading, now_ms)

    def _learn(self, answer: ClientResponse, now_ms: int) -> None:
        """Take the metadata of a topic for all of its ranges."""
        (topic,) = answer.request.topics  # type: ignore[union-attr, misc]
        metadata = self._metadata[topic]
        # A broker that lists no brokers has just started, and knows no topics either.
        if not isinstance(answer.response, MetadataResponse) or not answer.response.brokers:
            metadata.failed(now_ms)
            return
        metadata.update(answer.response, now_ms)
        self._network.update_brokers(answer.response.brokers)
        for reading in [each for each in self._open.values() if each.range_.topic == topic]:
            reading.fetcher.look_for_topic(now_ms - answer.latency_ms, now_ms)
            self._look_after(reading, now_ms)

    # --- ranges -------------------------------------------------------------------------------------------------------

    def _look_after(self, reading: _Reading, now_ms: int) -> None:
        """Note a failure, or begin with another range if this one is done."""
        fetcher = reading.fetcher
        if fetcher.failure is not None:
            self.failure = self.failure or fetcher.failure
        elif fetcher.is_done and self._open.get(_of(reading.range_)) is reading:
            self._losses += [(reading.range_, loss) for loss in fetcher.losses]
            del self._open[_of(reading.range_)]
            if reading.rest:
                self._lanes.appendleft(reading.rest)
            self._open_more(now_ms)

    def _open_more(self, now_ms: int) -> None:
        while self._lanes and len(self._open) < MOST_OPEN:
            rest = self._lanes.popleft()
            range_ = rest.popleft()
            fetcher = Fetcher(
                range_,
                settings=self._settings,
                network=self._requests,
                metadata=self._metadata[range_.topic],
                rng=self._rng,
                now_ms=now_ms,
                patience=self._patience,
            )
            self._requests.ends[_of(range_)] = range_.end
            self._open[_of(range_)] = _Reading(range_, fetcher, rest)


def _of(range_: FetchRange) -> TopicPartition:
    return TopicPartition(range_.topic, range_.partition)


def _asked_of(request: Request) -> TopicPartition:
    """Return the partition that a fetcher's request is about."""
    match request:
        case FetchRequest() | OffsetForLeaderEpochRequest():
            return TopicPartition(request.topic, request.partition)
        case ListOffsetsRequest(asked=(asked,)):
            return TopicPartition(asked.topic, asked.partition)
    # Of another reader of this worker, left unanswered.
    return TopicPartition("", -1)

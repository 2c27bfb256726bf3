"""Fetches the record sets of many ranges for one task. Each range has a `Fetcher`; they share their requests.

    ranges ─> lanes, one for each partition ─> up to MOST_OPEN fetchers ─> SharedRequests ─> one Fetch for each leader

It is driven as a fetcher is, and `take` also tells the range. The record sets of a partition come in the order of its
ranges and offsets, those of several partitions as they arrive.

Non-obvious:

* The fetchers of a topic share its metadata. A change of leaders is asked for once, and told to each of them.
* They share one patience: the task waits for a record, whichever partition has it. Time in which the caller works on
  one partition's records does not count for the others.
* The first failure of a range is the failure of all, as it is of the task.

Pure. Source: org.apache.kafka.clients.consumer.internals.AbstractFetch (one Fetch for each node, no partition with
buffered records), SubscriptionState.movePartitionToEnd.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.config import ConsumerConfig, IsolationLevel
from kafka_sink.kafka.consumer.fetch_policy import Appetite, Patience
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings, Wait, learn, why_down
from kafka_sink.kafka.metadata import Metadata
from kafka_sink.kafka.network import LONGEST_POLL_MS, Network, NetworkOver
from kafka_sink.kafka.protocol.api import ClientResponse, Request
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse, SharedFetchRequest, SharedFetchResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# A fetcher costs some microseconds in each turn. So many keep all leaders of a task busy.
MOST_OPEN = 256
# A shorter wait is not logged.
_LOGGED_FROM_MS = 1_000

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
        self.losses: list[tuple[FetchRange, Loss]] = []
        self._settings = settings
        self._network = network
        self._requests = SharedRequests(network, settings.config, settings.appetite())
        # A range may have the whole of an answer.
        most_bytes = settings.config.fetch_bytes
        self._of_range = Appetite(most_bytes, most_bytes)
        self._patience = Patience(settings.poll_timeout_ms)
        self._rng = rng
        lanes: dict[TopicPartition, Lane] = {}
        for each in ranges:
            lanes.setdefault(each.topic_partition, deque()).append(each)
        self._lanes = deque(lanes.values())
        self._metadata = {topic: metadata_of(topic) for topic in dict.fromkeys(each.topic for each in ranges)}
        # By the token of the fetcher.
        self._open: dict[object, _Reading] = {}
        self._ready: deque[_Reading] = deque()
        self._open_more(now_ms)

    @property
    def is_done(self) -> bool:
        return self.failure is not None or not self._open

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
        if self._patience.waited_ms(now_ms, self._network.throttled_ms(now_ms)) < _LOGGED_FROM_MS:
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
            reading = self._open.get(answer.token)
            if reading is None:
                # Of another reader of this worker, left unanswered.
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
        (topic,) = answer.request.topics  # type: ignore[attr-defined]
        if not learn(answer, self._metadata[topic], self._network, now_ms):
            return
        for reading in [each for each in self._open.values() if each.range_.topic == topic]:
            reading.fetcher.look_for_topic(now_ms - answer.latency_ms, now_ms)
            self._look_after(reading, now_ms)

    def _look_after(self, reading: _Reading, now_ms: int) -> None:
        """Note a failure, or begin with another range if this one is done."""
        fetcher = reading.fetcher
        if fetcher.failure is not None:
            self.failure = self.failure or fetcher.failure
        elif fetcher.is_done and fetcher.token in self._open:
            self.losses += [(reading.range_, loss) for loss in fetcher.losses]
            del self._open[fetcher.token]
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
                appetite=self._of_range,
            )
            self._requests.ends[range_.topic_partition] = range_.end
            self._open[fetcher.token] = _Reading(range_, fetcher, rest)


# --- one Fetch for many fetchers --------------------------------------------------------------------------------------

MOST_ANSWERS = 2
# Before the first records come.
_BYTES_AN_OFFSET = 100
# Base offset and length of a batch.
_UP_TO_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """A fetcher's request, and its token."""

    request: FetchRequest
    token: object


@dataclass(slots=True, eq=False)
class Sent:
    """What went to a node in one request. `left`: record sets of the answer that the caller has not worked on."""

    node_id: int
    asked: Sequence[Asked]
    left: int = 0


class SharedRequests(NetworkOver):
    """The network of the fetchers: sends their Fetches from a leader as one Fetch. `ends`: where each range ends.

    What the fetchers ask of a leader waits in a queue until its last Fetch is answered. Then the first ones in the
    queue go together, as many as fill an answer. Each fetcher gets its part of the answer as if it had asked alone,
    with its own error.

    * **Fairness** (KIP-74). A broker fills its answer in the order of the request, so the last partitions may get
      nothing. They are asked for again, first in the next request, where the broker cannot leave them out. Their
      fetchers do not hear of it: an answer without records would mean something else to them. Who got records queues up
      behind.
    * **Memory.** Of each node there are two answers at most: one whose record sets are being taken, and one that is
      under way or waits. An answer is in memory until its last record set was taken and worked on.
    * A request asks for so many partitions as fill an answer, by the bytes an offset has had so far. To name all of
      them each time costs more than the records where partitions are large.
    * A broker waits for records only if the caller has nothing else to do. Otherwise one partition without records
      would keep the others of its leader waiting.
    * A request for one batch (`gaps.py`, a look ahead) goes alone: only the first partition of a request has its first
      batch whole.
    """

    def __init__(self, network: Network, config: ConsumerConfig, appetite: Appetite) -> None:
        super().__init__(network)
        self._appetite = appetite
        self.ends: dict[TopicPartition, int] = {}
        self._config = config
        self._queues: dict[int, deque[Asked]] = defaultdict(deque)
        self._under_way: dict[int, Sent] = {}
        # Of each node, answers with record sets that are in memory.
        self._held: Counter[int] = Counter()
        self._worked_on: Sent | None = None
        self._undeliverable: list[ClientResponse] = []
        # Of this reader alone: the one before may have left a request unanswered.
        self.of_metadata = object()
        self._bytes = self._offsets = 0

    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None:
        match request:
            case FetchRequest():
                self._queues[node_id].append(Asked(request, token))
            case MetadataRequest():
                # For all fetchers of the topic.
                self._network.send(node_id, request, now_ms, self.of_metadata)
            case _:
                self._network.send(node_id, request, now_ms, token)

    def send_due(self, now_ms: int) -> None:
        """Send what waits to nodes that have answered, or note that a node cannot be reached."""
        for node_id, queue in self._queues.items():
            if not queue or node_id in self._under_way or self._held[node_id] >= MOST_ANSWERS:
                continue
            if self._network.ready(node_id, now_ms):
                self._send_next(node_id, queue, now_ms)
            elif self._network.is_down(node_id):
                error = why_down(node_id, self._network)
                self._undeliverable += [
                    ClientResponse(node_id, each.request, each.token, None, error, 0) for each in queue
                ]
                queue.clear()

    @property
    def has_answers(self) -> bool:
        """True if `answered` has something without waiting."""
        return bool(self._undeliverable)

    def _send_next(self, node_id: int, queue: deque[Asked], now_ms: int) -> None:
        chosen = [queue.popleft()]
        first = chosen[0].request
        request: Request = first
        if self._is_usual(first):
            expected = self._expected_bytes(first)
            while queue and self._is_usual(queue[0].request) and queue[0].request.rack_id == first.rack_id:
                if expected >= self._appetite.bytes:
                    break
                expected += self._expected_bytes(queue[0].request)
                chosen.append(queue.popleft())
            waits = not (queue or self._held[node_id])
            max_wait_ms = first.max_wait_ms if waits else 0
            request = replace(first, max_bytes=self._appetite.bytes, max_wait_ms=max_wait_ms)
            if len(chosen) > 1:
                parts = tuple(each.request for each in chosen)
                request = SharedFetchRequest(parts, self._appetite.bytes, max_wait_ms)
        sent = self._under_way[node_id] = Sent(node_id, chosen)
        self._network.send(node_id, request, now_ms, sent)

    def _is_usual(self, request: FetchRequest) -> bool:
        """False for a request of one batch."""
        config = self._config
        wanted = config.isolation_level, config.fetch_bytes, config.fetch_min_bytes
        return (request.isolation_level, request.max_bytes, request.min_bytes) == wanted

    def _expected_bytes(self, request: FetchRequest) -> int:
        left = self.ends[TopicPartition(request.topic, request.partition)] - request.offset
        bytes_an_offset = self._bytes / self._offsets if self._offsets else _BYTES_AN_OFFSET
        return min(int(left * bytes_an_offset), self._config.fetch_bytes)

    def answered(self, answers: Iterable[ClientResponse]) -> Iterator[tuple[ClientResponse, Sent | None]]:
        """Return the answer for each fetcher, and where it is from if it is of a Fetch."""
        for each in answers:
            sent = each.token
            if not isinstance(sent, Sent):
                yield each, None
            elif self._under_way.get(sent.node_id) is sent:
                del self._under_way[sent.node_id]
                yield from ((part, sent) for part in self._parts(sent, each))
        undeliverable, self._undeliverable = self._undeliverable, []
        for each in undeliverable:
            yield each, None

    def _parts(self, sent: Sent, answer: ClientResponse) -> list[ClientResponse]:
        match answer.response:
            case SharedFetchResponse(parts=responses):
                pass
            case FetchResponse() as response:
                responses = (response,)
            case _:
                return [replace(answer, request=each.request, token=each.token) for each in sent.asked]
        found, again = [], []
        has_records = False
        for asked, response in zip(sent.asked, responses, strict=True):
            if has_records and _is_crowded_out(asked.request, response):
                again.append(asked)
                continue
            has_records = has_records or bool(response.records)
            found.append(replace(answer, request=asked.request, token=asked.token, response=response))
        self._queues[sent.node_id].extendleft(reversed(again))
        return found

    def holds(self, sent: Sent, record_set: RecordSet) -> None:
        """Note that a fetcher has a record set of this answer."""
        if not sent.left:
            self._held[sent.node_id] += 1
            self._appetite.fed()
        sent.left += 1
        self._bytes += record_set.records.nbytes
        self._offsets += record_set.next_offset - record_set.offset

    def works_on(self, sent: Sent | None) -> None:
        """Note that the caller works on a record set of this answer from now on, and no more on the one before."""
        before, self._worked_on = self._worked_on, sent
        if before is not None:
            before.left -= 1
            self._held[before.node_id] -= not before.left


def _is_crowded_out(request: FetchRequest, response: FetchResponse) -> bool:
    """Return whether the broker had records for this partition, and no room left in its answer."""
    is_committed = request.isolation_level is IsolationLevel.READ_COMMITTED
    readable = response.last_stable_offset if is_committed else response.high_watermark
    if response.error_code != ErrorCode.NONE or response.preferred_read_replica >= 0 or request.offset >= readable:
        return False
    records = response.records
    size = _UP_TO_LENGTH
    if len(records) >= _UP_TO_LENGTH:
        size += int.from_bytes(records[8:_UP_TO_LENGTH], "big", signed=True)
    return len(records) < size

"""Calls: requests to one broker each, and the wait for their answers. Also finds the leaders to call.

A `Driver` sends them and takes the answers; see `driver.py` for its thread. Time in which a broker throttles is not
counted: deadlines use a clock that pauses meanwhile (`clock_ms`).

Non-obvious: only the driving thread may use the network, and the state that `run_once` and `handle` change. The thread
that asks uses that state between two calls of `Driver.drive`, when nothing drives it. So questions about a node
(`look`) are asked on the driving thread too.

Source: Kafka's KafkaAdminClient (Call, AdminClientRunnable).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka_sink.errors import BrokersUnreachable, KafkaSinkError
from kafka_sink.kafka.admin.driver import Driver, Work
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.coordinators import Ask, Coordinators
from kafka_sink.kafka.protocol.api import ClientResponse, PartitionResult, PartitionsResponse, Request, Response
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse, TopicMetadata
from kafka_sink.kafka.protocol.apis.offsets import ListedOffset, ListOffsetsResponse
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeProducersResponse, ProducersOfPartition
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_text
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.waits import Outage, backoff_ms, limit_text, time_of_day, without_throttles

log = logging.getLogger("kafka_sink")

# How long the metadata of topics is used from the cache.
TOPICS_FRESH_MS = 1_000
# The token of the periodic Metadata request, whose answer no call waits for.
_BROKERS = object()

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Call:
    """A request to one node, or to any if `node_id` is None. When `done`, it has a `response` or an `error`."""

    node_id: int | None
    request: Request
    response: Response | None = None
    error: str = ""
    sent: bool = False
    done: bool = False


class Caller:
    """For one thread at a time."""

    def __init__(self, config: ClientConfig, driver: Driver, rng: random.Random) -> None:
        self._config = config
        self._driver = driver
        self._rng = rng
        self.network = driver.network
        self.outage = Outage(asks_alone=True)
        self.coordinators = Coordinators(
            network=self.network,
            rng=self._rng,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )
        # When to list all brokers again, so that FindCoordinator does not go to brokers of an old list.
        self._brokers_due_ms = driver.now_ms()
        # From the last list of brokers. The network may know more.
        self.broker_ids: tuple[int, ...] = ()
        # Topic -> (time of the response in ms, metadata).
        self._topics: dict[str, tuple[int, TopicMetadata]] = {}
        self._ends_ms: int | None = None
        self._within_ms: int | None = None
        # When the last request began, on the clock of `clock_ms`.
        self._began_ms = self.clock_ms()

    @contextmanager
    def within(self, milliseconds: int) -> Iterator[None]:
        """Limit all requests in this context together to this time, if it is shorter than `max.block.ms`."""
        self._ends_ms = self.clock_ms() + milliseconds
        self._within_ms = milliseconds
        try:
            yield
        finally:
            self._ends_ms = self._within_ms = None

    @property
    def limit_ms(self) -> int:
        """How long a request waits at most."""
        limit_ms = self._config.api_timeout_ms
        return limit_ms if self._within_ms is None else min(limit_ms, self._within_ms)

    def collect(self) -> None:
        """Process responses that came since the last use."""
        for answer in self._driver.collect():
            self.handle(answer, self._driver.now_ms())

    def close(self) -> None:
        """Close the connections, if they are this client's own."""
        self._driver.close()

    # --- any broker ---------------------------------------------------------------------------------------------------

    def metadata(
        self,
        topics: tuple[str, ...] | None,
        deadline_ms: int,
        *,
        allow_auto_topic_creation: bool = False,
        beside: Sequence[Call] = (),
    ) -> MetadataResponse:
        """Return the metadata of `topics` from any broker. The calls `beside` are done by then, in the same round trip.
        A broker that lists no brokers has just started, and knows no topics either. Raises BrokersUnreachable."""
        tries = 0
        while True:
            response = self.ask_any(MetadataRequest(topics, allow_auto_topic_creation), deadline_ms, beside)
            assert isinstance(response, MetadataResponse)
            if response.brokers:
                break
            tries += 1
            if not self.pause(tries, deadline_ms):
                raise self.unreachable()
        now_ms = self._driver.now_ms()
        for topic in response.topics:
            if not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions):
                self._topics[topic.name] = now_ms, topic
            else:
                self.forget(topic.name)
        return response

    def cached(self, names: Sequence[str]) -> Sequence[TopicMetadata] | None:
        """Return the cached metadata of these topics, or None unless all of them are cached and fresh."""
        since_ms = self._driver.now_ms() - TOPICS_FRESH_MS
        fresh = [found[1] for name in names if (found := self._topics.get(name)) is not None and found[0] > since_ms]
        return fresh if len(fresh) == len(names) else None

    def forget(self, topic: str) -> None:
        """Remove the topic from the cache, because its metadata was wrong."""
        self._topics.pop(topic, None)

    def ask_any(self, request: Request, deadline_ms: int, beside: Sequence[Call] = ()) -> Response:
        """Return any broker's answer. The calls `beside` are done by then. Raises BrokersUnreachable."""
        tries = 0
        while True:
            call = Call(None, request)
            self.run([call, *beside], deadline_ms)
            if call.response is not None:
                return call.response
            tries += 1
            if not self.pause(tries, deadline_ms, call.error):
                raise self.unreachable()

    def look(self, question: Callable[[int], T], deadline_ms: int) -> T:
        """Return what `question` finds out about any node that takes a request now, given its id. Raises
        BrokersUnreachable."""
        found: list[T] = []

        def is_found(now_ms: int) -> bool:
            if not found and (node_id := self.network.least_loaded_node(now_ms)) is not None:
                found.append(question(node_id))
            return bool(found)

        self._drive((), is_found, deadline_ms, deadline_ms)
        if not found:
            raise self.unreachable()
        return found[0]

    def takes(self, request: Request, deadline_ms: int) -> bool:
        """Return True if any broker takes `request` in a version that the client speaks. Raises BrokersUnreachable."""
        return self.look(lambda node_id: self.network.api_version(node_id, request) is not None, deadline_ms)

    def unreachable(self, first_waited_ms: int | None = None) -> KafkaSinkError:
        """`first_waited_ms`: for how long the client has waited for the first answer of all, if it gives up early."""
        return BrokersUnreachable(
            bootstrap_servers=self._config.bootstrap_servers_text,
            waited_ms=self.limit_ms if first_waited_ms is None else first_waited_ms,
            timeout_option=self._config.api_timeout_option,
            last_error=self.network.last_error,
            is_first=first_waited_ms is not None,
        )

    # --- waiting ------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return monotonic time in ms, of the clock of the driving thread."""
        return self._driver.now_ms()

    def clock_ms(self) -> int:
        """Return the same with a tenth of the time in which brokers throttled."""
        now_ms = self._driver.now_ms()
        return without_throttles(now_ms, self.network.throttled_ms(now_ms))

    def deadline_ms(self) -> int:
        """Return the deadline of a request that begins now, on the clock of `clock_ms`."""
        self._began_ms = self.clock_ms()
        deadline_ms = self._began_ms + self._config.api_timeout_ms
        return deadline_ms if self._ends_ms is None else min(deadline_ms, self._ends_ms)

    def run(self, calls: Sequence[Call], deadline_ms: int) -> None:
        """Run the calls until all are done or `deadline_ms` has passed."""
        self._drive(calls, lambda _: all(call.done for call in calls), deadline_ms, deadline_ms)

    def await_asks(self, asks: Sequence[Ask]) -> None:
        """Wait until all `asks` are done, each of which has its own deadline."""
        # There may be thousands, so no turn looks at one that was done before.
        waiting = list(reversed(asks))

        def are_done(_: int) -> bool:
            while waiting and waiting[-1].done:
                waiting.pop()
            return not waiting

        if asks:
            last_ms = max(ask.deadline_ms for ask in asks)
            self._drive((), are_done, last_ms, last_ms)
            self.coordinators.expire(self._driver.now_ms())

    def pause(self, tries: int, deadline_ms: int, reason: str = "") -> bool:
        """Back off after `tries` in a row. Return False at once if the backoff would exceed `deadline_ms`. `reason`:
        what the client waits for, for the log."""
        pause_ms = backoff_ms(tries, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._rng)
        until_ms = self.clock_ms() + pause_ms
        if until_ms >= deadline_ms:
            return False
        self._drive((), lambda _: False, until_ms, deadline_ms, reason)
        return True

    def _drive(
        self, calls: Sequence[Call], ends: Callable[[int], bool], until_ms: int, deadline_ms: int, reason: str = ""
    ) -> None:
        """Send `calls` and take answers, until `ends` returns True for the time or `until_ms` has passed. `ends` runs
        on the driving thread. `deadline_ms`: when the whole step ends.

        Raises BrokersUnreachable if no broker has ever answered, and waiting is hopeless.
        """

        def left_ms() -> int:
            self._look(deadline_ms, reason)
            return until_ms - self.clock_ms()

        self._driver.drive(Work(partial(self.run_once, calls), self.handle, ends), left_ms)

    def _look(self, deadline_ms: int, reason: str) -> None:
        """Give up a first wait that is hopeless, and log a wait that lasts. A step with a limit of its own is neither
        logged nor given up early."""
        if self._ends_ms is not None:
            return
        now_ms = self._driver.now_ms()
        first = None if self.outage.has_worked else self.outage.first_wait(self.network.contact(now_ms), now_ms)
        clock_ms = self.clock_ms()
        waited_ms, left_ms = clock_ms - self._began_ms, deadline_ms - clock_ms
        if first is not None:
            left_ms = min(left_ms, first.left_ms)
            if first.left_ms <= 0:
                raise self.unreachable(first.waited_ms)
        if self.outage.is_log_due(waited_ms, now_ms):
            log.warning(
                "no definite answer of %s for %.0f s, last: %s. The client waits until %s (%s), then it fails.",
                self._config.bootstrap_servers_text,
                waited_ms / 1_000,
                reason or self.network.last_error or "no answer",
                time_of_day(wall_clock_ms() + left_ms),
                limit_text(first, self._config.api_timeout_option, self._config.api_timeout_ms),
            )

    # --- on the driving thread ----------------------------------------------------------------------------------------

    def run_once(self, calls: Sequence[Call], now_ms: int) -> int:
        """Send what can go. Return the longest time (ms) that a poll may wait."""
        wait_ms = self.coordinators.run_once(now_ms)
        self._list_brokers(now_ms)
        ended = [self._send(call, now_ms) for call in calls]
        return 0 if any(ended) else wait_ms

    def handle(self, answer: ClientResponse, now_ms: int) -> None:
        """Process an answer, also to a request that no call waits for any more."""
        token, response = answer.token, answer.response
        if isinstance(token, Call):
            if isinstance(response, MetadataResponse):
                self._take_brokers(response)
            token.response, token.error, token.done = response, answer.error or "", True
        elif token is _BROKERS:
            self._on_brokers(response, now_ms)
        else:
            self.coordinators.handle(answer, now_ms)

    def _send(self, call: Call, now_ms: int) -> bool:
        """Send the call, if it can go. Return True if it has ended now, as its node is down."""
        if call.sent or call.done:
            return False
        node_id = self.network.least_loaded_node(now_ms) if call.node_id is None else call.node_id
        if node_id is None:
            return False
        if self.network.ready(node_id, now_ms):
            call.sent = True
            self.network.send(node_id, call.request, now_ms, call)
        elif self.network.is_down(node_id):
            call.error, call.done = self.network.last_error, True
            return True
        return False

    def _list_brokers(self, now_ms: int) -> None:
        if now_ms < self._brokers_due_ms:
            return
        node_id = self.network.least_loaded_node(now_ms)
        if node_id is not None:
            self._brokers_due_ms = now_ms + self._config.metadata_max_age_ms
            self.network.send(node_id, MetadataRequest((), allow_auto_topic_creation=False), now_ms, _BROKERS)

    def _on_brokers(self, response: object, now_ms: int) -> None:
        if isinstance(response, MetadataResponse):
            self._take_brokers(response)
        else:
            self._brokers_due_ms = now_ms + self._config.retry_backoff_ms

    def _take_brokers(self, response: MetadataResponse) -> None:
        self.network.update_brokers(response.brokers)
        # A broker that lists no brokers has just started. Keep the earlier list, as the network does.
        self.broker_ids = tuple(broker.node_id for broker in response.brokers) or self.broker_ids


# --- leaders ----------------------------------------------------------------------------------------------------------

Partitions = tuple[TopicPartition, ...]


def by_leader(
    partitions: Iterable[TopicPartition], topics: Iterable[TopicMetadata]
) -> tuple[dict[int, Partitions], dict[TopicPartition, str]]:
    """Return which of `partitions` each node leads, and for each of the others the reason why it has no leader."""
    of_topic = {topic.name: topic for topic in topics}
    leaders = leaders_of(of_topic.values())
    codes = {
        TopicPartition(topic.name, each.partition): each.error_code
        for topic in of_topic.values()
        for each in topic.partitions
    }
    led: dict[int, list[TopicPartition]] = {}
    reasons = {}
    for partition in partitions:
        leader_id = leaders.get(partition, -1)
        if leader_id >= 0:
            led.setdefault(leader_id, []).append(partition)
        else:
            code = of_topic[partition[0]].error_code or codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            reasons[partition] = error_text(code)
    return {leader_id: tuple(of_leader) for leader_id, of_leader in led.items()}, reasons


def leaders_of(topics: Iterable[TopicMetadata]) -> dict[TopicPartition, int]:
    """Return the leader of each partition, -1 if it has none."""
    return {TopicPartition(topic.name, each.partition): each.leader_id for topic in topics for each in topic.partitions}


def absent(partitions: Iterable[TopicPartition], topics: Iterable[TopicMetadata]) -> set[TopicPartition]:
    """Return which of `partitions` are not there, by a Metadata answer that has or denies each topic."""
    there: dict[str, set[int]] = {}
    for topic in topics:
        if topic.error_code == ErrorCode.NONE:
            there[topic.name] = {each.partition for each in topic.partitions}
        elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            there[topic.name] = set()
    return {each for each in partitions if each.topic in there and each.partition not in there[each.topic]}


def of_partitions(response: Response | None) -> Sequence[ProducersOfPartition | PartitionResult | ListedOffset]:
    match response:
        case DescribeProducersResponse(partitions=partitions):
            return partitions
        case ListOffsetsResponse(partitions=offsets):
            return offsets
        case PartitionsResponse(results=results):
            return results
        case _:
            return ()

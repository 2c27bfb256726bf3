"""Reads ranges of partitions over the connections of one client.

    with lease_reader(config) as reader:
        for record_set in reader.fetch(range_, settings):
            ...

A shell: it has connections and a clock, and no thread. The calling thread drives it; while the caller works on a record
set, the answer to the next request arrives in the socket. `consumer.fetcher` decides.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.config import ConsumerConfig
from kafka_sink.kafka.connections import connect
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings, Wait
from kafka_sink.kafka.metadata import MAX_IDLE_MS, NO_LEADER, Metadata, MetadataSnapshot
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.waits import Outage, time_of_day

log = logging.getLogger("kafka_sink")

# Of so many topics the leaders are kept from one range to the next.
MOST_TOPICS = 100


class Reader:
    """For one thread at a time. Connects with the first range."""

    def __init__(self, config: ConsumerConfig, cluster_id: str | None = None) -> None:
        """`cluster_id`: the cluster that must be there; None: any cluster."""
        self.config = config
        # The plan of the read has asked the same brokers before.
        self.outage = Outage(asks_alone=False, has_worked=True)
        self._rng = random.Random()
        self._network = connect(config, rng=self._rng, cluster_id=cluster_id)
        # What the last range of each topic knew, the most recent last.
        self._known: dict[str, Metadata] = {}
        self.used_at_ms = monotonic_ms()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, or None while unknown."""
        return self._network.cluster_id

    def may_go_on(self, cluster_id: str | None = None) -> bool:
        """Return True if the client may be used again, in `cluster_id` unless that is None."""
        return self._network.failure is None and cluster_id in (None, self._network.cluster_id)

    def rest(self) -> None:
        """Does nothing: an answer that comes after the end of its range is for no other."""

    def close(self) -> None:
        """Close the connections."""
        self._network.close()

    def fetch(self, range_: FetchRange, settings: FetchSettings) -> Fetch[RecordSet, Loss]:
        """Begin to read a range. `settings`: with the configuration of this reader."""
        fetcher = Fetcher(
            range_,
            settings=settings,
            network=self._network,
            metadata=self._metadata_of([range_]),
            rng=self._rng,
            now_ms=monotonic_ms(),
        )
        return Fetch(self._network, fetcher, self.outage)

    def fetch_all(
        self, ranges: Sequence[FetchRange], settings: FetchSettings
    ) -> Fetch[tuple[FetchRange, RecordSet], tuple[FetchRange, Loss]]:
        """Begin to read ranges, of several partitions at once; see `fetch`."""
        # Most reads have no use for it.
        from kafka_sink.kafka.consumer.shared_fetcher import SharedFetcher

        by_topic: dict[str, list[FetchRange]] = {}
        for each in ranges:
            by_topic.setdefault(each.topic, []).append(each)
        fetcher = SharedFetcher(
            ranges,
            settings=settings,
            network=self._network,
            metadata_of=lambda topic: self._metadata_of(by_topic[topic]),
            rng=self._rng,
            now_ms=monotonic_ms(),
        )
        return Fetch(self._network, fetcher, self.outage)

    def _metadata_of(self, ranges: Sequence[FetchRange]) -> Metadata:
        """Return metadata for ranges of one topic, with what the range before knew of the same topic."""
        topic = ranges[0].topic
        config = self.config
        metadata = Metadata(
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=MAX_IDLE_MS,
            backoff_initial_ms=config.retry_backoff_ms,
            backoff_max_ms=config.retry_backoff_max_ms,
            rng=self._rng,
            creates_topics=False,
        )
        earlier = self._known.pop(topic, None)
        if earlier is not None and all(_has_leader(earlier.snapshot, each) for each in ranges):
            metadata.take_over(topic, earlier)
        self._known[topic] = metadata
        if len(self._known) > MOST_TOPICS:
            del self._known[next(iter(self._known))]
        return metadata


def _has_leader(snapshot: MetadataSnapshot, range_: FetchRange) -> bool:
    """Return whether the snapshot has the range's topic, not another of the same name, and a leader that is not older
    than the range's."""
    topic = snapshot.topics.get(range_.topic)
    return (
        topic is not None
        and topic.topic_id == range_.topic_id
        and snapshot.leader(*range_.topic_partition) != NO_LEADER
        and topic.leader_epochs[range_.partition] >= range_.leader_epoch
    )


T_co = TypeVar("T_co", covariant=True)
L_co = TypeVar("L_co", covariant=True)


class _Driven(Protocol[T_co, L_co]):
    """What a Fetcher and a SharedFetcher have in common. They say what it does."""

    @property
    def failure(self) -> KafkaSinkError | None: ...
    @property
    def losses(self) -> Sequence[L_co]: ...
    @property
    def is_done(self) -> bool: ...
    def take(self, now_ms: int) -> T_co | None: ...
    def wait(self, now_ms: int) -> Wait | None: ...
    def run_once(self, now_ms: int) -> int: ...
    def handle(self, answers: Sequence[ClientResponse], now_ms: int) -> None: ...


class Fetch(Generic[T_co, L_co]):
    """One range that is being read, or several. Iterates over the record sets, in order; of several with their ranges.

    Iteration raises OffsetsLost, ReadStalled, another ReadError, or a ClusterError. `losses`: what was left out so far,
    if that is no failure.
    """

    def __init__(self, network: NetworkClient, fetcher: _Driven[T_co, L_co], outage: Outage) -> None:
        self._network = network
        self._fetcher = fetcher
        self._outage = outage

    def __iter__(self) -> Iterator[T_co]:
        return self

    def __next__(self) -> T_co:
        fetcher = self._fetcher
        while not fetcher.is_done:
            record_set = fetcher.take(monotonic_ms())
            if record_set is not None:
                self.prefetch()
                return record_set
            self._turn(LONGEST_POLL_MS)
        if fetcher.failure is not None:
            raise fetcher.failure
        raise StopIteration

    @property
    def losses(self) -> Sequence[L_co]:
        return self._fetcher.losses

    def prefetch(self) -> None:
        """Send the next request, and take what has arrived, without waiting. To be called while the caller works on a
        record set."""
        self._turn(0)

    def _turn(self, longest_ms: int) -> None:
        wait_ms = self._fetcher.run_once(monotonic_ms())
        answers = self._network.poll(min(wait_ms, longest_ms))
        if self._network.failure is not None:
            raise self._network.failure
        self._fetcher.handle(answers, monotonic_ms())
        self._log_wait(monotonic_ms())

    def _log_wait(self, now_ms: int) -> None:
        """Log a wait that lasts because of the brokers."""
        wait = self._fetcher.wait(now_ms)
        if wait is not None and self._outage.is_log_due(wait.waited_ms, now_ms):
            log.warning(
                "no record of %s for %.0f s, last: %s. The task waits until %s (kafkaConsumer.pollTimeoutMs = %d ms), "
                "then it fails.",
                wait.place,
                wait.waited_ms / 1_000,
                wait.reason,
                time_of_day(wall_clock_ms() + wait.limit_ms - wait.waited_ms),
                wait.limit_ms,
            )

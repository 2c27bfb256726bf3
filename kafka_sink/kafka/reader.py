"""Reads ranges of partitions over the connections of one client.

    with lease_reader(config) as reader:
        for record_set in reader.record_sets(range_, settings):
            ...

A shell: it has connections and a clock, and no thread. The calling thread drives it; while the caller works on a record
set, the answer to the next request arrives in the socket. `consumer.fetcher` decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ConsumerConfig
from kafka_sink.kafka.connections import connect
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings
from kafka_sink.kafka.metadata import MAX_IDLE_MS, Metadata
from kafka_sink.kafka.metrics import Metrics


class Reader:
    """For one thread at a time. Connects with the first range."""

    def __init__(self, config: ConsumerConfig, cluster_id: str | None = None) -> None:
        """`cluster_id`: the cluster that must be there; None: any cluster."""
        self._config = config
        self._rng = random.Random()
        self._network = connect(config, metrics=Metrics(), rng=self._rng, cluster_id=cluster_id)
        self._metadata = Metadata(
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=MAX_IDLE_MS,
            backoff_initial_ms=config.retry_backoff_ms,
            backoff_max_ms=config.retry_backoff_max_ms,
            rng=self._rng,
            creates_topics=False,
        )
        self.used_at_ms = monotonic_ms()

    @property
    def config(self) -> ConsumerConfig:
        return self._config

    def may_go_on(self, cluster_id: str | None = None) -> bool:
        """Return True if the client may be used again, in `cluster_id` unless that is None."""
        return self._network.failure is None and cluster_id in (None, self._network.cluster_id)

    def rest(self) -> None:
        """End a use. An idle reader requests nothing."""
        self._metadata.want_nothing()

    def close(self) -> None:
        """Close the connections."""
        self._network.close()

    def fetch(self, range_: FetchRange, *, fail_on_data_loss: bool, poll_timeout_ms: int) -> Fetch:
        """Begin to read a range. `poll_timeout_ms`: how long it may wait for a record."""
        config = self._config
        settings = FetchSettings(
            isolation_level=config.isolation_level,
            max_bytes=config.fetch_bytes,
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            client_rack=config.client_rack,
            request_timeout_ms=config.request_timeout_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            no_progress_ms=poll_timeout_ms,
            fail_on_data_loss=fail_on_data_loss,
        )
        fetcher = Fetcher(
            range_,
            settings=settings,
            network=self._network,
            metadata=self._metadata,
            rng=self._rng,
            now_ms=monotonic_ms(),
        )
        return Fetch(self._network, fetcher)

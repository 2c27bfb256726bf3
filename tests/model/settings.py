"""What a model cluster is set to: brokers' own options under Kafka's names, times of the model, two generations.

Times of the model are ranges in virtual ms, both ends included, drawn from the cluster's rng each time.

Source: server.properties' defaults; KIP-966 (what min.insync.replicas means since Kafka 3.7), KIP-101 (truncation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22


@dataclass(frozen=True, slots=True)
class Generation:
    """`api_versions`: API key -> (lowest, highest). `strict_min_isr`: the high watermark waits while the ISR is below
    min.insync.replicas, and that is never more than there are replicas (KIP-966); before, it moved, and the waiting
    request was answered with NOT_ENOUGH_REPLICAS_AFTER_APPEND."""

    api_versions: Mapping[int, tuple[int, int]]
    strict_min_isr: bool


KAFKA_3_3 = Generation(
    {PRODUCE: (0, 9), METADATA: (0, 12), API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 4)}, strict_min_isr=False
)
KAFKA_4 = Generation(
    {PRODUCE: (3, 13), METADATA: (0, 13), API_VERSIONS: (0, 4), INIT_PRODUCER_ID: (0, 5)}, strict_min_isr=True
)


class Truncation(Enum):
    """What a follower of a new leader does to its log."""

    LEADER_EPOCH = auto()
    """It keeps what the leader has too (KIP-101, KIP-279)."""
    HIGH_WATERMARK = auto()
    """It drops what it does not know to be committed, as brokers did before Kafka 0.11."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    min_insync_replicas: int = 1
    max_message_bytes: int = 1_048_588


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`producer_id_expiration_ms` counts from the newest timestamp of the producer's records, as in Kafka: records
    older than that lose the producer's state at the next check.

    `replica_fetch_ms`: from one fetch of a follower to its next. `metadata_lag_ms`: from a decision of the controller
    to a broker that acts by it. `failure_detection_ms`: from a crash to the controller that acts on it.
    """

    generation: Generation = KAFKA_4
    truncation: Truncation = Truncation.LEADER_EPOCH
    unclean_leader_election: bool = False
    replica_lag_time_max_ms: int = 30_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    replica_fetch_ms: tuple[int, int] = (1, 5)
    metadata_lag_ms: tuple[int, int] = (1, 20)
    failure_detection_ms: tuple[int, int] = (200, 1_000)
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)

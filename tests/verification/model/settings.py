"""What a model cluster is set to: brokers' own options under Kafka's names, times of the model, generations.

Times of the model are ranges in virtual ms, both ends included, drawn from the cluster's rng each time.

Source: server.properties' defaults; KIP-966 (what min.insync.replicas means since Kafka 3.7), KIP-101 (truncation),
KIP-890 (transaction.version, and that leaders verify transactions since Kafka 3.6), KIP-360 (what a leader that does
not know a producer takes since Kafka 2.5), KIP-467 and KIP-511 (since 2.4), KIP-516 (topic ids since 2.8), KIP-1242
(ids in ApiVersions 5, since 4.4). The ranges are what real brokers of 2.1.1, 2.8.2, 3.0.2, 3.9.2, 4.3.1 and 4.4.0
answer to ApiVersions 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
API_VERSIONS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 18, 21, 22, 23
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
# Of services that put something before or beside the model: `Broker.serve` adds what executes them.
DELETE_GROUPS = 42
DESCRIBE_GROUPS, SASL_HANDSHAKE, CREATE_TOPICS, DESCRIBE_CONFIGS, SASL_AUTHENTICATE = 15, 17, 19, 32, 36
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66

# Of all keys above: FETCH is Fetch, LIST_OFFSETS ListOffsets.
API_NAMES = {key: name.title().replace("_", "") for name, key in list(globals().items()) if name.isupper()}


@dataclass(frozen=True, slots=True)
class Generation:
    """`api_versions`: API key -> (lowest, highest), as far as the model speaks them: AddPartitionsToTxn only in its
    clients' form (up to 3), both offset APIs only with names (up to 9), and what kio has no classes for is left out, as
    are the first versions of Fetch and ListOffsets, which no reader of record batches uses.

    `strict_min_isr`: the high watermark waits while the ISR is below min.insync.replicas, and that is never more than
    there are replicas (KIP-966); before, it moved, and the waiting request was answered with
    NOT_ENOUGH_REPLICAS_AFTER_APPEND. `verifies_transactions`: a leader asks the coordinator whether a partition is in
    its producer's transaction before the first batch (KIP-890); before, it believed every producer.
    `transaction_version`: the level of the finalized feature, None where brokers know no such feature. 2 makes
    coordinators bump the epoch of a transaction that they end by themselves. `new_group_coordinator`: KIP-848's, which
    tells a group that it does not know from one without that member. `has_topic_ids`: Metadata names topics' ids.
    `takes_unknown_producers`: a leader without state of a producer takes any first sequence (KIP-360); before, only 0.
    `names_its_versions`: the answer to a version of ApiVersions that is too new has the range to choose from.
    `stable_offset_is_of_batch`: where the log starts inside of a batch of an open transaction, the last stable offset
    is that batch's first one, so before the log's start.
    `tells_offset_epochs`: ListOffsets 4 has the leader epoch of an offset. `tells_absent_aborted`: Fetch has an empty
    list of aborted transactions for a partition that is not there; before, none. `fetches_absent_as_zstd`: Fetch below
    10 answers for what is not there as for a topic whose codec these versions lack.
    `has_invalid_record`: leaders refuse records with INVALID_RECORD (KIP-467); before, with CORRUPT_MESSAGE."""

    api_versions: Mapping[int, tuple[int, int]]
    strict_min_isr: bool
    verifies_transactions: bool
    transaction_version: int | None
    new_group_coordinator: bool
    has_topic_ids: bool = True
    takes_unknown_producers: bool = True
    names_its_versions: bool = True
    has_invalid_record: bool = True
    stable_offset_is_of_batch: bool = False
    tells_offset_epochs: bool = True
    tells_absent_aborted: bool = True
    fetches_absent_as_zstd: bool = False

    @property
    def describes_transactions(self) -> bool:
        """KIP-664. Exactly-once needs it."""
        return DESCRIBE_TRANSACTIONS in self.api_versions


_KAFKA_2_1_APIS = {
    FETCH: (4, 10), LIST_OFFSETS: (4, 4), OFFSET_FOR_LEADER_EPOCH: (2, 2), DELETE_RECORDS: (0, 1),
    PRODUCE: (0, 7), METADATA: (0, 7), OFFSET_COMMIT: (2, 6), OFFSET_FETCH: (1, 5), FIND_COORDINATOR: (0, 2),
    API_VERSIONS: (0, 2), INIT_PRODUCER_ID: (0, 1), ADD_PARTITIONS_TO_TXN: (0, 1), ADD_OFFSETS_TO_TXN: (0, 1),
    END_TXN: (0, 1), TXN_OFFSET_COMMIT: (0, 2),
}  # fmt: skip
_KAFKA_2_8_APIS = _KAFKA_2_1_APIS | {
    FETCH: (4, 12), LIST_OFFSETS: (4, 6), OFFSET_FOR_LEADER_EPOCH: (2, 4), DELETE_RECORDS: (0, 2),
    PRODUCE: (0, 9), METADATA: (0, 11), OFFSET_COMMIT: (2, 8), OFFSET_FETCH: (1, 7), FIND_COORDINATOR: (0, 3),
    API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 4), ADD_PARTITIONS_TO_TXN: (0, 3), ADD_OFFSETS_TO_TXN: (0, 3),
    END_TXN: (0, 3), WRITE_TXN_MARKERS: (1, 1), TXN_OFFSET_COMMIT: (0, 3), DESCRIBE_PRODUCERS: (0, 0),
}  # fmt: skip
_KAFKA_3_0_APIS = _KAFKA_2_8_APIS | {
    LIST_OFFSETS: (4, 7), OFFSET_FETCH: (1, 8), FIND_COORDINATOR: (0, 4), DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 0),
}  # fmt: skip
_KAFKA_3_3_APIS = _KAFKA_3_0_APIS | {FETCH: (4, 13), METADATA: (0, 12)}
_KAFKA_3_9_APIS = _KAFKA_3_3_APIS | {
    FETCH: (4, 17), LIST_OFFSETS: (4, 9),
    PRODUCE: (0, 11), OFFSET_COMMIT: (2, 9), OFFSET_FETCH: (1, 9), FIND_COORDINATOR: (0, 6), API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 5), ADD_OFFSETS_TO_TXN: (0, 4), END_TXN: (0, 4), TXN_OFFSET_COMMIT: (0, 4),
    LIST_TRANSACTIONS: (0, 1),
}  # fmt: skip
_KAFKA_4_APIS = _KAFKA_3_9_APIS | {
    FETCH: (4, 18), LIST_OFFSETS: (4, 11),
    PRODUCE: (3, 13), METADATA: (0, 13), END_TXN: (0, 5), WRITE_TXN_MARKERS: (1, 2), TXN_OFFSET_COMMIT: (0, 5),
    LIST_TRANSACTIONS: (0, 2),
}  # fmt: skip

KAFKA_2_8 = Generation(
    _KAFKA_2_8_APIS, strict_min_isr=False, verifies_transactions=False, transaction_version=None,
    new_group_coordinator=False, tells_absent_aborted=False,
)  # fmt: skip
KAFKA_2_1 = replace(
    KAFKA_2_8, api_versions=_KAFKA_2_1_APIS, has_topic_ids=False, takes_unknown_producers=False,
    names_its_versions=False, has_invalid_record=False, tells_offset_epochs=False, fetches_absent_as_zstd=True,
)  # fmt: skip
KAFKA_3_0 = replace(KAFKA_2_8, api_versions=_KAFKA_3_0_APIS, tells_absent_aborted=True)
KAFKA_3_3 = replace(KAFKA_3_0, api_versions=_KAFKA_3_3_APIS)
KAFKA_3_9 = Generation(
    _KAFKA_3_9_APIS, strict_min_isr=True, verifies_transactions=True, transaction_version=None,
    new_group_coordinator=False,
)  # fmt: skip
KAFKA_4 = Generation(
    _KAFKA_4_APIS, strict_min_isr=True, verifies_transactions=True, transaction_version=2, new_group_coordinator=True,
    stable_offset_is_of_batch=True,
)  # fmt: skip
KAFKA_4_4 = replace(KAFKA_4, api_versions=_KAFKA_4_APIS | {API_VERSIONS: (0, 5)})

RELEASES: Mapping[str, Generation] = {
    "2.1.1": KAFKA_2_1, "2.8.2": KAFKA_2_8, "3.0.2": KAFKA_3_0, "3.3": KAFKA_3_3, "3.9.2": KAFKA_3_9,
    "4.3.1": KAFKA_4, "4.4.0": KAFKA_4_4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicSettings:
    min_insync_replicas: int = 1
    max_message_bytes: int = 1_048_588
    index_interval_bytes: int = 4_096


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`replica_fetch_ms`: from one fetch of a follower to its next. `metadata_lag_ms`: from a decision of the
    controller to a broker that acts by it. `failure_detection_ms`: from a crash to the controller that acts on it.

    `racks`: of the brokers. With racks, a leader sends readers of another rack to a replica of theirs (KIP-392).

    `addresses`: host and port of a broker in answers, for one that clients reach by a socket. `started_ms`: the time at
    the start, for clients that compare it with theirs.

    `taken_producer_ids`: so many ids were given to other writers before. The others have written whatever a batch under
    one of these ids begins, so every such batch is a duplicate to its leader."""

    cluster_id: str = "model"
    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)
    started_ms: int = 0
    taken_producer_ids: int = 0

    generation: Generation = KAFKA_4
    unclean_leader_election: bool = False
    replica_lag_time_max_ms: int = 30_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    replica_fetch_ms: tuple[int, int] = (1, 5)
    metadata_lag_ms: tuple[int, int] = (1, 20)
    failure_detection_ms: tuple[int, int] = (200, 1_000)
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    transaction_max_timeout_ms: int = 900_000
    transaction_abort_timed_out_cleanup_interval_ms: int = 10_000

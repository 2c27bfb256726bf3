"""What services offer to clients, as their documents say it, or the logs of users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from kio.schema.errors import ErrorCode

from model.settings import API_NAMES

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
    before it is read. `codecs`: by the number in a batch; the code of a batch with
    another one is `codec_refusal`. `max_message_bytes`: a topic's default. `idle_ms`: the connection is closed after
    that time without a request. `sources`: what a fact is from, with the date of the document.
    """

    name: str
    api_versions: Mapping[int, tuple[int, int]]
    too_new: TooNew
    max_request_bytes: int
    sources: Mapping[str, str]
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


_RANGES_2024 = "https://github.com/oliveigah/klife/issues/13 (a namespace's answer to ApiVersions, 2024-11-20)"
_RANGES_2022 = "https://github.com/Azure/azure-event-hubs-for-kafka/issues/209 (log of Java's client, 2022-09-23)"
_RANGES_2019 = "https://github.com/Azure/azure-event-hubs-for-kafka/issues/69 (log of Java's client, 2019)"
_CONFIGURATIONS = "https://learn.microsoft.com/azure/event-hubs/apache-kafka-configurations (read in a copy of 2025)"
_TRANSACTIONS = "https://learn.microsoft.com/azure/event-hubs/apache-kafka-transactions (read in a copy of 2025)"
_ASSUMED = "no document: the narrowest range that a client of Kafka 1.0 needs"

# Logs disagree on the lowest Produce: 0 in 2024, 3 in 2019. Batches of version 2 need 3, and it is the stricter one.
EVENT_HUBS_STANDARD = Service(
    name="Azure Event Hubs, Standard",
    api_versions=offered(
        "Produce 3-7, Fetch 4-6, Metadata 0-5, OffsetCommit 0-8, OffsetFetch 0-8, FindCoordinator 0-4, "
        "DescribeGroups 0-1, SaslHandshake 0-1, ApiVersions 0-3, CreateTopics 0-2, InitProducerId 0-1, "
        "DescribeConfigs 0-2, SaslAuthenticate 0-1, DeleteGroups 0-0"
    ),
    too_new=TooNew.HANG_UP,
    max_request_bytes=1_046_527,
    codecs=frozenset({NO_CODEC}),
    codec_refusal=ErrorCode.unsupported_for_message_format,
    idle_ms=240_000,
    username="$ConnectionString",
    sources={
        "Produce to 7, Metadata to 5, OffsetCommit and OffsetFetch to 8, FindCoordinator to 4": _RANGES_2024,
        "DescribeConfigs to 2, SaslAuthenticate to 1, DeleteGroups 0, no transactions": _RANGES_2022,
        "CreateTopics to 2, DescribeGroups to 1, Produce from 3": _RANGES_2019,
        "ApiVersions to 3; the connection of a version 4 is reset":
            "https://github.com/twmb/franz-go/pull/1022 (2025-05-16)",
        "SaslHandshake 1": "https://github.com/Azure/azure-event-hubs-for-kafka/issues/48 (2019)",
        "producers are idempotent": "https://github.com/Azure/azure-event-hubs-for-kafka/pull/140 (2021-03-10)",
        "InitProducerId to 1": _ASSUMED,
        "no codec in Standard": "https://github.com/MicrosoftDocs/azure-docs/pull/123980 (2024-08-05)",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT for a codec": "https://github.com/twmb/franz-go/issues/144 (2022-03-13)",
        "connections close at requests of 1,046,528 bytes, and after 240 s without one": _CONFIGURATIONS,
        "$ConnectionString": "https://github.com/Azure/azure-event-hubs-for-kafka (read in a copy of 2025)",
    },
)  # fmt: skip

EVENT_HUBS_PREMIUM = replace(
    EVENT_HUBS_STANDARD,
    name="Azure Event Hubs, Premium",
    api_versions={
        **EVENT_HUBS_STANDARD.api_versions,
        **offered("InitProducerId 0-4, AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-3, EndTxn 0-3, TxnOffsetCommit 0-3"),
    },
    codecs=frozenset({NO_CODEC, GZIP}),
    sources={
        **EVENT_HUBS_STANDARD.sources,
        "gzip in Premium and Dedicated": EVENT_HUBS_STANDARD.sources["no codec in Standard"],
        "transactions, as a preview": _TRANSACTIONS,
        "InitProducerId to 4, the APIs of transactions to 3": "no document: those of Kafka 3.3",
    },
)  # fmt: skip

_SOURCE = "https://github.com/redpanda-data/redpanda/blob/1c6cff34ea8b4b65db02eb603d21dfef59c0f61c/src/v"

REDPANDA = Service(
    name="Redpanda",
    api_versions=offered(
        "Produce 0-7, Fetch 4-11, Metadata 0-8, OffsetCommit 1-8, OffsetFetch 1-7, FindCoordinator 0-3, "
        "DescribeGroups 0-5, SaslHandshake 0-1, ApiVersions 0-3, CreateTopics 0-6, InitProducerId 0-3, "
        "AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-1, EndTxn 0-3, TxnOffsetCommit 0-3, DescribeConfigs 0-4, "
        "SaslAuthenticate 0-2, DeleteGroups 0-2, DescribeProducers 0-0, DescribeTransactions 0-0, ListTransactions "
        "0-0"
    ),
    too_new=TooNew.EVERY_RANGE,
    max_request_bytes=100 * 1024 * 1024,
    max_message_bytes=1024 * 1024,
    cluster_id="redpanda.6b1f6f1e-0000-4000-8000-000000000000",
    sources={
        "ranges, and no WriteTxnMarkers": f"{_SOURCE}/kafka/server/handlers (2024-12-20)",
        "Produce to 7 still in 2026": "https://github.com/redpanda-data/redpanda/pull/31246 (open, 2026-07-23)",
        "a version outside of the range, and an unknown API, close the connection":
            f"{_SOURCE}/kafka/server/requests.cc (2024-12-20)",
        "ApiVersions above 3: UNSUPPORTED_VERSION in version 0, with all ranges":
            f"{_SOURCE}/kafka/server/handlers/api_versions.cc (2024-12-20)",
        "the cluster id begins with redpanda.": f"{_SOURCE}/kafka/server/handlers/metadata.cc (2024-12-20)",
        "kafka_request_max_bytes of 100 MiB, kafka_batch_max_bytes of 1 MiB":
            f"{_SOURCE}/config/configuration.cc (2024-12-20)",
    },
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
    too_new=TooNew.OWN_RANGE,
    max_request_bytes=32 * 1024 * 1024,
    sources={
        "which APIs; neither DescribeProducers nor WriteTxnMarkers":
            "https://docs.warpstream.com/warpstream/reference/protocol-and-feature-support (read in a copy of 2025)",
        "ranges": "no document: those of Kafka 3.9",
        "requests of 32 MiB at most (Serverless)":
            "https://docs.warpstream.com/warpstream/reference/serverless-clusters (read in a copy of 2025)",
    },
)  # fmt: skip

"""Azure Event Hubs. Its ranges are in no document: users' logs show them."""

from __future__ import annotations

from dataclasses import replace

from kio.schema.errors import ErrorCode

from kafka_services.service import FETCH, GZIP, NO_CODEC, Service, TooNew
from model.settings import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TXN_OFFSET_COMMIT,
)

_RANGES_2024 = "https://github.com/oliveigah/klife/issues/13 (a namespace's answer to ApiVersions, 2024-11-20)"
_RANGES_2022 = "https://github.com/Azure/azure-event-hubs-for-kafka/issues/209 (log of Java's client, 2022-09-23)"
_RANGES_2019 = "https://github.com/Azure/azure-event-hubs-for-kafka/issues/69 (log of Java's client, 2019)"
_CONFIGURATIONS = "https://learn.microsoft.com/azure/event-hubs/apache-kafka-configurations (read in a copy of 2025)"
_TRANSACTIONS = "https://learn.microsoft.com/azure/event-hubs/apache-kafka-transactions (read in a copy of 2025)"
_ASSUMED = "no document: the narrowest range that a client of Kafka 1.0 needs"

# Logs disagree on the lowest Produce: 0 in 2024, 3 in 2019. Batches of version 2 need 3, and it is the stricter one.
EVENT_HUBS_STANDARD = Service(
    name="Azure Event Hubs, Standard",
    api_versions={
        PRODUCE: (3, 7), FETCH: (4, 6), METADATA: (0, 5), OFFSET_COMMIT: (0, 8), OFFSET_FETCH: (0, 8),
        FIND_COORDINATOR: (0, 4), DESCRIBE_GROUPS: (0, 1),
        SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 3), CREATE_TOPICS: (0, 2), INIT_PRODUCER_ID: (0, 1),
        DESCRIBE_CONFIGS: (0, 2), SASL_AUTHENTICATE: (0, 1), DELETE_GROUPS: (0, 0),
    },
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
        **EVENT_HUBS_STANDARD.api_versions, INIT_PRODUCER_ID: (0, 4), ADD_PARTITIONS_TO_TXN: (0, 3),
        ADD_OFFSETS_TO_TXN: (0, 3), END_TXN: (0, 3), TXN_OFFSET_COMMIT: (0, 3),
    },
    codecs=frozenset({NO_CODEC, GZIP}),
    sources={
        **EVENT_HUBS_STANDARD.sources,
        "gzip in Premium and Dedicated": EVENT_HUBS_STANDARD.sources["no codec in Standard"],
        "transactions, as a preview": _TRANSACTIONS,
        "InitProducerId to 4, the APIs of transactions to 3": "no document: those of Kafka 3.3",
    },
)  # fmt: skip

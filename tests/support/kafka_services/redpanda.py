"""Redpanda, whose ranges are in its source."""

from __future__ import annotations

from kafka_services.service import FETCH, Service, TooNew
from model.settings import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TXN_OFFSET_COMMIT,
)

_SOURCE = "https://github.com/redpanda-data/redpanda/blob/1c6cff34ea8b4b65db02eb603d21dfef59c0f61c/src/v"

REDPANDA = Service(
    name="Redpanda",
    api_versions={
        PRODUCE: (0, 7), FETCH: (4, 11), METADATA: (0, 8), OFFSET_COMMIT: (1, 8), OFFSET_FETCH: (1, 7),
        FIND_COORDINATOR: (0, 3), DESCRIBE_GROUPS: (0, 5),
        SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 3), CREATE_TOPICS: (0, 6), INIT_PRODUCER_ID: (0, 3),
        ADD_PARTITIONS_TO_TXN: (0, 3), ADD_OFFSETS_TO_TXN: (0, 1), END_TXN: (0, 3), TXN_OFFSET_COMMIT: (0, 3),
        DESCRIBE_CONFIGS: (0, 4), SASL_AUTHENTICATE: (0, 2), DELETE_GROUPS: (0, 2), DESCRIBE_PRODUCERS: (0, 0),
        DESCRIBE_TRANSACTIONS: (0, 0), LIST_TRANSACTIONS: (0, 0),
    },
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

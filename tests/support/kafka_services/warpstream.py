"""WarpStream. Its documents name the APIs, and no ranges."""

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
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

WARPSTREAM = Service(
    name="WarpStream",
    api_versions={
        PRODUCE: (0, 11), FETCH: (4, 17), METADATA: (0, 12), OFFSET_COMMIT: (2, 9), OFFSET_FETCH: (1, 9),
        FIND_COORDINATOR: (0, 6), DESCRIBE_GROUPS: (0, 5),
        API_VERSIONS: (0, 4), CREATE_TOPICS: (2, 7), INIT_PRODUCER_ID: (0, 5), ADD_PARTITIONS_TO_TXN: (0, 3),
        ADD_OFFSETS_TO_TXN: (0, 4), END_TXN: (0, 4), TXN_OFFSET_COMMIT: (0, 4), DESCRIBE_CONFIGS: (1, 4),
        DELETE_GROUPS: (0, 2), DESCRIBE_TRANSACTIONS: (0, 0), LIST_TRANSACTIONS: (0, 1),
    },
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

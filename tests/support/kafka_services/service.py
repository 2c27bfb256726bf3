"""What services offer to clients, as their documents say it, or the logs of users: docs/compatibility.md names them."""

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
    that time without a request.
    """

    name: str
    api_versions: Mapping[int, tuple[int, int]]
    too_new: TooNew
    max_request_bytes: int
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
)  # fmt: skip

EVENT_HUBS_PREMIUM = replace(
    EVENT_HUBS_STANDARD,
    name="Azure Event Hubs, Premium",
    api_versions={
        **EVENT_HUBS_STANDARD.api_versions,
        **offered("InitProducerId 0-4, AddPartitionsToTxn 0-3, AddOffsetsToTxn 0-3, EndTxn 0-3, TxnOffsetCommit 0-3"),
    },
    codecs=frozenset({NO_CODEC, GZIP}),
)  # fmt: skip

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
)  # fmt: skip

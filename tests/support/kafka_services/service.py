"""What a service offers to clients, as its documents say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kio.schema.errors import ErrorCode

# The model does not execute it: doubles list it, as librdkafka writes no batch of version 2 without it, and hang up.
FETCH = 1
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

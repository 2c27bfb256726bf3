"""Chooses by a seed what a bad network does to each message between a client and a broker. Pure.

A message is a request or an answer of Kafka's protocol, with its length in front. Its fate is drawn separately
for each direction of each connection, so that one connection's traffic does not change another's fates.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

LONGEST_DELAY_S = 0.5


class Direction(enum.StrEnum):
    REQUEST = "request"
    ANSWER = "answer"


class Kind(enum.StrEnum):
    DELAYED = "delayed"
    """It, and with it all that comes after it on the connection, arrives later."""
    CUT = "cut off"
    """The connection is reset in its place. An answer's request was carried out."""
    HALF = "half sent"
    """Some of its bytes arrive, then the connection is reset."""
    SWALLOWED = "swallowed"
    """Neither it nor what comes after it arrives, and nobody is told: the connection stays open."""


@dataclass(frozen=True, slots=True)
class Fate:
    """`part`: of the time or of the bytes, in [0, 1)."""

    kind: Kind | None
    part: float = 0.0

    @property
    def delay_s(self) -> float:
        return LONGEST_DELAY_S * self.part

    def first_bytes(self, message: bytes) -> bytes:
        """What arrives of a message that is half sent: at least a byte, never all."""
        return message[: 1 + int(self.part * (len(message) - 1))]


UNHARMED = Fate(None)


@dataclass(frozen=True, slots=True)
class Schedule:
    """`per_thousand`: of the messages in a direction, how many meet what."""

    seed: int = 0
    per_thousand: Mapping[tuple[Direction, Kind], int] = field(default_factory=dict)

    def fates(self, connection: str, direction: Direction) -> Iterator[Fate]:
        """Of the messages of a connection in that direction, in their order; without end."""
        rng = random.Random(f"{self.seed} {connection} {direction}")
        kinds = [
            kind for (towards, kind), share in self.per_thousand.items() if towards is direction for _ in range(share)
        ]
        while True:
            drawn, part = rng.randrange(1000), rng.random()
            yield Fate(kinds[drawn], part) if drawn < len(kinds) else UNHARMED

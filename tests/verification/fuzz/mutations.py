"""Random damage to valid bytes, which the tests decode where no fuzzer is installed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

# Lengths that are read before what they are of: nothing, one more than there is, null, and far too many.
_LENGTHS = (
    b"\0", b"\x01", b"\x7f", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff\xff",
    b"9" * 40,
)  # fmt: skip


def damaged(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 4)):
        rng.choice(_CHANGES)(data, rng, seeds)
    return bytes(data)


def _flip(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at : at + rng.randint(0, 8)] = rng.choice(_LENGTHS)


def _cut(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    del data[rng.randint(0, len(data)) :]


def _repeat(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = data[at : at + rng.randint(1, 40)] * rng.randint(1, 20)


def _splice(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    data[rng.randint(0, len(data)) :] = other[rng.randint(0, len(other)) :]


_CHANGES: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (
    _flip, _replace, _cut, _repeat, _splice,
)  # fmt: skip

"""The inputs of kept.txt: each was a fault once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kept:
    decoder: str
    data: bytes
    why: str


def kept_inputs() -> Iterator[Kept]:
    """In the file's order: decoder, input in hexadecimal, what happened; two blanks between them."""
    for line in Path(__file__).with_name("kept.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            decoder, data, why = line.split("  ", 2)
            yield Kept(decoder, bytes.fromhex(data), why)

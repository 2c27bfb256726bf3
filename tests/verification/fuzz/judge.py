"""A decoder must understand or refuse any input, quickly, with little memory, and with a short, plain error text.

Everything else is a fault. An exception that is not in the decoder's row is raised as it is, other faults as `Fault`.
Beside it: the inputs of kept.txt, each of which was a fault once; random damage to valid bytes, which the tests decode
where no fuzzer is installed; and the lines of the decoders that inputs reach.
"""

import contextlib
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from fuzz.decoders import Decoder
from kafka_sink.commit import markers
from kafka_sink.kafka.protocol import connection, message_reader, sasl

# Of the processor, not of the clock: the machine may be busy. An input of 8 KiB takes some milliseconds.
MOST_SECONDS = 0.5
# An error's words are for a log, and a peer can make them up.
MOST_CHARACTERS = 2_000
# What is held while an input is understood. A batch of gzip takes most: 36 KiB for tables of batches; of zlib's 7 KiB
# of state, 32 KiB of window and 16 KiB of output; and twice the 8 KiB that a batch may have here. So 107 KiB.
MOST_BYTES = 128 * 1024
# An object of Python's takes 20 to 60 bytes, a name in a dict as many. The smallest element of an array takes 1 byte on
# the wire, the smallest of a kind that is made a dict 6.
MOST_BYTES_A_BYTE = 100


class Fault(Exception):
    """What was seen of an input that was decoded, and should not have been."""


def judge(decoder: Decoder, data: bytes) -> str:
    """What became of `data`: `understood`, or the name of the error."""
    begun_s = time.process_time()
    outcome = _outcome(decoder, data)
    took_s = time.process_time() - begun_s
    if took_s > MOST_SECONDS:
        raise Fault(f"{took_s:.2f} s for {len(data)} bytes")
    return outcome


def _outcome(decoder: Decoder, data: bytes) -> str:
    try:
        decoder.decode(data)
    except decoder.errors as error:
        words = str(error)
        if len(words) > MOST_CHARACTERS:
            raise Fault(f"{len(words)} characters of error message, which begin with {words[:80]!r}") from error
        if not words.isprintable():
            raise Fault(f"an error message that a peer can put lines into a log with: {words!r}") from error
        return type(error).__name__
    return "understood"


def peak_bytes(decoder: Decoder, data: bytes) -> int:
    """The most memory held at a time while `data` is decoded. Raises Fault where that is too much for so few bytes.

    The least of three looks, as what other threads allocate meanwhile is counted too."""
    # What is made once, at the first input of its kind.
    _outcome(decoder, data)
    peak = min(_traced_peak(decoder, data) for _ in range(3))
    if peak > MOST_BYTES + MOST_BYTES_A_BYTE * len(data):
        raise Fault(f"{peak} bytes of memory for {len(data)} bytes")
    return peak


def _traced_peak(decoder: Decoder, data: bytes) -> int:
    tracemalloc.start()
    try:
        _outcome(decoder, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak


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


# Those that do nothing but take a peer's bytes; others write requests as well.
MODULES: tuple[ModuleType, ...] = (connection, markers, message_reader, sasl)


@dataclass
class Lines:
    """By module: the lines in functions, and those of them that ran while `counting`."""

    there: dict[str, set[int]] = field(default_factory=dict)
    reached: dict[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for module in MODULES:
            path = Path(str(module.__file__))
            code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
            self.there[str(path)] = set(_lines_of_functions(code))
            self.reached[str(path)] = set()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        # Of who measures the coverage of the tests, for one.
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._on_line if frame.f_code.co_filename in self.reached else None

    def _on_line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.reached[frame.f_code.co_filename].add(frame.f_lineno)
        return self._on_line

    @property
    def counts(self) -> tuple[int, int]:
        both = [(self.reached[path] & there, there) for path, there in self.there.items()]
        return sum(len(reached) for reached, _ in both), sum(len(there) for _, there in both)

    def missed(self) -> Iterator[tuple[str, list[int]]]:
        for path, there in self.there.items():
            if lines := sorted(there - self.reached[path]):
                yield Path(path).name, lines


def _lines_of_functions(code: CodeType) -> Iterable[int]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            # The first line is the one that defines it; a class has no other of its own.
            if constant.co_flags & 0x02:  # CO_NEWLOCALS: a function
                yield from {line for *_, line in constant.co_lines() if line and line != constant.co_firstlineno}
            yield from _lines_of_functions(constant)

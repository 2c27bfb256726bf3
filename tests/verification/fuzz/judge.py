"""A decoder must understand or refuse any input, quickly, with little memory, and with a short, plain error text.

Everything else is a fault. An exception that is not in the decoder's row is raised as it is, other faults as `Fault`.
"""

from __future__ import annotations

import time
import tracemalloc

from fuzz.decoders import Decoder

# Of the processor, not of the clock: the machine may be busy. An input of 8 KiB takes some milliseconds.
MOST_SECONDS = 0.5
# An error's words are for a log, and a peer can make them up.
MOST_CHARACTERS = 2_000
# What is held while an input is understood. An object of Python's takes 20 to 60 bytes, a name in a dict as many, and
# the smallest element of an array takes 1 byte on the wire, the smallest of a kind that is made a dict 6.
MOST_BYTES = 64 * 1024
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

    The least of three looks, as what other threads allocate meanwhile is counted too.
    """
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

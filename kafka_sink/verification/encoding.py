"""Encodes records again, one by one, for the checksum of a run in a receipt.

Scope: DefaultRecord of KIP-98. It uses nothing of `kafka_sink.records`, because the encoder that wrote the records must
not check them. Plain Python for each record (5 us each), because speed does not matter here.

    length | attributes 0 | timestamp delta | offset delta | key | value | count of headers | (key | value)*

All numbers are zigzag varints. Keys and values, also those of headers, follow their length, which is -1 for null.

Source: org.apache.kafka.common.record.DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

Headers = Iterable[tuple[str, bytes | None]]


class RunChecksum:
    """CRC-32C of a run's records section, over the records added so far. `base_timestamp`: the run's, in ms."""

    __slots__ = ("_base_timestamp", "count", "crc")

    def __init__(self, base_timestamp: int) -> None:
        self._base_timestamp = base_timestamp
        self.count = 0
        self.crc = 0

    def add(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> None:
        """Add the next record."""
        body = bytearray(b"\0")
        body += varint(timestamp_ms - self._base_timestamp) + varint(self.count)
        _put(body, key)
        _put(body, value)
        entries = tuple(headers)
        body += varint(len(entries))
        for name, content in entries:
            _put(body, name.encode())
            _put(body, content)
        self.crc = crc32c(bytes(body), crc32c(varint(len(body)), self.crc))
        self.count += 1


def varint(number: int) -> bytes:
    """Return the zigzag varint: seven bits in each byte, the lowest first. `number`: at most 64 bits."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _put(body: bytearray, part: bytes | None) -> None:
    if part is None:
        body += varint(-1)
    else:
        body += varint(len(part))
        body += part

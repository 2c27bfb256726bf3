"""What the pages of a Parquet column inflate to, as their headers say.

Arrow allocates so much for a page, whatever the file's footer says of its column.

Source: parquet.thrift of apache/parquet-format (PageHeader); Thrift's compact protocol.
"""

from __future__ import annotations

# Arrow's own limit is 16 MiB. That of a receipt is some 100 bytes long.
MOST_HEADER_BYTES = 64 * 1024
# A page has up to 20,000 rows.
MOST_PAGES = 100_000
_MOST_DEPTH = 8

# Types of Thrift, and fields of a page header.
_STOP, _I32 = 0, 5
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3


def inflated_bytes(column_chunk: memoryview) -> int:
    """Return the sum of the uncompressed sizes of all pages. Raises ValueError if they cannot be read."""
    inflated = at = 0
    for _ in range(MOST_PAGES):
        if at >= len(column_chunk):
            return inflated
        header = _Header(column_chunk[at : at + MOST_HEADER_BYTES])
        sizes = header.sizes()
        inflated += sizes[_UNCOMPRESSED_SIZE]
        at += header.at + sizes[_COMPRESSED_SIZE]
    raise ValueError("too many pages")


class _Header:
    """Reads one page header. `at`: how many bytes were read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def sizes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        try:
            self._struct(found, 0)
        except IndexError:
            raise ValueError("a page header without an end") from None
        if found.keys() != {_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE} or min(found.values()) < 0:
            raise ValueError("a page header without its sizes")
        return found

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _struct(self, sizes: dict[int, int], depth: int) -> None:
        """Read a struct, and put its sizes into `sizes`."""
        if depth > _MOST_DEPTH:
            raise ValueError("a page header that is nested too deep")
        number = 0
        while (kind := self._byte()) & 0x0F != _STOP:
            number = number + (kind >> 4) if kind >> 4 else self._zigzag()
            if kind & 0x0F == _I32 and number in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE):
                sizes[number] = self._zigzag()
            else:
                self._skip(kind & 0x0F, depth)

    def _skip(self, kind: int, depth: int) -> None:
        match kind:
            case 1 | 2:  # true, false: the value is the type
                pass
            case 3:  # i8
                self.at += 1
            case 4 | 5 | 6:  # i16, i32, i64
                self._varint()
            case 7:  # double
                self.at += 8
            case 8:  # binary
                length = self._varint()
                self.at += length
            case 12:  # struct
                self._struct({}, depth + 1)
            case _:
                raise ValueError("a page header with a list")

"""CRC-32C, where the compiled kernel does not compute it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


def crc32c(data: Buffer) -> int:
    """Return the checksum of `data`."""
    # The package imports argparse and importlib.metadata, which is 20 ms that most processes never need.
    import crc32c as library

    return library.crc32c(data)

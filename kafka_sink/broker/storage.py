"""Clear errors for failed writes to the disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_sink.broker.errors import DirectoryUnusable, DiskFull
from kafka_sink.errors.exhaustion import is_exhaustion

# Java's messages for ENOSPC and EDQUOT (strerror of the C library, untranslated in practice), and for SIGBUS: a page
# of a mapped file (Kafka's indexes) finds no space on the disk.
_FULL = ("No space left on device", "Disk quota exceeded", "unsafe memory access operation")


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Convert an OSError of the block to DiskFull or DirectoryUnusable, which name the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(directory=str(directory)) from error
        if is_exhaustion(error.errno):
            # Another folder would not help.
            raise
        raise DirectoryUnusable(directory=str(directory), reason=error.strerror or str(error)) from error


def tells_of_full_disk(output: str) -> bool:
    """Return True if `output` of a Java program shows that the disk is full."""
    return any(text in output for text in _FULL)

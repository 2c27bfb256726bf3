"""Isolation levels: whether a reader gets the records of open and of aborted transactions (KIP-98).

Source: org.apache.kafka.common.IsolationLevel.
"""

from __future__ import annotations

from enum import IntEnum


class IsolationLevel(IntEnum):
    """`READ_UNCOMMITTED` reads to the high watermark. `READ_COMMITTED` reads to the last stable offset, which is before
    the first open transaction, and leaves out aborted ones."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

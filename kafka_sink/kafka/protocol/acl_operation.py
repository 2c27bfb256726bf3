"""The operations that a principal may perform on a topic or group: one bit per operation code (KIP-430)."""

from __future__ import annotations

import enum

NOT_TOLD = -(2**31)


class AclOperation(enum.IntEnum):
    """The operations that this project asks for, with Kafka's names and codes."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8


def allows(authorized_operations: int, operation: AclOperation) -> bool | None:
    """Return True if the operation is allowed, or None if the broker did not report it."""
    return None if authorized_operations == NOT_TOLD else bool(authorized_operations >> operation & 1)

"""What a principal may do with a topic or a group, as brokers tell it: bits by codes of operations (KIP-430)."""

from __future__ import annotations

import enum

NOT_TOLD = -(2**31)


class AclOperation(enum.IntEnum):
    """Kafka's spelling and codes of those that are asked for here."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8


def allows(authorized_operations: int, operation: AclOperation) -> bool | None:
    """None where the broker did not tell."""
    return None if authorized_operations == NOT_TOLD else bool(authorized_operations >> operation & 1)

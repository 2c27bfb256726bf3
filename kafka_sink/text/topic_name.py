"""What a Kafka topic may be called, and how to show what may not.

Source: org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import re

LONGEST = 249
_LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{LONGEST}}}")
# Of UTF-8.
_CHARACTER_BYTES = 4


def is_topic_name(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def shown(name: bytes) -> str:
    """The first characters of what stands where a name should; what is not UTF-8 becomes escapes (`\\xfd`)."""
    return name[: LONGEST * _CHARACTER_BYTES].decode("utf-8", "backslashreplace")[:LONGEST]

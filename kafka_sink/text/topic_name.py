"""The legal names of Kafka topics, and how to show an illegal name.

Source: org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import re

LONGEST = 249
_LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{LONGEST}}}")
# The most bytes of a character in UTF-8.
_CHARACTER_BYTES = 4


def is_topic_name(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def shown(name: bytes) -> str:
    """Return the first characters of an alleged name. Bytes that are not UTF-8 become escapes (`\\xfd`)."""
    return name[: LONGEST * _CHARACTER_BYTES].decode("utf-8", "backslashreplace")[:LONGEST]

"""The offsets of a Kafka source as Spark writes them: {"topic": {"partition": offset}}.

Source: org.apache.spark.sql.kafka010.JsonUtils.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

# By topic and partition.
Offsets: TypeAlias = Mapping[str, Mapping[int, int]]


def kafka_offsets(text: str) -> Offsets | None:
    """Return the offsets, or None if they are those of another source."""
    said = _parsed(text)
    if not isinstance(said, dict) or not said:
        return None
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in said.items():
        if not isinstance(partitions, dict) or not all(map(_is_offset, partitions.items())):
            return None
        found[topic] = {int(partition): offset for partition, offset in partitions.items()}
    return found


def _is_offset(of_partition: tuple[Any, Any]) -> bool:
    partition, offset = of_partition
    return isinstance(partition, str) and partition.isascii() and partition.isdigit() and type(offset) is int


def _parsed(text: str) -> Any:
    """Parse JSON, or the text of a Python dict, which pyspark 4.1 returns with Spark Connect."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None

"""Counts the rows of a slot: their number, their fingerprint as in the slot's marker, and their topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from kafka_sink.options.config import FAIL, SinkConfig
from kafka_sink.records.bad_rows import columns_for_fingerprint, named_topics
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.fingerprint import Fingerprint, total
from kafka_sink.spark.interceptor_chain import InterceptorChain


@dataclass(frozen=True, slots=True)
class CountedRows:
    record_count: int
    digest: str
    topics: tuple[str, ...]


def count_rows(config: SinkConfig, chain: InterceptorChain, arrow_batches: Iterator[pa.RecordBatch]) -> CountedRows:
    """Count the rows of a slot that is visible already, and send none.

    The rows are not checked for bad rows again, because the limits may have changed since. So all rows count, including
    those that became dead letters.
    """
    fingerprint, record_count, topics = Fingerprint(), 0, set[str]()
    columns_of = RecordColumns.from_arrow if config.bad_rows == FAIL else columns_for_fingerprint
    if config.dead_letter_topic is not None:
        topics.add(config.dead_letter_topic)
    for arrow_batch in chain.checked(arrow_batches, topic_option=config.topic is not None):
        columns = columns_of(arrow_batch, now_ms=0)
        fingerprint.update(columns)
        record_count += columns.num_rows
        if config.topic is None:
            topics |= named_topics(arrow_batch)
        elif columns.num_rows:
            topics.add(config.topic)
    return CountedRows(record_count, digest_of(fingerprint, config), tuple(sorted(topics)))


def digest_of(fingerprint: Fingerprint, config: SinkConfig) -> str:
    """Return the digest of the rows and of the option `topic`, which the rows do not contain."""
    return f"{fingerprint.digest()}:{config.topic or ''}"


def total_of(digests: Iterable[str]) -> tuple[str, frozenset[str]]:
    """Return the total fingerprint of all slots, and the set of their topic options."""
    parts = [digest.rpartition(":") for digest in digests]
    return total(rows for rows, _, _ in parts), frozenset(topic for _, _, topic in parts)

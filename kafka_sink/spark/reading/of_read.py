"""Errors of reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.errors import KafkaSinkError


@contextmanager
def of_read() -> Iterator[None]:
    """Mark errors as those of a read: what they mean for the data is not what they mean for a write's."""
    try:
        yield
    except KafkaSinkError as error:
        raise error.of_read() from None

"""A schema that a user or a registry gave is foreign text: whatever a library says of it becomes SchemaUnreadable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.errors import KafkaSinkError, SchemaUnreadable


@contextmanager
def read_as(form: str) -> Iterator[None]:
    """Raise SchemaUnreadable, without a cause, for any error of a library in the block.

    A library's error may quote the schema with its control characters, so a traceback must not print that error.
    """
    try:
        yield
    except (KafkaSinkError, RecursionError, MemoryError):
        raise
    except Exception as error:
        raise SchemaUnreadable(form=form, reason=f"{type(error).__name__}: {error}") from None

"""The error for a Spark type that a form has no type for, and its remedy."""

from __future__ import annotations

from pyspark.sql import types as T

from kafka_sink.errors import TypeNotMapped

CAST = "Cast it, e.g. to string."
CAST_KEYS = "Cast its keys to string, or make it an array with map_entries."


def not_mapped(data_type: T.DataType, path: str, form: str, hint: str | None = None) -> TypeNotMapped:
    """Return the error. With `hint` None it advises a cast: of a map's keys, else of the column."""
    hint = hint or (CAST_KEYS if isinstance(data_type, T.MapType) else CAST)
    return TypeNotMapped(column=path, found=data_type.simpleString(), form=form, hint=hint)

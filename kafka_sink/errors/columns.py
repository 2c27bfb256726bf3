"""Errors about columns of the DataFrame, found before any row is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kafka_sink.errors.base import Explanation, KafkaSinkError
from kafka_sink.errors.wording import DataState


class SchemaError(KafkaSinkError):
    """A column is missing, unknown, or has a type that does not fit a Kafka record."""

    column: str


def in_code(name: str) -> str:
    """Return the name as `F.col` and its like take it: in backticks, unless it is a plain one."""
    return name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`"


class MissingColumn(SchemaError):
    found: Sequence[str]
    hint: str

    def explanation(self) -> Explanation:
        return Explanation(
            f"the DataFrame has no column {self.column!r} (it has: {', '.join(self.found) or 'none'}).",
            DataState.NOTHING_SENT,
            self.hint,
        )


class UnexpectedColumn(SchemaError):
    allowed: Sequence[str]

    def explanation(self) -> Explanation:
        return Explanation(
            f"column {self.column!r} has no place in a Kafka record (columns are: {', '.join(self.allowed)}).",
            DataState.NOTHING_SENT,
            f"Fold it into the value, e.g. to_json(struct('{in_code(self.column)}', ...)).alias('value'), or drop it.",
        )


class DuplicateColumn(SchemaError):
    def explanation(self) -> Explanation:
        return Explanation(
            f"the DataFrame has more than one column {self.column!r}, and a Kafka record has room for one.",
            DataState.NOTHING_SENT,
            "Drop or rename the others.",
        )


class ColumnTypeMismatch(SchemaError):
    found: str
    expected: str
    hint: str

    def explanation(self) -> Explanation:
        happened = f"column {self.column!r} is {self.found}; expected {self.expected}."
        return Explanation(happened, DataState.NOTHING_SENT, self.hint)


class TypeNotMapped(SchemaError):
    """`column` is a path. `form` is the schema's language."""

    found: str
    form: str
    hint: str

    def explanation(self) -> Explanation:
        happened = f"column {self.column!r} is {self.found}, which {self.form} has no type for."
        return Explanation(happened, DataState.NOTHING_SENT, self.hint)


class NameNotAllowed(SchemaError):
    form: str
    rule: str

    def explanation(self) -> Explanation:
        return Explanation(
            f"column {self.column!r} has a name that {self.form} does not allow: {self.rule}.",
            DataState.NOTHING_SENT,
            "Rename it (withColumnRenamed, or cast('struct<...>') for a field of a struct).",
        )


class ColumnNotInSchema(SchemaError):
    """`found`: the type in the DataFrame. `expected`: what the given schema has, or the registry's latest schema."""

    found: str
    expected: str
    form: str

    def explanation(self) -> Explanation:
        return Explanation(
            f"the {self.form} schema does not fit the DataFrame: column {self.column!r} is {self.found}, and the "
            f"schema has {self.expected}.",
            DataState.NOTHING_SENT,
            "Change the column (select, cast), or the schema; without one it is derived from the columns.",
        )

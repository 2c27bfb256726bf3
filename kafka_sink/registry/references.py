"""Fetches the schemas that a schema refers to: Avro's by the name of a type, JSON's by URI, Protobuf's by path.

References are a registry's own idea: a list of names, each with a subject and its version. Every schema may have such a
list. The registry's answers are foreign, so the number, depth, length and time of all of them are bounded.

A subject of a list is of the same context (`:.name:`) as the subject of the schema that has the list, unless it names
another.

A name has one text. If two schemas use it for two versions, the first one counts, as in the registry itself. It is
found in the order of the lists, depth first.

Source: AbstractSchemaProvider.resolveReferences and QualifiedSubject of Confluent's schema-registry. `deleted` is its
argument too: a version that was deleted softly is still referred to.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_sink.errors import RegistryUnreachable, SchemaNotRegistered, SchemaUnreadable
from kafka_sink.registry.registering import MAX_ANSWER_BYTES, Registry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

# Of one schema, and of all that it refers to together.
MAX_REFERENCES = 1_000
MAX_CHAIN = 50
MAX_CHARACTERS = MAX_ANSWER_BYTES
RESOLVE_TIMEOUT_S = 120.0
# A version in Java's registry: the latest at the time of the request.
LATEST = -1
CONTEXT = re.compile(r":\.[^:]+:")


def referred(registry: Registry, schema: Schema, subject: str, form: str, fmt: str | None = None) -> dict[str, str]:
    """Return the text of each schema that `schema` of `subject` refers to, directly or not, by its name.

    A text stands behind those that it refers to. `form` is the form's name in errors, `fmt` the format in which the
    registry returns a text. Raises SchemaUnreadable if a reference is incomplete, unknown or of another form, or at a
    bound, RegistryUnreachable if all of them take too long, and the errors of Registry.version_of.
    """
    if not schema.references:
        return {}
    return _Resolving(registry, form, fmt, schema.schema_type or "AVRO").all_of(schema, subject)


def in_context_of(parent: str, subject: str) -> str:
    """Return a subject that a schema of `parent` refers to, with the context of `parent` if it names none.

    >>> in_context_of(":.shop:orders-value", "city")
    ':.shop:city'
    """
    context = CONTEXT.match(parent)
    return subject if context is None or subject.startswith(":.") else context[0] + subject


@dataclass(frozen=True, slots=True)
class Written:
    """A schema as the registry has it. `others`: the names and texts of those that it refers to, as `referred`."""

    text: str
    others: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, registry: Registry, schema: Schema, subject: str, form: str, fmt: str | None) -> Written:
        """Raises as `referred` does."""
        return cls(str(schema.schema_str), tuple(referred(registry, schema, subject, form, fmt).items()))

    @property
    def characters(self) -> int:
        return len(self.text) + sum(len(text) for _, text in self.others)


@dataclass(slots=True)
class _Resolving:
    registry: Registry
    form: str
    fmt: str | None
    schema_type: str
    found: dict[str, str] = field(default_factory=dict)
    # Includes those whose own references are being fetched, so that a circle ends.
    seen: set[str] = field(default_factory=set)
    characters: int = 0
    deadline_s: float = field(default_factory=lambda: time.monotonic() + RESOLVE_TIMEOUT_S)

    def all_of(self, schema: Schema, parent: str, depth: int = 1) -> dict[str, str]:
        for reference in schema.references or ():
            name, subject, version = self._parts(reference)
            subject = in_context_of(parent, subject)
            if name in self.seen:
                continue
            self.seen.add(name)
            if len(self.seen) > MAX_REFERENCES:
                raise self._unreadable(f"it refers to more than {MAX_REFERENCES} schemas")
            if depth > MAX_CHAIN:
                raise self._unreadable(f"its references are a chain of more than {MAX_CHAIN} schemas")
            one = self._fetched(name, subject, version)
            self.all_of(one, subject, depth + 1)
            self.found[name] = str(one.schema_str)
        return self.found

    def _parts(self, reference: Any) -> tuple[str, str, int]:
        name, subject, version = (getattr(reference, part, None) for part in ("name", "subject", "version"))
        is_version = isinstance(version, int) and not isinstance(version, bool) and (version > 0 or version == LATEST)
        if not (isinstance(name, str) and name and isinstance(subject, str) and subject and is_version):
            raise self._unreadable("one of its references has no name, or no subject, or no version from 1 on")
        return name, subject, int(version)  # type: ignore[arg-type]

    def _fetched(self, name: str, subject: str, version: int) -> Schema:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            reason = f"the schemas that one refers to were not fetched within {RESOLVE_TIMEOUT_S:g} s"
            raise RegistryUnreachable(url=self.registry.url, reason=reason)
        try:
            schema = self.registry.version_of(subject, version, self.fmt, timeout_s=left_s)
        except SchemaNotRegistered as error:
            reason = f"it refers to {name!r}, version {version} of subject {subject!r}: {error.reason}"
            raise self._unreadable(reason) from None
        if (schema.schema_type or "AVRO") != self.schema_type:
            raise self._unreadable(f"it refers to {name!r}, which is of form {schema.schema_type}")
        self.characters += len(str(schema.schema_str))
        if self.characters > MAX_CHARACTERS:
            raise self._unreadable(f"what it refers to is longer than {MAX_CHARACTERS} characters")
        return schema

    def _unreadable(self, reason: str) -> SchemaUnreadable:
        return SchemaUnreadable(form=self.form, reason=reason)

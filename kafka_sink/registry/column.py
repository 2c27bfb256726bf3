"""Makes a column of bytes for readers with a schema registry: chooses the schema, checks it, gets its id, encodes.

The driver asks the registry once, when it makes the column. The schema's id is a constant of the column. A streaming
query keeps the id until it is started again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from kafka_sink.errors import DuplicateColumn, MissingColumn, SchemaUnreadable
from kafka_sink.kafka.clock import within
from kafka_sink.records.columns import DEAD_LETTER
from kafka_sink.registry import avro, json_schema, protobuf
from kafka_sink.registry.forms import extra, prefix
from kafka_sink.registry.references import in_context_of, referred
from kafka_sink.registry.registering import MAX_DEPTH, STRATEGIES, Registry, depth_of, record_name, subject_name

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from google.protobuf.message import Message
    from pyspark.sql import Column, DataFrame

T = TypeVar("T")

# A schema is foreign text. The libraries that read it promise no time.
READ_TIMEOUT_S = 60.0

# Modes of rules that run when a record is written, and when it is read.
WRITES, READS = ("WRITE", "WRITEREAD"), ("READ", "WRITEREAD", "UPGRADE", "DOWNGRADE", "UPDOWN")

# Of a record that could not be decoded, which the sink writes to its deadLetterTopic (`records/columns.py`).
HEADERS = spark_types.ArrayType(
    spark_types.StructType().add("key", spark_types.StringType()).add("value", spark_types.BinaryType())
)
RECORD: dict[str, spark_types.DataType] = {
    "key": spark_types.BinaryType(), "value": spark_types.BinaryType(), "headers": HEADERS,
    "topic": spark_types.StringType(), "partition": spark_types.IntegerType(), "offset": spark_types.LongType(),
}  # fmt: skip
LETTER = spark_types.StructType(
    [spark_types.StructField(name, kind) for name, kind in {"reason": spark_types.StringType(), **RECORD}.items()]
)

FORMS: dict[str, ModuleType] = {"avro": avro, "json": json_schema, "protobuf": protobuf}


def serialized(
    frame: DataFrame,
    columns: Sequence[str],
    *,
    topic: str,
    form: str,
    registry: Mapping[str, Any] | SchemaRegistryClient,
    subject: str = "topic",
    schema: str | Schema | type[Message] | None = None,
    is_key: bool = False,
) -> Column:
    """Return a binary column: a record for each row of `frame`, with `columns` as fields, framed as by the official
    serializers. It is null if all columns are null; a null value is a tombstone. It is also null for a row with a
    `dead_letter` of `deserialized`. That column is no field.

    - `form`: avro, json or protobuf
    - `registry`: the conf of confluent-kafka's SchemaRegistryClient (url, basic.auth.user.info, ...), or a client. With
      `auto.register.schemas=false` the schema is looked up instead of registered. With `use.latest.version=true` the
      subject's latest schema is used
    - `subject`: topic, record or topic-record, the official strategies
    - `schema`: the schema to register, instead of one derived from the columns' types. It is a text, or for Protobuf a
      message class of protoc. A confluent_kafka.schema_registry.Schema has a text, and references to other subjects'
      schemas. Its fields are found by name
    - `is_key`: True if the subject and the derived name are for the key

    Asks the registry once, in this call. Raises RegistryError, SchemaError if no schema or not this schema can hold the
    columns, InvalidOption if the client refuses the conf, or ValueError. A row that does not fit the schema, e.g. a
    null in a field without null, fails its task with ValueNotInSchema.

    Examples:
        >>> orders = spark.sql("SELECT 7L AS order_id, 0.25D AS price")
        >>> value = serialized(orders, orders.columns, topic="orders", form="avro", registry=registry)
        >>> orders.select(value.alias("value")).first().value[:1].hex()  # the magic byte
        '00'
    """
    if form not in FORMS:
        raise ValueError(f"form is one of {', '.join(FORMS)}, not {form!r}")
    if subject not in STRATEGIES:
        raise ValueError(f"subject is one of {', '.join(STRATEGIES)}, not {subject!r}")
    asked = Registry.of(registry)
    if schema is not None and asked.uses_latest:
        raise ValueError("schema and use.latest.version=true are two schemas: leave out one of them")
    has_letters = has(frame, DEAD_LETTER, LETTER)
    if has_letters and not isinstance(columns, str):
        columns = [name for name in columns if name != DEAD_LETTER]
    fields = fields_of(frame, columns)
    names = functools.partial(subject_name, subject, topic, is_key=is_key)
    text = schema if isinstance(schema, str) else getattr(schema, "schema_str", None)
    if isinstance(text, str):
        check_depth(FORMS[form], text)
    encoding, schema_id = pinned_schema(FORMS[form], fields, record_name(topic, is_key), asked, names, schema)
    # In backquotes a name with a dot is a column's name, not a path.
    found = [F.col(f"`{name.replace('`', '``')}`").alias(name) for name in columns]
    # One expression of all columns: with `|` a thousand would be a thousand deep, and the JVM's stack is not.
    is_row = F.coalesce(*(F.when(column.isNotNull(), True) for column in found))
    if has_letters:
        is_row &= F.col(DEAD_LETTER).isNull()
    column: Column = encoding.column(F.when(is_row, F.struct(*found)), prefix(schema_id, encoding.message_indexes))
    return column


def pinned_schema(
    form: Any, fields: spark_types.StructType, name: str, registry: Registry, subject_of: Any, schema: Any
) -> tuple[Any, int]:
    """Return the encoding and the id of its schema. The schema is checked before it is registered."""
    if registry.uses_latest:
        with named(subject_of(name)) as subject:
            latest = registry.latest(subject, form.REGISTRY_FORMAT)
            check_rules(form, latest.schema)
            return _fitted(form, registry, latest.schema, subject, fields), latest.schema_id
    official = extra("confluent_kafka.schema_registry").Schema
    if isinstance(schema, official):
        # Only the context of this subject counts, which is the same for all names of records.
        encoding = _fitted(form, registry, schema, subject_of(name), fields)
        whole = official(encoding.text, form.SCHEMA_TYPE, schema.references, schema.metadata, schema.rule_set)
        return encoding, registry.schema_id(subject_of(encoding.name), whole)
    if schema is None and form is protobuf:
        # The derived schema keeps the field numbers of the latest one.
        with named(subject_of(name)) as subject:
            before = registry.latest_or_none(subject, form.REGISTRY_FORMAT)
            text = None if before is None else before.text
            schema = in_time(form, lambda: protobuf.derived(fields, name, text))
    elif schema is None:
        schema = form.derived(fields, name)
    encoding = in_time(form, lambda: form.fitted(schema, fields))
    subject = subject_of(encoding.name)

    def version(imported: str, of_schema: Schema) -> int:
        return registry.version(in_context_of(subject, imported), of_schema)

    whole = official(encoding.text, form.SCHEMA_TYPE, encoding.references(version))
    return encoding, registry.schema_id(subject, whole)


def _fitted(form: Any, registry: Registry, schema: Schema, subject: str, fields: spark_types.StructType) -> Any:
    """Return the encoding by a schema of `subject` that may refer to others."""
    if (schema.schema_type or "AVRO") != form.SCHEMA_TYPE or not isinstance(schema.schema_str, str):
        reason = f"it is a schema of type {schema.schema_type}, or has no text"
        raise SchemaUnreadable(form=form.FORM, reason=reason)
    others = referred(registry, schema, subject, form.FORM, form.REGISTRY_FORMAT)
    return in_time(form, lambda: form.fitted(schema.schema_str, fields, others))


def check_rules(form: Any, schema: Schema, modes: Sequence[str] = WRITES) -> None:
    """Raise SchemaUnreadable if a rule changes or checks each record when the official serializers write or read it.

    For writing they obey the rules of a subject's latest schema, e.g. encrypt fields, and no other schema's.
    """
    rules = schema.rule_set
    if rules is None or (rules.enable_at or "ALL") not in ("ALL", "CLIENT"):
        return
    for rule in (*(rules.domain_rules or ()), *(rules.encoding_rules or ()), *(rules.migration_rules or ())):
        if rule.mode in modes and not rule.disabled:
            reason = (
                f"its rule {rule.name!r} of type {rule.type} is for each record, and only official serializers run it"
            )
            raise SchemaUnreadable(form=form.FORM, reason=reason)


@contextmanager
def named(subject: str) -> Iterator[str]:
    """Add the subject to SchemaUnreadable, because the user did not give its schema."""
    try:
        yield subject
    except SchemaUnreadable as error:
        error.subject = subject
        raise


def check_depth(form: Any, text: str) -> None:
    """Raise SchemaUnreadable for a text that is nested too deep for the libraries."""
    if depth_of(text) > MAX_DEPTH:
        raise SchemaUnreadable(form=form.FORM, reason=f"it is nested more than {MAX_DEPTH} levels deep")


def in_time(form: Any, read: Callable[[], T]) -> T:
    """Return what `read` makes of a schema. Raises SchemaUnreadable if that takes too long or has no end, and what
    `read` raises."""
    try:
        return within(READ_TIMEOUT_S, read)
    except RecursionError:
        reason = "it is nested too deep to be read, or refers to itself"
        raise SchemaUnreadable(form=form.FORM, reason=reason) from None
    except TimeoutError:
        raise SchemaUnreadable(form=form.FORM, reason=f"it was not read within {READ_TIMEOUT_S:g} s") from None


def has(frame: DataFrame, name: str, data_type: spark_types.DataType) -> bool:
    """Return True if `frame` has one column of that name, and it is of that type."""
    names = frame.schema.names
    return names.count(name) == 1 and frame.schema[name].dataType.simpleString() == data_type.simpleString()


def fields_of(frame: DataFrame, columns: Sequence[str]) -> spark_types.StructType:
    if isinstance(columns, str) or not columns:
        raise ValueError("columns are the names of one or more columns")
    schema = frame.schema
    for name in columns:
        if name not in schema.names:
            raise MissingColumn(column=name, found=schema.names, hint="It was to be encoded for the schema registry.")
        if schema.names.count(name) > 1 or list(columns).count(name) > 1:
            raise DuplicateColumn(column=name)
    return spark_types.StructType([schema[name] for name in columns])

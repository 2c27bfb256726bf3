"""Makes a column of decoded records: chooses the reader's schema, and gives executors what they need to decode.

The driver asks the registry once, when it makes the column, so the column's type is fixed then. A streaming query keeps
its schema until it is started again. Executors ask for the schemas of writers (`decoding.py`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kafka_sink.errors import ColumnTypeMismatch, DuplicateColumn, MissingColumn, SchemaNotRegistered, SchemaUnreadable
from kafka_sink.errors.failures import of_read, told_to_spark
from kafka_sink.records.columns import DEAD_LETTER
from kafka_sink.registry import avro_reading, json_reading, protobuf_reading
from kafka_sink.registry.column import HEADERS, READS, RECORD, check_depth, check_rules, has, in_time, named
from kafka_sink.registry.decoding import Batch, Reader, Reading, decoded
from kafka_sink.registry.forms import extra
from kafka_sink.registry.references import Written
from kafka_sink.registry.registering import ASK_TIMEOUT_S, Registry, subject_name

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from pyspark.sql import Column, DataFrame

READERS: dict[str, Any] = {
    "avro": avro_reading.Reader,
    "json": json_reading.Reader,
    "protobuf": protobuf_reading.Reader,
}
PLACES = ("topic", "partition", "offset")
FAIL, NULL, DEAD = "fail", "null", "deadLetter"
BAD_ROWS = (FAIL, NULL, DEAD)


@of_read()
def deserialized(
    frame: DataFrame,
    column: str,
    *,
    form: str,
    registry: Mapping[str, Any] | SchemaRegistryClient,
    topic: str | None = None,
    subject: str | None = None,
    schema: str | None = None,
    schema_id: int | None = None,
    version: int | None = None,
    message: str | None = None,
    is_key: bool = False,
    bad_rows: str = "fail",
) -> Column:
    """Return the decoded records of a binary `column` of `frame`, which the serializers of a schema registry wrote.

    The column's type is that of the reader's schema. Each record is resolved to it from the schema that it was written
    with, by the id or the GUID in its first bytes, or in the header `__key_schema_id` or `__value_schema_id` if `frame`
    has the column `headers`. A null stays null.

    - `form`: avro, json or protobuf
    - `registry`: the conf of confluent-kafka's SchemaRegistryClient, or a client, of which executors get the conf. They
      make their own client, so `mock://` is refused
    - `topic`: its subject is `<topic>-value`, or with `is_key` `<topic>-key`. `subject`: the name of another subject
    - `schema`, `schema_id`, `version`: the reader's schema, as a text, by its id, or as a version of the subject. By
      default it is the subject's latest
    - `message`: for Protobuf the full name of the message, e.g. shop.Order. By default it is the first of the file
    - `bad_rows`: what becomes of a record that cannot be decoded. `fail` fails its task with RecordUndecodable, which
      has the topic, partition and offset if `frame` has these columns. With `null` the result is a struct: `value` is
      null and `reason` says why. With `deadLetter` the result is a struct of `value` and `dead_letter`, the original
      record. Select `dead_letter` as a column of the rows for the sink, which writes it to deadLetterTopic. `frame` has
      all columns of a read with includeHeaders=true

    Asks the registry in this call, unless `schema` is given. Raises RegistryError, SchemaError, InvalidOption, or
    ValueError. On executors a registry that cannot be asked for a new id fails the task with a RegistryError.

    Examples:
        >>> orders = spark.sql("SELECT 7L AS order_id, 0.25D AS price")
        >>> value = serialized(orders, orders.columns, topic="orders", form="avro", registry=registry).alias("value")
        >>> records = orders.select(value)
        >>> order = deserialized(records, "value", topic="orders", form="avro", registry=registry)
        >>> records.select(order.alias("order")).select("order.*").show()
        +--------+-----+
        |order_id|price|
        +--------+-----+
        |       7| 0.25|
        +--------+-----+
        <BLANKLINE>
    """
    if form not in READERS:
        raise ValueError(f"form is one of {', '.join(READERS)}, not {form!r}")
    if bad_rows not in BAD_ROWS:
        raise ValueError(f"bad_rows is one of {', '.join(BAD_ROWS)}, not {bad_rows!r}")
    if (topic is None) == (subject is None):
        raise ValueError("give a topic, or a subject")
    if sum(each is not None for each in (schema, schema_id, version)) > 1:
        raise ValueError("schema, schema_id and version are several schemas: give one of them")
    if message is not None and form != "protobuf":
        raise ValueError("message is for form='protobuf'")
    _check_column(frame, column)
    if bad_rows == DEAD:
        _check_record(frame)
    conf = conf_of(registry)
    subject = subject or subject_name("topic", str(topic), "", is_key)
    kind = READERS[form]
    more = {} if message is None else {"message": message}
    with contextlib.nullcontext() if schema is not None else named(subject):
        given = _asked(conf, subject, schema_id, version, kind) if schema is None else Written(schema)
        check_depth(kind, given.text)
        of_schema = functools.partial(kind, given, **more)
        reader: Reader = in_time(kind, of_schema)
    key = hashlib.sha256(repr((form, given, more, subject, sorted(conf.items(), key=str))).encode()).hexdigest()
    result = _column(frame, column, Reading(key, of_schema, conf, subject, bad_rows != FAIL), reader, is_key)
    return _with_dead_letter(result) if bad_rows == DEAD else result


def _check_record(frame: DataFrame) -> None:
    """Raise MissingColumn if a dead letter could not have all of a record."""
    for name, data_type in RECORD.items():
        if not has(frame, name, data_type):
            hint = f"With bad_rows='{DEAD}' decode a read with includeHeaders=true, before a select."
            raise MissingColumn(column=name, found=frame.schema.names, hint=hint)


def _with_dead_letter(result: Column) -> Column:
    reason = result["reason"]
    letter = F.struct(reason.alias("reason"), *map(F.col, RECORD))
    return F.struct(result["value"].alias("value"), F.when(reason.isNotNull(), letter).alias(DEAD_LETTER))


def _check_column(frame: DataFrame, column: str) -> None:
    names = frame.schema.names
    if column not in names:
        raise MissingColumn(column=column, found=names, hint="It was to be decoded with a schema of the registry.")
    if names.count(column) > 1:
        raise DuplicateColumn(column=column)
    found = frame.schema[column].dataType
    if not isinstance(found, T.BinaryType):
        raise ColumnTypeMismatch(column=column, found=found.simpleString(), expected="binary", hint="Cast it.")


def conf_of(registry: Mapping[str, Any] | SchemaRegistryClient) -> dict[str, Any]:
    """Return the conf, from which executors make their client."""
    client = extra("confluent_kafka.schema_registry").SchemaRegistryClient
    if not isinstance(registry, Mapping | client):
        raise TypeError("registry is a mapping with a url, or a SchemaRegistryClient")
    conf = dict(registry if isinstance(registry, Mapping) else registry.config())
    if str(conf.get("url", "")).startswith("mock://"):
        raise ValueError("a registry at mock:// is in the memory of this process, and executors cannot ask it")
    return conf


def _asked(conf: Mapping[str, Any], subject: str, schema_id: int | None, version: int | None, kind: Any) -> Written:
    """Return the reader's schema from the registry."""
    registry, fmt = Registry.of(conf), kind.REGISTRY_FORMAT
    if schema_id is not None:
        schema = registry.by_id(schema_id, subject, fmt)
        if schema is None:
            raise SchemaNotRegistered(subject=subject, reason=f"it has no schema with id {schema_id}")
    elif version is not None:
        schema = registry.version_of(subject, version, fmt, timeout_s=ASK_TIMEOUT_S)
    else:
        schema = registry.latest(subject, fmt).schema
    if (schema.schema_type or "AVRO") != kind.SCHEMA_TYPE:
        raise SchemaUnreadable(form=kind.FORM, reason=f"it is a schema of type {schema.schema_type}")
    check_rules(kind, schema, READS)
    return Written.of(registry, schema, subject, kind.FORM, fmt)


def _column(frame: DataFrame, column: str, reading: Reading, reader: Reader, is_key: bool) -> Column:
    result = reader.spark_type
    if reading.null_if_bad:
        result = T.StructType([T.StructField("value", result), T.StructField("reason", T.StringType())])

    def deserialized(
        data: pa.Array, header: pa.Array, topic: pa.Array, partition: pa.Array, offset: pa.Array
    ) -> pa.Array:
        # Pickled by value, so its decorators cannot be `told_to_spark`.
        with told_to_spark(), of_read():
            return decoded(reading, Batch(data, header, (topic, partition, offset)))

    in_batches: Any = F.arrow_udf(deserialized, result)  # type: ignore[attr-defined]
    places = [F.col(name) if has(frame, name, RECORD[name]) else F.lit(None).cast(RECORD[name]) for name in PLACES]
    found: Column = in_batches(F.col(f"`{column.replace('`', '``')}`"), _header(frame, is_key), *places)
    return found


def _header(frame: DataFrame, is_key: bool) -> Column:
    """Return the value of the header with the schema's id: the last one of its name, as Kafka's lastHeader."""
    if not has(frame, "headers", HEADERS):
        return F.lit(None).cast("binary")
    name = "__key_schema_id" if is_key else "__value_schema_id"
    named = F.filter(F.col("headers"), lambda header: header["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"]

"""What the three forms of a schema share: the extra's packages, errors about schemas and types, and the framing.

The framing is magic byte 0, the schema's id, for Protobuf the path of the message, then the payload.

Source: Confluent's "Wire format" (docs.confluent.io, Schema Registry, serializers and deserializers);
confluent_kafka.schema_registry.common.serde.SchemaId writes the same.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kafka_sink.errors import (
    ColumnNotInSchema,
    KafkaSinkError,
    NameNotAllowed,
    RegistryExtraMissing,
    SchemaUnreadable,
    TypeNotMapped,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

# The subject and the schema of a reference -> its version.
Version = Callable[[str, Any], int]

CAST = "Cast it, e.g. to string."
CAST_KEYS = "Cast its keys to string, or make it an array with map_entries."
# Types of a map's keys: JSON has names, and protobuf.dev allows any whole number, string or bool.
KEYS = (T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType)
MAGIC_BYTE = b"\x00"


def extra(module: str, *, on_executor: bool = False) -> Any:
    """Return a module of `pyspark-pykafka[registry]`. Raises RegistryExtraMissing.

    With `on_executor` the error says that other tasks may have written rows.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RegistryExtraMissing(module=module, reason=str(error), on_executor=on_executor) from error


@contextmanager
def read_as(form: str) -> Iterator[None]:
    """Raise SchemaUnreadable, without a cause, for any error of a library in the block.

    A schema that a user or a registry gave is foreign text. A library's error may quote the schema with its control
    characters, so a traceback must not print that error.
    """
    try:
        yield
    except (KafkaSinkError, RecursionError, MemoryError):
        raise
    except Exception as error:
        raise SchemaUnreadable(form=form, reason=f"{type(error).__name__}: {error}") from None


def not_mapped(data_type: T.DataType, path: str, form: str, hint: str | None = None) -> TypeNotMapped:
    """Return the error. With `hint` None it advises a cast: of a map's keys, else of the column."""
    hint = hint or (CAST_KEYS if isinstance(data_type, T.MapType) else CAST)
    return TypeNotMapped(column=path, found=data_type.simpleString(), form=form, hint=hint)


def check_name(name: str, path: str, form: str) -> None:
    """Raise NameNotAllowed for a name that neither Avro nor Protobuf allows."""
    if not (name.isascii() and name.isidentifier()):
        raise NameNotAllowed(column=path + name, form=form, rule="letters, digits and underscores, no digit first")


def does_not_fit(path: str, found: T.DataType | str, expected: str, form: str) -> ColumnNotInSchema:
    text = found if isinstance(found, str) else found.simpleString()
    return ColumnNotInSchema(column=path, found=text, expected=expected, form=form)


def no_references(version: Version) -> list[Any]:
    """The schema refers to no others."""
    return []


@dataclass(frozen=True, slots=True)
class ArrowEncoding:
    """A schema that fits the columns. `text` is registered, `name` is that of its record.

    `encode`: makes a binary array of rows and of the first bytes of each, on executors. `message_indexes`: see
    `prefix`. `references`: makes the SchemaReferences to other schemas, each of which `version` registers or looks up.
    `start`: the bytes behind the framing that all rows begin with.
    """

    text: str
    name: str
    encode: Callable[[pa.Array, bytes], pa.Array]
    message_indexes: tuple[int, ...] = ()
    references: Callable[[Version], list[Any]] = no_references
    start: bytes = b""

    def column(self, record: Column, head: bytes) -> Column:
        """Return the encoded column (binary). It is null where `record` is null."""
        encode, first = self.encode, head + self.start

        def encoded(rows: pa.Array) -> pa.Array:
            return encode(rows, first)

        in_batches: Any = F.arrow_udf(encoded, "binary")  # type: ignore[attr-defined]
        column: Column = in_batches(record)
        return column


def prefix(schema_id: int, message_indexes: Sequence[int] = ()) -> bytes:
    """Return the first bytes of every row with this schema. `message_indexes` is the path to the message in a Protobuf
    file, and empty for the other forms."""
    path = b""
    if message_indexes:
        # The file's first message, the usual one, is written as 0 instead of a list of one 0.
        numbers = [0] if list(message_indexes) == [0] else [len(message_indexes), *message_indexes]
        path = b"".join(varint(number << 1) for number in numbers)  # zigzag encoding of numbers from 0
    return MAGIC_BYTE + schema_id.to_bytes(4, "big") + path


def varint(number: int) -> bytes:
    """Return an unsigned number as a varint of Protobuf, which an Avro number is too, after zigzag encoding."""
    low, rest = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + varint(rest) if rest else bytes((low,))


def framed(head: bytes, rows: Iterable[Any], write: Callable[[BinaryIO, Any], object]) -> pa.Array:
    """Return a binary array with one value for each row: `head`, then the output of `write`. None gives null.

    All payloads are written into one buffer, because `pa.array` of a list of bytes would copy them and import pandas.
    Raises OverflowError for more than 2 GiB in a batch. Arrow batches of Spark are usually much smaller.
    """
    data = io.BytesIO()
    ends, nulls = [0], []
    for number, row in enumerate(rows):
        if row is None:
            nulls.append(number)
        else:
            data.write(head)
            write(data, row)
        ends.append(data.tell())
    count = len(ends) - 1
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{count} rows, {ends[-1]} bytes: lower spark.sql.execution.arrow.maxRecordsPerBatch")
    validity = None
    if nulls:
        present = np.ones(count, bool)
        present[nulls] = False
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(data.getbuffer())]
    return pa.Array.from_buffers(pa.binary(), count, buffers)

"""Protobuf: maps Spark's types to proto3, checks that a schema fits them, and encodes rows with google.protobuf.

A derived schema is a FileDescriptorProto. The registry gets it in base64, as from the official client. Every field that
is not repeated is `optional`, so that null differs from 0. Protobuf has no null arrays and maps: readers get an empty
one. A null item or entry is an error of its row.

Readers find fields by number. The first schema numbers them in the columns' order. Later a column keeps the number that
the subject's latest schema has for its name, and a new column gets a number that was never used. Numbers and names of
removed columns are reserved.

A given schema is a message class of protoc, a file in base64, or the text of a .proto file. The official client has no
parser, so protoc of grpcio-tools compiles a text. Files that a schema imports are registered under their own names and
referenced, except files that every registry has.

Sources: protobuf.dev's language guide (proto3) and descriptor.proto; Confluent's ProtobufData for the messages that
dates, timestamps and decimals become; confluent_kafka.schema_registry.protobuf.
"""

from __future__ import annotations

import base64
import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema, NameNotAllowed, SchemaUnreadable
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.registry import protoc
from kafka_sink.registry import values as V
from kafka_sink.registry.forms import (
    KEYS,
    ArrowEncoding,
    Version,
    check_name,
    does_not_fit,
    extra,
    framed,
    not_mapped,
    read_as,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.message import Message

FORM = protoc.FORM
SCHEMA_TYPE = "PROTOBUF"
REGISTRY_FORMAT = "serialized"

TIMESTAMP, DATE, DATETIME, DECIMAL = (
    "google.protobuf.Timestamp", "google.type.Date", "google.type.DateTime", "confluent.type.Decimal",
)  # fmt: skip
# Files that every registry and every official reader has, by the needed message.
KNOWN_FILES = {
    TIMESTAMP: "google/protobuf/timestamp.proto",
    DATE: "google/type/date.proto",
    DATETIME: "google/type/datetime.proto",
    DECIMAL: "confluent/type/decimal.proto",
}
KNOWN_FOLDERS = ("google/protobuf/", "google/type/", "confluent/")
_WHOLE_32: dict[str, V.Convert] = {
    "int32": V.plain, "sint32": V.plain, "sfixed32": V.plain, "uint32": V.unsigned, "fixed32": V.unsigned,
}  # fmt: skip
_WHOLE_64: dict[str, V.Convert] = {
    "int64": V.plain, "sint64": V.plain, "sfixed64": V.plain, "uint64": V.unsigned, "fixed64": V.unsigned,
}  # fmt: skip

# Spark's type -> Protobuf's types that can hold all its values, and their conversions. The first is the derived one. A
# negative value for an unsigned type is an error of its row. Functions below handle decimals, arrays, maps and more.
FITS: dict[type[T.DataType], dict[str, V.Convert]] = {
    T.BooleanType: {"bool": V.plain},
    T.ByteType: {**_WHOLE_32, **_WHOLE_64, "float": V.plain, "double": V.plain},
    T.ShortType: {**_WHOLE_32, **_WHOLE_64, "float": V.plain, "double": V.plain},
    T.IntegerType: {**_WHOLE_32, **_WHOLE_64, "double": V.plain},
    T.LongType: _WHOLE_64,
    T.FloatType: {"float": V.plain, "double": V.plain},
    T.DoubleType: {"double": V.plain},
    T.StringType: {"string": V.plain},
    T.VarcharType: {"string": V.plain},
    T.CharType: {"string": V.plain},
    T.BinaryType: {"bytes": V.plain},
    T.DateType: {DATE: V.date_parts},
    T.TimestampType: {TIMESTAMP: V.seconds_and_nanos},
    T.TimestampNTZType: {DATETIME: V.datetime_parts},
}
# FieldDescriptorProto in descriptor.proto: LABEL_OPTIONAL, LABEL_REPEATED and TYPE_MESSAGE.
SINGLE, REPEATED, MESSAGE = 1, 3, 11
IMPLEMENTATIONS_OWN = range(19_000, 20_000)


# --- derived ----------------------------------------------------------------------------------------------------------


@read_as(FORM)
def derived(columns: T.StructType, name: str, previous: str | None) -> str:
    """Return a FileDescriptorProto in base64. It keeps the numbers of `previous`, the subject's latest schema.

    Raises TypeNotMapped or NameNotAllowed with the column's path, or SchemaUnreadable for `previous`.
    """
    file = extra("google.protobuf.descriptor_pb2").FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
    before = {message.name: message for message in _file(previous).message_type} if previous else {}
    _message(file.message_type.add(name=name), columns, before.get(name), f".{name}", "")
    used = {field.type_name for message in _messages(file.message_type) for field in message.field}
    file.dependency.extend(path for known, path in KNOWN_FILES.items() if f".{known}" in used)
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode("ascii")


def _messages(messages: Any) -> Iterator[DescriptorProto]:
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


def _message(
    message: DescriptorProto, struct: T.StructType, before: DescriptorProto | None, full_name: str, path: str
) -> None:
    _check_names(struct, path)
    nested = {} if before is None else {one.name: one for one in before.nested_type}
    numbers = _numbers(struct.names, before)
    _reserve(message, struct.names, before)
    for field in sorted(struct.fields, key=lambda field: numbers[field.name]):
        where = path + field.name
        data_type = field.dataType
        proto = message.field.add(name=field.name, number=numbers[field.name], label=SINGLE)
        if isinstance(data_type, T.MapType):
            entry = message.nested_type.add(name=f"{_camel(field.name)}Entry")
            proto.label, proto.type, proto.type_name = REPEATED, MESSAGE, f"{full_name}.{entry.name}"
            value = _entry(entry, data_type, where)
            data_type, where = data_type.valueType, f"{where}{{}}"
        elif isinstance(data_type, T.ArrayType):
            proto.label, value = REPEATED, proto
            data_type, where = data_type.elementType, f"{where}[]"
        else:
            value = proto
        if isinstance(data_type, T.StructType):
            name = _camel(field.name)
            value.type, value.type_name = MESSAGE, f"{full_name}.{name}"
            _message(message.nested_type.add(name=name), data_type, nested.get(name), value.type_name, f"{where}.")
        else:
            _set_type(value, data_type, where)
        if proto.label == SINGLE and proto.type != MESSAGE:
            # protoc encodes `optional` as a synthetic oneof. A message field does not need it.
            proto.proto3_optional = True
            proto.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _entry(entry: DescriptorProto, data_type: T.MapType, path: str) -> FieldDescriptorProto:
    """Make the entry message of `map<key, value>`, and return the value's field. The entry cannot contain the message
    of a struct."""
    if not isinstance(data_type.keyType, KEYS):
        raise not_mapped(data_type, path, FORM)
    entry.options.map_entry = True
    _set_type(entry.field.add(name="key", number=1, label=SINGLE), data_type.keyType, path)
    value: FieldDescriptorProto = entry.field.add(name="value", number=2, label=SINGLE)
    return value


def _set_type(proto: FieldDescriptorProto, data_type: T.DataType, path: str) -> None:
    if isinstance(data_type, T.DecimalType):
        kind = DECIMAL
    elif type(data_type) in FITS:
        kind = next(iter(FITS[type(data_type)]))
    else:
        within = isinstance(data_type, T.ArrayType | T.MapType)
        hint = "Put it into a struct: arrays and maps hold none directly." if within else None
        raise not_mapped(data_type, path, FORM, hint)
    if kind in KNOWN_FILES:
        proto.type, proto.type_name = MESSAGE, f".{kind}"
    else:
        proto.type = getattr(proto, f"TYPE_{kind.upper()}")


def _numbers(names: list[str], before: DescriptorProto | None) -> dict[str, int]:
    """Return field numbers by name. Known names keep their number; new numbers are above all that were ever used.

    >>> _numbers(["a", "b"], None)
    {'a': 1, 'b': 2}
    """
    known = {} if before is None else {field.name: field.number for field in before.field}
    gone = () if before is None else (reserved.end - 1 for reserved in before.reserved_range)
    numbers = {name: known[name] for name in names if name in known}
    highest = max((*known.values(), *gone), default=0)
    for name in names:
        if name not in numbers:
            highest = IMPLEMENTATIONS_OWN.stop if highest + 1 in IMPLEMENTATIONS_OWN else highest + 1
            numbers[name] = highest
    return numbers


def _reserve(message: DescriptorProto, names: list[str], before: DescriptorProto | None) -> None:
    if before is None:
        return
    gone = [field for field in before.field if field.name not in names]
    ranges = {(reserved.start, reserved.end) for reserved in before.reserved_range}
    for start, end in sorted(ranges | {(field.number, field.number + 1) for field in gone}):
        message.reserved_range.add(start=start, end=end)
    message.reserved_name.extend(sorted(({field.name for field in gone} | set(before.reserved_name)).difference(names)))


def _check_names(struct: T.StructType, path: str) -> None:
    taken: dict[str, str] = {}
    for name in struct.names:
        check_name(name, path, FORM)
        other = taken.setdefault(_camel(name), name)
        if other != name:
            rule = f"it has the same name in JSON, {_camel(name)}, as {other!r}"
            raise NameNotAllowed(column=path + name, form=FORM, rule=rule)


def _camel(name: str) -> str:
    """Return the name that protoc gives to a map's entries: street_name -> StreetName."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_")) or name


# --- fitted -----------------------------------------------------------------------------------------------------------


@told_to_spark()
def encoded(rows: pa.Array, head: bytes, *, files: tuple[bytes, ...], name: str, plan: V.Values) -> pa.Array:
    """Encode the rows, on executors. Raises ValueNotInSchema or RegistryExtraMissing.

    `files`: the message's file and its imports, each as a FileDescriptorProto, behind those that it imports.
    """
    message = _message_class(files, name)

    def write(data: BinaryIO, row: dict[str, Any]) -> None:
        # Deterministic, because a map has no order, and equal Kafka keys must be equal bytes.
        data.write(message(**row).SerializeToString(deterministic=True))

    return framed(head, V.python_rows(rows, plan), write)


@functools.lru_cache(maxsize=16)
def _message_class(files: tuple[bytes, ...], name: str) -> Any:
    factory = extra("google.protobuf.message_factory", on_executor=True)
    return factory.GetMessageClass(descriptor_of(files, name, on_executor=True))


def descriptor_of(files: tuple[bytes, ...], name: str, *, on_executor: bool = False) -> Descriptor:
    """Return the descriptor, from a separate pool: two schemas with the same file name do not conflict."""
    pool = extra("google.protobuf.descriptor_pool", on_executor=on_executor).DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    descriptor: Descriptor = pool.FindMessageTypeByName(name)
    return descriptor


@read_as(FORM)
def fitted(
    schema: str | type[Message], columns: T.StructType, others: Mapping[str, str] = MappingProxyType({})
) -> ArrowEncoding:
    """Check that the schema fits. In a file the first message is used.

    `others`: the files that it imports, by path, each behind those that it imports itself.

    Raises SchemaUnreadable, or ColumnNotInSchema with the path of the first column that does not fit.
    """
    if isinstance(schema, str):
        files, name = files_of(schema, others)
        descriptor = descriptor_of(files, name)
    else:
        descriptor = schema.DESCRIPTOR
        name, files = descriptor.full_name, _with_imports([descriptor.file])
    text = base64.b64encode(files[-1]).decode("ascii")
    plan = _fit_message(columns, descriptor, "", None)
    encode = functools.partial(encoded, files=files, name=name, plan=plan)
    return ArrowEncoding(
        text, name, encode, tuple(indexes_of(descriptor)), lambda version: _references(descriptor.file, version, {})
    )


def files_of(text: str, others: Mapping[str, str]) -> tuple[tuple[bytes, ...], str]:
    """Return the file and its imports, each behind those that it imports, and the full name of the first message."""
    imports = {path: _file(one) for path, one in others.items() if not path.startswith(KNOWN_FOLDERS)}
    file = _file(text)
    if not file.message_type:
        raise SchemaUnreadable(form=FORM, reason="it has no message")
    name = f"{file.package}.{file.message_type[0].name}".lstrip(".")
    return (*_imported(file, imports), file.SerializeToString()), name


def _references(file: FileDescriptor, version: Version, known: dict[str, Any]) -> list[Any]:
    """`known`: those of files that were registered or looked up before, which grows."""
    official = extra("confluent_kafka.schema_registry")
    names = [imported.name for imported in file.dependencies if not imported.name.startswith(KNOWN_FOLDERS)]
    for imported in file.dependencies:
        if imported.name in names and imported.name not in known:
            text = base64.b64encode(imported.serialized_pb).decode("ascii")
            schema = official.Schema(text, SCHEMA_TYPE, _references(imported, version, known))
            known[imported.name] = official.SchemaReference(
                imported.name, imported.name, version(imported.name, schema)
            )
    return [known[name] for name in names]


def _file(text: str) -> FileDescriptorProto:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = protoc.compiled(text)
    try:
        file: FileDescriptorProto = extra("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(data)
    except extra("google.protobuf.message").DecodeError as error:
        raise SchemaUnreadable(form=FORM, reason=f"it is no FileDescriptorProto ({error})") from None
    return file


def _imported(file: FileDescriptorProto, others: Mapping[str, FileDescriptorProto]) -> tuple[bytes, ...]:
    """Return the files that the file imports, directly and indirectly. Raises SchemaUnreadable for a file that neither
    every registry has nor `others`."""
    known = []
    for path in dict.fromkeys(path for one in (*others.values(), file) for path in one.dependency):
        if path.startswith(KNOWN_FOLDERS):
            known.append(_known_file(path))
        elif path not in others:
            reason = f"it imports {path}. Give the message class that protoc makes of it, or a Schema that refers to it"
            raise SchemaUnreadable(form=FORM, reason=reason)
    for path, one in others.items():
        one.name = path  # the registry does not keep a file's name
    return (*_with_imports(known), *(one.SerializeToString() for one in others.values()))


def _known_file(path: str) -> FileDescriptor:
    """Return a file of the folders that every registry has. Raises SchemaUnreadable if it is not in them."""
    # RegistryExtraMissing if a folder is missing.
    for one in KNOWN_FILES.values():
        extra(_module_of(one))
    try:
        file: FileDescriptor = importlib.import_module(_module_of(path)).DESCRIPTOR
    except ImportError:
        raise SchemaUnreadable(form=FORM, reason=f"it imports {path}, which there is not") from None
    return file


def _module_of(path: str) -> str:
    package = "confluent_kafka.schema_registry." if path.startswith("confluent/") else ""
    return f"{package}{path.removesuffix('.proto').replace('/', '.')}_pb2"


def _with_imports(files: Iterable[FileDescriptor]) -> tuple[bytes, ...]:
    """Return the files behind their imports, each once: where two files import the same ones, they would double a
    level."""
    found: dict[str, bytes] = {}

    def add(file: FileDescriptor) -> None:
        if file.name not in found:
            for imported in file.dependencies:
                add(imported)
            found[file.name] = file.serialized_pb

    for file in files:
        add(file)
    return tuple(found.values())


def indexes_of(descriptor: Descriptor) -> Iterator[int]:
    """Yield the path to a message in its file, for the framing."""
    if descriptor.containing_type is not None:
        yield from indexes_of(descriptor.containing_type)
        siblings = descriptor.containing_type.nested_types
    else:
        siblings = list(descriptor.file.message_types_by_name.values())
    yield [one.full_name for one in siblings].index(descriptor.full_name)


def _fit_message(struct: T.StructType, message: Descriptor, path: str, why_no_null: str | None) -> V.Record:
    chosen: dict[str, str] = {}
    plans = []
    for column in struct.fields:
        field = message.fields_by_name.get(column.name)
        if field is None:
            raise does_not_fit(path + column.name, column.dataType, "no such field", FORM)
        one_of = field.containing_oneof
        if one_of is not None and len(one_of.fields) > 1:
            other = chosen.setdefault(one_of.name, column.name)
            if other != column.name:
                expected = f"either it or {other!r} (oneof {one_of.name}), and a row could have both"
                raise does_not_fit(path + column.name, "there", expected, FORM)
        plans.append((column.name, _fit_field(column.dataType, field, path + column.name)))
    for name, field in message.fields_by_name.items():
        if _is_required(field) and name not in struct.names:
            raise does_not_fit(path + name, "not there", "a required field", FORM)
    return V.Record(path.rstrip("."), why_no_null, tuple(plans))


def _fit_field(data_type: T.DataType, field: FieldDescriptor, path: str) -> V.Values:
    element = field.message_type
    if element is not None and element.GetOptions().map_entry:
        if isinstance(data_type, T.MapType):
            key = _fit_one(data_type.keyType, element.fields_by_name["key"], f"{path} (key)", "is null")
            within = "is null, and a Protobuf map holds none"
            value = _fit_one(data_type.valueType, element.fields_by_name["value"], f"{path}{{}}", within)
            if isinstance(key, V.Leaf):
                return V.Entries(path, None, key, value)
    elif is_repeated(field):
        if isinstance(data_type, T.ArrayType):
            within = "is null, and a repeated field of Protobuf holds none"
            return V.Items(path, None, _fit_one(data_type.elementType, field, f"{path}[]", within))
    else:
        no_null = "is null, which its field cannot tell from 0 or empty: it is not optional"
        return _fit_one(data_type, field, path, None if field.has_presence and not _is_required(field) else no_null)
    raise _field_does_not_fit(data_type, field, path)


def _fit_one(data_type: T.DataType, field: FieldDescriptor, path: str, why_no_null: str | None) -> V.Values:
    message = field.message_type
    if message is not None and isinstance(data_type, T.StructType):
        return _fit_message(data_type, message, f"{path}.", why_no_null)
    convert: V.Convert | None
    if field.enum_type is not None and isinstance(data_type, T.StringType):
        convert = V.one_of(frozenset(field.enum_type.values_by_name))
    elif isinstance(data_type, T.DecimalType):
        is_decimal = message is not None and message.full_name == DECIMAL
        convert = V.decimal_parts(data_type.scale) if is_decimal else None
    else:
        fits = FITS.get(type(data_type), {})
        convert = fits.get(kind_of(field))
        if message is not None and message.file.name == "google/protobuf/wrappers.proto":
            bare = fits.get(kind_of(message.fields_by_name["value"]))
            convert = V.wrapped(bare) if bare else None
    if convert is None:
        raise _field_does_not_fit(data_type, field, path)
    return V.Leaf(path, why_no_null, convert)


def kind_of(field: FieldDescriptor) -> str:
    kind: str = _kind_names()[field.type] if field.message_type is None else field.message_type.full_name
    return kind


@functools.cache
def _kind_names() -> dict[int, str]:
    types = extra("google.protobuf.descriptor_pb2").FieldDescriptorProto.Type.items()
    return {number: name.removeprefix("TYPE_").lower() for name, number in types}


def is_repeated(field: FieldDescriptor) -> bool:
    """Return True for a repeated field. protobuf 6.31 added `is_repeated`, and 7 removed `label`."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_required(field: FieldDescriptor) -> bool:
    return bool(field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED)


def _field_does_not_fit(data_type: T.DataType, field: FieldDescriptor, path: str) -> ColumnNotInSchema:
    return does_not_fit(path, data_type, f"{'repeated ' if is_repeated(field) else ''}{kind_of(field)}", FORM)

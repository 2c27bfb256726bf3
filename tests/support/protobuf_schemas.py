"""Random pairs of Protobuf schemas, a writer's and a reader's that has evolved from it, and values of the writer's."""

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from hypothesis import strategies as st


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of the message M in base64. `values`: arguments of the writer's class."""

    writer: str
    reader: str
    values: st.SearchStrategy[dict[str, Any]]


def _whole(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), _whole(32, signed=True)),
    **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), _whole(64, signed=True)),
    **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), _whole(32, signed=False)),
    **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), _whole(64, signed=False)),
    Field.TYPE_FLOAT: st.floats(width=32, allow_nan=False), Field.TYPE_DOUBLE: st.floats(allow_nan=False),
    Field.TYPE_BOOL: st.booleans(), Field.TYPE_STRING: st.text(max_size=4), Field.TYPE_BYTES: st.binary(max_size=4),
    Field.TYPE_ENUM: st.sampled_from([0, 1, 2]),
}  # fmt: skip
KEYS = [Field.TYPE_INT32, Field.TYPE_SINT64, Field.TYPE_BOOL, Field.TYPE_STRING]
NAMES = "RED", "GREEN", "BLUE"
# The reader's enum has no name for the last number.
KNOWN = NAMES[:2]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    written, read, values = _message(draw, "M", 2)
    texts = []
    for message, names in ((written, NAMES), (read, KNOWN)):
        file = FileDescriptorProto(name="m.proto", syntax="proto3", message_type=[message])
        colour = file.enum_type.add(name="Colour")
        for number, name in enumerate(names):
            colour.value.add(name=name, number=number)
        texts.append(base64.b64encode(file.SerializeToString()).decode())
    return Pair(texts[0], texts[1], values)


def _message(
    draw: st.DrawFn, name: str, depth: int, path: str = ""
) -> tuple[DescriptorProto, DescriptorProto, st.SearchStrategy[dict[str, Any]]]:
    written, read, values = DescriptorProto(name=name), DescriptorProto(name=name), dict[str, Any]()
    numbers: Iterator[int] = itertools.count(1)
    for _ in range(draw(st.integers(1, 4))):
        field, of_reader, strategy = _field(draw, next(numbers), depth, f"{path}.{name}", (written, read))
        written.field.append(field)
        values[field.name] = strategy
        match draw(st.sampled_from(["kept", "kept", "renamed", "gone"])):
            case "kept":
                read.field.append(of_reader)
            case "renamed":
                of_reader.name = f"new_{of_reader.name}"
                read.field.append(of_reader)
    if not read.field or draw(st.booleans()):
        read.field.append(_plain("added", next(numbers), draw(st.sampled_from(list(SCALARS)))))
    for message in written, read:
        # Synthetic, as protoc makes one for each optional field.
        for one in message.field:
            if one.proto3_optional:
                one.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{one.name}")
    return written, read, st.fixed_dictionaries(values) | st.fixed_dictionaries({}, optional=values)


def _plain(name: str, number: int, kind: Any, of: str = ".Colour") -> FieldDescriptorProto:
    named = {"type_name": of} if kind in (Field.TYPE_ENUM, Field.TYPE_MESSAGE) else {}
    return FieldDescriptorProto(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL, **named)


def _field(
    draw: st.DrawFn, number: int, depth: int, path: str, messages: tuple[DescriptorProto, DescriptorProto]
) -> tuple[FieldDescriptorProto, FieldDescriptorProto, st.SearchStrategy[Any]]:
    name, kind = f"f{number}", draw(st.sampled_from(["plain", "plain", "optional", "repeated", "map", "message"]))
    if kind == "message" and depth > 0:
        *both, values = _message(draw, f"N{number}", depth - 1, path)
        for message, nested in zip(messages, both, strict=True):
            message.nested_type.append(nested)
        fields = [_plain(name, number, Field.TYPE_MESSAGE, f"{path}.N{number}") for _ in messages]
        if draw(st.booleans()):
            return *_repeated(fields), st.lists(values, max_size=3)
        return fields[0], fields[1], values
    scalar = draw(st.sampled_from([*SCALARS, *3 * [Field.TYPE_ENUM]]))
    values = SCALARS[scalar]
    if kind == "map":
        key = draw(st.sampled_from(KEYS))
        for message in messages:
            # The name that protoc gives it.
            entry = message.nested_type.add(name=f"F{number}Entry")
            entry.options.map_entry = True
            entry.field.extend([_plain("key", 1, key), _plain("value", 2, scalar)])
        fields = [_plain(name, number, Field.TYPE_MESSAGE, f"{path}.F{number}Entry") for _ in messages]
        return *_repeated(fields), st.dictionaries(SCALARS[key], values, max_size=3)
    fields = [_plain(name, number, scalar) for _ in messages]
    if kind == "repeated":
        return *_repeated(fields), st.lists(values, max_size=3)
    for field in fields:
        field.proto3_optional = kind == "optional"
    return fields[0], fields[1], values


def _repeated(fields: list[FieldDescriptorProto]) -> list[FieldDescriptorProto]:
    for field in fields:
        field.label = Field.LABEL_REPEATED
    return fields


def row_of(message: Any) -> dict[str, Any]:
    """A message as a row of Spark."""
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        return {key: _one(one, of) for key, one in value.items()}
    if field.is_repeated:
        return [_one(one, field) for one in value]
    return _one(value, field) if not field.has_presence or message.HasField(field.name) else None


def _one(value: Any, field: Any) -> Any:
    if field.type == Field.TYPE_MESSAGE:
        return row_of(value)
    if field.type == Field.TYPE_ENUM:
        names = field.enum_type.values_by_number
        return names[value].name if value in names else str(value)
    return Decimal(value) if field.type in (Field.TYPE_UINT64, Field.TYPE_FIXED64) else value

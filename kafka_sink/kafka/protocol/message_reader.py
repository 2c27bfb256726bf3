"""Reads Kafka messages from bytes that are not trusted. A dataclass of kio describes the message.

kio's classes define the fields of each message version. kio's own reader trusts its input:

* It reserves memory for any array length that it reads: 5 bytes that claim 2^35 elements abort the process.
* It raises for an unknown error code or tagged field. But KIP-482 requires that unknown tags are skipped, and brokers
  are upgraded before clients.
* It raises for a log append time beyond year 9999.

Here a message becomes a plain dict of field name -> value. Error codes and times are the integers on the wire, nested
messages are dicts, and arrays are tuples. Malformed input raises ProtocolError. A length that exceeds the remaining
bytes is malformed. Lengths of strings and arrays are varints in "flexible" versions (KIP-482), and fixed before.

An element of an array takes a few bytes on the wire and hundreds in memory. So a `Budget` limits how many elements a
message may have: by what was asked where the request decides, and in total. A count over the budget is malformed,
before any element is read.

Source: https://kafka.apache.org/protocol (primitive types); org.apache.kafka.common.utils.ByteUtils (varints).
"""

from __future__ import annotations

import functools
import struct
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from kafka_sink.errors import ProtocolError

# The most elements of all arrays of a message, without numbers, and tagged fields: 350,000 partitions in Metadata, each
# the only one of its topic (as `api.MAX_FRAME_BYTES`).
MAX_ELEMENTS = 700_000
# Kafka's own generated readers refuse a longer string, in flexible versions too.
MAX_STRING_BYTES = 0x7FFF
# Look at the deadline after so many elements of one array.
_ELEMENTS_A_LOOK = 1_024


class Budget:
    """What one message may cost. `most`: name of an array -> the most elements that all arrays of this name have
    together. `is_late`: True once the message has taken too long to read."""

    __slots__ = ("_elements", "_left", "is_late")

    def __init__(
        self, most: Mapping[str, int] = types.MappingProxyType({}), is_late: Callable[[], bool] = lambda: False
    ):
        self._left = dict(most)
        self._elements = MAX_ELEMENTS
        self.is_late = is_late

    def take(self, name: str, count: int) -> None:
        """Raise ProtocolError if `count` elements more are too many."""
        left = self._left.get(name)
        if left is not None:
            if count > left:
                raise ProtocolError(f"{name} has {count} elements where at most {left} can answer")
            self._left[name] = left - count
        if count > self._elements:
            raise ProtocolError(f"{name} has {count} elements; a message may have {MAX_ELEMENTS}")
        self._elements -= count

    def take_numbers(self, name: str, count: int) -> None:
        """Raise ProtocolError if `count` numbers more are too many. Only a limit of their array counts them."""
        if name in self._left:
            self.take(name, count)

    def check_time(self) -> None:
        if self.is_late():
            raise ProtocolError("the answer takes too long to read")


# (data, position) -> (length, position after it)
ReadLength = Callable[[bytes, int], tuple[int, int]]
# (data, position, budget) -> (value, position after it)
Read = Callable[[bytes, int, Budget], tuple[Any, int]]


def read_message(
    message_type: type, data: bytes, position: int = 0, budget: Budget | None = None
) -> tuple[dict[str, Any], int]:
    """Return the message of `message_type` (a kio entity) at `position`, and the position after it.

    Raises ProtocolError if the bytes are not such a message, or exceed the budget.
    """
    try:
        return _message_reader(message_type)(data, position, Budget() if budget is None else budget)
    except (struct.error, IndexError):
        raise ProtocolError(f"{message_type.__name__} is cut off: {len(data)} bytes end inside a field") from None
    except UnicodeDecodeError:
        raise ProtocolError(f"{message_type.__name__} has a string that is not UTF-8") from None


# --- primitives -------------------------------------------------------------------------------------------------------


def _fixed(format: str) -> Read:
    packed = struct.Struct(format)

    def read(data: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        return packed.unpack_from(data, position)[0], position + packed.size

    return read


def _uuid(data: bytes, position: int, budget: Budget) -> tuple[uuid.UUID | None, int]:
    """Kafka's zero UUID stands for "none"."""
    end = position + 16
    _check_remaining(16, data, position)
    raw = data[position:end]
    return (uuid.UUID(bytes=raw) if any(raw) else None), end


def _unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ProtocolError("a varint is longer than 5 bytes")


def _length(data: bytes, position: int) -> tuple[int, int]:
    """Read a compact length, -1 for null."""
    length_plus_one, position = _unsigned_varint(data, position)
    _check_remaining(length_plus_one - 1, data, position)
    return length_plus_one - 1, position


def _check_remaining(needed: int, data: bytes, position: int) -> None:
    if needed > len(data) - position:
        raise ProtocolError(f"a length of {needed} where {len(data) - position} bytes are left")


def _fixed_length(format: str) -> ReadLength:
    """Return a reader of lengths in messages that are not flexible; -1 for null."""
    packed = struct.Struct(format)

    def read(data: bytes, position: int) -> tuple[int, int]:
        length = packed.unpack_from(data, position)[0]
        _check_remaining(length, data, position + packed.size)
        return max(length, -1), position + packed.size

    return read


def _bytes_of(read_length: ReadLength) -> Read:
    def read(data: bytes, position: int, budget: Budget) -> tuple[bytes | None, int]:
        length, position = read_length(data, position)
        return (None, position) if length < 0 else (data[position : position + length], position + length)

    return read


def _view_of(read_length: ReadLength) -> Read:
    """Return a reader of bytes that are not copied. They keep the whole message in memory."""

    def read(data: bytes, position: int, budget: Budget) -> tuple[memoryview | None, int]:
        length, position = read_length(data, position)
        return (None, position) if length < 0 else (memoryview(data)[position : position + length], position + length)

    return read


def _string_of(read_length: ReadLength) -> Read:
    read_bytes = _bytes_of(read_length)

    def read(data: bytes, position: int, budget: Budget) -> tuple[str | None, int]:
        raw, position = read_bytes(data, position, budget)
        if raw is not None and len(raw) > MAX_STRING_BYTES:
            raise ProtocolError(f"a string has {len(raw)} bytes; it may have {MAX_STRING_BYTES}")
        return (None if raw is None else raw.decode("utf-8")), position

    return read


# kio's names of the wire types. Error codes and times are read as integers.
_PRIMITIVES: dict[str, Read] = {
    "bool": _fixed(">?"),
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "uint16": _fixed(">H"),
    "uint32": _fixed(">I"),
    "float64": _fixed(">d"),
    "error_code": _fixed(">h"),
    "timedelta_i32": _fixed(">i"),
    "timedelta_i64": _fixed(">q"),
    "datetime_i64": _fixed(">q"),
    "uuid": _uuid,
    "string": _string_of(_length),
    "bytes": _bytes_of(_length),
    "records": _view_of(_length),
}
_NOT_FLEXIBLE = _PRIMITIVES | {
    "string": _string_of(_fixed_length(">h")),
    "bytes": _bytes_of(_fixed_length(">i")),
    "records": _view_of(_fixed_length(">i")),
}
# Arrays of these are read in one call.
_NUMBERS = {"int32": "i", "int64": "q"}
# For these types the wire can carry null, which only a nullable field may have.
_NULL_ON_THE_WIRE = frozenset({"string", "bytes", "records"})


# --- messages and arrays ----------------------------------------------------------------------------------------------


@functools.cache
def _message_reader(message_type: type) -> Read:
    flexible: bool = message_type.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    for field in fields(message_type):
        reader = _field_reader(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = (field.name, reader)
        else:
            plain.append((field.name, reader))

    def read(data: bytes, position: int, budget: Budget) -> tuple[dict[str, Any], int]:
        message = {}
        for name, read_value in plain:
            message[name], position = read_value(data, position, budget)
        if flexible:
            position = _read_tagged_fields(tagged, message, data, position, budget)
        return message, position

    return read


def _read_tagged_fields(
    tagged: dict[int, tuple[str, Read]], message: dict[str, Any], data: bytes, position: int, budget: Budget
) -> int:
    """Add the known tagged fields to `message` and skip the others (KIP-482)."""
    count, position = _unsigned_varint(data, position)
    if not count:
        return position
    budget.take("tagged fields", count)
    for _ in range(count):
        tag, position = _unsigned_varint(data, position)
        size, position = _unsigned_varint(data, position)
        _check_remaining(size, data, position)
        end = position + size
        if tag in tagged:
            name, read_value = tagged[tag]
            message[name], position = read_value(data, position, budget)
            if position != end:
                raise ProtocolError(f"tagged field {tag} is not as long as it says")
        position = end
    return position


def _field_reader(field: Field[Any], flexible: bool) -> Read:
    of_type, nullable = _strip_optional(field.type)
    if typing.get_origin(of_type) is tuple:
        element_type = typing.get_args(of_type)[0]
        read_length = _length if flexible else _fixed_length(">i")
        element_type = _strip_optional(element_type)[0]
        number = None if is_dataclass(element_type) else _NUMBERS.get(field.metadata["kafka_type"])
        if number is not None:
            reader = _array_of_numbers(field.name, number, read_length)
        else:
            reader = _array(field.name, _value_reader(field, element_type, flexible), read_length)
        return reader if nullable else _not_null(field.name, reader)
    reader = _value_reader(field, of_type, flexible)
    can_be_null = field.metadata.get("kafka_type") in _NULL_ON_THE_WIRE
    return _not_null(field.name, reader) if can_be_null and not nullable else reader


def _strip_optional(of_type: Any) -> tuple[Any, bool]:
    """Return `T | None` as (T, True), and any other type as (type, False)."""
    if typing.get_origin(of_type) not in (types.UnionType, typing.Union):
        return of_type, False
    (inner,) = (argument for argument in typing.get_args(of_type) if argument is not types.NoneType)
    return inner, True


def _value_reader(field: Field[Any], of_type: Any, flexible: bool) -> Read:
    if is_dataclass(of_type):
        return _message_reader(of_type)  # type: ignore[arg-type]
    return (_PRIMITIVES if flexible else _NOT_FLEXIBLE)[field.metadata["kafka_type"]]


def _array(name: str, read_element: Read, read_length: ReadLength) -> Read:
    def read(data: bytes, position: int, budget: Budget) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_length(data, position)
        if count <= 0:
            return (None if count < 0 else ()), position
        budget.take(name, count)
        elements = []
        for index in range(count):
            if not index % _ELEMENTS_A_LOOK:
                budget.check_time()
            element, position = read_element(data, position, budget)
            elements.append(element)
        return tuple(elements), position

    return read


def _array_of_numbers(name: str, format: str, read_length: ReadLength) -> Read:
    """All in one call. A number takes 9 times its bytes on the wire, a partition made of it 20 times, so the frame
    limits them."""
    size = struct.calcsize(f">{format}")

    def read(data: bytes, position: int, budget: Budget) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_length(data, position)
        if count < 0:
            return None, position
        _check_remaining(count * size, data, position)
        budget.take_numbers(name, count)
        return struct.unpack_from(f">{count}{format}", data, position), position + count * size

    return read


def _not_null(name: str, read_value: Read) -> Read:
    def read(data: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        value, position = read_value(data, position, budget)
        if value is None:
            raise ProtocolError(f"{name} is null")
        return value, position

    return read

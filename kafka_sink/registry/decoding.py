"""Decodes framed records on executors, and asks the registry for schemas that a worker has not seen.

A worker process keeps the reader's schema, and what it has made of each writer's schema. So it asks the registry once
for an id, and never again in a later micro-batch. Known ids go on if the registry is down. An unknown id then fails the
task, and Spark runs the task again.

Records of a writer are decoded together, in chunks. So Python's objects take a multiple of `CHUNK_BYTES`, or of the
largest record.

Source: Confluent's "Wire format"; DualSchemaIdDeserializer, for ids in headers.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import RecordUndecodable, SchemaIdsUnknown, SchemaUnreadable
from kafka_sink.errors.quoting import quoted
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.registry.arrays import BadRecord, Make, arrow_type, placed
from kafka_sink.registry.column import READS, check_rules
from kafka_sink.registry.references import Written
from kafka_sink.registry.registering import Registry

CHUNK_BYTES = 1024 * 1024
# Bounds of what a worker keeps: readers, and for each of them writers' schemas and the size of their texts.
MOST_READERS = 16
MOST_WRITERS = 1_000
MOST_CHARACTERS = 64 * 1024 * 1024
# A type counts as so many characters: a short text that names types again and again is long once it is resolved.
CHARACTERS_OF_TYPE = 100
# Of a reason, which is in each row, and may quote names of the writer's schema.
MOST_REASON_CHARACTERS = 300
# Ids that the registry does not know are asked for again after this time. More of them fail the task: each costs a
# request, and records of other systems may have any bytes there.
UNKNOWN_FOR_MS = 60_000
MOST_UNKNOWN = 100
MAGIC, MAGIC_GUID = 0, 1
ID_BYTES, GUID_BYTES = 4, 16
# A path within nested messages of Protobuf.
MOST_INDEXES = 100

# The id or the GUID of a writer's schema, and for Protobuf the path to the message.
Head = tuple[int | str, tuple[int, ...]]
Int64s = npt.NDArray[np.int64]
# Rows, and the place where the payload of each begins.
Members = tuple[Int64s, Int64s]
ANY: Head = (0, ())


@dataclass(frozen=True, slots=True)
class Writer:
    """How records of a writer's schema are decoded. `parse`: makes a value of a record and the place where its payload
    begins. `make`: makes an array of the reader's type. `message`: the path to the only message that is read. `types`:
    how many types of the writer's schema it keeps, with named types in each place. `program`: the same, much faster, of
    the records that it takes; `parse` and `make` get the others. `bad`: what `parse` raises for bytes that are no
    record, besides BadRecord. Any other error is a defect, which fails the task."""

    parse: Callable[[bytes, int], Any]
    make: Make
    message: tuple[int, ...] = ()
    types: int = 0
    program: Program | None = None
    bad: tuple[type[Exception], ...] = ()


class Program(Protocol):
    def decoded(self, data: pa.Array, rows: Int64s, starts: Int64s) -> Iterator[tuple[pa.Array, npt.NDArray[np.bool_]]]:
        """Yield arrays of the records that were read, and which of the next rows these were."""


class Reader(Protocol):
    """A reader's schema, of one of the forms. The names in capitals are as in the modules that write.

    `needs_writers`: decoding needs the writer's schema. `has_indexes`: the framing has the path to a message.
    """

    FORM: str
    SCHEMA_TYPE: str
    REGISTRY_FORMAT: str | None
    needs_writers: bool
    has_indexes: bool
    spark_type: Any

    def writer(self, written: Written | None) -> Writer:
        """Return what decodes records of this writer's schema. Raises BadRecord if the reader cannot read it.

        `written`: None if the form does not need it.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """What executors need. `key`: tells apart what a worker keeps. `reader`: makes the Reader."""

    key: str
    reader: Callable[[], Reader] = field(repr=False)
    conf: Mapping[str, Any] = field(repr=False)
    subject: str
    null_if_bad: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Columns of a batch. `headers`: the value of the header with the id. `places`: topics, partitions and offsets."""

    data: pa.Array
    headers: pa.Array
    places: tuple[pa.Array, pa.Array, pa.Array]


def decoded(reading: Reading, batch: Batch) -> pa.Array:
    """Return the decoded records, or with `null_if_bad` structs of them and of the reason why a record is null.

    Raises RecordUndecodable, SchemaIdsUnknown, or another RegistryError.
    """
    if (decoder := _KEPT.get(reading.key)) is None:
        decoder = Decoder(reading)
        _KEPT[reading.key] = decoder
        while len(_KEPT) > MOST_READERS:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(reading.key)
    array, reasons = decoder.decoded(batch)
    if reading.null_if_bad:
        texts = pa.nulls(len(array), pa.string())
        if reasons:
            texts = pa.array([reasons.get(row) for row in range(len(array))], pa.string())
        both = pa.struct([pa.field("value", array.type), pa.field("reason", pa.string())])
        return pa.Array.from_buffers(both, len(array), [None], children=[array, texts])
    if reasons:
        row = min(reasons)
        topic, partition, offset = (column[row].as_py() for column in batch.places)
        raise RecordUndecodable(topic=topic, partition=partition, offset=offset, reason=reasons[row])
    return array


class Decoder:
    """Decodes for one reader's schema, in one worker."""

    def __init__(self, reading: Reading) -> None:
        self.reader = reading.reader()
        self.arrow = arrow_type(self.reader.spark_type)
        self.writers = Writers(reading, self.reader)

    def decoded(self, batch: Batch) -> tuple[pa.Array, dict[int, str]]:
        """Return the records, and for those that could not be decoded the reason by row."""
        data = batch.data
        reasons: dict[int, str] = {}
        arrays: list[pa.Array] = []
        order: list[Int64s] = []
        for head, (rows, starts) in self._by_head(data, batch.headers, reasons).items():
            of_schema, message = head
            writer = self.writers.get(of_schema)
            if not isinstance(writer, str) and message != writer.message:
                writer = f"its message is another one than that of the reader (schema {_shown(of_schema)})"
            if isinstance(writer, str):
                reasons.update((row, writer) for row in rows.tolist())
                continue
            for array, its_rows in _decoded(writer, data, rows, starts, reasons):
                arrays.append(array)
                order.append(its_rows)
        if not arrays:
            return pa.nulls(len(data), self.arrow), reasons
        whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        places = np.concatenate(order)
        in_order = len(places) == len(data) and bool((places[1:] > places[:-1]).all())
        return (whole if in_order else placed(whole, places, len(data))), reasons

    def _by_head(self, data: pa.Array, headers: pa.Array, reasons: dict[int, str]) -> dict[Head, Members]:
        """Return the rows of each writer, with the place where the payload begins. A null row is in none."""
        found: dict[Head, list[Members]] = {}
        rest = np.arange(len(data))
        if self.reader.needs_writers and not self.reader.has_indexes:
            rest, of_ids = by_id(data, headers)
            found = {(of_id, ()): [members] for of_id, members in of_ids.items()}
        others: dict[Head, list[tuple[int, int]]] = {}
        for row, record, header in zip(rest.tolist(), _python(data, rest), _python(headers, rest), strict=True):
            if record is None:
                continue
            try:
                head, end = head_of(record if header is None else header, self.reader.has_indexes)
            except BadRecord as bad:
                reasons[row] = str(bad)
                continue
            start = end if header is None else 0
            others.setdefault(head if self.reader.needs_writers else ANY, []).append((row, start))
        for head, members in others.items():
            rows, starts = np.array(members, np.int64).T.copy()
            found.setdefault(head, []).append((rows, starts))
        return {head: parts[0] if len(parts) == 1 else _joined(parts) for head, parts in found.items()}


def by_id(data: pa.Array, headers: pa.Array) -> tuple[Int64s, dict[int, Members]]:
    """Return all rows but those with an id in their first bytes, and these by their id."""
    _, offsets, payload = data.buffers()
    count, width = len(data), 8 if pa.types.is_large_binary(data.type) else 4
    if not count or offsets is None or payload is None:
        return np.arange(count), {}
    ends = np.frombuffer(offsets, f"<i{width}", count + 1, data.offset * width).astype(np.int64)
    is_framed = np.diff(ends) > ID_BYTES
    if data.null_count:
        is_framed &= data.is_valid().to_numpy(zero_copy_only=False)
    if headers.null_count < count:
        is_framed &= headers.is_null().to_numpy(zero_copy_only=False)
    at = np.frombuffer(payload, np.uint8)
    rows = np.flatnonzero(is_framed)
    is_framed[rows] = at[ends[rows]] == MAGIC
    rows = np.flatnonzero(is_framed)
    ids = np.zeros(len(rows), np.int64)
    for place in range(1, 1 + ID_BYTES):
        ids = ids << 8 | at[ends[rows] + place]
    order = np.argsort(ids, kind="stable")
    cuts = np.flatnonzero(np.diff(ids[order])) + 1
    found = {int(ids[each[0]]): rows[each] for each in np.split(order, cuts) if len(each)}
    starts = {of_id: np.full(len(its), 1 + ID_BYTES, np.int64) for of_id, its in found.items()}
    return np.flatnonzero(~is_framed), {of_id: (its, starts[of_id]) for of_id, its in found.items()}


def _joined(parts: list[Members]) -> Members:
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([starts for _, starts in parts])


def _decoded(
    writer: Writer, data: pa.Array, rows: Int64s, starts: Int64s, reasons: dict[int, str]
) -> Iterator[tuple[pa.Array, Int64s]]:
    """Yield arrays of the writer's records, and their rows."""
    if writer.program is not None:
        done, is_read = 0, np.zeros(len(rows), bool)
        for array, are_read in writer.program.decoded(data, rows, starts):
            is_read[done : done + len(are_read)] = are_read
            if len(array):
                yield array, rows[done : done + len(are_read)][are_read]
            done += len(are_read)
        rows, starts = rows[~is_read], starts[~is_read]
    for first, end in _chunks(data, rows):
        of_chunk = rows[first:end]
        parsed, values = _parsed(writer, _python(data, of_chunk), of_chunk, starts[first:end], reasons)
        for array, its_rows in _made(writer.make, values, parsed, reasons):
            yield array, np.array(its_rows, np.int64)


def _python(array: pa.Array, rows: Int64s) -> list[bytes | None]:
    """Return the values of some rows."""
    if len(rows) < len(array):
        array = array.take(pa.array(rows))
    values: list[bytes | None] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _chunks(data: pa.Array, rows: Int64s) -> Iterator[tuple[int, int]]:
    """Yield the first place and the end of parts of `rows`, of CHUNK_BYTES, or of one larger record."""
    sizes_bytes = pc.binary_length(data.take(pa.array(rows))).to_pylist()
    first, size_bytes = 0, 0
    for place, one in enumerate(sizes_bytes):
        size_bytes += one
        if size_bytes > CHUNK_BYTES and place > first:
            yield first, place
            first, size_bytes = place, one
    if first < len(rows):
        yield first, len(rows)


def _parsed(
    writer: Writer, data: list[bytes | None], rows: Int64s, starts: Int64s, reasons: dict[int, str]
) -> tuple[list[int], list[Any]]:
    parsed, values = [], []
    bad: tuple[type[Exception], ...] = (BadRecord, *writer.bad)
    for record, row, start in zip(data, rows.tolist(), starts.tolist(), strict=True):
        try:
            values.append(writer.parse(record or b"", start))
            parsed.append(row)
        except bad as error:
            reasons[row] = _reason(error)
    return parsed, values


def _made(
    make: Make, values: list[Any], rows: list[int], reasons: dict[int, str]
) -> Iterator[tuple[pa.Array, list[int]]]:
    """Yield arrays and their rows. If a value does not fit, each half is tried alone, down to the bad record."""
    if not rows:
        return
    try:
        array = make(values)
    except (BadRecord, pa.ArrowException, RecursionError) as error:
        if len(rows) == 1:
            reasons[rows[0]] = _reason(error)
            return
        middle = len(rows) // 2
        yield from _made(make, values[:middle], rows[:middle], reasons)
        yield from _made(make, values[middle:], rows[middle:], reasons)
        return
    yield array, rows


def _reason(error: Exception) -> str:
    """Return a text without any part of the record, which the errors of libraries may quote."""
    match error:
        case MemoryError():
            raise error
        case BadRecord():
            return _short(str(error))
        case EOFError():
            return "it ends too early, or a length in it is wrong"
        case UnicodeDecodeError():
            return "a text in it is not UTF-8"
        case RecursionError():
            return "it is nested too deep"
        case json.JSONDecodeError():
            return f"it is not JSON, at character {error.pos}"
    return f"it is not of the schema that it was written with ({type(error).__name__})"


def _short(reason: str) -> str:
    return quoted(reason, MOST_REASON_CHARACTERS)


def head_of(data: bytes, has_indexes: bool) -> tuple[Head, int]:
    """Return the writer's schema, and the place behind it. Raises BadRecord.

    >>> head_of(bytes([0, 0, 0, 1, 2, 7]), has_indexes=False)
    ((258, ()), 5)
    """
    magic = data[0] if data else None
    if magic not in (MAGIC, MAGIC_GUID):
        raise BadRecord("it does not begin with a byte 0 or 1, as the serializers of a schema registry write it")
    end = 1 + (ID_BYTES if magic == MAGIC else GUID_BYTES)
    if len(data) < end:
        raise BadRecord("it is shorter than the id of a schema")
    of_schema = int.from_bytes(data[1:end], "big") if magic == MAGIC else str(uuid.UUID(bytes=data[1:end]))
    if not has_indexes:
        return (of_schema, ()), end
    count, end = _index(data, end)
    if count > MOST_INDEXES:
        raise BadRecord(f"its message is nested more than {MOST_INDEXES} levels deep")
    indexes = []
    for _ in range(count):
        index, end = _index(data, end)
        indexes.append(index)
    # The file's first message is written as no index at all.
    return (of_schema, tuple(indexes or (0,))), end


def _index(data: bytes, at: int) -> tuple[int, int]:
    """Read a number from 0, in zigzag encoding, of up to 5 bytes."""
    number = 0
    for place in range(5):
        if at >= len(data):
            raise BadRecord("it ends within the indexes of its message")
        number |= (data[at] & 0x7F) << 7 * place
        at += 1
        if data[at - 1] < 0x80:
            if number & 1:
                break
            return number >> 1, at
    raise BadRecord("an index of its message is no number from 0")


class Writers:
    """The writers' schemas that a worker knows, for one reader's."""

    def __init__(self, reading: Reading, reader: Reader) -> None:
        self._reading = reading
        self._reader = reader
        self._known: OrderedDict[int | str, tuple[Writer | str, int]] = OrderedDict()
        self._characters = 0
        # Why an id is taken as unknown, and until when, in monotonic ms.
        self._unknown: dict[int | str, tuple[str, int]] = {}
        self._registry: Registry | None = None

    def get(self, of_schema: int | str) -> Writer | str:
        """Return what decodes the writer's records, or the reason why none of them can be.

        Raises SchemaIdsUnknown, or another RegistryError if the registry cannot be asked.
        """
        if (known := self._known.get(of_schema)) is not None:
            self._known.move_to_end(of_schema)
            return known[0]
        if (unknown := self._unknown_still(of_schema)) is not None:
            return unknown
        writer, characters = self._new(of_schema)
        if of_schema not in self._unknown:
            self._keep(of_schema, writer, characters)
        return writer

    def _new(self, of_schema: int | str) -> tuple[Writer | str, int]:
        """Return what decodes the writer's records, or why nothing does, and the characters that it counts as."""
        written = self._asked(of_schema) if self._reader.needs_writers else None
        if isinstance(written, str):
            return written, len(written)
        characters = 0 if written is None else written.characters
        try:
            writer = self._reader.writer(written)
        except (BadRecord, RecursionError) as bad:
            return f"{_reason(bad)} (schema {_shown(of_schema)})", characters
        return writer, characters + writer.types * CHARACTERS_OF_TYPE

    def _keep(self, of_schema: int | str, writer: Writer | str, characters: int) -> None:
        self._known[of_schema] = writer, characters
        self._characters += characters
        while len(self._known) > MOST_WRITERS or (self._characters > MOST_CHARACTERS and len(self._known) > 1):
            _, (_, freed) = self._known.popitem(last=False)
            self._characters -= freed

    def _unknown_still(self, of_schema: int | str) -> str | None:
        now = monotonic_ms()
        self._unknown = {each: found for each, found in self._unknown.items() if found[1] > now}
        return self._unknown[of_schema][0] if of_schema in self._unknown else None

    def _asked(self, of_schema: int | str) -> Written | str:
        """Return the schema with those that it refers to, or why it cannot be used."""
        if len(self._unknown) >= MOST_UNKNOWN:
            raise SchemaIdsUnknown(subject=self._reading.subject, count=MOST_UNKNOWN)
        registry = self._registry = self._registry or Registry.of(self._reading.conf)
        try:
            schema = registry.by_id(of_schema, self._reading.subject, self._reader.REGISTRY_FORMAT)
            if schema is None:
                return self._unknown_now(of_schema, f"the schema registry has no schema {_shown(of_schema)}")
            if (why_not := self._why_not(schema)) is not None:
                return _short(f"schema {_shown(of_schema)}{why_not}")
            of = self._reader
            return Written.of(registry, schema, self._reading.subject, of.FORM, of.REGISTRY_FORMAT)
        except SchemaUnreadable as error:
            # What it refers to may be there later.
            return self._unknown_now(of_schema, f"schema {_shown(of_schema)}: {error.reason}")
        finally:
            # The client's own cache has no bound on bytes, and a worker lives long.
            registry.forget()

    def _why_not(self, schema: Any) -> str | None:
        if (schema.schema_type or "AVRO") != self._reader.SCHEMA_TYPE:
            return f" is of type {schema.schema_type}, not {self._reader.SCHEMA_TYPE}"
        try:
            check_rules(self._reader, schema, READS)
        except SchemaUnreadable as error:
            return f": {error.reason}"
        return None

    def _unknown_now(self, of_schema: int | str, reason: str) -> str:
        self._unknown[of_schema] = _short(reason), monotonic_ms() + UNKNOWN_FOR_MS
        return self._unknown[of_schema][0]


def _shown(of_schema: int | str) -> str:
    return f"with id {of_schema}" if isinstance(of_schema, int) else f"with GUID {of_schema}"


_KEPT: OrderedDict[str, Decoder] = OrderedDict()

"""Errors inside Spark's text: this module writes them in, and `kafka_sink.error_of` reads them back.

A worker's exception reaches the user's Python as the text of its traceback, inside the message of Spark's exception:

    [PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
      File ...
    kafka_sink.errors.TopicNotFound: topic 'orders' does not exist on the cluster ...
    pykafka: {"topic":"orders","waited_ms":60000}
    see: pykafka explain TopicNotFound
    because of:
      Traceback (most recent call last): ...

`told_to_spark` writes this form: the error in one line, its fields in the second line, what explains it, then the
cause, which Python would print first. `error_of` reads the text from its start: Spark's own words, then the indented
lines of a traceback, then the error. A text with any other beginning is another failure, even if it quotes an error. So
a row's value or a peer's answer cannot look like an error of this package. Nothing is unpickled.

Sail tells the class without its module, and no notes. So there the line of the fields is part of the message.

Source: pyspark/util.py (handle_worker_exception), error-conditions.json of Spark.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from textwrap import indent
from typing import Any

from kafka_sink import errors
from kafka_sink.errors import KafkaSinkError, WriteKind

_FIELDS, _CAUSE = "pykafka: ", "because of:\n"
# Longer fields would only fill a log, and the message has the same facts.
_MAX_FIELDS_CHARACTERS = 8_000

# The texts of Spark and Py4J before a worker's traceback, in any order. No part can contain text of a row or a peer.
_SPARKS_WORDS = re.compile(
    r"""
    \s+
    | \(STREAM_FAILED\)\s
    | \[STREAM_FAILED\]\ Query\ [^\n]*?\[id\ =\ [0-9a-f-]+,\ runId\ =\ [0-9a-f-]+\]\ terminated\ with\ exception:\s
    | \[PYTHON_DATA_SOURCE_ERROR\]\ Failed\ to\ [\w ]+:\s
    | \[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR\]\ Failed\ when\ [\w ]+:\s
    | (?:\[PYTHON_EXCEPTION\]\ )?An\ exception\ was\ thrown\ from\ the\ Python\ worker
      (?::\s|\.\ Please\ see\ the\ stack\ trace\ below\.\s)
    | \[PYTHON_EXCEPTION\]\ \[session:\ [\w-]+\]\ \[userId:\ [^]\n]*\]
      \ Found\ error\ inside\ foreachBatch\ Python\ process:\s
    | \[FOREACH_BATCH_USER_FUNCTION_ERROR\]\ [\w ]+\.\ Reason:\s
    | An\ exception\ was\ raised\ by\ the\ Python\ Proxy\.\ Return\ Message:\s
    | Job\ aborted\ due\ to\ stage\ failure:\ Task\ \d+\ in\ stage\ [\d.]+\ failed\ \d+\ times,
      \ most\ recent\ failure:\ Lost\ task\ [\d.]+\ in\ stage\ [\d.]+\ \(TID\ \d+\)\ \([^()\n]*\):\s
    | An\ error\ occurred\ while\ calling\ [\w.]+\.\s+:\s
    | (?:org\.apache\.spark|pyspark\.errors|py4j)\.[\w.$]*(?:Exception|Error):\s
    | Traceback\ \(most\ recent\ call\ last\):\n(?:\ \ [^\n]*\n)*
    # registry/json_schema.py: the JVM checks the values of that form.
    | \[USER_RAISED_EXCEPTION\]\ (?=kafka_sink\.errors\.ValueNotInSchema:\ )
    """,
    re.VERBOSE,
)
_PLACE = re.compile(r"@([0-9]{1,5})\+([0-9]{1,5})", re.ASCII)
_ERROR = re.compile(r"kafka_sink\.errors\.(\w+): ([^\n]*)(?:\n" + _FIELDS + r"(\{[^\n]*\}))?")
# Sail cuts a long text in its middle, which may be in the fields. Source: error.rs, commit_exec.rs of sail-data-source.
_ERROR_IN_SAIL = re.compile(
    r"(?:Write failed for partition \d+: )?(?:External error: )?(?:Python error: \[\w+::\w+\] )?"
    r"(\w+): ([^\n]*)\n" + _FIELDS + r"(\{[^\n]*)"
)


def in_sail() -> bool:
    """Return whether this process is Sail, which runs data sources itself."""
    return "pysail" in sys.modules


@contextmanager
def of_read() -> Iterator[None]:
    """Mark errors as those of a read: what they mean for the data is not what they mean for a write's."""
    try:
        yield
    except KafkaSinkError as error:
        raise error.of_read() from None


@contextmanager
def told_to_spark() -> Iterator[None]:
    """Raise errors in the form that reaches the user's Python, from every method that Spark calls.

    A function that is pickled by value, such as a nested function, uses it inside its body, because a decorator would
    be pickled too and cannot be.
    """
    try:
        yield
    except KafkaSinkError as error:
        raise legible(error) from None


def legible(error: KafkaSinkError) -> KafkaSinkError:
    """Return the error with its message in one line, and with its fields and its cause as notes.

    A traceback prints notes after the message.
    """
    if not any(note.startswith((_FIELDS, _CAUSE)) for note in error.__notes__):
        message = " ".join(str(error).splitlines())
        error.args = (message,)
        fields = {name: _shorter(value, message) for name, value in _json_fields(error)}
        note = json.dumps(fields, separators=(",", ":"))
        if len(note) > _MAX_FIELDS_CHARACTERS:
            note = "{}"
        if in_sail():
            error.args = ("\n".join((message, _FIELDS + note, *error.__notes__)),)
        if in_sail() or note != "{}":
            error.__notes__.insert(0, _FIELDS + note)
        cause = next(_causes(error), None)
        # If the error was read from Spark's text, that text would only repeat it.
        if cause is not None and error_of(cause) is None:
            error.add_note(_CAUSE + indent("".join(traceback.format_exception(cause)), "  "))
    return error


def error_of(failure: Any) -> KafkaSinkError | None:
    """Return the error of this package behind `failure`, or None if the failure has another cause.

    `failure`: an exception of Spark, Spark Connect or Py4J, a streaming query that has ended, or the text of an
    exception such as `QueryTerminatedEvent.exception`. The result has the class and the message of the raised error. It
    has its fields if Spark passed on the whole text. `__cause__` is Spark's exception.

    Examples:
        >>> try:
        ...     spark.range(3).write.format("pykafka").mode("append").option("topics", "orders").save()
        ... except Exception as failure:
        ...     print(type(kafka_sink.error_of(failure)).__name__)
        UnknownOption
    """
    if callable(getattr(failure, "awaitTermination", None)):
        failure = failure.exception()
    if not isinstance(failure, BaseException):
        return _read(failure) if isinstance(failure, str) else None
    for exception in (failure, *_causes(failure)):
        if isinstance(exception, KafkaSinkError):
            return exception
        if (error := _read(str(exception))) is not None:
            error.__cause__ = failure
            return error
    return None


@contextmanager
def told_by_spark() -> Iterator[None]:
    """Raise the error of this package behind Spark's exception, or Spark's exception if there is none."""
    try:
        yield
    except KafkaSinkError:
        raise
    except Exception as failure:
        if (error := error_of(failure)) is None:
            raise
        raise error from error.__cause__


# --- into Spark's text ------------------------------------------------------------------------------------------------


def _json_fields(error: KafkaSinkError) -> Iterator[tuple[str, Any]]:
    """Yield the fields that JSON can represent, which are all fields of an error, but for those with their default."""
    for name, value in vars(error).items():
        if name.startswith("_") or (hasattr(type(error), name) and value == getattr(type(error), name)):
            continue
        shown = value.name if isinstance(value, Enum) else value
        try:
            json.dumps(shown)
        except TypeError:
            continue
        yield name, shown


def _shorter(value: Any, message: str) -> Any:
    """Return a text that the message has, too, as its place there: "@first+length". Any other that begins with @ has
    another @ before it."""
    if not isinstance(value, str):
        return value
    place = f"@{message.find(value)}+{len(value)}"
    if value in message and len(place) < len(value):
        return place
    return f"@{value}" if value.startswith("@") else value


def _causes(exception: BaseException) -> Iterator[BaseException]:
    """Yield the chain of causes and contexts. For PySpark's exceptions it includes the JVM's cause."""
    seen = {id(exception)}
    at: BaseException | None = exception
    while at is not None:
        behind = at.__cause__ or getattr(at, "_cause", None) or (None if at.__suppress_context__ else at.__context__)
        at = behind if isinstance(behind, BaseException) and id(behind) not in seen else None
        if at is not None:
            seen.add(id(at))
            yield at


# --- out of Spark's text ----------------------------------------------------------------------------------------------


def _read(text: str) -> KafkaSinkError | None:
    at = 0
    while (words := _SPARKS_WORDS.match(text, at)) is not None:
        at = words.end()
    found = _ERROR.match(text, at) or _ERROR_IN_SAIL.match(text)
    cls = None if found is None else getattr(errors, found[1], None)
    if found is None or not (isinstance(cls, type) and issubclass(cls, KafkaSinkError)):
        return None
    error = cls.__new__(cls, found[2])
    error.args = (found[2],)
    error.__dict__.update(_read_fields(found[3], found[2]))
    return error


def _read_fields(text: str | None, message: str) -> dict[str, Any]:
    """Return the fields, or none if the text was cut off. Some are places in the message (`_shorter`)."""
    try:
        fields = json.loads(text or "{}")
    except ValueError:
        return {}
    return {
        name: _restored(name, value, message)
        for name, value in fields.items()
        if name.isidentifier() and name[0] != "_"
    }


def _restored(name: str, value: Any, message: str) -> Any:
    if name == "write_kind":
        return WriteKind[value] if value in WriteKind.__members__ else None
    if isinstance(value, list):
        return tuple(_restored("", each, message) for each in value)
    if name and isinstance(value, str) and value.startswith("@"):
        place = _PLACE.fullmatch(value)
        return value[1:] if place is None else message[int(place[1]) :][: int(place[2])]
    return value

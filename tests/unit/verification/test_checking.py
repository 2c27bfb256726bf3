from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.verification.checking import Log, Record, Verdict, all_absent, check
from kafka_sink.verification.encoding import RunChecksum
from kafka_sink.verification.receipts import Run

RECORDS = [Record(offset, b"k", b"v%d" % offset, (("h", None),), 1_000 + offset, False) for offset in range(10, 20)]
LOG = Log(start=0, visible_end=100, end=100, is_compacted=False)


def summed(records: list[Record]) -> int:
    checksum = RunChecksum(1_000)
    for record in records:
        checksum.add(record.key, record.value, record.headers, record.timestamp_ms)
    return checksum.crc


RUN = Run("file", "query", 4, False, "t", None, 0, 10, 10, summed(RECORDS), 1_000)


def test_all_and_the_same() -> None:
    found = check(RUN, RECORDS, LOG)
    assert (found.verdict, found.absent, found.absent_count) == (Verdict.EQUAL, (), 0)


@pytest.mark.parametrize("change", [{"value": b"other"}, {"key": None}, {"headers": ()}, {"timestamp_ms": 5}])
def test_one_that_is_another(change: dict[str, object]) -> None:
    records = [*RECORDS[:4], RECORDS[4]._replace(**change), *RECORDS[5:]]  # type: ignore[arg-type]
    found = check(RUN, records, LOG)
    assert found.verdict is Verdict.ALTERED
    assert f"{RUN.checksum:08x} in the receipt" in found.why


@pytest.mark.parametrize(
    ("log", "verdict", "why"),
    [
        (LOG, Verdict.MISSING, "the log goes from 0 to 99 and has no records there"),
        (replace(LOG, is_compacted=None), Verdict.MISSING, "could not be asked"),
        (replace(LOG, is_compacted=True), Verdict.COMPACTED, "compacted"),
    ],
)
def test_records_that_are_not_there_are_told_by_their_offsets(log: Log, verdict: Verdict, why: str) -> None:
    found = check(RUN, [record for record in RECORDS if record.offset not in (10, 14, 15, 19)], log)
    assert (found.verdict, found.absent, found.absent_count) == (verdict, ((10, 10), (14, 15), (19, 19)), 4)
    assert why in found.why


@pytest.mark.parametrize(
    ("log", "there", "verdict"),
    [
        (replace(LOG, start=15), range(15, 20), Verdict.DELETED),
        (replace(LOG, start=90), range(0), Verdict.DELETED),
        (replace(LOG, start=15), range(16, 20), Verdict.MISSING),  # 15 is within the log
        (replace(LOG, visible_end=15), range(10, 15), Verdict.HIDDEN),
        (replace(LOG, visible_end=5), range(0), Verdict.HIDDEN),
        (replace(LOG, visible_end=15), range(10, 14), Verdict.MISSING),
        (replace(LOG, visible_end=15, end=15), range(10, 15), Verdict.MISSING),
        (replace(LOG, visible_end=5, end=5), range(0), Verdict.MISSING),
    ],
)
def test_why_they_are_not_there(log: Log, there: range, verdict: Verdict) -> None:
    found = check(RUN, [record for record in RECORDS if record.offset in there], log)
    assert found.verdict is verdict
    assert found.absent_count == 10 - len(there)


def test_broker_times_are_only_counted_unless_all_rows_had_their_batchs_time() -> None:
    brokers = [record._replace(timestamp_ms=77_777, is_brokers_time=True) for record in RECORDS]
    assert check(RUN, brokers, LOG).verdict is Verdict.COUNTED
    of_one_time = replace(RUN, checksum=summed([record._replace(timestamp_ms=1_000) for record in RECORDS]))
    assert check(of_one_time, brokers, LOG).verdict is Verdict.EQUAL
    assert check(RUN, brokers[1:], LOG).verdict is Verdict.MISSING


def test_a_topic_that_is_gone_has_none() -> None:
    found = all_absent(RUN, "gone")
    assert (found.verdict, found.absent, found.absent_count) == (Verdict.MISSING, ((10, 19),), 10)

"""What an export shows of its receipt file."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from kafka_sink.exporting.result import MAX_SHOWN, ExportResult, dropped_of, partitions_of, rows_of, size_text
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.verification.receipt_file import columns_of

PARTITIONS = (PartitionOffsets("t", 0, 9_000, 5, 9_004, 2, 60_000), PartitionOffsets("t", 2, 1, None, None, 1, 90))


def run(topic: str | None, partition: int | None, base_offset: int | None, count: int, **more: Any) -> dict[str, Any]:
    constant = {"rows": 12, "dropped": 0, "batch_bytes": 100}
    placed = {"topic": topic, "partition": partition, "base_offset": base_offset, "record_count": count}
    return constant | placed | more


def receipt(**fields: Any) -> ExportResult:
    return ExportResult(**{"topic": "t", "guarantee": "at-least-once", "duration_s": 1.25, "rows": 9_001, **fields})


def test_runs_become_partitions_in_their_order() -> None:
    runs = columns_of([
        run("u", 0, None, 2), run("t", 10, 3, 1), run("t", 2, 7, 4, dropped=2), run("t", 2, 20, 2),
        run("t", 2, None, 1), run(None, None, None, 0, dropped=1),
    ])  # fmt: skip
    assert partitions_of(runs) == (
        PartitionOffsets("t", 2, 7, 7, 21, 3, 300),
        PartitionOffsets("t", 10, 1, 3, 3, 1, 100),
        PartitionOffsets("u", 0, 2, None, None, 1, 100),
    )
    assert (rows_of(runs), dropped_of(runs)) == (12, 3)


def test_it_is_a_table() -> None:
    assert repr(receipt(partitions=PARTITIONS)).splitlines() == [
        "PARTITION     RECORDS    OFFSETS  BATCHES    BYTES",
        "t-0             9,000  5 - 9,004        2  60.0 kB",
        "t-2                 1    unknown        1     90 B",
        "2 partitions    9,001                   3  60.1 kB",
        "",
        "9,001 rows, at-least-once, in 1.25 s",
    ]


def test_it_says_what_became_of_bad_rows_and_where_the_file_is() -> None:
    told = receipt(dropped=3, dead_lettered=8, path="/data/r.parquet")
    assert told.written == 8_990
    assert told.summary == (
        "9,001 rows, at-least-once, in 1.25 s; 3 bad rows dropped; 8 bad rows in the dead-letter topic; "
        "receipt: /data/r.parquet"
    )


def test_rows_without_a_receipt_are_not_taken_for_lost_or_new() -> None:
    told = receipt(rows=None)
    assert told.written is None
    assert "all rows were written" in str(told) and "no receipt" in str(told)
    told = "nothing was written: this txnVersion or a later one was written before"
    assert str(receipt(rows=None, was_written_before=True)) == told
    assert "now or before" in str(receipt(rows=None, was_written_before=None))


def test_of_many_partitions_some_are_shown_and_all_are_counted() -> None:
    many = tuple(PartitionOffsets("t", n, 1, 0, 0, 1, 10) for n in range(MAX_SHOWN + 3))
    lines = repr(receipt(partitions=many)).splitlines()
    assert lines[MAX_SHOWN + 1].startswith("... 3 more")
    assert lines[MAX_SHOWN + 2].split()[:3] == ["43", "partitions", "43"]
    assert "more" not in repr(receipt(partitions=many[:MAX_SHOWN]))


def test_what_a_name_or_a_path_has_prints_in_one_line() -> None:
    hostile = "\x1b[2J\r\nERROR\u202e"
    told = receipt(partitions=(PartitionOffsets(hostile, 0, 1, 0, 0, 1, 1),), path=hostile)
    assert len(repr(told).split("\n")) == 5
    for text in (*repr(told).split("\n"), told._repr_html_()):
        assert text.isprintable()
    assert repr(told).count(r"\x1b[2J\r\nERROR\u202e") == told._repr_html_().count(r"\x1b[2J\r\nERROR\u202e") == 2


def test_a_notebook_gets_a_table_in_which_nothing_is_markup() -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.seen = set[str]()
            self.text = ""

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.seen.add(tag)

        def handle_data(self, data: str) -> None:
            self.text += data

    tags = Tags()
    harmful = "<script>x</script>"
    tags.feed(receipt(partitions=(PartitionOffsets(harmful, 0, 1, 0, 0, 1, 1),), path=harmful)._repr_html_())
    assert tags.seen == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert tags.text.count(harmful) == 2


def test_sizes_are_short() -> None:
    sizes = [size_text(size) for size in (0, 999, 1_000, 59_649, 3_000_000, 4_200_000_000, 7 * 10**12, 8 * 10**15)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "59.6 kB", "3.0 MB", "4.2 GB", "7.0 TB", "8,000.0 TB"]

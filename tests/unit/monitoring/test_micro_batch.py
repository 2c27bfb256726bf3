"""A micro-batch for its watchers: sums, rates, and one line."""

from __future__ import annotations

from dataclasses import replace

from kafka_sink.monitoring.bounded import OTHER
from kafka_sink.monitoring.micro_batch import BadRows, MicroBatch, Read, ReadTotals, Totals, Written

ONE = MicroBatch(
    query="orders", batch_id=42, input_row_count=1_200_000, duration_ms=1_250, write_ms=1_000, ended_s=1_700_000_000.0,
    written=Written({"b": Totals(800_000, 600, 64_000_000), "a": Totals(200_000, 200, 16_000_000)}),
)  # fmt: skip


def test_a_line_says_what_was_read_and_what_the_leaders_have() -> None:
    assert str(ONE) == (
        "orders #42: 1,200,000 rows in, 1,000,000 acknowledged (80.0 MB, 800 batches) by a, b in 1.25 s, 800,000 rows/s"
    )
    assert ONE.total == Totals(1_000_000, 800, 80_000_000)
    assert ONE.rows_per_s == 800_000
    filtered = replace(ONE, written=Written(), duration_ms=0)
    assert filtered.total == Totals(0, 0, 0)
    assert "0 acknowledged (0.0 MB, 0 batches) by no topic in 0.00 s, 0 rows/s" in str(filtered)


def test_a_line_tells_what_is_no_matter_of_course() -> None:
    took = Written(
        {"a": Totals(10, 1, 100, 4), "b": Totals(10, 1, 100, 3)},
        {BadRows("dropped", "KeyNull"): 2, BadRows("dropped", "TopicNull"): 1, BadRows("dead_lettered", "KeyNull"): 5},
        throttled_ms=2_500,
    )
    assert str(replace(ONE, written=took, lag={"0": 5_000, "1": 1})).endswith(
        " rows/s; 7 sent again; 3 bad rows dropped; 5 bad rows dead-lettered; tasks throttled for 2.5 s; "
        "5,001 records behind"
    )


def test_a_line_tells_what_was_read_what_is_lost_and_which_logs_are_broken() -> None:
    read = Read({"clicks": ReadTotals(1_100_000, 95_000_000), "views": ReadTotals(100_000, 500_000)})
    assert str(replace(ONE, read=read)).endswith(" rows/s; 1,200,000 read (95.5 MB) from clicks, views")
    lossy = read.plus(Read({"views": ReadTotals(0, 0, 1_200)}))
    assert str(replace(ONE, read=lossy, lag={"0": 5})).endswith(
        " from clicks, views; 5 records behind; DATA LOSS: 1,200 offsets of views left out"
    )
    assert str(replace(ONE, broken_logs={"0": 2, "1": 1})).endswith(
        "; DATA LOSS: 3 partitions were deleted, created again or truncated"
    )
    assert str(replace(ONE, broken_logs={"0": 0})).endswith(" rows/s")


def test_a_line_is_one_whatever_names_have() -> None:
    hostile = "\x1b[2J\r\nERROR\u202e"
    lossy = Read({hostile: ReadTotals(1, 1, 1)})
    line = str(replace(ONE, query=hostile, written=Written({hostile: Totals(1, 1, 1)}), read=lossy))
    assert line.isprintable()
    assert line.count(r"\x1b[2J\r\nERROR\u202e") == 4


def test_a_line_names_a_few_topics() -> None:
    many = Written({f"t{number:02}": Totals(1, 1, 1) for number in range(20)})
    assert "by t00, t01, t02, t03, t04, t05, t06, t07, others in" in str(replace(ONE, written=many))
    assert "by t, others in" in str(replace(ONE, written=Written({OTHER: Totals(1, 1, 1), "t": Totals(1, 1, 1)})))

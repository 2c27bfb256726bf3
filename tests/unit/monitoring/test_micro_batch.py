"""A micro-batch for its watchers: sums, rates, and one line."""

from __future__ import annotations

from dataclasses import replace

from kafka_sink.monitoring.micro_batch import MicroBatch, Totals

ONE = MicroBatch(
    query="orders", batch_id=42, input_row_count=1_200_000, duration_ms=1_250, write_ms=1_000, ended_s=1_700_000_000.0,
    topics={"b": Totals(800_000, 600, 64_000_000), "a": Totals(200_000, 200, 16_000_000)},
)  # fmt: skip


def test_topics_are_summed() -> None:
    assert ONE.written == Totals(1_000_000, 800, 80_000_000)
    assert ONE.rows_per_s == 800_000


def test_a_line_says_what_was_read_and_what_the_leaders_have() -> None:
    assert str(ONE) == (
        "orders #42: 1,200,000 rows in, 1,000,000 acknowledged (80.0 MB, 800 batches) by a, b in 1.25 s, 800,000 rows/s"
    )


def test_a_micro_batch_of_which_nothing_was_written_has_a_line_too() -> None:
    filtered = replace(ONE, topics={}, duration_ms=0)
    assert filtered.written == Totals(0, 0, 0)
    assert "0 acknowledged (0.0 MB, 0 batches) by no topic in 0.00 s, 0 rows/s" in str(filtered)

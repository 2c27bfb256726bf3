"""The acknowledged rows of a micro-batch from its receipt, for Spark Connect, which has no accumulators.

    spark.streams.addListener(ProgressListener(ReceiptTotals("/data/receipts"), ...))

The path is the write's `receiptsPath`, as this process can open it. The receipt exists before Spark reports the
micro-batch. It does not contain what was read, the throttling times, the reasons of bad rows, or which topic has dead
letters.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.monitoring.micro_batch import BadRows, Read, Run, Totals, TotalsByTopic, Written
from kafka_sink.text.redaction import reason_for
from kafka_sink.verification import receipt_file

log = logging.getLogger(__name__)

NOTHING_KNOWN = Written(throttled_ms=None)


class ReceiptTotals:
    """A source of `ProgressListener`."""

    def __init__(self, receipts_path: str) -> None:
        self._receipts_path = receipts_path

    def written_in(self, run: Run) -> Written:
        """Return the counts of the receipt, or empty counts without one. An unreadable receipt is logged."""
        try:
            filesystem, folder = receipt_file.filesystem_of(self._receipts_path)
            path = f"{folder}/{receipt_file.relative_path(run.query_id, run.batch_id)}"
            return _written(receipt_file.read(filesystem, path))
        except FileNotFoundError:
            return NOTHING_KNOWN
        except (OSError, pa.ArrowException) as error:
            reason = reason_for(self._receipts_path, error)
            log.warning("the receipt of micro-batch %d of query %s: %s", run.batch_id, run.query_id, reason)
            return NOTHING_KNOWN

    def read_in(self, run: Run) -> Read:
        """Return empty counts: it is unknown."""
        return Read()


def _written(runs: pa.Table) -> Written:
    dropped = pc.sum(runs["dropped"]).as_py()
    bad_rows = {BadRows("dropped", ""): dropped} if dropped else {}
    # `plus` limits the number of named topics, as for counted rows.
    return replace(Written().plus(Written(_by_topic(runs), bad_rows)), throttled_ms=None)


def _by_topic(runs: pa.Table) -> TotalsByTopic:
    """Sum up by topic. Rows without a topic were not written, or their place is unknown."""
    runs = runs.filter(pc.is_valid(runs["topic"]))
    retried = pc.multiply(runs["record_count"], pc.fill_null(runs["retries"], 0).cast(pa.int64()))
    summed = (
        runs.append_column("retried", retried)
        .group_by("topic")
        .aggregate([("record_count", "sum"), ("topic", "count"), ("batch_bytes", "sum"), ("retried", "sum")])
    )
    return {
        row["topic"]: Totals(row["record_count_sum"], row["topic_count"], row["batch_bytes_sum"], row["retried_sum"])
        for row in summed.to_pylist()
    }

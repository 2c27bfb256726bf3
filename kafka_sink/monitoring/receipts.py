"""What was acknowledged of a micro-batch by its receipt, where accumulators do not reach: Spark Connect.

    spark.streams.addListener(ProgressListener(ReceiptTotals("/data/receipts"), ...))

`receiptsPath` of the write, as this process reaches it. The receipt is there before Spark tells of the micro-batch. It
does not tell for how long tasks were throttled, the reasons of bad rows, nor which of its topics has dead letters.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.monitoring.micro_batch import BadRows, Run, Totals, TotalsByTopic, Written
from kafka_sink.text.redaction import reason_for
from kafka_sink.verification import receipt_file

log = logging.getLogger(__name__)

NOTHING_KNOWN = Written(throttled_ms=None)


class ReceiptTotals:
    """A source of `ProgressListener`."""

    def __init__(self, receipts_path: str) -> None:
        self._receipts_path = receipts_path

    def written_in(self, run: Run) -> Written:
        """Nothing where there is no receipt, or none that can be read, which is logged."""
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


def _written(runs: pa.Table) -> Written:
    dropped = pc.sum(runs["dropped"]).as_py()
    bad_rows = {BadRows("dropped", ""): dropped} if dropped else {}
    # Bounded as those that are counted.
    return replace(Written().plus(Written(_by_topic(runs), bad_rows)), throttled_ms=None)


def _by_topic(runs: pa.Table) -> TotalsByTopic:
    """Rows without a topic were not written, or nobody knows any more where."""
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

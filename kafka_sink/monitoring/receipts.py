"""What was acknowledged of a micro-batch by its receipt, where accumulators do not reach: Spark Connect.

    spark.streams.addListener(ProgressListener(ReceiptTotals("/data/receipts"), ...))

`receiptsPath` of the write, as this process reaches it. The receipt is there before Spark tells of the micro-batch.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink import receipt_file
from kafka_sink.monitoring.micro_batch import Run, Totals, TotalsByTopic
from kafka_sink.redaction import reason_for

log = logging.getLogger(__name__)


class ReceiptTotals:
    """A source of `ProgressListener`."""

    def __init__(self, receipts_path: str) -> None:
        self._receipts_path = receipts_path

    def topics_of(self, run: Run) -> TotalsByTopic:
        """Nothing where there is no receipt, or none that can be read, which is logged."""
        try:
            filesystem, folder = receipt_file.filesystem_of(self._receipts_path)
            path = f"{folder}/{receipt_file.relative_path(run.query_id, run.batch_id)}"
            return _by_topic(receipt_file.read(filesystem, path))
        except FileNotFoundError:
            return {}
        except (OSError, pa.ArrowException) as error:
            reason = reason_for(self._receipts_path, error)
            log.warning("the receipt of micro-batch %d of query %s: %s", run.batch_id, run.query_id, reason)
            return {}


def _by_topic(runs: pa.Table) -> TotalsByTopic:
    """Rows without a topic were not written, or nobody knows any more where."""
    runs = runs.filter(pc.is_valid(runs["topic"]))
    summed = runs.group_by("topic").aggregate([("record_count", "sum"), ("topic", "count"), ("batch_bytes", "sum")])
    return {
        row["topic"]: Totals(row["record_count_sum"], row["topic_count"], row["batch_bytes_sum"])
        for row in summed.to_pylist()
    }

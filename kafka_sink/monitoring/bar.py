"""A progress bar for an export, in a terminal or a notebook. Needs the extra `progress` (tqdm).

With Spark Connect there is no bar, because there are no accumulators.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession
from tqdm.auto import tqdm

from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.tally import ReceiptsByPartition, Tally

__all__ = ["ExportBar"]


class ExportBar(Interceptor):
    """A progress bar.

        with ExportBar(spark, total=df.count()) as bar:
            kafka_sink.register(spark, interceptors=[bar])
            df.write.format("pykafka").mode("append").options(...).save()

    It counts acknowledged rows, and moves when a task ends. With more and smaller tasks it moves more often. `total` is
    the number of rows; without it the bar shows only the count. `tally` is an existing tally to use again. Further
    arguments go to tqdm.

    Examples:
        >>> with ExportBar(spark, total=1_000) as bar:
        ...     kafka_sink.register(spark, interceptors=[bar])
        ...     _ = kafka_sink.export(spark.range(1_000), "clicks", value="json", bootstrap_servers=servers)
        >>> sum(receipt.record_count for receipt in bar.value.values())
        1000
    """

    def __init__(
        self, spark: SparkSession, total: int | None = None, *, tally: Tally | None = None, **of_tqdm: Any
    ) -> None:
        self._bar: tqdm[Any] | None = tqdm(total=total, **{"unit": " rows", "unit_scale": True, **of_tqdm})
        self._tally = Tally(spark) if tally is None else tally
        self._tally.watch(self._show)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the bar: tasks count, and show nothing."""
        return {"_bar": None, "_tally": self._tally}

    def __enter__(self) -> ExportBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._bar is not None, "tasks have no bar to leave"
        self._tally.unwatch()
        self._bar.close()

    @property
    def value(self) -> ReceiptsByPartition:
        """The rows acknowledged so far. Only the process that shows the bar can read it."""
        return self._tally.value

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._tally.on_acknowledgement(receipts, error)

    def _show(self, so_far: ReceiptsByPartition) -> None:
        assert self._bar is not None, "only the driver sums up"
        acknowledged = sum(receipt.record_count for receipt in so_far.values())
        self._bar.set_postfix(MB=round(sum(receipt.batch_bytes for receipt in so_far.values()) / 1e6, 1), refresh=False)
        self._bar.update(acknowledged - self._bar.n)

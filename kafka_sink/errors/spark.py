"""Errors about the call of a write, the results of its tasks, and the workers that run them."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError

__all__ = [
    "CommitRefused", "ContinuousTriggerUnsupported", "FormatNotReplaced", "InterceptorFailed", "PartitionsNotFixed",
    "ReadUnsupported", "TableUnsupported", "WorkerExhausted", "WriteModeUnsupported", "WriteWouldFail",
]  # fmt: skip


class WriteWouldFail(KafkaSinkError):
    """The first failure of the check, and the number of failures."""

    step: str
    where: str
    found: str
    remedy: str
    failures: int

    def explanation(self) -> Explanation:
        more = f" It is the first of {self.failures} failures." if self.failures > 1 else ""
        return self._told(
            f"the write would fail: step {self.step!r} of {self.where}: {self.found}.{more}",
            f"To fix it: {self.remedy}. kafka_sink.validate shows all steps.",
            data=DataState.NOTHING_SENT,
        )


class FormatNotReplaced(KafkaSinkError):
    """Spark 4.0 found the format by itself and refuses another registration (DataSourceManager.scala)."""

    spark_version: str

    _data = DataState.NOTHING_SENT
    _happened = (
        "Spark {spark_version} has found format 'pykafka' by itself and does not replace it, so it would not use the "
        "interceptors or the token of kafka_sink.register."
    )
    _advice = (
        "Use Spark 4.1 or later. Or deliver the package as a zip by --py-files, which Spark does not find by itself."
    )


class WorkerExhausted(KafkaSinkError):
    """`what`: "memory", "threads" or "open files"."""

    what: str
    reason: str
    advice: str

    _data = DataState.SENT_AGAIN
    _happened = "this Python worker has no more {what}: {reason}."
    _advice = "{advice}"


class CommitRefused(KafkaSinkError):
    """`missing`: Spark partitions whose task ended without a receipt. `micro_batch_id`: None for a batch write."""

    micro_batch_id: int | None
    missing: Sequence[int]
    tasks: int

    def explanation(self) -> Explanation:
        what = "batch write" if self.micro_batch_id is None else f"micro-batch {self.micro_batch_id}"
        shown = ", ".join(map(str, self.missing[:10]))
        return self._told(
            f"{what} is not committed: {len(self.missing)} of {self.tasks} tasks (Spark partitions {shown}) ended "
            "without a receipt for their rows.",
            "A continuous trigger never delivers rows to a Python sink: use processingTime or availableNow.",
            data=DataState.SENT_AGAIN,
        )


class WriteModeUnsupported(KafkaSinkError):
    _data = DataState.NOTHING_SENT
    _happened = "a Kafka topic cannot be overwritten."
    _advice = (
        "Use .mode('append') for a batch write, outputMode('append') for a stream (for update mode, "
        "kafka_sink.to_kafka)."
    )


class PartitionsNotFixed(KafkaSinkError):
    """Only on Sail: write_planner.rs and commit_exec.rs of sail-data-source."""

    _data = DataState.NOTHING_SENT
    _happened = (
        "Sail counts the partitions of a write before it optimizes the plan. It fails a write whose number the "
        "optimizer changed, after the rows are written."
    )
    _advice = (
        "Make .coalesce(1) the last step of the DataFrame and set option sailPartitions=1, or .repartition(n) and "
        "sailPartitions=n. kafka_sink.export does both for you."
    )


class ReadUnsupported(KafkaSinkError):
    _data = DataState.NO_DATA
    _happened = 'no table can be made of format("pykafka"): Spark does not give a table\'s options to its readers.'
    _advice = (
        'Read a batch with spark.read.format("pykafka"), a stream with spark.readStream.format("pykafka"), or in '
        "SQL with CREATE TEMPORARY VIEW ... USING pykafka OPTIONS (...)."
    )
    _known = "No row was read or sent."


class TableUnsupported(KafkaSinkError):
    _data = DataState.NOTHING_SENT
    _happened = (
        "the write belongs to a larger statement, such as saveAsTable or CREATE TABLE ... AS SELECT, which would leave "
        "a table that cannot be read."
    )
    _advice = 'Write with df.write.format("pykafka").mode("append").save().'


class ContinuousTriggerUnsupported(KafkaSinkError):
    _data = DataState.NOTHING_SENT
    _happened = "the stream has a continuous trigger, under which Spark hands no rows to a Python sink."
    _advice = "Use trigger(processingTime=...) or trigger(availableNow=True)."


class InterceptorFailed(KafkaSinkError):
    """`problem` has types and counts only. The interceptor's own error, which may quote a row, is the `__cause__`."""

    interceptor: str
    problem: str

    _data = DataState.SENT_AGAIN
    _happened = "interceptor {interceptor}: {problem}."
    _advice = "Correct the interceptor, or register the sink without it."
    _known = "The Arrow batch that it was given is not sent, not even as it was before the interceptor."

"""The executor half, and the driver's commit: Arrow batches of a task go through a producer, receipts come back.

Spark pickles a writer on the driver and runs `write` in a Python worker on an executor; `commit` and `abort` run on the
driver in another process (streaming: on a writer made anew from the options). So a writer is its options and its
interceptors and nothing else. Only tasks know Spark's conf (`source.py`), so the configuration is made there.

`write` reads its iterator to the end, because Spark drops what is left without a word. When something upstream of the
sink fails, the iterator merely ends early: the rows until then are written and the task's message is thrown away, which
is at-least-once.

Source: pyspark/sql/datasource.py, pyspark/sql/worker/write_into_data_source.py, python_streaming_sink_runner.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kafka_sink.client import lease
from kafka_sink.clock import wall_clock_ms
from kafka_sink.config import EXACTLY_ONCE, GivenOptions, complete, over_conf
from kafka_sink.doctor.first_aid import ensure_topic
from kafka_sink.errors import BadRow, NotPlanned, TableUnsupported, WriteKind
from kafka_sink.exhaustion import exhaustion_named
from kafka_sink.failures import told_to_spark
from kafka_sink.spark.bad_rows import ask_cluster, bad_row_policy, check_bad_rows, finish
from kafka_sink.spark.commit_message import TaskReceipt, check_all_present
from kafka_sink.spark.exactly_once import (
    ONLY_MICRO_BATCH,
    Plan,
    abort_micro_batch,
    abort_run,
    batch_identity,
    commit_micro_batch,
    is_exactly_once,
    make_plan,
    told_of_a_transaction,
    write_slot,
)
from kafka_sink.spark.garbage import spare_modules
from kafka_sink.spark.interceptor_chain import InterceptorChain
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.proof import Identity, TaskProof, row_identity, stream_identity
from kafka_sink.spark.rate import pace, rate_limit, tell_throttled, tell_too_fast
from kafka_sink.spark.receipt_writer import leave_receipt, make_folder


def write_task(
    options: GivenOptions,
    interceptors: Sequence[Interceptor],
    arrow_batches: Iterator[pa.RecordBatch],
    plan: Plan | None = None,
    identity: Identity | None = None,
) -> TaskReceipt:
    """Writes the rows of one task attempt and returns when leaders have acknowledged all of them. `plan`: that of the
    micro-batch, where it is to be exactly once; its rows are then visible to nobody yet. `identity`: a batch write's,
    for its receipt and its rows' headers; a stream's tasks know theirs.

    Raises ConfigError, SchemaError, InterceptorFailed, BadRow, ClusterError or DeliveryError, with a plan also
    ExactlyOnceError; the task then fails and Spark decides about another attempt.
    """
    chain = InterceptorChain(interceptors)
    try:
        with exhaustion_named():
            if plan is None:
                receipt = _write_rows(options, chain, arrow_batches, identity)
            else:
                receipt = write_slot(options, plan, chain, arrow_batches)
    # Whatever it was, also Spark's own: interceptors are told and the task fails with it.
    except Exception as error:
        if isinstance(error, BadRow) and (context := TaskContext.get()) is not None:
            error.in_spark_partition(context.partitionId())
        chain.on_acknowledgement((), error)
        raise
    else:
        chain.on_acknowledgement(receipt.partitions, None)
        chain.on_statistics(receipt.statistics)
        spare_modules()
        return receipt
    finally:
        chain.close()


def _write_rows(
    options: GivenOptions,
    chain: InterceptorChain,
    arrow_batches: Iterator[pa.RecordBatch],
    identity: Identity | None,
) -> TaskReceipt:
    started_ms = wall_clock_ms()
    context = TaskContext.get()
    config = complete(over_conf(options, _conf_of(context)))
    if config.delivery_guarantee == EXACTLY_ONCE:
        raise NotPlanned(option="deliveryGuarantee=exactly-once")
    ensure_topic(config)
    if identity is None and (config.receipts_path is not None or config.row_identity):
        identity = stream_identity(_conf_of(context))
    slot = context.partitionId() if context else 0
    with lease(config.producer) as producer:
        write = producer.begin(
            topic=config.topic,
            partitioner=config.partitioner,
            bad_rows=bad_row_policy(config, _conf_of(context), ask_cluster(config.producer)),
            rate_limit=rate_limit(config),
            row_identity=row_identity(config, identity, slot),
        )
        if config.receipts_path is not None:
            write.keep_runs()
        for to_send in chain.checked(arrow_batches, topic_option=config.topic is not None):
            write.append(to_send)
        receipts, bad_rows = finish(write, config)
        cluster_id = producer.cluster_id
    tell_throttled(write, config)
    proof = None
    if config.receipts_path is not None and identity is not None:
        proof = TaskProof(
            config.receipts_path, identity, config.delivery_guarantee, started_ms, wall_clock_ms(), write.runs
        )
    return TaskReceipt(
        spark_partition_id=slot,
        attempt_number=context.attemptNumber() if context else 0,
        record_count=write.record_count,
        partitions=receipts,
        topic_ids=write.topic_ids,
        proof=proof,
        bad_rows=bad_rows,
        pace=pace(config, started_ms),
        cluster_id=cluster_id,
        statistics=write.statistics(),
    )


def _conf_of(context: TaskContext | None) -> Mapping[str, str]:
    """Spark's conf as a task knows it. Not by `getLocalProperty`, which must be asked by name and so finds no name that
    is misspelled."""
    return (context and context._localProperties) or {}


def _refuse_table(conf: Mapping[str, str]) -> None:
    """Spark plans the write of saveAsTable like any other, but runs it within the statement's own execution, and takes
    the table back if it fails. So does foreachBatch, within its stream's. Raises TableUnsupported."""
    own, outer = conf.get("spark.sql.execution.id"), conf.get("spark.sql.execution.root.id")
    if outer is not None and own != outer and "sql.streaming.queryId" not in conf:
        raise TableUnsupported


def _check_receipts_path(options: GivenOptions) -> None:
    """One that only Spark's conf says is found unusable where the file is written."""
    if (path := options.get("receipts_path")) is not None:
        make_folder(path)


def _end_at_least_once(receipts: Sequence[TaskReceipt]) -> None:
    """The rows are in Kafka: of what is wrong now, users are told. Raises TooManyBadRows."""
    tell_too_fast(receipts)
    leave_receipt(receipts)
    check_bad_rows(receipts, rows_are_written=True)


class KafkaBatchWriter(DataSourceArrowWriter):
    """`df.write.format("pykafka")`."""

    def __init__(self, options: GivenOptions, interceptors: Sequence[Interceptor] = ()) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.plan: Plan | None = None
        # For receipts and rows: at-least-once has no other name for a batch write.
        self.identity = Identity(
            str(uuid.uuid4()), ONLY_MICRO_BATCH, WriteKind.BATCH, receipt_name=options.get("receipt_name")
        )

    @told_to_spark()
    def __getstate__(self) -> dict[str, Any]:
        """Pickled by the process that plans the write, and by no other."""
        _check_receipts_path(self.options)
        if is_exactly_once(self.options) and self.plan is None:
            self.plan = make_plan(self.options, *batch_identity(self.options))
        spare_modules()
        return self.__dict__

    @told_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        _refuse_table(_conf_of(TaskContext.get()))
        return write_task(self.options, self.interceptors, iterator, self.plan, self.identity)

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Raises CommitRefused when a task left no receipt. At-least-once needs nothing more: the rows are in Kafka.
        Exactly-once makes them visible here; raises ExactlyOnceError."""
        if not is_exactly_once(self.options):
            _end_at_least_once(check_all_present(messages, micro_batch_id=None))
            return
        with told_of_a_transaction(self.plan.batch if self.plan is not None else None):
            present = check_all_present(messages, micro_batch_id=None)
            check_bad_rows(present, rows_are_written=False)
        commit_micro_batch(self.options, present)

    @told_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """At-least-once has no way back: rows that tasks had written stay, and a rerun writes them again. Exactly-once
        ends the transactions that hold them."""
        if self.plan is not None:
            abort_run(self.options, self.plan.sink.names.sink, self.plan.facts.generation)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("pykafka")`. `checkpoint`: its location, where that is an option of the write."""

    def __init__(
        self, options: GivenOptions, interceptors: Sequence[Interceptor] = (), checkpoint: str | None = None
    ) -> None:
        self.options = options
        self.interceptors = tuple(interceptors)
        self.checkpoint = checkpoint
        self.plan: Plan | None = None

    @told_to_spark()
    def __getstate__(self) -> dict[str, Any]:
        """Pickled by the process that plans a micro-batch; the one that commits it makes a writer and pickles none."""
        _check_receipts_path(self.options)
        if is_exactly_once(self.options) and self.plan is None:
            self.plan = make_plan(self.options, None, checkpoint=self.checkpoint)
        spare_modules()
        return self.__dict__

    @told_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        return write_task(self.options, self.interceptors, iterator, self.plan)

    @told_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Raises CommitRefused when a task left no receipt, and with exactly-once ExactlyOnceError; then Spark does not
        record the micro-batch."""
        if not is_exactly_once(self.options):
            _end_at_least_once(check_all_present(messages, micro_batch_id=batchId))
            spare_modules()
            return
        with told_of_a_transaction(None):
            present = check_all_present(messages, micro_batch_id=batchId)
            check_bad_rows(present, rows_are_written=False)
        commit_micro_batch(self.options, present)
        spare_modules()

    @told_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Rows that tasks had written stay, and are written again when the micro-batch runs again. Exactly-once ends
        the transactions that hold them, so that nobody ever sees them."""
        if is_exactly_once(self.options):
            abort_micro_batch(self.options, messages, checkpoint=self.checkpoint)

"""Mutants that no test can distinguish from the module, or that do no harm, with the reason.

One that is not here fails the run when it survives. So does an entry here that is no mutation of its module any more,
and one that a test does kill: then it is out of date.
"""

from __future__ import annotations

from dataclasses import dataclass

from mutation.operators import Mutation


@dataclass(frozen=True, slots=True)
class Explained:
    """`before`, `after`: of the Mutation. Where a line of a function is there twice, it is about either."""

    path: str
    function: str
    before: str
    after: str
    reason: str

    def is_about(self, mutation: Mutation) -> bool:
        return (mutation.path, mutation.function, mutation.before, mutation.after) == (
            self.path,
            self.function,
            self.before,
            self.after,
        )


SEQUENCES = "kafka_sink/kafka/producer/sequences.py"
RECORD_BATCH = "kafka_sink/records/record_batch.py"
ACCUMULATOR = "kafka_sink/kafka/producer/accumulator.py"
PRODUCER_BATCH = "kafka_sink/kafka/producer/producer_batch.py"
FILLING = "kafka_sink/kafka/producer/filling.py"
BUFFER_POOL = "kafka_sink/kafka/producer/buffer_pool.py"
HANGING = "kafka_sink/commit/hanging.py"

EXPLAINED: tuple[Explained, ...] = (
    Explained(
        SEQUENCES,
        "",
        "NEVER = -1",
        "NEVER = -2",
        "no clock says either, and the name is compared with nothing but itself",
    ),
    *(
        Explained(
            SEQUENCES,
            "_PartitionState",
            "overtaking: int = 0",
            f"overtaking: int = {count}",
            "a partition's first batch goes alone, and its acknowledgement sets this before it is looked at",
        )
        for count in (-1, 1)
    ),
    Explained(
        RECORD_BATCH,
        "write_header",
        "unknown_crc = 0 # until the rest of the header is there",
        "unknown_crc = 1 # until the rest of the header is there",
        "the CRC is written over it, and does not cover itself",
    ),
    Explained(
        ACCUMULATOR,
        "RecordAccumulator._filling_for",
        "sums_records = KERNEL.sums_records and codec.id == NO_COMPRESSION",
        "sums_records = KERNEL.sums_records and codec.id != NO_COMPRESSION",
        "the header's function reads the records itself where their CRC is not known, and `close` forgets one that is "
        "no longer theirs: it would only take longer",
    ),
    Explained(
        ACCUMULATOR,
        "RecordAccumulator._needed_bytes",
        "if rows.largest_bytes <= self.pool.buffer_bytes and not self._limits:",
        "if rows.largest_bytes < self.pool.buffer_bytes and not self._limits:",
        "the long way finds a size that fits into one buffer, too",
    ),
    Explained(
        ACCUMULATOR,
        "RecordAccumulator.ready",
        "if self._urgent:",
        "if True:",
        "every partition is looked at, each time: those that have nothing to send yet are struck off again",
    ),
    Explained(
        ACCUMULATOR,
        "RecordAccumulator.ready",
        "self._pressing.update((topic_partition, None) for topic_partition, queue in self._queues.items() if queue)",
        "self._pressing.update((topic_partition, None) for topic_partition, queue in self._queues.items() if True)",
        "partitions that have nothing are struck off again at once",
    ),
    *(
        Explained(PRODUCER_BATCH, "ProducerBatch.__init__", before, after, reason)
        for before, after, reason in (
            ("self.records_bytes = 0", "pass", "`close` sets it, and it is read of closed batches only"),
            ("self.last_attempt_ms = 0", "self.last_attempt_ms = 1", "it is read of batches that were sent only"),
            ("self.retry_at_ms = 0", "self.retry_at_ms = 1", "it is read of batches that wait for a retry only"),
            ("self.retry_at_ms = 0", "self.retry_at_ms = -1", "it is read of batches that wait for a retry only"),
        )
    ),
    Explained(FILLING, "Filling.grow", "if more <= 0:", "if False:", "it grows by nothing"),
    Explained(
        FILLING,
        "Filling.take_out",
        "self._batches[place] = None",
        "pass",
        "the batch stays in memory until the place has its next one, and nobody looks for it there",
    ),
    Explained(
        BUFFER_POOL,
        "BufferPool.try_allocate",
        "buffer = self._several(count) if count > 1 else self._one()",
        "buffer = self._several(count) if True else self._one()",
        "one buffer is found as several neighbours are, only the long way",
    ),
    Explained(
        HANGING,
        "_Begun.are_rows_gone",
        "return self.since == NOTHING_OPEN or (self.first is not None and self.since > self.first)",
        "return self.since == NOTHING_OPEN or (self.first is not None and self.since >= self.first)",
        "where they are equal it is not made",
    ),
    Explained(
        HANGING,
        "_may_be_from_before",
        "return begun.since == NOTHING_OPEN or (begun.first is not None and begun.since < begun.first)",
        "return begun.since == NOTHING_OPEN or (begun.first is not None and begun.since <= begun.first)",
        "where they are equal it is not asked",
    ),
    Explained(
        PRODUCER_BATCH,
        "ProducerBatch.__init__",
        "self.last_attempt_ms = 0",
        "self.last_attempt_ms = -1",
        "it is looked at once the batch was sent, which sets it",
    ),
    Explained(
        PRODUCER_BATCH,
        "ProducerBatch.__init__",
        "self.retry_at_ms = 0",
        "pass",
        "it is looked at once the batch was tried, and that failed, which sets it",
    ),
    Explained(
        PRODUCER_BATCH,
        "ProducerBatch.close",
        "self.checksum = crc32c(records) if self.records_crc is None else self.records_crc",
        "self.checksum = crc32c(records) if True else self.records_crc",
        "the kernel has summed the same records",
    ),
    Explained(
        PRODUCER_BATCH,
        "ProducerBatch.close",
        "if codec.id == NO_COMPRESSION:",
        "if False:",
        "nothing is made smaller by no compression, and so left as it is",
    ),
    Explained(
        "kafka_sink/commit/two_phase.py",
        "abort_open",
        "for each, answer in zip(still_open, answers, strict=True):",
        "for each, answer in zip(still_open, answers, strict=False):",
        "there is an answer for each",
    ),
    Explained(
        HANGING,
        "end_hanging",
        "reason = refused.get((still[0].topic, still[0].partition))",
        "reason = refused.get((still[-1].topic, still[0].partition))",
        "the reason of another that hangs as well, if of another topic",
    ),
    Explained(
        HANGING,
        "end_hanging",
        "refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, strict=True)}",
        "refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, strict=False)}",
        "there is a reason for each, or an empty one",
    ),
    Explained(
        HANGING,
        "write_commit_markers",
        "codes = [answer.results[0].error_code for answer in answers]",
        "codes = [answer.results[-1].error_code for answer in answers]",
        "each request is about one partition, and so is its answer",
    ),
)

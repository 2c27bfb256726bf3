"""The mutated modules, which protect rows from loss, duplicates and partial writes, and their tests.

A mutant is tried with these tests only, in this order, until the first one fails: a module's own first, then those that
run it with its neighbours, then the model.

Beside them the mutants that no test can tell from the module, or that do no harm, each with the reason. The run fails
if a mutant survives and is not here. It also fails if an entry is out of date: its module has no such mutation any
more, or a test kills the mutant.
"""

from dataclasses import dataclass

from mutation.operators import Mutation


@dataclass(frozen=True, slots=True)
class Subject:
    """`path`: of the module, from the root. `tests`: folders or files of tests, or tests of one by pytest's node id."""

    path: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")


def _producer(name: str, *tests: str) -> Subject:
    paths = tuple(f"tests/unit/kafka/producer/test_{test}.py" for test in tests)
    return Subject(f"kafka_sink/kafka/producer/{name}.py", paths)


def _consumer(name: str, *tests: str) -> Subject:
    paths = tuple(f"tests/unit/kafka/consumer/test_{test}.py" for test in tests)
    return Subject(f"kafka_sink/kafka/consumer/{name}.py", paths)


def _stream(name: str, *tests: str) -> Subject:
    paths = tuple(f"tests/unit/spark/reading/test_{test}.py" for test in (*tests, "stream_plan"))
    return Subject(f"kafka_sink/spark/reading/{name}.py", paths)


# Of the model's those that find most of the known mistakes in the two-phase commit; all of them take ten times as long.
_EXPLORATIONS = tuple(
    f"tests/verification/model/test_exactly_once.py::test_rows_are_visible_once_whatever_happens[{family}]"
    for family in (
        "a driver may die before any two effects",
        "transactions may time out at any time",
        "a replay with other rows replaces what is not visible and stops at what is",
        "a version that a leader hides is not passed over as written",
        *(f"stale {who} coordinators may answer for a moment" for who in ("group", "transaction")),
    )
)
SUBJECTS: tuple[Subject, ...] = (
    _producer("sender", "sender", "throttling", "sender_under_faults", "transaction_manager", "topic_check"),
    _producer("accumulator", "accumulator", "sender"),
    _producer("delivery", "sender", "throttling", "sender_under_faults"),
    _producer("buffer_pool", "buffer_pool"),
    _producer("producer_batch", "producer_batch", "buffer_pool", "accumulator", "sender"),
    _producer("batch_split", "producer_batch", "sender"),
    _producer("sequences", "sequences", "sender"),
    _producer("error_policy", "sender"),
    _producer("transaction_manager", "transaction_manager", "sender"),
    _consumer("fetcher", "fetcher"),
    _consumer("fetch_policy", "fetch_policy", "fetcher"),
    _consumer("fetch_range", "fetcher"),
    _stream("continuity", "continuity", "marks"),
    _stream("positions", "plan", "continuity"),
    _stream("stream_logs", "marks"),
    _stream("stream_plan", "divide"),
    Subject("kafka_sink/records/record_batch.py", ("tests/unit/records/test_record_batch.py",)),
    *(
        Subject(f"kafka_sink/commit/{name}.py", ("tests/unit/commit", *_EXPLORATIONS))
        for name in ("planning", "attempt", "deciding", "ending")
    ),
    Subject(
        "kafka_sink/commit/requests.py",
        ("tests/unit/commit/test_requests.py", "tests/unit/commit/test_two_phase.py", *_EXPLORATIONS),
    ),
    Subject(
        "kafka_sink/commit/hanging.py", ("tests/unit/commit/test_hanging.py", "tests/unit/commit/test_two_phase.py")
    ),
)


@dataclass(frozen=True, slots=True)
class Explained:
    """`before`, `after`: as in the Mutation. If a function has the line twice, the entry is about both lines."""

    path: str
    function: str
    before: str
    after: str
    reason: str

    def is_about(self, mutation: Mutation) -> bool:
        return (mutation.path, mutation.function, mutation.before, mutation.after) == (
            self.path, self.function, self.before, self.after,
        )  # fmt: skip


SEQUENCES = "kafka_sink/kafka/producer/sequences.py"
RECORD_BATCH = "kafka_sink/records/record_batch.py"
ACCUMULATOR = "kafka_sink/kafka/producer/accumulator.py"
PRODUCER_BATCH = "kafka_sink/kafka/producer/producer_batch.py"
BUFFER_POOL = "kafka_sink/kafka/producer/buffer_pool.py"
HANGING = "kafka_sink/commit/hanging.py"
REQUESTS = "kafka_sink/commit/requests.py"
FETCH_POLICY = "kafka_sink/kafka/consumer/fetch_policy.py"
POSITIONS = "kafka_sink/spark/reading/positions.py"

EXPLAINED: tuple[Explained, ...] = (
    Explained(SEQUENCES, "", "NEVER = -1", "NEVER = -2",
              "no clock has either value, and the name is compared only with itself"),
    *(
        Explained(SEQUENCES, "_PartitionState", "overtaking: int = 0", f"overtaking: int = {count}",
                  "a partition's first batch goes alone, and its acknowledgement sets this before it is looked at")
        for count in (-1, 1)
    ),
    Explained(RECORD_BATCH, "write_header", "unknown_crc = 0 # until the rest of the header is written",
              "unknown_crc = 1 # until the rest of the header is written",
              "the CRC overwrites the value, and does not cover itself"),
    Explained(ACCUMULATOR, "RecordAccumulator._filling_for",
              "sums_records = KERNEL.sums_records and codec.id == NO_COMPRESSION",
              "sums_records = KERNEL.sums_records and codec.id != NO_COMPRESSION",
              "the function that writes the header reads the records if their CRC is unknown, and `close` drops a "
              "CRC that compression made wrong: the mutant only takes longer"),
    Explained(ACCUMULATOR, "RecordAccumulator._needed_bytes",
              "if rows.largest_bytes <= self.pool.buffer_bytes and not self._limits:",
              "if rows.largest_bytes < self.pool.buffer_bytes and not self._limits:",
              "the slower path also finds a size that fits into one buffer"),
    Explained(ACCUMULATOR, "RecordAccumulator.ready", "if self._urgent:", "if True:",
              "`ready` then looks at every partition each time, and removes those that have nothing to send yet"),
    Explained(ACCUMULATOR, "RecordAccumulator.ready",
              "self._pressing.update((topic_partition, None) for topic_partition, queue in self._queues.items() if "
              "queue)",
              "self._pressing.update((topic_partition, None) for topic_partition, queue in self._queues.items() if "
              "True)", "`ready` removes partitions that have nothing to send at once"),
    *(
        Explained(PRODUCER_BATCH, "ProducerBatch", "last_attempt_ms: int = 0", f"last_attempt_ms: int = {other}",
                  "it is read only after the batch was sent, and sending sets it")
        for other in (-1, 1)
    ),
    Explained(PRODUCER_BATCH, "Filling.grow", "if more <= 0:", "if False:", "the filling grows by zero places"),
    Explained(PRODUCER_BATCH, "Filling.take_out", "self._batches[place] = None", "pass",
              "the batch stays in memory until the place has its next batch, and no code looks for it there"),
    Explained(BUFFER_POOL, "BufferPool.try_allocate", "buffer = self._several(count) if count > 1 else self._one()",
              "buffer = self._several(count) if True else self._one()",
              "the search for several neighbouring buffers also finds one buffer, more slowly"),
    Explained(HANGING, "_Begun.are_rows_gone",
              "return self.since == NOTHING_OPEN or bool(self.lacks) or (self.first is not None and self.since > "
              "self.first)",
              "return self.since == NOTHING_OPEN or bool(self.lacks) or (self.first is not None and self.since >= "
              "self.first)", "a `_Begun` with equal offsets is made only if rows are lacking"),
    Explained(HANGING, "_may_be_from_before",
              "return begun.since == NOTHING_OPEN or bool(begun.lacks) or (begun.first is not None and begun.since < "
              "begun.first)",
              "return begun.since == NOTHING_OPEN or bool(begun.lacks) or (begun.first is not None and begun.since "
              "<= begun.first)", "with equal offsets the function is called only if rows are lacking"),
    Explained(PRODUCER_BATCH, "ProducerBatch.close",
              "self.checksum = crc32c(records) if self.records_crc is None else self.records_crc",
              "self.checksum = crc32c(records) if True else self.records_crc",
              "the kernel has computed the CRC of the same records"),
    Explained(PRODUCER_BATCH, "ProducerBatch.close", "if codec.id == NO_COMPRESSION:", "if False:",
              "the codec without compression makes no records smaller, so they stay as they are"),
    Explained("kafka_sink/commit/ending.py", "abort_open",
              "for each, answer in zip(still_open, answers, strict=True):",
              "for each, answer in zip(still_open, answers, strict=False):", "there is an answer for each"),
    Explained(HANGING, "end_hanging", "reason = refused.get((still[0].topic, still[0].partition))",
              "reason = refused.get((still[-1].topic, still[0].partition))",
              "the reason can be that of another hanging transaction, if that one is in another topic"),
    Explained(HANGING, "end_hanging",
              "refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, "
              "strict=True)}",
              "refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, "
              "strict=False)}", "there is a reason for each, or an empty one"),
    Explained(HANGING, "write_commit_markers", "return [_refusal(answer.results[0].error_code) for answer in answers]",
              "return [_refusal(answer.results[-1].error_code) for answer in answers]",
              "each request is about one partition, and so is its answer"),
    Explained(POSITIONS, "", "Checkpointed: TypeAlias = dict[str, dict[str, int]]",
              "Checkpointed: TypeAlias = dict[str, dict[int]]", "a type that is read by mypy alone"),
    Explained(REQUESTS, "_behind_barrier", "for group_id, answer in zip(missing, written, strict=True):",
              "for group_id, answer in zip(missing, written, strict=False):", "there is an answer to each request"),
)  # fmt: skip

"""The mutated modules, which protect rows from loss, duplicates and partial writes, and their tests.

A mutant is tried with these tests only, in this order, until the first one fails: a module's own first, then those that
run it with its neighbours, then the model.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """`path`: of the module, from the root. `tests`: folders or files of tests, or tests of one by pytest's node id."""

    path: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")


def _producer(name: str, *neighbours: str) -> Subject:
    tests = (name, *neighbours)
    paths = tuple(f"tests/unit/kafka/producer/test_{test}.py" for test in tests)
    return Subject(f"kafka_sink/kafka/producer/{name}.py", paths)


def _consumer(name: str, *neighbours: str) -> Subject:
    tests = (*neighbours, "fetcher")
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
    _producer("sender", "throttling", "sender_under_faults", "transaction_manager", "topic_check"),
    _producer("accumulator", "sender"), _producer("filling", "accumulator"), _producer("buffer_pool"),
    _producer("producer_batch", "filling", "runs", "sender"), _producer("batch_split", "sender"),
    _producer("sequences", "sender"), _producer("error_policy", "sender"), _producer("transaction_manager", "sender"),
    _consumer("fetcher"), _consumer("fetch_policy", "fetch_policy"), _consumer("fetch_range"),
    _consumer("topic_watch", "topic_watch"), _consumer("preferred_replica", "preferred_replica"),
    _consumer("patience", "patience"), _stream("continuity", "continuity"), _stream("admission", "admission"),
    _stream("positions", "positions"), _stream("stream_logs", "marks"), _stream("losses", "marks"),
    _stream("stream_plan"), Subject("kafka_sink/records/record_batch.py", ("tests/unit/records/test_record_batch.py",)),
    Subject("kafka_sink/commit/two_phase.py", ("tests/unit/commit", *_EXPLORATIONS)),
    Subject(
        "kafka_sink/commit/exchanges.py",
        ("tests/unit/commit/test_exchanges.py", "tests/unit/commit/test_two_phase.py", *_EXPLORATIONS),
    ),
    Subject(
        "kafka_sink/commit/hanging.py", ("tests/unit/commit/test_hanging.py", "tests/unit/commit/test_two_phase.py")
    ),
)  # fmt: skip

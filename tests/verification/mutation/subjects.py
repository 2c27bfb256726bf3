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


def _stream(name: str, *neighbours: str) -> Subject:
    paths = tuple(f"tests/unit/spark/reading/test_{test}.py" for test in (name, *neighbours))
    return Subject(f"kafka_sink/spark/reading/{name}.py", paths)


# Of the model's those that find most of the known mistakes in the two-phase commit; all of them take ten times as long.
_EXPLORATIONS = tuple(
    f"tests/verification/model/test_exactly_once.py::{test}"
    for test in (
        "test_a_driver_may_die_before_any_two_effects",
        "test_transactions_may_time_out_at_any_time",
        "test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
        "test_a_version_that_a_leader_hides_is_not_passed_over_as_written",
        *(f"test_{who}_coordinators_that_stood_still_may_answer_for_a_moment" for who in ("group", "transaction")),
    )
)
SUBJECTS: tuple[Subject, ...] = (
    _producer("sender", "throttling", "sender_under_faults", "transaction_manager", "topic_check"),
    _producer("accumulator", "sender"),
    _producer("filling", "accumulator"),
    _producer("buffer_pool"),
    _producer("producer_batch", "filling", "sender"),
    _producer("batch_split", "sender"),
    _producer("sequences", "sender"),
    _producer("error_policy", "sender"),
    _producer("transaction_manager", "sender"),
    _consumer("fetcher"),
    _consumer("fetch_policy", "fetch_policy"),
    _consumer("fetch_range"),
    _consumer("topic_watch", "topic_watch"),
    _consumer("preferred_replica", "preferred_replica"),
    _consumer("patience", "patience"),
    _stream("continuity", "stream_plan"),
    _stream("admission", "stream_plan"),
    _stream("positions"),
    _stream("stream_logs", "stream_plan"),
    _stream("losses", "stream_plan"),
    _stream("stream_plan"),
    Subject("kafka_sink/records/record_batch.py", ("tests/unit/records/test_record_batch.py",)),
    Subject("kafka_sink/commit/two_phase.py", ("tests/unit/commit", *_EXPLORATIONS)),
    Subject(
        "kafka_sink/commit/exchanges.py",
        ("tests/unit/commit/test_exchanges.py", "tests/unit/commit/test_two_phase.py", *_EXPLORATIONS),
    ),
    Subject(
        "kafka_sink/commit/hanging.py", ("tests/unit/commit/test_hanging.py", "tests/unit/commit/test_two_phase.py")
    ),
)

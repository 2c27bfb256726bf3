"""What is mutated: the modules on which it hangs that no row is lost, doubled or torn, and the tests that are for them.

A mutant is tried with these tests only, in this order, until the first one fails: a module's own first, then those that
run it with its neighbours, then the model.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """`path`: of the module, from the root. `tests`: files of tests, or tests of one by pytest's node id."""

    path: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")


def _producer(name: str, *neighbours: str) -> Subject:
    tests = (name, *neighbours)
    return Subject(f"kafka_sink/producer/{name}.py", tuple(f"tests/unit/producer/test_{test}.py" for test in tests))


SUBJECTS: tuple[Subject, ...] = (
    _producer("sender", "sender_under_faults"),
    _producer("accumulator", "sender"),
    _producer("filling", "accumulator"),
    _producer("buffer_pool"),
    _producer("producer_batch", "sender"),
    _producer("batch_split", "sender"),
    _producer("sequences", "sender"),
    _producer("error_policy", "sender"),
    _producer("transaction_manager", "sender"),
    Subject("kafka_sink/records/record_batch.py", ("tests/unit/records/test_record_batch.py",)),
    Subject(
        "kafka_sink/commit/two_phase.py",
        (
            "tests/unit/commit/test_two_phase.py",
            "tests/unit/commit/test_hanging.py",
            "tests/model/test_exactly_once.py",
        ),
    ),
    Subject(
        "kafka_sink/commit/hanging.py", ("tests/unit/commit/test_hanging.py", "tests/unit/commit/test_two_phase.py")
    ),
)

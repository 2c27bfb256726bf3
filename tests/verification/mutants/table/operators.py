"""What the commands do that look at a sink or end what it left."""

from __future__ import annotations

from mutants.mutant import Mutant

OPERATORS: tuple[Mutant, ...] = (
    Mutant("an operator's abort ends a transaction that the decision names",
           "docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
           "$DECISION is not None and $DECIDED", "False",
           "tests/unit/commit/test_open_transactions.py::test_what_a_decision_names_is_never_aborted",
           within="abort_manually"),
    Mutant("any transaction before the last is taken for committed with it",
           "KAFKA-20734: a hanging transaction is committed, never aborted",
           "$DESCRIPTION.producer_epoch == $IDS.producer_epoch + $RAISED_BY",
           "$DESCRIPTION.producer_epoch >= $IDS.producer_epoch + $RAISED_BY",
           "tests/unit/commit/test_open_transactions.py::test_what_leaders_have_open_and_coordinators_not_hangs"),
    Mutant("brokers that forget sooner than a transaction ends are good enough",
           "docs/guarantees.md: state in Kafka outlives a transaction",
           "$KEPT[$NAME] <= $TIMEOUT_MS", "$KEPT[$NAME] < $TIMEOUT_MS",
           "tests/unit/doctor/test_judging.py::test_how_long_brokers_remember_what_is_committed", within="retention"),
)  # fmt: skip

"""What the commands do that look at a sink or end what it left."""

from __future__ import annotations

from mutants.mutant import Mutant

OPERATORS: tuple[Mutant, ...] = (
    Mutant(
        name="an operator's abort ends a transaction that the decision names",
        rule="docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
        pattern="$DECISION is not None and $DECIDED",
        replacement="False",
        within="abort_manually",
        killer="tests/unit/commit/test_open_transactions.py::test_what_a_decision_names_is_never_aborted",
    ),
    Mutant(
        name="any transaction before the last is taken for committed with it",
        rule="KAFKA-20734: a hanging transaction is committed, never aborted",
        pattern="$DESCRIPTION.producer_epoch == $IDS.producer_epoch + $RAISED_BY",
        replacement="$DESCRIPTION.producer_epoch >= $IDS.producer_epoch + $RAISED_BY",
        killer="tests/unit/commit/test_open_transactions.py::test_what_leaders_have_open_and_coordinators_not_hangs",
    ),
    Mutant(
        name="brokers that forget sooner than a transaction ends are good enough",
        rule="docs/guarantees.md: state in Kafka outlives a transaction",
        pattern="$KEPT[$NAME] <= $TIMEOUT_MS",
        replacement="$KEPT[$NAME] < $TIMEOUT_MS",
        within="retention",
        killer="tests/unit/doctor/test_judging.py::test_how_long_brokers_remember_what_is_committed",
    ),
)

"""What the commands do that look at a sink or end what it left."""

from __future__ import annotations

from mutants.mutant import Mutant

OPERATORS: tuple[Mutant, ...] = (
    Mutant("a cluster's executors are given the driver's Python", "docs/deploying.md: other hosts may not have it",
           'str(spark.sparkContext.master).startswith("local")', "True",
           "tests/unit/spark/test_driver_python.py::test_only_a_local_spark_is_given_the_running_python"),
    Mutant("modules of another source are taken for compiled", "Python runs what the archive's sources say",
           "$OPENED.read($NAME).startswith($HEADER)", "True",
           "tests/unit/cli/test_commands.py::"
           "test_what_is_of_another_python_or_of_another_source_is_not_taken_for_compiled", within="_missing"),
    Mutant("a small receipt file may take any memory", "docs/security.md: what a file costs is bounded",
           "$SIZE > MAX_BYTES", "False",
           "tests/unit/verification/test_receipts.py::"
           "test_a_small_file_of_many_equal_rows_is_refused_before_they_are_made"),
    Mutant("a page of a receipt inflates whatever its header says", "docs/security.md: what a file costs is bounded",
           "max(width * abs(chunk.num_values), _inflated_bytes($CHUNK, $CONTENT))", "width * abs(chunk.num_values)",
           "tests/unit/verification/test_receipts.py::"
           "test_a_page_that_is_larger_than_the_footer_says_is_counted_before_it_is_inflated"),
    Mutant("a footer of a receipt has any size", "docs/security.md: what a file costs is bounded",
           "$LENGTH > MAX_FOOTER_BYTES", "False",
           "tests/unit/verification/test_receipts.py::test_a_footer_that_is_too_large_is_not_read"),
    Mutant("a receipt file may hide rows in columns that are nested", "docs/security.md: what a file costs is bounded",
           "len($NUMBERS) > 1 or $PATH != $NAME or $LISTS or $NESTED", "False",
           "tests/unit/verification/test_receipts.py::"
           "test_columns_that_are_nested_or_there_twice_are_refused_before_they_are_read"),
    Mutant("a receipt file may have values that no write has", "a file that was changed is no proof",
           "_check_values($TABLE)", "pass",
           "tests/unit/verification/test_receipts.py::test_values_that_the_sink_does_not_write_are_refused"),
    Mutant("a notebook shows what a path has", "docs/security.md: text of others is in one line",
           "quoted(redacted(self.path))", "redacted(self.path)",
           "tests/unit/exporting/test_result.py::test_what_a_name_or_a_path_has_prints_in_one_line"),
    Mutant("a label of a metric has any text", "docs/security.md: text of others is in one line",
           "counted_as(quoted($NAME), self._known)", "counted_as($NAME, self._known)",
           "tests/unit/monitoring/test_metrics.py::test_names_forge_no_series_and_move_no_cursor"),
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

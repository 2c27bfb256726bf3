"""Bad rows, rows that a leader refuses, and receipts."""

from __future__ import annotations

from mutants.mutant import Mutant

ROWS: tuple[Mutant, ...] = (
    Mutant("bad rows: a fingerprint is of the rows that are good today",
           "docs/design/rows.md: a fingerprint is of all rows as delivered",
           "self.$FINGERPRINT.update(columns_for_fingerprint($ARROW_BATCH, now_ms=$NOW))",
           "self.$FINGERPRINT.update(columns_for_fingerprint($ARROW_BATCH.take(pa.array($GOOD)), " "now_ms=$NOW))",
           "tests/unit/kafka/test_write.py::test_the_fingerprint_is_of_all_rows_whatever_is_bad_about_them_now",
           given=("self.$PLACE(self.$IDENTIFIED($COLUMNS, $GOOD), self.$TOPICS_OF, $AT)",)),
    Mutant("bad rows: a header key that is not UTF-8 is written", "docs/rows.md: header keys are UTF-8",
           "not $CONTENT.size or $CONTENT.max() <= LAST_ASCII", "$CONTENT.size",
           "tests/unit/records/test_bad_rows.py::test_bad_are_exactly_those_that_the_fast_path_refuses"),
    Mutant("bad rows: the cluster is asked for a topic that nothing can be called",
           "docs/rows.md: a topic is a valid UTF-8 name",
           "is_topic_name($NAME)", "$NAME",
           "tests/unit/kafka/producer/test_router.py::"
           "test_a_name_that_no_topic_can_have_is_a_bad_row_and_shown_with_escapes", within="Router"),
    Mutant("bad rows: rows that their topic refuses are sent", "docs/rows.md: rows that their topic refuses are bad",
           "if $IS_REFUSED and self.$BAD_ROWS is not None:\n"
           "    self.$APPEND_SORTED($ARROW_BATCH, self.$BAD_ROWS, $STARTED_MS)\n" "    return",
           "if False:\n    self.$APPEND_SORTED($ARROW_BATCH, self.$BAD_ROWS, $STARTED_MS)\n    return",
           "tests/unit/kafka/test_write.py::test_rows_that_only_their_topics_settings_refuse_are_bad_rows"),
    Mutant("bad rows: the commit does not ask how many there are together", "docs/options.md: maxBadRowFraction",
           ("$PRESENT = check_all_present($MESSAGES, micro_batch_id=$NUMBER)", "check_bad_rows($PRESENT, $$$WHEN)"),
           "$PRESENT = check_all_present($MESSAGES, micro_batch_id=$NUMBER)",
           "tests/unit/spark/test_tasks.py::test_a_commit_refuses_too_many_bad_rows_of_all_tasks"),
    Mutant("left out: what is behind keeps its numbers", "KIP-467: rows that a leader names",
           ("$STATE.next_sequence = $BATCH.base_sequence", "$STATE.renumbering = $WHY"),
           "$STATE.next_sequence = $BATCH.base_sequence",
           "tests/unit/kafka/producer/test_sender_under_faults.py::test_without_faults_each_write_leaves_them_out"),
    Mutant("left out: a batch that may be written is sent without a row",
           "docs/design/decisions.md: a row is left out only where no leader has the batch",
           "not $BATCH.acknowledgements.leaves_out($BATCH.topic_partition.topic) or $BATCH.may_be_written",
           "not $BATCH.acknowledgements.leaves_out($BATCH.topic_partition.topic):\n" "    return Action.FAIL\n"
           "$BATCH.may_be_written = False\n" "if False",
           "tests/unit/kafka/producer/test_sender.py::test_a_refusal_of_what_may_be_written_ends_the_write"),
    Mutant("receipts: a micro-batch is decided without one",
           "docs/design/decisions.md: exactly-once writes the receipt before the decision",
           ("check_replay($PLAN.sink, $$$PREPARED)", "write_receipt($MESSAGES)"),
           "check_replay($PLAN.sink, $$$PREPARED)",
           "tests/unit/spark/test_exactly_once.py::test_nothing_is_decided_without_the_receipt"),
    Mutant("receipts: at-least-once fails for a missing one, and writes its rows again",
           "docs/design/decisions.md: at-least-once writes the file last, and never fails for a receipt",
           "$PROOF = $PROOF_2($MESSAGES[0])", "raise\n$PROOF = $PROOF_2($MESSAGES[0])",
           "tests/unit/spark/test_receipt_writer.py::test_at_least_once_logs_it_and_goes_on", within="leave_receipt"),
)  # fmt: skip

"""Between the rows of a task and a request: batches, memory, sequences, answers."""

from __future__ import annotations

from mutants.mutant import Mutant

PRODUCER: tuple[Mutant, ...] = (
    Mutant(
        name="a leader that does not answer keeps the others out of a transaction",
        rule="waits are bounded",
        pattern="$JOINING and $NOW_MS < $UNTIL_MS",
        replacement="$JOINING",
        within="TransactionManager",
        killer="tests/unit/kafka/producer/test_transaction_manager.py::"
        "test_a_leader_that_does_not_answer_holds_the_others_up_for_a_moment",
    ),
    Mutant(
        name="a batch that its writer fills is sent meanwhile",
        rule="docs/design/rows.md: a batch that is checked out is not drained",
        pattern="$FILLING.checked_out[$PLACES] = True",
        replacement="pass",
        killer="tests/unit/kafka/producer/test_accumulator.py::test_a_batch_being_filled_is_neither_ready_nor_drained",
    ),
    Mutant(
        name="rows of two writes share a batch",
        rule="docs/design/rows.md: the offsets go into the write's `Acknowledgements`",
        pattern="$FILLING.acknowledgements is not $ACKNOWLEDGEMENTS or $FILLING.destinations is not $ROWS.destinations",
        replacement="$FILLING.destinations is not $ROWS.destinations",
        killer="tests/unit/kafka/producer/test_accumulator.py::test_writes_do_not_share_a_batch",
    ),
    Mutant(
        name="memory is handed out while it is overdrawn",
        rule="docs/guarantees.md: memory is bounded by kafka.buffer.memory",
        pattern="$COUNT * self.buffer_bytes <= self.available_bytes",
        replacement="True",
        killer="tests/unit/kafka/producer/test_buffer_pool.py::"
        "test_an_overdraft_is_granted_and_paid_back_before_anything_is_handed_out",
    ),
    Mutant(
        name="a large row's neighbours are none: it overwrites other batches",
        rule="nothing is lost",
        pattern="$SPANS == ($COUNT - 1) * self.buffer_bytes",
        replacement="$SPANS >= ($COUNT - 1) * self.buffer_bytes",
        killer="tests/unit/kafka/producer/test_buffer_pool.py::test_a_large_row_takes_neighbours",
    ),
    Mutant(
        name="receipts count a split batch once: the write ends before its last part",
        rule="nothing is lost",
        pattern="$PART_COUNT - 1",
        replacement="0",
        within="split",
        killer="tests/unit/kafka/producer/test_acknowledgements.py::test_a_batch_that_was_split_is_settled_when_its_last_part_is",
    ),
    Mutant(
        name="the parts of a split batch wait behind batches with later sequences",
        rule="docs/guarantees.md: a batch that is split keeps the order of its rows",
        pattern="$UNANSWERED[$PLACE : $PLACE + 1] = $PARTS",
        replacement="$UNANSWERED[$PLACE : $PLACE + 1] = []\n$UNANSWERED.extend($PARTS)",
        within="split",
        killer="tests/unit/kafka/producer/test_sequences.py::test_the_parts_of_a_batch_stand_in_its_place",
    ),
    Mutant(
        name="a batch is left behind further than its leader remembers",
        rule="KIP-98: a leader remembers five batches",
        pattern="len($UNANSWERED) < $MAX_IN_FLIGHT and len($UNANSWERED) + $STATE.overtaking < LEADER_REMEMBERS",
        replacement="len($UNANSWERED) < $MAX_IN_FLIGHT",
        killer="tests/unit/kafka/producer/test_sequences.py::"
        "test_no_unanswered_batch_is_left_behind_further_than_its_leader_remembers",
    ),
    Mutant(
        name="sequences do not wrap",
        rule="DefaultRecordBatch.incrementSequence",
        pattern="($SEQUENCE + $RECORD_COUNT) % SEQUENCE_COUNT",
        replacement="$SEQUENCE + $RECORD_COUNT",
        killer="tests/unit/kafka/producer/test_sequences.py::test_sequences_wrap_from_2147483647_to_0",
    ),
    Mutant(
        name="a topic made again goes on with the sequences of the old one",
        rule="KIP-516: topic ids",
        pattern="self.$PARTITIONS[$BATCH.topic_partition, $ID]",
        replacement="self.$PARTITIONS[$BATCH.topic_partition, None]",
        killer="tests/unit/kafka/producer/test_sequences.py::test_a_topic_made_again_starts_at_0",
    ),
    Mutant(
        name="rows routed to a topic go to another one that has its name now",
        rule="KIP-516: topic ids",
        pattern="$FOUND is not None and ids_differ($BATCH.topic_id, $FOUND.topic_id)",
        replacement="False",
        within="_was_recreated",
        killer="tests/unit/kafka/producer/test_sender.py::"
        "test_rows_routed_before_a_topic_was_made_again_are_not_sent_to_the_new_one",
    ),
    Mutant(
        name="a batch whose answer was lost counts as acknowledged",
        rule="nothing is lost",
        pattern="self.$RETRY($BATCH, $ANSWER.error or $REASON, $NOW_MS)",
        replacement="self.$ACKNOWLEDGE($BATCH, None, $NOW_MS)",
        given=("self.$ACKNOWLEDGE($WRITTEN, $RESULT.base_offset if $IS_TOLD else None, $AT_MS)",),
        killer="tests/unit/kafka/producer/test_sender.py::test_a_retry_is_the_same_bytes_after_the_backoff",
    ),
    Mutant(
        name="a defect between drain and send forgets what was drained",
        rule="nothing is lost",
        pattern="[*self.$DRAINED, *self.$SEQUENCES.unanswered()]",
        replacement="list(self.$SEQUENCES.unanswered())",
        killer="tests/unit/kafka/producer/test_sender.py::"
        "test_a_defect_between_drain_and_send_fails_the_rows_and_frees_their_memory",
    ),
    Mutant(
        name="a write whose sender thread died is a success",
        rule="nothing is lost",
        pattern="not $RECEIPTS.settled",
        replacement="False",
        within="flush",
        killer="tests/unit/kafka/test_client.py::test_rows_whose_sender_thread_is_gone_without_a_word_are_not_delivered",
    ),
    Mutant(
        name="an unknown error is taken for success",
        rule="nothing is lost",
        pattern="Action.FAIL",
        replacement="Action.ACKNOWLEDGE",
        within="on_produce_error",
        killer="tests/unit/kafka/producer/test_error_policy.py::test_every_produce_code_has_one_action",
    ),
    Mutant(
        name="a batch that the leader had before is an error",
        rule="KIP-98: DUPLICATE_SEQUENCE_NUMBER is a success",
        pattern="Action.ACKNOWLEDGE_WITHOUT_OFFSET",
        replacement="Action.FAIL",
        killer="tests/unit/kafka/producer/test_sender.py::test_a_batch_the_leader_had_before_counts_once_and_has_no_offset",
    ),
    Mutant(
        name="a broker that lags behind brings an old leader back",
        rule="KIP-320: leader epochs",
        pattern="$OLD if $PARTITION < len($KNOWN) and $KNOWN[$PARTITION][1] > $TOLD[$PARTITION][1] else $NEW",
        replacement="$NEW",
        killer="tests/unit/kafka/test_metadata.py::test_an_old_leader_does_not_come_back",
    ),
    Mutant(
        name="a producer whose write raised is kept for the next one",
        rule="docs/design/decisions.md: a failure ends the producer",
        pattern="$CLIENT.close()",
        replacement="$KEPT.put($CLIENT)",
        within="with exhaustion_named():\n"
        "    if $CLIENT is None:\n"
        "        warn_once($CONFIG.security)\n"
        "        $CLIENT = $KIND($CONFIG, $CLUSTER_ID)\n"
        "    $$$LEASED",
        given=("$KEPT = Kept()",),
        killer="tests/unit/kafka/test_client.py::test_a_producer_whose_write_raised_is_closed_and_its_thread_ends",
    ),
)

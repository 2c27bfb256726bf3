"""Mistakes that lost, doubled, reordered or corrupted rows in some Kafka client once."""

from __future__ import annotations

from mutants.mutant import Mutant

FROM_HISTORY: tuple[Mutant, ...] = (
    Mutant(
        name="sequences are reset when metadata drops a topic",
        rule="KIP-98: sequences of a partition go on",
        pattern="self.$NETWORK.update_brokers($SNAPSHOT.brokers)",
        replacement="self.$NETWORK.update_brokers($SNAPSHOT.brokers)\n"
        "for key in [key for key in self.$SEQUENCES.$PARTITIONS if key[0].topic in "
        "$SNAPSHOT.errors]:\n"
        "    self.$SEQUENCES.$PARTITIONS[key].next_sequence = 0",
        within="Sender",
        given=(
            "$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",
            "return self.$PARTITIONS[$B.topic_partition, $ID]",
        ),
        killer="tests/unit/kafka/producer/test_sender.py::"
        "test_a_topic_that_metadata_forgets_for_a_moment_keeps_its_batches_and_sequences",
    ),
    Mutant(
        name="sequences are reset when an idle topic is forgotten",
        rule="KIP-98: sequences of a partition go on",
        pattern="self.$NETWORK.update_brokers($SNAPSHOT.brokers)",
        replacement="self.$NETWORK.update_brokers($SNAPSHOT.brokers)\n"
        "for key in [key for key in self.$SEQUENCES.$PARTITIONS if key[0].topic not in "
        "$SNAPSHOT.topics]:\n"
        "    del self.$SEQUENCES.$PARTITIONS[key]",
        within="Sender",
        given=(
            "$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",
            "return self.$PARTITIONS[$B.topic_partition, $ID]",
        ),
        killer="tests/unit/kafka/producer/test_sender.py::test_a_topic_that_was_idle_and_is_forgotten_keeps_its_sequences",
    ),
    Mutant(
        name="a retry is not byte-identical: the header gets another time",
        rule="KIP-98: a retry has identical bytes",
        pattern="$BATCH.attempts += 1",
        replacement="if $BATCH.attempts:\n"
        "    $BATCH.max_timestamp += 1\n"
        "    $BATCH.number(self.$PRODUCER, $BATCH.base_sequence)\n"
        "$BATCH.attempts += 1",
        within="Sender",
        given=("$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",),
        killer="tests/unit/kafka/producer/test_sender.py::test_a_retry_is_the_same_bytes_after_the_backoff",
    ),
    Mutant(
        name="the sequence is advanced for a batch that may have been written: its retry gets the next one",
        rule="KIP-98: a retry has the same sequence",
        pattern='$BATCH.step("retry")',
        replacement='$BATCH.step("retry")\n'
        "self.$SEQUENCES.$STATE($BATCH).unanswered.remove($BATCH)\n"
        "$BATCH.base_sequence = NO_SEQUENCE",
        within="Sender",
        given=(
            "$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",
            "return self.$STATE($OLDEST).unanswered[0] is $OLDEST",
        ),
        killer=60,
    ),
    Mutant(
        name="a pooled buffer is reused in flight: given back when the write fails, not when the request returns",
        rule="docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
        pattern="if not $ON_THE_WIRE:\n    self.$ACCUMULATOR.deallocate($BATCH)",
        replacement="self.$ACCUMULATOR.deallocate($BATCH)",
        killer=60,
    ),
    Mutant(
        name="a pooled buffer is reused in flight: an answer is believed before its request is wholly sent",
        rule="docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
        pattern="$ENTRY is None or not $ENTRY.sent",
        replacement="$ENTRY is None",
        killer="tests/unit/kafka/protocol/test_connection.py::TestAnswers::test_before_the_request_is_wholly_sent",
    ),
    Mutant(
        name="a pooled buffer is reused in flight: Sent is told before all bytes are written",
        rule="docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
        pattern="$CHANNEL.sends and $CHANNEL.sends[0] == 0",
        replacement="$CHANNEL.sends",
        killer="tests/unit/kafka/net/test_selector.py::TestSend::test_more_than_the_socket_takes_at_once",
    ),
    Mutant(
        name="responses are matched without the correlation id",
        rule="Kafka protocol: an answer repeats the correlation id",
        pattern="$CORRELATION_ID != $ENTRY.correlation_id",
        replacement="False",
        killer="tests/unit/kafka/protocol/test_connection.py::TestAnswers::test_with_another_correlation_id",
    ),
    Mutant(
        name="more than five batches of a partition in flight",
        rule="KIP-98: a leader remembers five batches",
        pattern="len($UNANSWERED) < $MAX_IN_FLIGHT and len($UNANSWERED) + $STATE.overtaking < LEADER_REMEMBERS",
        replacement="True",
        killer="tests/unit/kafka/producer/test_sequences.py::test_no_more_than_max_in_flight_of_a_partition",
    ),
    Mutant(
        name="more than five requests to a node in flight",
        rule="InFlightRequests.canSendMore",
        pattern="$NODE.in_flight_count < self.$SETTINGS.max_in_flight",
        replacement="True",
        killer="tests/unit/kafka/net/test_network_client.py::TestSend::test_no_more_than_max_in_flight",
    ),
    Mutant(
        name="retries are reordered: a later one may go before an earlier one",
        rule="docs/guarantees.md: a retry neither doubles nor reorders",
        pattern="$UNANSWERED[0] is $BATCH",
        replacement="True",
        within="may_send",
        killer="tests/unit/kafka/producer/test_sequences.py::test_while_a_batch_waits_for_its_retry_only_it_may_go",
    ),
    Mutant(
        name="retries are reordered: each goes to the head of its queue",
        rule="docs/guarantees.md: a retry neither doubles nor reorders",
        pattern="$QUEUE.insert($EARLIER, $BATCH)",
        replacement="$QUEUE.appendleft($BATCH)",
        within="requeue",
        killer="tests/unit/kafka/producer/test_accumulator.py::test_requeued_batches_stand_in_sequence_order_before_new_ones",
    ),
    Mutant(
        name="retries are reordered: each goes to the tail of its queue",
        rule="docs/guarantees.md: a retry neither doubles nor reorders",
        pattern="$QUEUE.insert($EARLIER, $BATCH)",
        replacement="$QUEUE.append($BATCH)",
        within="requeue",
        killer="tests/unit/kafka/producer/test_accumulator.py::test_requeued_batches_stand_in_sequence_order_before_new_ones",
    ),
    Mutant(
        name="the delivery deadline is ignored",
        rule="KIP-91: delivery.timeout.ms",
        pattern="$BATCH.waited_ms($NOW_MS) >= self.$CONFIG.delivery_timeout_ms",
        replacement="False",
        killer="tests/unit/kafka/producer/test_sender.py::test_the_delivery_deadline_holds_in_the_queue_and_on_the_wire",
    ),
    Mutant(
        name="the delivery deadline begins anew with each attempt",
        rule="KIP-91: delivery.timeout.ms",
        pattern="$BATCH.waited_ms($NOW_MS) >= self.$CONFIG.delivery_timeout_ms",
        replacement="$NOW_MS - max($BATCH.created_ms, $BATCH.last_attempt_ms) >= self.$CONFIG.delivery_timeout_ms",
        killer="tests/unit/kafka/producer/test_sender.py::"
        "test_the_delivery_deadline_counts_from_the_first_row_not_the_last_attempt",
    ),
    Mutant(
        name="the partition count is read again in mid-write",
        rule="docs/guarantees.md: a key keeps its partition for a whole task",
        pattern="$MEMORY.available = $STATE.available",
        replacement="$MEMORY.available = $STATE.available\n$MEMORY.key_partition_count = $STATE.partition_count",
        killer="tests/unit/kafka/producer/test_router.py::test_a_topic_that_grows_keeps_its_keys_and_takes_the_other_rows",
    ),
    Mutant(
        name="a null value is written as empty (the compiled kernel)",
        rule="DefaultRecord: a null value has length -1",
        pattern="static const Field $NULL = {NO_BYTES, -1};",
        replacement="static const Field $NULL = {NO_BYTES, 0};",
        killer="tests/unit/records/test_kernel.py::test_compiled_and_vectorised_fill_alike",
        language="c",
    ),
    Mutant(
        name="a null value is written as empty (the fallback)",
        rule="DefaultRecord: a null value has length -1",
        pattern="NULL_LENGTH",
        replacement="0",
        within="byte_lengths",
        killer="tests/unit/records/test_record_size.py::test_lengths_of_a_slice_tell_null_from_empty",
        fallback=True,
    ),
)

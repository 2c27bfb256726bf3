"""Mistakes that lost, doubled, reordered or corrupted rows in some Kafka client once."""

from mutants.mutant import Mutant

_ACCUMULATOR = "tests/unit/kafka/producer/test_accumulator.py::"
_SENDER = "tests/unit/kafka/producer/test_sender.py::"
_SEQUENCES = "tests/unit/kafka/producer/test_sequences.py::"
_CONNECTION = "tests/unit/kafka/protocol/test_connection.py::"

FROM_HISTORY: tuple[Mutant, ...] = (
    Mutant("sequences are reset when metadata drops a topic", "KIP-98: sequences of a partition go on",
           "self.$NETWORK.update_brokers($SNAPSHOT.brokers)", "self.$NETWORK.update_brokers($SNAPSHOT.brokers)\n"
           "for key in [key for key in self.$SEQUENCES.$PARTITIONS if key[0].topic in $SNAPSHOT.errors]:\n"
           "    self.$SEQUENCES.$PARTITIONS[key].next_sequence = 0",
           f"{_SENDER}test_a_topic_that_is_forgotten_for_a_moment_or_was_idle_keeps_its_sequences", within="Sender",
           given=("$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",
           "return self.$PARTITIONS[$B.topic_partition, $ID]")),
    Mutant("sequences are reset when an idle topic is forgotten", "KIP-98: sequences of a partition go on",
           "self.$NETWORK.update_brokers($SNAPSHOT.brokers)", "self.$NETWORK.update_brokers($SNAPSHOT.brokers)\n"
           "for key in [key for key in self.$SEQUENCES.$PARTITIONS if key[0].topic not in $SNAPSHOT.topics]:\n"
           "    del self.$SEQUENCES.$PARTITIONS[key]",
           f"{_SENDER}test_a_topic_that_is_forgotten_for_a_moment_or_was_idle_keeps_its_sequences", within="Sender",
           given=("$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",
           "return self.$PARTITIONS[$B.topic_partition, $ID]")),
    Mutant("a retry is not byte-identical: the header gets another time", "KIP-98: a retry has identical bytes",
           "$BATCH.attempts += 1", "if $BATCH.attempts:\n    $BATCH.max_timestamp += 1\n"
           "    $BATCH.number(self.$PRODUCER, $BATCH.base_sequence)\n$BATCH.attempts += 1",
           f"{_SENDER}test_a_retry_is_the_same_bytes_after_the_backoff", within="Sender",
           given=("$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",)),
    Mutant("the sequence is advanced for a batch that may have been written: its retry gets the next one",
           "KIP-98: a retry has the same sequence", '$BATCH.step("retry")',
           '$BATCH.step("retry")\nself.$SEQUENCES.$STATE($BATCH).unanswered.remove($BATCH)\n'
           "$BATCH.base_sequence = NO_SEQUENCE", 60, within="Sender",
           given=("$NUMBERED.number(self.$PRODUCER, self.$SEQUENCES.number($NUMBERED))",
           "return self.$STATE($OLDEST).unanswered[0] is $OLDEST")),
    Mutant("a pooled buffer is reused in flight: given back when the write fails, not when the request returns",
           "docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
           "if not $ON_THE_WIRE:\n    self.$ACCUMULATOR.deallocate($BATCH)", "self.$ACCUMULATOR.deallocate($BATCH)",
           60),
    Mutant("a pooled buffer is reused in flight: an answer is believed before its request is wholly sent",
           "docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
           "$ENTRY is None or not $ENTRY.sent", "$ENTRY is None",
           f"{_CONNECTION}TestAnswers::test_before_the_request_is_wholly_sent"),
    Mutant("a pooled buffer is reused in flight: Sent is told before all bytes are written",
           "docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
           "$CHANNEL.sends and $CHANNEL.sends[0] == 0", "$CHANNEL.sends",
           "tests/unit/kafka/net/test_selector.py::TestSend::test_more_than_the_socket_takes_at_once"),
    Mutant("responses are matched without the correlation id", "Kafka protocol: an answer repeats the correlation id",
           "$CORRELATION_ID != $ENTRY.correlation_id", "False",
           f"{_CONNECTION}TestAnswers::test_with_another_correlation_id"),
    Mutant("more than five batches of a partition in flight", "KIP-98: a leader remembers five batches",
           "len($UNANSWERED) < $MAX_IN_FLIGHT and len($UNANSWERED) + $STATE.overtaking < LEADER_REMEMBERS", "True",
           f"{_SEQUENCES}test_no_more_than_max_in_flight_of_a_partition"),
    Mutant("more than five requests to a node in flight", "InFlightRequests.canSendMore",
           "$NODE.in_flight_count < self.$SETTINGS.max_in_flight", "True",
           "tests/unit/kafka/net/test_network_client.py::TestSend::test_no_more_than_max_in_flight"),
    Mutant("retries are reordered: a later one may go before an earlier one",
           "docs/guarantees.md: a retry neither doubles nor reorders", "$UNANSWERED[0] is $BATCH", "True",
           f"{_SEQUENCES}test_while_a_batch_waits_for_its_retry_only_it_may_go", within="may_send"),
    Mutant("retries are reordered: each goes to the head of its queue",
           "docs/guarantees.md: a retry neither doubles nor reorders", "$QUEUE.insert($EARLIER, $BATCH)",
           "$QUEUE.appendleft($BATCH)", f"{_ACCUMULATOR}test_requeued_batches_stand_in_sequence_order_before_new_ones",
           within="requeue"),
    Mutant("retries are reordered: each goes to the tail of its queue",
           "docs/guarantees.md: a retry neither doubles nor reorders", "$QUEUE.insert($EARLIER, $BATCH)",
           "$QUEUE.append($BATCH)", f"{_ACCUMULATOR}test_requeued_batches_stand_in_sequence_order_before_new_ones",
           within="requeue"),
    Mutant("the delivery deadline is ignored", "KIP-91: delivery.timeout.ms", "$BATCH.waited_ms($NOW_MS) >= $LIMIT_MS",
           "False", f"{_SENDER}test_the_delivery_deadline_holds_in_the_queue_and_on_the_wire"),
    Mutant("the delivery deadline begins anew with each attempt", "KIP-91: delivery.timeout.ms",
           "$BATCH.waited_ms($NOW_MS) >= $LIMIT_MS",
           "$NOW_MS - max($BATCH.created_ms, $BATCH.last_attempt_ms) >= $LIMIT_MS",
           f"{_SENDER}test_retries_and_a_deadline_that_counts_from_the_first_row_bound_the_attempts"),
    Mutant("the partition count is read again in mid-write",
           "docs/guarantees.md: a key keeps its partition for a whole task", "$MEMORY.available = $STATE.available",
           "$MEMORY.available = $STATE.available\n$MEMORY.key_partition_count = $STATE.partition_count",
           "tests/unit/kafka/producer/test_router.py::test_a_topic_that_grows_keeps_its_keys_and_takes_the_other_rows"),
    Mutant("a null value is written as empty (the compiled kernel)", "DefaultRecord: a null value has length -1",
           "static const Field $NULL = {NO_BYTES, -1};", "static const Field $NULL = {NO_BYTES, 0};",
           "tests/unit/records/test_kernel.py::test_each_batch_gets_the_longest_prefix_of_its_rows_that_fits",
           language="c"),
    Mutant("a null value is written as empty (the fallback)", "DefaultRecord: a null value has length -1",
           "NULL_LENGTH", "0", "tests/unit/records/test_record_batch.py::test_lengths_of_a_slice_tell_null_from_empty",
           within="byte_lengths", fallback=True),
)  # fmt: skip

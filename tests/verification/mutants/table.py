"""The mutants: mistakes that a Kafka producer can be made with, each put back by one replacement in one file.

Those under `FROM_HISTORY` lost, doubled, reordered or corrupted rows in some client once; the others would in this one.
`killer` is the test, by pytest's node id, that fails with the mutant; or a number: the simulation does within that many
seeds. A text must be found exactly once, or the table has rotted (`test_mutants.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

PRODUCER = "kafka_sink/producer"
NET = "kafka_sink/net"
CONNECTION = "kafka_sink/protocol/connection.py"
SASL = "kafka_sink/protocol/sasl.py"
RECORDS = "kafka_sink/records"
CLIENT = "kafka_sink/client.py"
CONFIG = "kafka_sink/config.py"
KEPT = "kafka_sink/kept.py"
WRITE_MODULE = "kafka_sink/write.py"
SINK = "kafka_sink/commit/sink.py"
EXCHANGES = "kafka_sink/commit/exchanges.py"
LINEAGE = "kafka_sink/commit/lineage.py"
MARKERS = "kafka_sink/commit/markers.py"
HANGING = "kafka_sink/commit/hanging.py"
TWO_PHASE = "kafka_sink/commit/two_phase.py"
SURVEY = "kafka_sink/commit/survey.py"
COORDINATOR_CLIENT = "kafka_sink/commit/coordinator_client.py"
SPARKS_PART = "kafka_sink/spark/exactly_once.py"
QUOTING = "kafka_sink/quoting.py"

TESTS_PRODUCER = "tests/unit/producer"
TESTS_NET = "tests/unit/net"
TESTS_RECORDS = "tests/unit/records"
TESTS_PROTOCOL = "tests/unit/protocol"
TESTS_CLIENT = "tests/unit/test_client.py"
TESTS_CONFIG = "tests/unit/test_config.py"
TESTS_SECRETS = "tests/unit/test_secrets.py"
TESTS_WRITE = "tests/unit/test_write.py"
TESTS_HANGING = "tests/unit/commit/test_hanging.py"
TESTS_LINEAGE = "tests/unit/commit/test_lineage.py"
TESTS_EXCHANGES = "tests/unit/commit/test_exchanges.py"
TESTS_TWO_PHASE = "tests/unit/commit/test_two_phase.py"
TESTS_LOST_GROUPS = "tests/unit/commit/test_lost_groups.py"
TESTS_SURVEY = "tests/unit/commit/test_survey.py"
TESTS_COORDINATOR_CLIENT = "tests/unit/commit/test_coordinator_client.py"
TESTS_EXACTLY_ONCE = "tests/verification/model/test_exactly_once.py"
TESTS_QUOTING = "tests/unit/test_quoting.py"
TESTS_WORDS = "tests/unit/test_words_of_peers.py"
TESTS_TRANSACTIONS = "tests/unit/test_transactions.py"
TESTS_SPARKS_PART = "tests/unit/spark/test_exactly_once.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name`: what goes wrong. `path`: of the file, from the root. `text` is replaced by `replacement`."""

    name: str
    path: str
    text: str
    replacement: str
    killer: str | int


FROM_HISTORY: tuple[Mutant, ...] = (
    Mutant(
        "sequences are reset when metadata drops a topic",
        f"{PRODUCER}/sender.py",
        "        self._network.update_brokers(snapshot.brokers)\n",
        "        self._network.update_brokers(snapshot.brokers)\n"
        "        for key in [key for key in self._sequences._partitions if key[0].topic in snapshot.errors]:\n"
        "            self._sequences._partitions[key].next_sequence = 0\n",
        f"{TESTS_PRODUCER}/test_sender.py::"
        "test_a_topic_that_metadata_forgets_for_a_moment_keeps_its_batches_and_sequences",
    ),
    Mutant(
        "sequences are reset when an idle topic is forgotten",
        f"{PRODUCER}/sender.py",
        "        self._network.update_brokers(snapshot.brokers)\n",
        "        self._network.update_brokers(snapshot.brokers)\n"
        "        for key in [key for key in self._sequences._partitions if key[0].topic not in snapshot.topics]:\n"
        "            del self._sequences._partitions[key]\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_topic_that_was_idle_and_is_forgotten_keeps_its_sequences",
    ),
    Mutant(
        "a retry is not byte-identical: the header gets another time",
        f"{PRODUCER}/sender.py",
        "            batch.attempts += 1\n",
        "            if batch.attempts:\n"
        "                batch.max_timestamp += 1\n"
        "                batch.number(self._producer, batch.base_sequence)\n"
        "            batch.attempts += 1\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_retry_is_the_same_bytes_after_the_backoff",
    ),
    Mutant(
        "the sequence is advanced for a batch that may have been written: its retry gets the next one",
        f"{PRODUCER}/sender.py",
        '        batch.step("retry")\n',
        '        batch.step("retry")\n'
        "        self._sequences._state(batch).unanswered.remove(batch)\n"
        "        batch.base_sequence = NO_SEQUENCE\n",
        60,
    ),
    Mutant(
        "a pooled buffer is reused in flight: given back when the write fails, not when the request returns",
        f"{PRODUCER}/sender.py",
        "            if not on_the_wire:\n                self._accumulator.deallocate(batch)\n",
        "            self._accumulator.deallocate(batch)\n",
        60,
    ),
    Mutant(
        "a pooled buffer is reused in flight: an answer is believed before its request is wholly sent",
        CONNECTION,
        "if entry is None or not entry.sent:",
        "if entry is None:",
        f"{TESTS_PROTOCOL}/test_connection.py::TestAnswers::test_before_the_request_is_wholly_sent",
    ),
    Mutant(
        "a pooled buffer is reused in flight: Sent is told before all bytes are written",
        f"{NET}/selector.py",
        "        while channel.sends and channel.sends[0] == 0:\n",
        "        while channel.sends:\n",
        f"{TESTS_NET}/test_selector.py::TestSend::test_more_than_the_socket_takes_at_once",
    ),
    Mutant(
        "responses are matched without the correlation id",
        CONNECTION,
        "if correlation_id != entry.correlation_id:",
        "if False:",
        f"{TESTS_PROTOCOL}/test_connection.py::TestAnswers::test_with_another_correlation_id",
    ),
    Mutant(
        "more than five batches of a partition in flight",
        f"{PRODUCER}/sequences.py",
        "        return len(unanswered) < max_in_flight and len(unanswered) + state.overtaking < LEADER_REMEMBERS\n",
        "        return True\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_no_more_than_max_in_flight_of_a_partition",
    ),
    Mutant(
        "more than five requests to a node in flight",
        f"{NET}/network_client.py",
        "            and node.in_flight_count < self._settings.max_in_flight\n",
        "",
        f"{TESTS_NET}/test_network_client.py::TestSend::test_no_more_than_max_in_flight",
    ),
    Mutant(
        "retries are reordered: a later one may go before an earlier one",
        f"{PRODUCER}/sequences.py",
        "            return unanswered[0] is batch\n",
        "            return True\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_while_a_batch_waits_for_its_retry_only_it_may_go",
    ),
    Mutant(
        "retries are reordered: each goes to the head of its queue",
        f"{PRODUCER}/accumulator.py",
        "        queue.insert(earlier, batch)\n",
        "        queue.appendleft(batch)\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_requeued_batches_stand_in_sequence_order_before_new_ones",
    ),
    Mutant(
        "retries are reordered: each goes to the tail of its queue",
        f"{PRODUCER}/accumulator.py",
        "        queue.insert(earlier, batch)\n",
        "        queue.append(batch)\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_requeued_batches_stand_in_sequence_order_before_new_ones",
    ),
    Mutant(
        "the delivery deadline is ignored",
        f"{PRODUCER}/sender.py",
        "            if batch.waited_ms(now_ms) >= self._config.delivery_timeout_ms and not batch.checked_out:\n",
        "            if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_the_delivery_deadline_holds_in_the_queue_and_on_the_wire",
    ),
    Mutant(
        "the delivery deadline begins anew with each attempt",
        f"{PRODUCER}/sender.py",
        "            if batch.waited_ms(now_ms) >= self._config.delivery_timeout_ms and not batch.checked_out:\n",
        "            began_ms = max(batch.created_ms, batch.last_attempt_ms)\n"
        "            if now_ms - began_ms >= self._config.delivery_timeout_ms and not batch.checked_out:\n",
        f"{TESTS_PRODUCER}/test_sender.py::"
        "test_the_delivery_deadline_counts_from_the_first_row_and_not_from_the_last_attempt",
    ),
    Mutant(
        "the partition count is read again in mid-write",
        f"{PRODUCER}/router.py",
        "        memory.available = state.available\n",
        "        memory.available = state.available\n        memory.key_partition_count = state.partition_count\n",
        f"{TESTS_PRODUCER}/test_router.py::test_a_topic_that_grows_keeps_its_keys_and_takes_the_other_rows",
    ),
    Mutant(
        "a null value is written as empty (the compiled kernel)",
        f"{RECORDS}/_kernel.c",
        "static const Field NULL_FIELD = {NO_BYTES, -1};",
        "static const Field NULL_FIELD = {NO_BYTES, 0};",
        f"{TESTS_RECORDS}/test_kernel.py::test_compiled_and_vectorised_fill_alike",
    ),
    Mutant(
        "a null value is written as empty (the fallback)",
        f"{RECORDS}/record_size.py",
        "lengths = lengths.fill_null(NULL_LENGTH)",
        "lengths = lengths.fill_null(0)",
        f"{TESTS_RECORDS}/test_record_size.py::test_lengths_of_a_slice_tell_null_from_empty",
    ),
)

ACCUMULATOR: tuple[Mutant, ...] = (
    Mutant(
        "a batch that was opened while the sender thread slept lingers for as long as that sleeps",
        f"{PRODUCER}/accumulator.py",
        "        # Also where there was no memory for one: whatever is queued is urgent then.\n"
        "        self._has_news = True\n",
        "",
        f"{TESTS_CLIENT}::test_rows_go_out_when_they_have_lingered_and_nobody_flushes",
    ),
    Mutant(
        "a batch that the sender thread passed over while it was filled is not looked at again",
        f"{PRODUCER}/accumulator.py",
        "            elif queue[0].checked_out:\n                self._has_news = True\n",
        "            elif queue[0].checked_out:\n                pass\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::"
        "test_news_is_what_was_passed_over_as_rows_were_being_written_into_it",
    ),
    Mutant(
        "a batch that was checked out between a look and a drain is not looked at again",
        f"{PRODUCER}/accumulator.py",
        "        if first.checked_out:\n            self._has_news = True\n            return False\n",
        "        if first.checked_out:\n            return False\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::"
        "test_news_is_what_was_passed_over_as_rows_were_being_written_into_it",
    ),
    Mutant(
        "a batch that its writer compresses is sent meanwhile",
        f"{PRODUCER}/filling.py",
        "            batch.being_closed = to_close\n",
        "            batch.being_closed = False\n",
        f"{TESTS_PRODUCER}/test_filling.py::test_checked_out_until_checked_in_or_closed",
    ),
    Mutant(
        "a batch that its writer fills is sent meanwhile",
        f"{PRODUCER}/accumulator.py",
        "        filling.checked_out[places] = True\n",
        "",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_a_batch_being_filled_is_neither_ready_nor_drained",
    ),
    Mutant(
        "a first batch over max.request.size never goes",
        f"{PRODUCER}/accumulator.py",
        "                if drained and size_bytes + first.size_bytes > self._max_request_size:\n",
        "                if size_bytes + first.size_bytes > self._max_request_size:\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_a_first_batch_over_max_request_size_goes_alone",
    ),
    Mutant(
        "requests grow over max.request.size",
        f"{PRODUCER}/accumulator.py",
        "                if drained and size_bytes + first.size_bytes > self._max_request_size:\n",
        "                if False:\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::"
        "test_drain_takes_one_batch_a_partition_and_stays_under_max_request_size",
    ),
    Mutant(
        "each request begins with the same partitions, and the others starve",
        f"{PRODUCER}/accumulator.py",
        "                del self._pressing[topic_partition]\n                self._pressing[topic_partition] = None\n",
        "",
        f"{TESTS_PRODUCER}/test_accumulator.py::"
        "test_drain_takes_one_batch_a_partition_and_stays_under_max_request_size",
    ),
    Mutant(
        "a retry does not wait for its backoff",
        f"{PRODUCER}/accumulator.py",
        "            return max(0, first.retry_at_ms - now_ms)\n",
        "            return 0\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_a_retry_is_ready_after_its_backoff_only",
    ),
    Mutant(
        "a retry that waits for its backoff is forgotten",
        f"{PRODUCER}/accumulator.py",
        "            if wait_ms is None or (wait_ms > 0 and not queue[0].attempts):\n",
        "            if wait_ms is None or wait_ms > 0:\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_a_retry_that_waits_is_remembered_without_a_flush",
    ),
    Mutant(
        "a batch that has lingered goes only with a flush",
        f"{PRODUCER}/accumulator.py",
        "                self._pressing.setdefault(batch.topic_partition, None)\n",
        "",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_ready_when_lingered_full_behind_another_or_flushed",
    ),
    Mutant(
        "batches linger while a writer waits for their memory",
        f"{PRODUCER}/accumulator.py",
        "        return self._flushing > 0 or self.pool.exhausted\n",
        "        return self._flushing > 0\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_nothing_lingers_while_memory_is_short",
    ),
    Mutant(
        "memory that a writer checks in after the end is lost",
        f"{PRODUCER}/accumulator.py",
        "        if self._failure is not None:\n            # `fail` ran",
        "        if False:\n            # `fail` ran",
        f"{TESTS_PRODUCER}/test_accumulator.py::"
        "test_a_batch_whose_producer_fails_while_it_is_filled_is_given_back_by_its_writer",
    ),
    Mutant(
        "a row over its topic's batch limit finds no batch, ever",
        f"{PRODUCER}/accumulator.py",
        "min(buffer.size, max(limit, needed))",
        "min(buffer.size, limit)",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_a_topic_whose_batches_were_refused_gets_smaller_ones",
    ),
    Mutant(
        "retries that cross the wrap of the sequences stand in the wrong order",
        f"{PRODUCER}/accumulator.py",
        "    return (other.base_sequence - one.base_sequence) % 2**31 < 2**30\n",
        "    return one.base_sequence < other.base_sequence\n",
        f"{TESTS_PRODUCER}/test_sender_under_faults.py::test_the_same_where_sequences_wrap",
    ),
    Mutant(
        "rows of two writes share a batch",
        f"{PRODUCER}/accumulator.py",
        "        if filling.receipts is not receipts or filling.destinations is not rows.destinations:\n",
        "        if filling.destinations is not rows.destinations:\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_writes_do_not_share_a_batch",
    ),
    Mutant(
        "the room of a batch is counted from the start of the memory",
        f"{PRODUCER}/filling.py",
        "        columns.limit[where] = start + np.array(limits, np.int64)\n",
        "        columns.limit[where] = start + HEADER_BYTES + np.array(limits, np.int64)\n",
        f"{TESTS_PRODUCER}/test_filling.py::test_a_new_batch_begins_behind_its_header_and_ends_with_its_buffer",
    ),
    Mutant(
        "once exhausted, the pool stays so",
        f"{PRODUCER}/buffer_pool.py",
        "        if self.available_bytes >= self.total_bytes // _RELIEF:\n            self.exhausted = False\n",
        "",
        f"{TESTS_PRODUCER}/test_buffer_pool.py::test_exhausted_from_a_refusal_until_memory_comes_back",
    ),
    Mutant(
        "who waits for memory waits on when there is enough",
        CLIENT,
        "            self._changed.wait_for(lambda: not pool.exhausted, min(GATHER_MS, timeout_ms) / 1000)\n",
        "            self._changed.wait_for(lambda: False, min(GATHER_MS, timeout_ms) / 1000)\n",
        f"{TESTS_CLIENT}::test_who_waits_for_memory_goes_on_when_there_is_enough_or_a_moment_after_there_is_some",
    ),
    Mutant(
        "a large row's neighbours are none: it overwrites other batches",
        f"{PRODUCER}/buffer_pool.py",
        "np.flatnonzero(spans == (count - 1) * self.buffer_bytes)",
        "np.flatnonzero(spans >= (count - 1) * self.buffer_bytes)",
        f"{TESTS_PRODUCER}/test_buffer_pool.py::test_a_large_row_takes_neighbours",
    ),
    Mutant(
        "buffers of an uneven batch.size share bytes once they are halved",
        f"{PRODUCER}/accumulator.py",
        "        self._batch_size = even_batch_size(batch_size)\n",
        "        self._batch_size = batch_size\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_buffers_of_an_uneven_batch_size_shrink_without_sharing_a_byte",
    ),
    Mutant(
        "a batch.size is even for all halvings but the last",
        "kafka_sink/config.py",
        "    return batch_size - batch_size % halves\n",
        "    return batch_size - batch_size % max(1, halves // 2)\n",
        f"{TESTS_PRODUCER}/test_accumulator.py::test_buffers_of_an_uneven_batch_size_shrink_without_sharing_a_byte",
    ),
    Mutant(
        "memory is handed out while it is overdrawn",
        f"{PRODUCER}/buffer_pool.py",
        "        if count * self.buffer_bytes <= self.available_bytes:\n",
        "        if True:\n",
        f"{TESTS_PRODUCER}/test_buffer_pool.py::"
        "test_an_overdraft_is_granted_and_paid_back_before_anything_is_handed_out",
    ),
)

SPLIT: tuple[Mutant, ...] = (
    Mutant(
        "the parts of a split batch are misnumbered",
        f"{PRODUCER}/batch_split.py",
        "        sequence = advance(sequence, run.record_count)\n",
        "        sequence = advance(sequence, 1)\n",
        f"{TESTS_PRODUCER}/test_batch_split.py::test_the_parts_are_the_records_in_order_under_the_same_sequences",
    ),
    Mutant(
        "the memory of a split batch is lost",
        f"{PRODUCER}/batch_split.py",
        "    pool.deallocate(batch.buffer)\n",
        "",
        f"{TESTS_PRODUCER}/test_batch_split.py::test_memory_is_what_the_parts_take_when_the_pool_had_none_left",
    ),
    Mutant(
        "the parts of a split batch get a deadline of their own",
        f"{PRODUCER}/batch_split.py",
        "            created_ms=batch.created_ms,\n",
        "            created_ms=batch.last_attempt_ms,\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_split_keeps_the_deadline_of_its_batch",
    ),
    Mutant(
        "the parts of a split batch wait behind batches with later sequences",
        f"{PRODUCER}/sequences.py",
        "        unanswered[place : place + 1] = parts\n",
        "        unanswered[place : place + 1] = []\n        unanswered.extend(parts)\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_the_parts_of_a_batch_stand_in_its_place",
    ),
    Mutant(
        "receipts count a split batch once: the write ends before its last part",
        f"{PRODUCER}/receipts.py",
        "        self.pending_batches += part_count - 1\n",
        "        self.pending_batches += 0\n",
        f"{TESTS_PRODUCER}/test_receipts.py::test_a_batch_that_was_split_is_settled_when_its_last_part_is",
    ),
    Mutant(
        "a record alone is split for ever",
        f"{PRODUCER}/sender.py",
        "        if action is Action.SPLIT and batch.record_count == 1:\n",
        "        if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_parts_are_split_down_to_the_record_that_is_too_large_alone",
    ),
    Mutant(
        "the times of a later part are told from the whole batch's first",
        f"{RECORDS}/record_runs.py",
        "                data=_encode(records, tail[chosen], end[chosen], deltas - deltas[0]),\n",
        "                data=_encode(records, tail[chosen], end[chosen], deltas),\n",
        f"{TESTS_RECORDS}/test_record_runs.py::test_places_of_more_than_one_byte_are_told_anew",
    ),
)

SENDER: tuple[Mutant, ...] = (
    Mutant(
        "a batch is left behind further than its leader remembers",
        f"{PRODUCER}/sequences.py",
        " and len(unanswered) + state.overtaking < LEADER_REMEMBERS",
        "",
        f"{TESTS_PRODUCER}/test_sequences.py::"
        "test_no_unanswered_batch_is_left_behind_further_than_its_leader_remembers",
    ),
    Mutant(
        "after an overtaken batch fewer are sent for ever",
        f"{PRODUCER}/sequences.py",
        "        state.overtaking = state.overtaking + overtook if state.unanswered else 0\n",
        "        state.overtaking += overtook\n",
        f"{TESTS_PRODUCER}/test_sequences.py::"
        "test_no_unanswered_batch_is_left_behind_further_than_its_leader_remembers",
    ),
    Mutant(
        "the first batch of a partition has company",
        f"{PRODUCER}/sequences.py",
        "            return not unanswered\n",
        "            return len(unanswered) < max_in_flight\n",
        f"{TESTS_PRODUCER}/test_sequences.py::"
        "test_the_first_batch_of_a_partition_goes_alone_until_its_leader_is_known_to_remember_it",
    ),
    Mutant(
        "sequences do not wrap",
        f"{PRODUCER}/sequences.py",
        "    return (sequence + record_count) % SEQUENCE_COUNT\n",
        "    return sequence + record_count\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_sequences_wrap_from_2147483647_to_0",
    ),
    Mutant(
        "a gap is waited out for ever",
        f"{PRODUCER}/sequences.py",
        "        return state.unanswered[0] is not batch or batch.last_attempt_ms <= state.last_acknowledged_ms\n",
        "        return True\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_a_gap_may_heal_while_an_earlier_batch_is_or_was_unanswered",
    ),
    Mutant(
        "a gap that an earlier batch left ends the write",
        f"{PRODUCER}/sequences.py",
        "        return state.unanswered[0] is not batch or batch.last_attempt_ms <= state.last_acknowledged_ms\n",
        "        return False\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_a_gap_may_heal_while_an_earlier_batch_is_or_was_unanswered",
    ),
    Mutant(
        "a topic made again goes on with the sequences of the old one",
        f"{PRODUCER}/sequences.py",
        "        return self._partitions[batch.topic_partition, batch.topic_id]\n",
        "        return self._partitions[batch.topic_partition, None]\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_a_topic_made_again_starts_at_0",
    ),
    Mutant(
        "with one in flight and no sequences, a partition's next batch goes before the answer",
        f"{PRODUCER}/sequences.py",
        "            return max_in_flight > 1 or not any(other.in_flight for other in unanswered)\n",
        "            return True\n",
        f"{TESTS_PRODUCER}/test_sequences.py::test_without_idempotence_only_one_in_flight_holds_a_partition_back",
    ),
    Mutant(
        "a batch whose answer was lost counts as acknowledged",
        f"{PRODUCER}/sender.py",
        '                self._retry(batch, answer.error or "the connection was lost", now_ms)\n',
        "                self._acknowledge(batch, None, now_ms)\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_retry_is_the_same_bytes_after_the_backoff",
    ),
    Mutant(
        "with acks=0 a request that did not get out counts as sent",
        f"{PRODUCER}/sender.py",
        "        elif self._acks == 0 and answer.error is None:\n",
        "        elif self._acks == 0:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_with_acks_0_a_request_that_did_not_get_out_is_sent_again",
    ),
    Mutant(
        "with acks=0 a broker that hangs up on batches it refuses is written to for ever",
        f"{PRODUCER}/sender.py",
        "            if self._acks == 0 and self._network.is_down(node_id):\n",
        "            if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::"
        "test_with_acks_0_a_connection_that_is_gone_is_a_reason_to_ask_for_the_leader",
    ),
    Mutant(
        "a topic made again is written to under numbers that went to it by name before",
        f"{PRODUCER}/sequences.py",
        "        if self.used_up:\n            return False\n",
        "",
        f"{TESTS_PRODUCER}/test_sender.py::"
        "test_a_topic_made_again_that_is_written_to_by_name_is_written_to_by_another_producer",
    ),
    Mutant(
        "of the brokers that took rows by name, one is asked which topic it is",
        f"{PRODUCER}/topic_check.py",
        "        self._to_ask = set(node_ids)\n",
        "        self._to_ask = set(sorted(node_ids)[:1])\n",
        f"{TESTS_PRODUCER}/test_topic_check.py::test_each_of_them_is_asked_at_once",
    ),
    Mutant(
        "which topic took a write's rows by name is not asked",
        WRITE_MODULE,
        "        self._producer.check_topics(self._topic_ids, self._receipts)\n",
        "",
        f"{TESTS_WRITE}::test_brokers_that_know_topics_by_name_are_asked_at_the_end_whether_it_is_the_same",
    ),
    Mutant(
        "results are matched by their place in the answer",
        f"{PRODUCER}/sender.py",
        "            for result in answer.response.partitions:\n"
        "                self.produces_by_name |= result.topic is not None\n"
        "                self._sequences.by_name = self.produces_by_name and self._transactions.transaction is None\n"
        "                topic = names[result.topic_id] if result.topic is None else result.topic\n"
        "                batch = token.batches[TopicPartition(topic, result.partition)]\n",
        "            for result, batch in zip(answer.response.partitions, token.batches.values(), strict=True):\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_results_are_matched_by_partition_and_not_by_place",
    ),
    Mutant(
        "a batch that failed keeps its memory when its answer comes",
        f"{PRODUCER}/sender.py",
        "        self._accumulator.deallocate(batch)\n        return True\n",
        "        return True\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_whatever_comes_back_after_the_end_gives_memory_back_and_sends_nothing",
    ),
    Mutant(
        "batches on the wire are forgotten when the producer ends",
        f"{PRODUCER}/sender.py",
        "        for batch in [*self._drained, *self._sequences.unanswered()]:\n",
        "        for batch in self._drained:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_final_error_fails_the_write_and_everything_behind_it",
    ),
    Mutant(
        "a defect between drain and send forgets what was drained",
        f"{PRODUCER}/sender.py",
        "        for batch in [*self._drained, *self._sequences.unanswered()]:\n",
        "        for batch in list(self._sequences.unanswered()):\n",
        f"{TESTS_PRODUCER}/test_sender.py::"
        "test_a_defect_between_drain_and_send_fails_the_drained_rows_and_gives_their_memory_back",
    ),
    Mutant(
        "a broker that leads no more is sent the retry, for ever",
        f"{PRODUCER}/sender.py",
        "        if action is Action.REFRESH_AND_RETRY:\n",
        "        if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_new_leader_gets_the_retry",
    ),
    Mutant(
        "a lost connection is no reason to ask for the leader",
        f"{PRODUCER}/sender.py",
        "            # No answer: the leader may have the batches or not, and may not be the leader any more.\n"
        "            self._metadata.request_update()\n",
        "",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_lost_answer_is_a_reason_to_ask_for_the_leader",
    ),
    Mutant(
        "a leader that cannot be reached is waited for, for ever",
        f"{NET}/network_client.py",
        "        return node is None or node.state is NodeState.DISCONNECTED\n",
        "        return False\n",
        f"{TESTS_NET}/test_network_client.py::TestReady::test_down_is_who_has_no_connection_and_is_not_getting_one",
    ),
    Mutant(
        "rows routed to a topic go to another one that has its name now",
        f"{PRODUCER}/sender.py",
        "    return found is not None and found.topic_id != batch.topic_id\n",
        "    return False\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_rows_routed_before_a_topic_was_made_again_are_not_sent_to_the_new_one",
    ),
    Mutant(
        "retries have no end",
        f"{PRODUCER}/sender.py",
        "        if batch.attempts > self._config.retries:\n",
        "        if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_retries_bound_the_attempts",
    ),
    Mutant(
        "a producer id is asked for once, answered or not",
        f"{PRODUCER}/sender.py",
        "        self._asking_producer_id = False\n        response = answer.response\n",
        "        response = answer.response\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_refused_producer_id_fails_the_write_and_a_busy_one_is_asked_again",
    ),
    Mutant(
        "an unknown error is retried",
        f"{PRODUCER}/error_policy.py",
        "    return PRODUCE.get(code, Action.FAIL)\n",
        "    return PRODUCE.get(code, Action.RETRY)\n",
        f"{TESTS_PRODUCER}/test_error_policy.py::test_every_produce_code_has_one_action",
    ),
    Mutant(
        "an unknown error is taken for success",
        f"{PRODUCER}/error_policy.py",
        "    return PRODUCE.get(code, Action.FAIL)\n",
        "    return PRODUCE.get(code, Action.ACKNOWLEDGE)\n",
        f"{TESTS_PRODUCER}/test_error_policy.py::test_every_produce_code_has_one_action",
    ),
    Mutant(
        "too few replicas after the append is taken for success",
        f"{PRODUCER}/error_policy.py",
        "    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Action.RETRY,\n",
        "    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Action.ACKNOWLEDGE,\n",
        f"{TESTS_PRODUCER}/test_error_policy.py::test_every_produce_code_has_one_action",
    ),
    Mutant(
        "a batch that the leader had before is an error",
        f"{PRODUCER}/error_policy.py",
        "    _E.DUPLICATE_SEQUENCE_NUMBER: Action.ACKNOWLEDGE_WITHOUT_OFFSET,\n",
        "    _E.DUPLICATE_SEQUENCE_NUMBER: Action.FAIL,\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_batch_the_leader_had_before_counts_once_and_has_no_offset",
    ),
)

METADATA: tuple[Mutant, ...] = (
    Mutant(
        "an answer about other topics counts for a topic that was not asked for",
        f"{PRODUCER}/metadata.py",
        "        if self._asking_for is not None and self._asking_for.issuperset(topics):\n",
        "        if self._asking_for is not None:\n",
        f"{TESTS_PRODUCER}/test_metadata.py::"
        "test_a_topic_wanted_while_a_request_for_others_is_under_way_is_asked_for_next",
    ),
    Mutant(
        "a deleted topic is brought back by who had forgotten it",
        f"{PRODUCER}/metadata.py",
        "        never_seen = not self._wanted <= self._ever_seen\n",
        "        never_seen = not self._wanted <= set(self.snapshot.topics)\n",
        f"{TESTS_PRODUCER}/test_metadata.py::"
        "test_a_topic_that_is_forgotten_is_still_one_that_was_there_and_is_not_brought_back",
    ),
    Mutant(
        "a broker that lags behind brings an old leader back",
        f"{PRODUCER}/metadata.py",
        "known[partition] if partition < len(known) and known[partition][1] > told[partition][1] else told[partition]",
        "told[partition]",
        f"{TESTS_PRODUCER}/test_metadata.py::test_a_broker_that_lags_behind_does_not_bring_an_old_leader_back",
    ),
    Mutant(
        "a broker that lags behind shrinks a topic",
        f"{PRODUCER}/metadata.py",
        "        newest += known[len(told) :]\n",
        "        newest += []\n",
        f"{TESTS_PRODUCER}/test_metadata.py::"
        "test_a_topic_grows_and_a_broker_that_has_not_heard_of_it_does_not_shrink_it",
    ),
    Mutant(
        "a topic with an error is dropped from what is known",
        f"{PRODUCER}/metadata.py",
        "                errors[answer.name] = answer.error_code\n",
        "                errors[answer.name] = answer.error_code\n"
        "                topics.pop(answer.name, None)\n",
        f"{TESTS_PRODUCER}/test_metadata.py::test_an_answer_with_an_error_keeps_what_was_known_of_the_topic",
    ),
    Mutant(
        "a metadata request whose answer was lost is never repeated",
        f"{PRODUCER}/metadata.py",
        '        """The request came back without an answer."""\n        self._asking_for = None\n',
        '        """The request came back without an answer."""\n',
        f"{TESTS_PRODUCER}/test_metadata.py::"
        "test_errors_missing_leaders_and_lost_answers_are_asked_about_again_with_growing_pauses",
    ),
    Mutant(
        "a partition without a leader stays without one",
        f"{PRODUCER}/metadata.py",
        "        if errors or leaderless:\n",
        "        if errors:\n",
        f"{TESTS_PRODUCER}/test_metadata.py::test_a_partition_without_a_leader_is_asked_about_again",
    ),
)

NETWORK: tuple[Mutant, ...] = (
    Mutant(
        "a broker that says nothing is waited for, for ever",
        f"{NET}/network_client.py",
        '            return begin_ms + limit_ms, f"no answer within {limit_ms} ms"\n',
        '            return begin_ms + 1_000 * limit_ms, f"no answer within {limit_ms} ms"\n',
        f"{TESTS_NET}/test_network_client.py::TestConnectFails::test_a_broker_that_accepts_and_says_nothing",
    ),
    Mutant(
        "what was under way on a connection that broke never comes back",
        f"{NET}/network_client.py",
        "        for answer in self._drop(node, now_ms):\n"
        "            self._respond(node, answer, self.last_error, now_ms)\n",
        "        self._drop(node, now_ms)\n",
        f"{TESTS_NET}/test_network_client.py::TestConnectionLost::test_everything_under_way_comes_back_with_the_reason",
    ),
    Mutant(
        "the time for which a leader throttles makes rows old",
        f"{PRODUCER}/sender.py",
        "            batch.throttled_ms += more_ms\n",
        "            pass\n",
        140,
    ),
    Mutant(
        "a broker that throttles excuses one that hangs",
        f"{PRODUCER}/sender.py",
        "            more_ms = max(new_ms.get(node_id, 0) for node_id in self._nodes_of(batch))\n",
        "            more_ms = max(new_ms.values())\n",
        f"{TESTS_PRODUCER}/test_throttling.py::"
        "test_a_broker_that_hangs_beside_one_that_throttles_is_found_in_time",
    ),
    Mutant(
        "rows behind a batch at a former leader that throttles grow old",
        f"{PRODUCER}/sender.py",
        "        return (leader, batch.node_id) if batch.in_flight else (leader,)\n",
        "        return (leader,)\n",
        f"{TESTS_PRODUCER}/test_throttling.py::"
        "test_what_waits_behind_a_batch_at_a_former_leader_that_throttles_does_not_grow_old",
    ),
    Mutant(
        "parts of a split batch are as old as if nobody had throttled",
        f"{PRODUCER}/batch_split.py",
        "        part.throttled_ms = batch.throttled_ms\n",
        "",
        f"{TESTS_PRODUCER}/test_throttling.py::"
        "test_a_part_of_a_split_batch_keeps_what_its_batch_was_throttled",
    ),
    Mutant(
        "a broker that went away throttles all the same",
        f"{NET}/node.py",
        "        if self.held.until_ms > now_ms:\n"
        "            self.held = self.held.ending_at(now_ms, now_ms)\n",
        "",
        f"{TESTS_NET}/test_network_client.py::TestThrottle::test_only_while_it_is_connected",
    ),
    Mutant(
        "a new connection is given the time of the throttle before it",
        f"{NET}/network_client.py",
        "            begin_ms = max(oldest.sent_ms, node.held.until_ms)\n",
        "            begin_ms = max(oldest.sent_ms, node.throttled_until_ms)\n",
        f"{TESTS_NET}/test_network_client.py::TestThrottle::test_a_new_connection_is_read_at_once",
    ),
    Mutant(
        "max.block.ms counts while a broker throttles",
        CLIENT,
        "        return now_ms - self._network.throttled_ms(now_ms)\n",
        "        return now_ms\n",
        f"{TESTS_CLIENT}::test_max_block_ms_stands_while_a_broker_throttles",
    ),
    Mutant(
        "rows are taken in without end while a broker throttles",
        f"{PRODUCER}/sender.py",
        "        if not self._throttling.is_felt:\n            return True\n",
        "        return True\n",
        f"{TESTS_PRODUCER}/test_throttling.py::test_rows_may_come_as_fast_as_they_go",
    ),
    Mutant(
        "a writer that waits for room lets what it has handed over linger",
        CLIENT,
        "            self._accumulator.begin_flush()\n"
        "            self._network.wakeup()\n"
        "            try:\n"
        "                with _timed(self.metrics.waited_for_memory):\n",
        "            self._accumulator._flushing += 0\n"
        "            self._accumulator.end_flush = lambda: None\n"
        "            try:\n"
        "                with _timed(self.metrics.waited_for_memory):\n",
        f"{TESTS_CLIENT}::test_rows_wait_in_spark_while_a_broker_that_throttles_has_enough",
    ),
    Mutant(
        "that a quota outlasts a transaction is left to its brokers",
        f"{PRODUCER}/sender.py",
        "        self._foresee(batches, now_ms)\n",
        "",
        f"{TESTS_PRODUCER}/test_throttling.py::"
        "test_a_transaction_that_a_quota_outlasts_fails_before_its_time_is_up",
    ),
    Mutant(
        "a transaction ends by a guess at the rate",
        f"{PRODUCER}/throttling.py",
        "            if (is_known or left_ms <= 0) and node",
        "            if node",
        f"{TESTS_PRODUCER}/test_throttling.py::test_a_guess_does_not_end_a_transaction",
    ),
    Mutant(
        "a deadline of a coordinator's answer passes while brokers throttle",
        f"{PRODUCER}/coordinators.py",
        "        waited_until_ms = now_ms - self._network.throttled_ms(now_ms)\n",
        "        waited_until_ms = now_ms\n",
        f"{TESTS_PRODUCER}/test_coordinators.py::TestDeadline::"
        "test_does_not_come_nearer_while_a_broker_throttles",
    ),
    Mutant(
        "a commit does not wait for brokers that throttle",
        COORDINATOR_CLIENT,
        "        return now_ms - self._network.throttled_ms(now_ms)\n",
        "        return now_ms\n",
        f"{TESTS_COORDINATOR_CLIENT}::TestThrottled::"
        "test_brokers_that_throttle_for_longer_than_max_block_ms_are_waited_for",
    ),
    Mutant(
        "a broker that throttles is sent requests",
        f"{NET}/network_client.py",
        "            and now_ms >= node.throttled_until_ms\n",
        "",
        f"{TESTS_NET}/test_network_client.py::TestThrottle::test_a_node_is_left_alone_as_long_as_it_says",
    ),
    Mutant(
        "a broker that moved is looked for at its old address",
        f"{NET}/network_client.py",
        "        if node is not None and (node.host, node.port) != (broker.host, broker.port):\n",
        "        if False:\n",
        f"{TESTS_NET}/test_network_client.py::TestBrokersChange::test_a_broker_that_moved_is_connected_to_anew",
    ),
    Mutant(
        "the rest of a write that the socket took in part is lost",
        f"{NET}/channel.py",
        "                outgoing[0] = front[written:]\n                return\n",
        "                outgoing.popleft()\n                sends[position] -= 1\n                return\n",
        f"{TESTS_NET}/test_selector.py::TestSend::test_more_than_the_socket_takes_at_once",
    ),
    Mutant(
        "the rest of a write waits for ever for a socket that has room again",
        f"{NET}/selector.py",
        "        if channel.writing != bool(channel.outgoing):\n",
        "        if False:\n",
        f"{TESTS_NET}/test_selector.py::TestSend::test_more_than_the_socket_takes_at_once",
    ),
    Mutant(
        "received bytes are overwritten by the next connection's",
        f"{NET}/selector.py",
        "events.append(Received(channel.key, bytes(self._chunk[:received])))",
        "events.append(Received(channel.key, self._chunk[:received]))",
        f"{TESTS_NET}/test_selector.py::TestReceive::test_what_was_received_does_not_change_with_what_comes_next",
    ),
)

SECURITY: tuple[Mutant, ...] = (
    Mutant(
        "a broker's certificate may be for any host",
        f"{NET}/tls.py",
        "    context.check_hostname = settings.verify_host_name\n",
        "    context.check_hostname = False\n",
        f"{TESTS_NET}/test_tls.py::test_a_broker_that_is_not_verified_hears_nothing",
    ),
    Mutant(
        "a private key is left behind in a file",
        f"{NET}/tls.py",
        "        Path(path).unlink()\n",
        "        pass\n",
        f"{TESTS_NET}/test_tls.py::test_no_private_key_is_left_in_a_file",
    ),
    Mutant(
        "a write that TLS took in part is begun anew",
        f"{NET}/channel.py",
        "            written += sent\n",
        "            written += sent // 2\n",
        f"{TESTS_NET}/test_tls.py::test_more_than_the_socket_takes_at_once",
    ),
    Mutant(
        "requests go out before the connection is authenticated",
        CONNECTION,
        "        if self._authentication is None:\n",
        "        if True:\n",
        f"{TESTS_PROTOCOL}/test_connection.py::TestAuthentication::test_nothing_else_goes_out_before",
    ),
    Mutant(
        "a broker need not know the password",
        SASL,
        "        if not hmac.compare_digest(self._decoded(match[1]), self._server_signature):\n",
        "        if False:\n",
        f"{TESTS_PROTOCOL}/test_sasl.py::test_a_broker_that_does_not_know_the_password",
    ),
    Mutant(
        "a broker may ask for one iteration",
        SASL,
        "        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:\n",
        "        if not iterations <= MAX_ITERATIONS:\n",
        f"{TESTS_PROTOCOL}/test_sasl.py::test_a_first_message_that_is_refused_before_anything_is_computed",
    ),
    Mutant(
        "a broker may answer another client's nonce",
        SASL,
        "        if not nonce.startswith(self._nonce) or nonce == self._nonce:\n",
        "        if nonce == self._nonce:\n",
        f"{TESTS_PROTOCOL}/test_sasl.py::test_a_first_message_that_is_refused_before_anything_is_computed",
    ),
    Mutant(
        "a broker's words are shown with the password in them",
        SASL,
        '            shown = shown.replace(secret, "...")\n',
        "            pass\n",
        f"{TESTS_PROTOCOL}/test_connection.py::TestAuthentication::test_a_password_that_is_wrong_is_not_shown",
    ),
    Mutant(
        "a session is let end",
        f"{NET}/network_client.py",
        "            if node.session_until_ms is not None and now_ms >= node.session_until_ms:\n",
        "            if False:\n",
        f"{TESTS_NET}/test_network_client.py::TestSessions::test_are_begun_anew_in_time_and_lose_nothing",
    ),
    Mutant(
        "a password that is refused is tried for ever",
        CLIENT,
        "        if self._network.failure is not None:\n",
        "        if False:\n",
        f"{TESTS_CLIENT}::test_what_no_retry_mends_ends_the_producer_at_once",
    ),
    Mutant(
        "passwords go over connections that anybody can read",
        "kafka_sink/config.py",
        '            or values["allow_plaintext_credentials"]\n',
        "            or True\n",
        "tests/unit/test_config.py::test_security_options_that_contradict_each_other",
    ),
    Mutant(
        "an extension may take the token's place",
        "kafka_sink/jaas.py",
        "    if name == _RESERVED:\n",
        "    if False:\n",
        "tests/unit/test_jaas.py::test_what_cannot_be_used_is_said_without_showing_it",
    ),
    Mutant(
        "an extension's value may end it and begin another",
        "kafka_sink/jaas.py",
        "    if not _EXTENSION_VALUE.fullmatch(value):\n",
        "    if not _EXTENSION_VALUE.match(value):\n",
        "tests/unit/test_jaas.py::test_what_cannot_be_used_is_said_without_showing_it",
    ),
    Mutant(
        "a leader's word on the transaction is taken for one on the batch",
        f"{PRODUCER}/sender.py",
        "        if transaction is not None and result.error_code in OF_TRANSACTION:\n",
        "        if False:\n",
        f"{TESTS_PRODUCER}/test_transaction_manager.py"
        "::test_a_batch_of_a_transaction_that_is_no_longer_allowed_names_the_acl",
    ),
    Mutant(
        "an abort that fails says nothing",
        SPARKS_PART,
        '        log.warning(\n            "what this run',
        '        log.debug(\n            "what this run',
        f"{TESTS_SPARKS_PART}::test_an_abort_never_hides_the_error_that_made_it_necessary",
    ),
    Mutant(
        "security: options of TLS or SASL without a protocol go out in plaintext",
        CONFIG,
        '    if "security_protocol" in given or not said:\n',
        "    if True:\n",
        f"{TESTS_CONFIG}::test_options_of_tls_or_sasl_without_a_protocol_never_send_plaintext",
    ),
    Mutant(
        "security: certificates under a protocol that does not encrypt are left unused",
        CONFIG,
        "not (_says(values, field) and _is_unused(values, field))",
        "True",
        f"{TESTS_CONFIG}::test_certificates_are_refused_under_a_protocol_that_does_not_encrypt",
    ),
    Mutant(
        "security: the write's own certificate is taken for one of the conf, and left",
        CONFIG,
        '    if "security_protocol" not in given:\n        return both\n',
        "    given = {}\n",
        f"{TESTS_CONFIG}::test_a_protocol_that_the_write_names_leaves_the_certificates_of_the_conf",
    ),
    Mutant(
        "security: an error shows a value as it is",
        "kafka_sink/errors.py",
        "None if value is None else redacted(value)",
        "value",
        f"{TESTS_SECRETS}::test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration",
    ),
    Mutant(
        "security: an error shows what another library says of a value",
        "kafka_sink/options.py",
        "JaasProblem if self.redact else JaasProblem | Problem",
        "JaasProblem if self.redact else ValueError",
        f"{TESTS_SECRETS}::test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration",
    ),
    Mutant(
        "security: a configuration shows its texts",
        "kafka_sink/redaction.py",
        "    return repr(redacted(value)) if isinstance(value, str) else repr(value)\n",
        "    return repr(value)\n",
        f"{TESTS_SECRETS}::test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration",
    ),
    Mutant(
        "security: a reason shows a path with keys in it",
        "kafka_sink/redaction.py",
        "    if redacted(value) != value:\n        return type(error).__name__\n",
        "",
        f"{TESTS_SECRETS}::test_a_reason_that_quotes_a_part_of_the_value_is_not_shown",
    ),
    Mutant(
        "security: a user and a password are taken for a host, and sent to name servers",
        "kafka_sink/options.py",
        "match is None or not _is_host(match[1]) or",
        "match is None or",
        f"{TESTS_SECRETS}::test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration",
    ),
    Mutant(
        "security: a module of the working directory is run to compile a .proto text",
        "kafka_sink/registry/proto_text.py",
        "    return [place for place in sys.path if place and os.path.abspath(place) != here]\n",
        "    return sys.path\n",
        "tests/unit/registry/test_proto_text.py::test_no_module_of_the_working_directory_is_run",
    ),
    Mutant(
        "registry: any number is taken for a schema's id",
        "kafka_sink/registry/registering.py",
        "not isinstance(value, bool) and least <= value <= INT32_MAX:",
        "True:",
        "tests/unit/registry/test_registering.py::test_an_id_that_does_not_fit_is_refused_when_a_schema_is_registered",
    ),
    Mutant(
        "registry: an answer has no bound",
        "kafka_sink/registry/registering.py",
        "if size_bytes > MAX_ANSWER_BYTES:",
        "if False:",
        "tests/unit/registry/test_registering.py::test_an_answer_that_cannot_be_used_is_an_error_with_its_reason",
    ),
    Mutant(
        "security: a forged file has any process of the user stopped",
        "kafka_sink/broker/state.py",
        " and _holds_lock(pid, directory / LOCK_FILE, facts.st_uid)",
        "",
        "tests/unit/broker/test_state.py::test_a_forged_file_makes_nobody_stop_a_process_that_holds_no_lock",
    ),
    Mutant(
        "security: nobody hears that host names are not verified",
        CONFIG,
        "not self.is_encrypted or self.ssl_endpoint_identification_algorithm",
        "True",
        f"{TESTS_CONFIG}::test_what_protects_less_than_it_could_is_logged_once",
    ),
)

WRITE: tuple[Mutant, ...] = (
    Mutant(
        "a key's hash loses its sign by its magnitude",
        f"{RECORDS}/partitioner.py",
        "KERNEL.murmur2(keys) & POSITIVE_MASK",
        "np.abs(KERNEL.murmur2(keys).astype(np.int64))",
        f"{TESTS_RECORDS}/test_partitioner.py::test_a_key_goes_to_the_partition_of_its_hash",
    ),
    Mutant(
        "a row's own partition yields to its key",
        f"{RECORDS}/partitioner.py",
        "            undecided = ~explicit\n",
        "",
        f"{TESTS_RECORDS}/test_partitioner.py::test_explicit_before_key_before_sticky",
    ),
    Mutant(
        "the CRC covers itself",
        f"{RECORDS}/record_batch.py",
        "crc32c(batch[_ATTRIBUTES_OFFSET:])",
        "crc32c(batch[_CRC_OFFSET:])",
        f"{TESTS_RECORDS}/test_record_batch.py::test_same_bytes_as_kafka_python",
    ),
    Mutant(
        "the CRC of a header is not moved on by its records",
        f"{RECORDS}/_kernel.c",
        "            first = product(first, EIGHT_TIMES_2_TO_THE[i]);\n",
        "            first ^= EIGHT_TIMES_2_TO_THE[i];\n",
        f"{TESTS_RECORDS}/test_record_batch.py::test_the_crc_is_right_whatever_the_length",
    ),
    Mutant(
        "a batch's CRC goes on from the batch before it",
        f"{PRODUCER}/filling.py",
        "            columns.records_crc[where] = 0\n",
        "            pass\n",
        f"{TESTS_PRODUCER}/test_filling.py::test_a_settled_batch_has_its_numbers_and_its_place_is_empty",
    ),
    Mutant(
        "compressed records keep the CRC they had before",
        f"{PRODUCER}/producer_batch.py",
        "            self.records_crc = None\n",
        "",
        f"{TESTS_PRODUCER}/test_producer_batch.py::"
        "test_the_wire_bytes_are_a_record_batch_that_another_client_reads",
    ),
    Mutant(
        "the last offset delta is the number of records",
        f"{RECORDS}/record_batch.py",
        "        record_count - 1,\n",
        "        record_count,\n",
        f"{TESTS_RECORDS}/test_record_batch.py::test_same_bytes_as_kafka_python",
    ),
    Mutant(
        "records that compression makes larger overrun their buffer",
        f"{PRODUCER}/producer_batch.py",
        "        if len(compressed) < len(records):\n",
        "        if True:\n",
        f"{TESTS_PRODUCER}/test_producer_batch.py::test_rows_that_compression_makes_larger_stay_as_they_are",
    ),
    Mutant(
        "answers that come between a refusal of memory and the wait for it are missed",
        CLIENT,
        "            seen = self._changes\n"
        "            left_before = rows.unplaced_count()\n"
        "            placed_all = self._accumulator.try_append(rows, receipts, codec, monotonic_ms())\n",
        "            left_before = rows.unplaced_count()\n"
        "            placed_all = self._accumulator.try_append(rows, receipts, codec, monotonic_ms())\n"
        "            seen = self._changes\n",
        f"{TESTS_CLIENT}::test_answers_between_a_refusal_of_memory_and_the_wait_for_it_are_not_missed",
    ),
    Mutant(
        "a write whose sender thread died is a success",
        CLIENT,
        "            if not receipts.settled:\n",
        "            if False:\n",
        f"{TESTS_CLIENT}::test_rows_whose_sender_thread_is_gone_without_a_word_are_not_delivered",
    ),
    Mutant(
        "a producer whose write raised is kept for the next one",
        CLIENT,
        "            producer.close()\n            if isinstance(error, KafkaSinkError):\n",
        "            _kept.put(producer)\n            if isinstance(error, KafkaSinkError):\n",
        f"{TESTS_CLIENT}::test_a_producer_whose_write_raised_is_closed_and_its_thread_ends",
    ),
    Mutant(
        "a forked child writes to the sockets of its parent",
        KEPT,
        "        key = os.getpid(), client.config\n",
        "        key = 0, client.config\n",
        f"{TESTS_CLIENT}::test_a_producer_is_kept_by_process_and_configuration",
    ),
    Mutant(
        "kept producers have no upper count",
        KEPT,
        "for oldest in self._own()[:-MOST]]",
        "for oldest in self._own()[:-100]]",
        f"{TESTS_CLIENT}::test_a_few_producers_are_kept_and_the_least_recently_used_goes",
    ),
    Mutant(
        "memory of a batch that is out goes back to the system",
        f"{PRODUCER}/buffer_pool.py",
        "        if self._uncut and not self._allocated_bytes:\n",
        "        if self._uncut:\n",
        f"{TESTS_PRODUCER}/test_buffer_pool.py::test_memory_goes_back_when_nothing_of_it_is_out",
    ),
    Mutant(
        "a renewed certificate waits for the next worker",
        f"{NET}/tls.py",
        "        if files != self._files:\n",
        "        if False:\n",
        f"{TESTS_NET}/test_tls.py::test_a_renewed_certificate_goes_with_the_next_connection",
    ),
    Mutant(
        "a truststore that cannot be read is believed to be what it was",
        f"{NET}/selector.py",
        "        except ConfigError as unusable:\n",
        "        except ConfigError as unusable:\n            context = self._tls._context\n        if False:\n",
        f"{TESTS_NET}/test_tls.py::test_a_file_that_cannot_be_used_is_trouble_until_it_can",
    ),
    Mutant(
        "a request goes to another cluster behind the same address",
        f"{NET}/network_client.py",
        "        if found is None or found == self.cluster_id:\n",
        "        if True:\n",
        f"{TESTS_NET}/test_network_client.py::TestCluster::test_that_was_replaced_ends_the_client",
    ),
    Mutant(
        "a connection carries requests before it has named its cluster",
        CONNECTION,
        "        if not self._identify or self._was_open:\n",
        "        if True:\n",
        f"{TESTS_NET}/test_network_client.py::TestReady::test_after_connecting_and_negotiating",
    ),
    Mutant(
        "rows go to a cluster that took the place of the write's (simulated)",
        f"{NET}/network_client.py",
        "        if found is None or found == self.cluster_id:\n",
        "        if found != 0:\n",
        300,
    ),
    Mutant(
        "nothing tells a producer that its cluster may have been restored",
        f"{NET}/network_client.py",
        "        if node.state is NodeState.READY and not self._is_connected:\n",
        "        if False:\n",
        300,
    ),
    Mutant(
        "a producer in mid-write goes on under an id that a restored cluster may have given to another",
        f"{PRODUCER}/sender.py",
        "        return self._network.interruptions != self._interruptions\n",
        "        return False\n",
        300,
    ),
    Mutant(
        "a connection that only looks open vouches for a cluster that was restored",
        f"{NET}/network_client.py",
        "            if self._is_connected and not self._has_witness(node):\n",
        "            if False:\n",
        f"{TESTS_NET}/test_network_client.py::TestCluster::test_a_connection_that_only_looks_open_hides_no_interruption",
    ),
    Mutant(
        "an answer to what was asked before a connection ended vouches for the time since",
        f"{NET}/network_client.py",
        "max(node.answered_since, answer.token.failures)\n",
        "self._failures\n",
        f"{TESTS_NET}/test_network_client.py::TestCluster::test_a_connection_that_only_looks_open_hides_no_interruption",
    ),
    Mutant(
        "a new connection does not vouch for the next one",
        f"{NET}/network_client.py",
        "        node.answered_since = self._failures\n",
        "        node.answered_since = -1\n",
        f"{TESTS_NET}/test_network_client.py::TestCluster::test_a_connection_that_only_looks_open_hides_no_interruption",
    ),
    Mutant(
        "nothing tells that a connection was made",
        f"{NET}/network_client.py",
        "            self.handshakes += 1\n",
        "            pass\n",
        f"{TESTS_NET}/test_network_client.py::TestCluster::test_interruptions_are_moments_without_a_connection",
    ),
    Mutant(
        "a producer in mid-write goes on with the leaders that a cluster had before it was restored",
        f"{PRODUCER}/sender.py",
        "                self._metadata.forget_leader_epochs()\n",
        "                pass\n",
        f"{TESTS_PRODUCER}/test_sender.py::TestInterruptions::test_leaders_of_a_restored_cluster_have_lower_epochs",
    ),
    Mutant(
        "leader epochs are forgotten over and over",
        f"{PRODUCER}/sender.py",
        "                self._handshakes = self._network.handshakes\n",
        "                pass\n",
        f"{TESTS_PRODUCER}/test_sender.py::TestInterruptions::test_leaders_of_a_restored_cluster_have_lower_epochs",
    ),
    Mutant(
        "one reused address ends a client whose cluster lives",
        f"{NET}/network_client.py",
        "        if self._is_connected:\n            self._disconnect(node, changed.what, now_ms)\n",
        "        if False:\n            self._disconnect(node, changed.what, now_ms)\n",
        f"{TESTS_NET}/test_network_client.py::TestCluster::test_of_somebody_elses_at_one_address_is_retried",
    ),
    Mutant(
        "a kept producer goes on after a moment without connections, in which its cluster may have been restored",
        CLIENT,
        "        was_connected = not network.interruptions and network.connects == connects\n",
        "        was_connected = network.connects == connects\n",
        f"{TESTS_CLIENT}::test_a_kept_producer_that_lost_all_connections_is_not_used_again",
    ),
    Mutant(
        "a kept producer believes that its connections stand",
        CLIENT,
        "has_rested and not self._probe():",
        "has_rested and False:",
        f"{TESTS_CLIENT}::test_a_kept_producer_whose_brokers_are_silent_is_not_waited_for",
    ),
    Mutant(
        "a kept producer believes an answer over a new connection",
        CLIENT,
        "not network.interruptions and network.connects == connects\n",
        "not network.interruptions\n",
        f"{TESTS_CLIENT}::test_a_kept_producer_whose_connections_only_look_open_is_not_used_again",
    ),
    Mutant(
        "batches that may be written get another producer id after an interruption",
        f"{PRODUCER}/sender.py",
        "            if self._id_may_be_taken():\n                self._sequences.used_up = True\n",
        "            if self._id_may_be_taken():\n                self._ask_for_another_producer_id()\n",
        f"{TESTS_PRODUCER}/test_sender.py::TestInterruptions::"
        "test_rows_that_have_a_number_keep_it_and_the_id_until_they_are_answered",
    ),
    Mutant(
        "tasks that wrote to two clusters are committed",
        "kafka_sink/spark/commit_message.py",
        "        if its_id != first_id:\n",
        "        if False:\n",
        "tests/unit/spark/test_commit_message.py::"
        "test_a_cluster_replaced_between_two_tasks_takes_the_rows_of_the_first_with_it",
    ),
    Mutant(
        "a commit goes on in another cluster than its plan",
        COORDINATOR_CLIENT,
        "and not network.interruptions and cluster_id in (None, self.cluster_id)\n",
        "and not network.interruptions\n",
        f"{TESTS_COORDINATOR_CLIENT}::TestLease::test_one_of_another_cluster_is_not_the_one_that_is_asked_for",
    ),
    Mutant(
        "a row over max.request.size is handed over",
        WRITE_MODULE,
        "        if size_bytes > max_bytes:\n",
        "        if False:\n",
        f"{TESTS_WRITE}::test_a_row_over_max_request_size_is_refused_before_any_row_of_its_slice",
    ),
    Mutant(
        "a topic made again in mid-write gets the rest of its rows",
        WRITE_MODULE,
        "            if first_id != state.topic_id:\n",
        "            if False:\n",
        f"{TESTS_WRITE}::test_a_new_partition_of_a_topic_made_again_in_mid_write_gets_no_row_of_it",
    ),
)

FINGERPRINT: tuple[Mutant, ...] = (
    Mutant(
        "a row that comes twice is as if it never came",
        f"{RECORDS}/_kernel.c",
        "        sum1 += (uint64_t)hash.sum;\n        sum2 += (uint64_t)(hash.sum >> 64);\n",
        "        sum1 ^= (uint64_t)hash.sum;\n        sum2 ^= (uint64_t)(hash.sum >> 64);\n",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_a_row_twice_is_not_a_row_once_nor_none",
    ),
    Mutant(
        "a null has the fingerprint of an empty value",
        f"{RECORDS}/_kernel.c",
        "    mix(hash, (uint64_t)first->length, (uint64_t)second->length);\n",
        "    mix(hash, first->length < 0 ? 0 : (uint64_t)first->length,\n"
        "        second->length < 0 ? 0 : (uint64_t)second->length);\n",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_each_change_of_a_row_is_seen",
    ),
    Mutant(
        "bytes may move from a header's key to its value",
        f"{RECORDS}/_kernel.c",
        "        mix_lengths(hash, &key, &value);\n",
        "",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_each_change_of_a_row_is_seen",
    ),
    Mutant(
        "what follows a field in memory is in its fingerprint",
        f"{RECORDS}/_kernel.c",
        "word & ~(UINT64_MAX << 8 * count)",
        "word",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_what_lies_behind_a_row_in_memory_makes_no_difference",
    ),
    Mutant(
        "chunks of a long value may change places",
        f"{RECORDS}/_kernel.c",
        "        stir(hash);\n        hash->key = hash->keys;\n",
        "        hash->key = hash->keys;\n",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_blocks_cannot_change_places",
    ),
    Mutant(
        "the time that stands in for a null is in the fingerprint",
        f"{RECORDS}/row_hashes.py",
        "    if columns.timestamp_is_set is True:\n",
        "    if True:\n",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_the_time_that_stands_in_for_a_null_is_not_in_it",
    ),
    Mutant(
        "a partition that is not there has the fingerprint of -1",
        f"{RECORDS}/row_hashes.py",
        "np.where(columns.partition_is_set, columns.partition, np.int64(NOT_SET))",
        "columns.partition.astype(np.int64)",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_each_change_of_a_row_is_seen",
    ),
    Mutant(
        "only the last Arrow batch has a fingerprint",
        f"{RECORDS}/fingerprint.py",
        "        self._low = (self._low + low) % _WORD\n        self._high = (self._high + high) % _WORD\n",
        "        self._low = low\n        self._high = high\n",
        f"{TESTS_RECORDS}/test_fingerprint.py::test_the_rows_of_arrow_batches_add_up",
    ),
)


COMMIT: tuple[Mutant, ...] = (
    Mutant(
        "the driver reads the decision before it Inits its id, which an older driver can still decide under",
        TWO_PHASE,
        "    generation = yield from take_over(sink)\n"
        "    # What is listed before a decision is finished is described after.\n"
        "    decision, listed = yield from at_once(_last_decision(sink, generation), _listed(sink))\n",
        "    decision, listed = yield from at_once(read_decision(sink), _listed(sink))\n"
        "    generation = yield from take_over(sink)\n",
        f"{TESTS_EXACTLY_ONCE}::test_of_two_drivers_on_a_checkpoint_one_is_fenced",
    ),
    Mutant(
        "Init before recovery: what is open is aborted before what was decided is committed",
        TWO_PHASE,
        "        was_committed = yield from finish(sink, decision, visible)\n"
        "    still_open = yield from _open_since(sink, decision, _in(listed, \"Ongoing\"))\n"
        "    yield from abort_open(sink, generation, still_open)\n",
        "        yield from abort_open(sink, generation, (yield from open_ones(sink, _in(listed, \"Ongoing\"))))\n"
        "        was_committed = yield from finish(sink, decision, visible)\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        "no recovery: what was decided is not committed by the next plan",
        TWO_PHASE,
        "        was_committed = yield from finish(sink, decision, visible)\n",
        "        pass\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        "recovery with unpinned ids: those that the slot has now",
        TWO_PHASE,
        "    pinned = [(sink.names.slot(slot), ids) for slot in slots if (ids := decision.pinned[slot]) is not None]\n",
        "    found = yield from described(sink, [sink.names.slot(slot) for slot in slots])\n"
        "    pinned = [(each.transactional_id, Ids(each.producer_id, each.producer_epoch)) for each in found]\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_that_is_overtaken_commits_nothing_that_was_begun_since",
    ),
    Mutant(
        "a plan takes the marker of another micro-batch for the decided one's, and does not commit the slot",
        TWO_PHASE,
        "    return visible_of(decision, found)\n",
        "    return found\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_finishes_only_what_is_not_visible_yet",
    ),
    Mutant(
        "recovery commits in the version that the cluster has now, not in that of the transaction",
        TWO_PHASE,
        "_commit_each(sink, pinned, decision.transaction_version)",
        "_commit_each(sink, pinned, sink.transaction_version)",
        f"{TESTS_TWO_PHASE}::test_a_plan_finishes_a_decision_in_the_version_that_its_transactions_have",
    ),
    Mutant(
        "recovery passes over an EndTxn that was not carried out",
        TWO_PHASE,
        "    for (transactional_id, _), (answer, _) in zip(pinned, ended, strict=True):\n"
        "        check_definite(answer.error_code, transactional_id)\n",
        "",
        f"{TESTS_TWO_PHASE}::test_a_plan_does_not_pass_over_an_end_txn_that_is_refused",
    ),
    Mutant(
        "an EndTxn that a coordinator refuses is over, though that one stood still",
        TWO_PHASE,
        "        again = [each for each in refused if not _is_over(found[each], each[1])]\n",
        "        again = []\n",
        f"{TESTS_EXACTLY_ONCE}::test_transaction_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        "a plan aborts what the decision names, where that is said to be open",
        TWO_PHASE,
        "    still_open = yield from _open_since(sink, decision, _in(listed, \"Ongoing\"))\n",
        "    still_open = yield from open_ones(sink, _in(listed, \"Ongoing\"))\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_aborts_nothing_that_the_decision_names_whatever_coordinators_say",
    ),
    Mutant(
        "what is open is left open where a coordinator that stood still describes its end",
        TWO_PHASE,
        "    return bool(ended) and not ended.isdisjoint((yield from list_open(sink)))\n",
        "    return False\n",
        f"{TESTS_TWO_PHASE}::"
        "test_a_plan_aborts_what_is_listed_as_open_though_a_coordinator_that_stood_still_describes_its_end",
    ),
    Mutant(
        "a driver is fenced by what a coordinator knew before its Init",
        EXCHANGES,
        "        if is_later or pause_ms is None:\n",
        "        if True:\n",
        f"{TESTS_EXACTLY_ONCE}::test_transaction_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        "slots that no decision names are left open",
        TWO_PHASE,
        "    yield from abort_open(sink, generation, still_open)\n",
        "",
        f"{TESTS_EXACTLY_ONCE}::"
        "test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        "a plan that another has overtaken aborts the other's slots",
        TWO_PHASE,
        "    yield from check_generation(sink, generation)\n"
        "    answers = yield _aborts(\n",
        "    answers = yield _aborts(\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_that_is_overtaken_while_it_looks_aborts_nothing",
    ),
    Mutant(
        "a list of transactions that was refused is an empty one",
        TWO_PHASE,
        '        check_answer(listing.error_code, "ListTransactions", sink.names.sink)\n',
        "        pass\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_does_not_go_by_a_list_that_it_did_not_get",
    ),
    Mutant(
        "a description that was refused is a transaction that is not open",
        EXCHANGES,
        '            check_answer(description.error_code, "DescribeTransactions", description.transactional_id)\n',
        "            pass\n",
        f"{TESTS_EXCHANGES}::test_a_description_that_is_refused_is_no_transaction_that_is_closed",
    ),
    Mutant(
        "a plan passes over an abort that was not carried out",
        TWO_PHASE,
        "        check_definite(answer.error_code, each.transactional_id, api)\n",
        "        pass\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_does_not_pass_over_an_abort_that_is_refused",
    ),
    Mutant(
        "version 1 aborts with an EndTxn, which can come late and hit the next transaction",
        TWO_PHASE,
        "        return [init_producer_id(sink, transactional_id) for transactional_id in transactions]\n",
        "        return [end_txn(sink, name, ids, committed=False) for name, ids in transactions.items()]\n",
        f"{TESTS_TWO_PHASE}::test_a_plan_ends_what_no_decision_names_in_the_way_of_its_version",
    ),
    Mutant(
        "the markers are read before what was decided is committed",
        TWO_PHASE,
        "    return Facts(generation, decision, markers, unproved, is_forgotten)\n",
        "    return Facts(generation, decision, visible, (), is_forgotten)\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        "a decision of several groups is put together of two",
        EXCHANGES,
        "        if (again.offset, again.metadata) == (first.offset, first.metadata):\n",
        "        if True:\n",
        "tests/unit/commit/test_exchanges.py::test_a_decision_of_several_groups_is_not_put_together_of_two",
    ),
    Mutant(
        "the generation check in the task is left out",
        TWO_PHASE,
        "    yield from check_generation(sink, facts.generation)\n"
        "    ids = yield from _init_slot(sink, transactional_id)\n",
        "    ids = yield from _init_slot(sink, transactional_id)\n",
        f"{TESTS_TWO_PHASE}::test_an_attempt_of_another_run_touches_nothing",
    ),
    Mutant(
        "a task believes after its Init what it saw before, though others came in between",
        TWO_PHASE,
        "    is_first_since = _is_first_since(facts.decision, slot, ids)\n",
        "    is_first_since = True\n",
        f"{TESTS_EXACTLY_ONCE}::test_an_attempt_may_go_on_behind_a_commit_that_a_leader_did_not_hear_of",
    ),
    Mutant(
        "an attempt that others came before is taken for the first since the decision",
        TWO_PHASE,
        " and ids == _next_after(pinned, decision)\n",
        " and ids.producer_id == pinned.producer_id\n",
        f"{TESTS_EXACTLY_ONCE}::test_an_attempt_may_go_on_behind_a_commit_that_a_leader_did_not_hear_of",
    ),
    Mutant(
        "a plan takes a decision for the last one as it is read, though others came in between",
        TWO_PHASE,
        "    return (yield from read_decision(sink, barrier=f\"plan {generation}\"))\n",
        "    return decision\n",
        f"{TESTS_EXACTLY_ONCE}::test_group_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        "a plan takes a marker that it does not find for one that is not there",
        TWO_PHASE,
        "    markers = visible | (yield from read_markers(sink, missing, barrier=f\"plan {generation}\"))\n",
        "    markers = visible | (yield from read_markers(sink, missing))\n",
        f"{TESTS_EXACTLY_ONCE}::test_group_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        "a task takes a marker that it does not find for one that is not there",
        TWO_PHASE,
        "read_markers(sink, [slot], barrier=f\"begin {ids}\")\n",
        "read_markers(sink, [slot])\n",
        f"{TESTS_TWO_PHASE}::test_a_slot_that_was_visible_before_the_last_decision_is_known_whoever_answers_first",
    ),
    Mutant(
        "a commit takes a marker that it does not find for one that is not there",
        TWO_PHASE,
        "        markers |= yield from read_markers(sink, missing, barrier=f\"verify {facts.generation}\")\n",
        "        markers |= yield from read_markers(sink, missing)\n",
        f"{TESTS_EXACTLY_ONCE}::test_group_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        "a coordinator that has another barrier is believed",
        EXCHANGES,
        "for group in groups_of(answers) if group.beside == barrier}\n",
        "for group in groups_of(answers)}\n",
        "tests/unit/commit/test_exchanges.py::test_an_earlier_barrier_of_ones_own_proves_nothing",
    ),
    Mutant(
        "what is read again to know that a decision is whole is not behind a barrier",
        EXCHANGES,
        "f\"{barrier}.{next(reads)}\"\n",
        "barrier if next(reads) == 0 else None\n",
        "tests/unit/commit/test_exchanges.py::test_each_read_of_a_decision_is_behind_a_barrier_of_its_own",
    ),
    Mutant(
        "no markers: a task writes rows that are visible already",
        TWO_PHASE,
        "        if marker.micro_batch_id == micro_batch_id:\n"
        "            visible = marker\n",
        "        visible = None\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_driver_may_die_before_any_two_effects",
    ),
    Mutant(
        "the marker of an earlier micro-batch stands for this one's",
        TWO_PHASE,
        "        if marker.micro_batch_id == micro_batch_id:\n"
        "            visible = marker\n",
        "        visible = marker\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_driver_may_die_before_any_two_effects",
    ),
    Mutant(
        "the marker of another query stands for this one's",
        TWO_PHASE,
        "    if marker is not None and marker.query_id == query_id:\n",
        "    if marker is not None:\n",
        f"{TESTS_TWO_PHASE}::test_a_new_query_under_an_old_name_is_not_taken_for_the_old_one",
    ),
    Mutant(
        "a marker's error is ignored",
        EXCHANGES,
        '    check_answer(written.error_code, "TxnOffsetCommit", transactional_id)\n',
        "",
        f"{TESTS_EXCHANGES}::test_a_marker_that_is_refused_fails_the_attempt",
    ),
    Mutant(
        "version 1 adds a marker to a group that it could not add to the transaction",
        EXCHANGES,
        '        check_answer(added.error_code, "AddOffsetsToTxn", transactional_id)\n',
        "",
        f"{TESTS_EXCHANGES}::test_version_1_adds_no_marker_to_a_group_that_it_could_not_add",
    ),
    Mutant(
        "fingerprints are not compared: neither with what was decided nor with what is visible",
        TWO_PHASE,
        "    check_decision(sink, facts, prepared, micro_batch_id=micro_batch_id, allow_lost_state=allow_lost_state)\n"
        "    check_replay(sink, prepared, micro_batch_id=micro_batch_id)\n",
        "",
        f"{TESTS_EXACTLY_ONCE}::test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        "fingerprints are not compared with what was decided: a slot that is visible and comes no more is lost",
        LINEAGE,
        "if slot not in again or not marker.may_be_of(again[slot])\n",
        "if slot in again and not marker.may_be_of(again[slot])\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        "a replay adds slots to a micro-batch that is visible whole",
        LINEAGE,
        "    if not missing:\n",
        "    if False:\n",
        f"{TESTS_TWO_PHASE}::test_a_replay_of_what_is_visible_whole_may_have_further_slots_only_without_rows",
    ),
    Mutant(
        "fingerprints are not compared where the decision is gone",
        LINEAGE,
        "if each.visible and not each.visible.may_be_of(each.fingerprint)]\n",
        "if False]\n",
        f"{TESTS_LINEAGE}::test_rows_that_are_visible_must_come_again",
    ),
    Mutant(
        "a micro-batch of which nothing is known goes on at any id",
        LINEAGE,
        "        if not is_new and not allow_lost_state:\n",
        "        if False:\n",
        f"{TESTS_LINEAGE}::test_what_may_follow_upon_the_last_decision",
    ),
    Mutant(
        "an older checkpoint writes what was committed once more",
        LINEAGE,
        "    if decision.micro_batch_id > micro_batch_id:\n",
        "    if False:\n",
        f"{TESTS_LINEAGE}::test_what_may_follow_upon_the_last_decision",
    ),
    Mutant(
        "a micro-batch goes on where the one before is not whole",
        LINEAGE,
        "    if missing and not allow_lost_state:\n",
        "    if False:\n",
        f"{TESTS_LINEAGE}::test_what_may_follow_upon_the_last_decision",
    ),
    Mutant(
        "markers that have expired are rows that were never visible",
        LINEAGE,
        "    if facts.unproved and not allow_lost_state:\n",
        "    if facts.unproved and not allow_lost_state and decision.micro_batch_id != micro_batch_id:\n",
        f"{TESTS_EXACTLY_ONCE}::test_groups_of_slots_may_expire",
    ),
    Mutant(
        "a marker that is gone is taken for rows that are not there",
        TWO_PHASE,
        "            unproved.append(slot)\n",
        "            pass\n",
        f"{TESTS_EXACTLY_ONCE}::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        "what a coordinator proves is not written down before a task's Init makes it forget",
        TWO_PHASE,
        "    if lost:\n",
        "    if False:\n",
        f"{TESTS_EXACTLY_ONCE}::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        "an EndTxn that succeeds proves nothing",
        TWO_PHASE,
        "True if answer.error_code == ErrorCode.NONE else proofs.get(each)",
        "proofs.get(each)",
        f"{TESTS_LOST_GROUPS}::"
        "test_a_committed_slot_whose_group_is_gone_has_its_marker_restored_and_is_not_written_again",
    ),
    Mutant(
        "a slot that was visible before the decision is forgotten with its marker",
        TWO_PHASE,
        "        if ids is None or was_committed.get(slot):\n",
        "        if was_committed.get(slot):\n",
        f"{TESTS_LOST_GROUPS}::test_a_slot_that_was_visible_before_the_decision_is_though_its_group_is_gone",
    ),
    Mutant(
        "the abort of a later transaction proves that the pinned one was aborted",
        TWO_PHASE,
        " and raised_by in (version - 1, 1)\n",
        "\n",
        f"{TESTS_LOST_GROUPS}::test_what_a_state_proves_of_pinned_ids",
    ),
    Mutant(
        "the commit of another transaction proves that the pinned one was committed",
        TWO_PHASE,
        "        return True if raised_by == version - 1 else None\n",
        "        return True\n",
        f"{TESTS_LOST_GROUPS}::test_what_a_state_proves_of_pinned_ids",
    ),
    Mutant(
        "a task says that nothing was committed of a slot of which nothing is proved",
        TWO_PHASE,
        "    if marker is None and sink.comes_again and not is_pinned:\n",
        "    if marker is None and sink.comes_again:\n",
        f"{TESTS_LOST_GROUPS}::test_a_slot_of_which_nothing_is_proved_stays_so_whatever_is_begun",
    ),
    Mutant(
        "a new slot does not say that nothing was committed: one that times out is taken for lost",
        TWO_PHASE,
        "    if marker is None and sink.comes_again and not is_pinned:\n",
        "    if False:\n",
        f"{TESTS_LOST_GROUPS}::"
        "test_a_new_sink_says_that_nothing_was_decided_and_a_new_slot_that_nothing_was_committed",
    ),
    Mutant(
        "a first micro-batch whose decision is lost is taken for a new one",
        TWO_PHASE,
        "        if facts.is_forgotten and not allow_lost_state:\n",
        "        if False:\n",
        f"{TESTS_EXACTLY_ONCE}::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        "a new sink does not say that nothing was decided: a lost decision is taken for none",
        TWO_PHASE,
        "    is_forgotten = decision is None and sink.comes_again\n",
        "    is_forgotten = False\n",
        f"{TESTS_EXACTLY_ONCE}::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        "what is proved is taken for written by a driver that was overtaken",
        TWO_PHASE,
        "    if was_committed is None:\n",
        "    if False:\n",
        f"{TESTS_LOST_GROUPS}::test_a_driver_that_is_overtaken_while_it_restores_leaves_the_sink_to_the_other",
    ),
    Mutant(
        "a group that is deleted after the plan has its slot written again",
        TWO_PHASE,
        "markers.get(slot, facts.markers.get(slot))\n",
        "markers.get(slot)\n",
        f"{TESTS_LOST_GROUPS}::test_a_group_that_is_deleted_between_plan_and_task_has_its_slot_not_written_again",
    ),
    Mutant(
        "a task does not look again where another Inited its slot after it",
        TWO_PHASE,
        "        if ids != Ids(ended.producer_id, ended.producer_epoch + sink.transaction_version):\n",
        "        if False:\n",
        f"{TESTS_LOST_GROUPS}::"
        "test_a_slot_that_somebody_inits_while_it_says_that_nothing_was_committed_is_looked_at_again",
    ),
    Mutant(
        "rows whose marker is lost are taken for the same as a replay's",
        MARKERS,
        "        return self.fingerprint in (fingerprint, digest_of(fingerprint), FORGOTTEN)\n",
        "        return self.fingerprint == fingerprint or self.is_restored\n",
        f"{TESTS_LINEAGE}::test_rows_that_cannot_be_compared_come_again_only_if_that_is_allowed",
    ),
    Mutant(
        "rows that cannot be compared are taken for the same",
        LINEAGE,
        "    if facts.incomparable and not allow_lost_state:\n",
        "    if False:\n",
        f"{TESTS_LINEAGE}::test_rows_that_cannot_be_compared_come_again_only_if_that_is_allowed",
    ),
    Mutant(
        "a decision that has lost a part is taken for somebody else's text",
        EXCHANGES,
        "            if any(group.offset == NO_OFFSET for group in more):\n",
        "            if False:\n",
        f"{TESTS_LOST_GROUPS}::test_a_part_of_a_decision_that_is_gone_is_the_whole_of_it",
    ),
    Mutant(
        "brokers that forget sooner than a transaction ends are good enough",
        "kafka_sink/doctor/judging.py",
        "    if kept[name] <= timeout_ms:\n",
        "    if kept[name] < timeout_ms:\n",
        "tests/unit/doctor/test_judging.py::test_how_long_brokers_remember_what_is_committed",
    ),
    Mutant(
        "it is decided to commit transactions that are no longer open",
        TWO_PHASE,
        "            _check_open(sink, open_slots, decision, now_ms),\n",
        "",
        f"{TESTS_TWO_PHASE}::test_nothing_is_decided_of_a_slot_that_somebody_else_has_begun",
    ),
    Mutant(
        "a coordinator that stood still is believed",
        TWO_PHASE,
        "        if not any(map(_is_from_before, slots, found)):\n",
        "        if True:\n",
        f"{TESTS_TWO_PHASE}::test_a_coordinator_that_stood_still_is_asked_until_it_has_heard_of_the_slot",
    ),
    Mutant(
        "a slot that is open counts as this attempt's, whosever it is",
        TWO_PHASE,
        '        is_open = description.state == "Ongoing" and ids == each.ids\n',
        '        is_open = description.state == "Ongoing"\n',
        f"{TESTS_TWO_PHASE}::test_nothing_is_decided_of_a_slot_that_somebody_else_has_begun",
    ),
    Mutant(
        "it is decided to commit transactions that are about to time out",
        TWO_PHASE,
        "        if not is_open or age_ms > sink.timeout_ms - LEAST_TIME_LEFT_MS:\n",
        "        if not is_open:\n",
        f"{TESTS_TWO_PHASE}::test_nothing_is_decided_that_may_time_out_before_it_is_committed",
    ),
    Mutant(
        "a slot that a later run has ended is told as one that timed out",
        TWO_PHASE,
        "            (driver,) = yield from described(sink, [sink.names.driver])\n"
        "            if Ids(driver.producer_id, driver.producer_epoch) != decision.generation:\n"
        "                raise (yield from _lost(sink, decision))\n",
        "",
        f"{TESTS_TWO_PHASE}::test_an_abort_leaves_nothing_open_that_is_not_decided_whether_its_task_ended_or_not",
    ),
    Mutant(
        "no decision: slots are committed without one",
        TWO_PHASE,
        "        yield from _decide(sink, decision)\n",
        "",
        f"{TESTS_EXACTLY_ONCE}::test_a_driver_may_die_before_any_two_effects",
    ),
    Mutant(
        "slots are committed before the decision",
        TWO_PHASE,
        "        yield from _decide(sink, decision)\n"
        "        # Not one is aborted after this, whatever happens.\n",
        "        yield [end_txn(sink, sink.names.slot(each.slot), each.ids, committed=True) for each in open_slots]\n"
        "        yield from _decide(sink, decision)\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_driver_may_die_before_any_two_effects",
    ),
    Mutant(
        "a replay that is visible whole does not renew a decision that is gone",
        TWO_PHASE,
        "    if open_slots or not is_decided:\n",
        "    if open_slots:\n",
        f"{TESTS_TWO_PHASE}::test_a_replay_of_what_is_visible_is_decided_again_if_the_decision_is_gone",
    ),
    Mutant(
        "commit Inits the driver's id: two drivers may both decide",
        TWO_PHASE,
        "            generation=facts.generation,\n",
        "            generation=(yield from take_over(sink)),\n",
        f"{TESTS_TWO_PHASE}::test_a_driver_that_another_has_overtaken_decides_nothing",
    ),
    Mutant(
        "rows of an aborted attempt are committed with those of the next, where a leader has both in one transaction",
        TWO_PHASE,
        "            check_leaders(sink, open_slots, generation=facts.generation, micro_batch_id=micro_batch_id),\n",
        "",
        f"{TESTS_EXACTLY_ONCE}::test_a_leader_may_not_hear_of_an_abort",
    ),
    Mutant(
        "a leader that says where a slot's rows begin is taken to have nothing open before them",
        HANGING,
        "        if (since := began.get(where, NOTHING_OPEN)) != first\n",
        "        if (since := began.get(where, NOTHING_OPEN)) != first and (first is None or not 0 <= since < first)\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_leader_may_hear_neither_of_an_abort_nor_of_the_next_commit",
    ),
    Mutant(
        "rows that their leader has in no transaction any more are taken for committed",
        HANGING,
        "        if (since := began.get(where, NOTHING_OPEN)) != first\n",
        "        if (since := began.get(where, NOTHING_OPEN)) not in (first, NOTHING_OPEN)\n",
        f"{TESTS_HANGING}::test_rows_that_are_in_no_transaction_any_more_are_not_taken_for_committed",
    ),
    Mutant(
        "a leader that stood still while another took its place is believed that rows are gone",
        HANGING,
        "        if not any(map(_may_be_from_before, wrong)):\n            break\n",
        "        break\n",
        f"{TESTS_HANGING}::test_a_leader_that_stood_still_is_asked_until_it_has_heard_of_its_successor",
    ),
    Mutant(
        "what was open before a leader was waited for is decided, though it may have timed out",
        TWO_PHASE,
        "        if waited_ms:\n",
        "        if waited_ms < 0:\n",
        f"{TESTS_HANGING}::test_what_is_open_is_looked_at_again_after_waiting_for_a_leader",
    ),
    Mutant(
        "a transaction does not grow older while its coordinator is waited for",
        TWO_PHASE,
        "        age_ms = now_ms + waited_ms - description.start_time_ms\n",
        "        age_ms = now_ms - description.start_time_ms\n",
        f"{TESTS_TWO_PHASE}::test_a_transaction_grows_older_while_its_coordinator_is_waited_for",
    ),
    Mutant(
        "a run writes behind rows that a leader hides, and its abort takes them away",
        TWO_PHASE,
        "    yield from end_hanging(sink, ours, sorted(touched), decision.micro_batch_id)\n",
        "    assert isinstance(ours, dict)\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_version_that_a_leader_hides_is_not_passed_over_as_written",
    ),
    Mutant(
        "a decision does not say in which topics its rows are, and nobody looks there for what hangs",
        TWO_PHASE,
        "            topics=tuple(topics),\n",
        "",
        f"{TESTS_EXACTLY_ONCE}::test_a_version_that_a_leader_hides_is_not_passed_over_as_written",
    ),
    Mutant(
        "a fence is taken for success: of the decision",
        TWO_PHASE,
        "    if answer.error_code == ErrorCode.NONE:\n"
        "        return\n",
        "    if answer.error_code in DEFINITE:\n"
        "        return\n",
        f"{TESTS_TWO_PHASE}::test_another_drivers_decision_about_the_same_micro_batch_is_not_ones_own",
    ),
    Mutant(
        "an unknown EndTxn outcome of the decision is reported as decided",
        TWO_PHASE,
        "    if found != decision:\n",
        "    if False:\n",
        f"{TESTS_TWO_PHASE}::test_the_decisions_own_end_txn_is_believed_only_when_the_decision_can_be_read",
    ),
    Mutant(
        "a decision that timed out is told as another driver's taking over",
        TWO_PHASE,
        '    if driver.state.endswith("Abort") and current ==',
        "    if False and current ==",
        f"{TESTS_TWO_PHASE}::test_a_decision_that_times_out_while_it_is_written_is_no_other_drivers",
    ),
    Mutant(
        "any decision about the micro-batch is taken for one's own",
        TWO_PHASE,
        "    if found != decision:\n",
        "    if found is None or found.micro_batch_id != micro_batch_id:\n",
        f"{TESTS_TWO_PHASE}::test_another_drivers_decision_about_the_same_micro_batch_is_not_ones_own",
    ),
    Mutant(
        "abort after a commit that timed out: a commit whose EndTxn has no certain answer aborts the slot",
        TWO_PHASE,
        "        if refused:\n            raise CommitOutcomeUnknown(\n",
        "        if refused:\n"
        "            yield _aborts(sink, {sink.names.slot(each.slot): each.ids for each in open_slots})\n"
        "            raise CommitOutcomeUnknown(\n",
        f"{TESTS_TWO_PHASE}::test_a_commit_that_got_no_answer_aborts_nothing",
    ),
    Mutant(
        "an unknown EndTxn outcome is reported as commit: markers are not read after it",
        TWO_PHASE,
        "    yield from _verify(sink, facts, prepared, unproved, micro_batch_id=micro_batch_id)\n",
        "",
        f"{TESTS_EXACTLY_ONCE}::test_transactions_may_time_out_at_any_time",
    ),
    Mutant(
        "an aborted transaction is committed on a leader, as another run's marker is taken for its own",
        TWO_PHASE,
        "        unproved = [each for each, (_, was_committed) in zip(open_slots, ended, strict=True) "
        "if not was_committed]\n",
        "",
        f"{TESTS_TWO_PHASE}::test_an_aborted_transaction_is_not_committed_for_another_runs_rows",
    ),
    Mutant(
        "a commit ends well while a leader has a transaction open that nothing proves to be committed",
        TWO_PHASE,
        "    if not missing and unsure and touched:\n",
        "    if False:\n",
        f"{TESTS_TWO_PHASE}::test_an_aborted_transaction_is_not_committed_for_another_runs_rows",
    ),
    Mutant(
        "an unknown EndTxn outcome is reported as commit: any marker will do",
        TWO_PHASE,
        "    missing = [slot for slot, marker in expected.items() if markers.get(slot) != marker]\n",
        "    missing = [slot for slot, marker in expected.items() if slot not in markers]\n",
        f"{TESTS_EXACTLY_ONCE}::test_transactions_may_time_out_at_any_time",
    ),
    Mutant(
        "a transaction that hangs on a leader is passed over",
        TWO_PHASE,
        "    yield from end_hanging(sink, ours, touched, micro_batch_id)\n",
        "    assert isinstance(ours, dict)\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_leader_may_not_hear_of_a_commit",
    ),
    Mutant(
        "a replay of what is visible does not look for what hangs",
        TWO_PHASE,
        " if ids is not None and slot in visible_before}\n",
        " if ids is not None and slot in visible_before and new}\n",
        f"{TESTS_HANGING}::test_what_hangs_since_an_earlier_run_of_the_micro_batch_is_found_by_its_replay",
    ),
    Mutant(
        "what was pinned and timed out is taken for committed",
        TWO_PHASE,
        " if ids is not None and slot in visible_before}\n",
        " if ids is not None}\n",
        f"{TESTS_HANGING}::test_what_was_pinned_and_did_not_become_visible_is_never_taken_for_committed",
    ),
    Mutant(
        "what hangs is ended with ABORT",
        HANGING,
        "                committed=True,\n                # A leader takes",
        "                committed=False,\n                # A leader takes",
        f"{TESTS_HANGING}::test_what_hangs_is_committed_on_the_leader_with_its_own_ids",
    ),
    Mutant(
        "a marker that a leader refused is told as one that it took",
        HANGING,
        "        reason = refused.get((still[0].topic, still[0].partition))\n",
        '        reason = ""\n',
        f"{TESTS_HANGING}::test_a_transaction_that_hangs_is_told_with_where_and_whose_and_what_ends_it",
    ),
    Mutant(
        "what hangs even after a marker is passed over",
        HANGING,
        "    if still:\n",
        "    if False:\n",
        f"{TESTS_HANGING}::test_a_transaction_that_hangs_is_told_with_where_and_whose_and_what_ends_it",
    ),
    Mutant(
        "a partition that cannot be looked at is one where nothing is open",
        HANGING,
        "        if found.error_code != ErrorCode.NONE:\n"
        "            raise VerificationRefused(\n",
        "        if False:\n"
        "            raise VerificationRefused(\n",
        f"{TESTS_HANGING}::test_a_partition_that_cannot_be_looked_at_is_not_one_where_nothing_is_open",
    ),
    Mutant(
        "a later attempt's transaction is taken for one that hangs",
        HANGING,
        "        if (ids := Ids(producer.producer_id, producer.producer_epoch)) in ours\n",
        "        for ids in ours\n"
        "        if ids.producer_id == producer.producer_id\n",
        f"{TESTS_EXACTLY_ONCE}::test_of_two_drivers_on_a_checkpoint_one_is_fenced",
    ),
    Mutant(
        "abort without reading the decision",
        TWO_PHASE,
        "        if decision is not None and decision.generation == generation:\n",
        "        if False:\n",
        f"{TESTS_TWO_PHASE}::test_an_abort_commits_what_was_decided",
    ),
    Mutant(
        "abort after a commit that timed out: what a decision names is aborted",
        TWO_PHASE,
        "            yield from finish(sink, decision)\n",
        "            yield _aborts(\n"
        "                sink, {sink.names.slot(slot): ids for slot, ids in enumerate(decision.pinned) if ids}\n"
        "            )\n",
        f"{TESTS_TWO_PHASE}::test_an_abort_commits_what_was_decided",
    ),
    Mutant(
        "an abort fences the run that has begun since",
        TWO_PHASE,
        "        yield from check_generation(sink, generation)\n        # Without",
        "        # Without",
        f"{TESTS_TWO_PHASE}::test_an_abort_touches_nothing_once_another_run_has_begun",
    ),
    Mutant(
        "abort leaves all that is prepared to the next plan",
        TWO_PHASE,
        "        facts = yield from plan(replace(sink, comes_again=False))\n",
        "        facts = Facts(generation, None, {})\n",
        f"{TESTS_TWO_PHASE}::test_an_abort_leaves_nothing_open_that_is_not_decided_whether_its_task_ended_or_not",
    ),
    Mutant(
        "abort lets attempts write that have begun",
        TWO_PHASE,
        "        yield from _fence_begun(sink, facts.generation)\n",
        "",
        f"{TESTS_TWO_PHASE}::test_an_attempt_that_had_begun_when_its_run_was_aborted_opens_nothing_any_more",
    ),
)

BY_HAND: tuple[Mutant, ...] = (
    Mutant(
        "an operator's abort ends a transaction that the decision names",
        SURVEY,
        "    if decision is not None and decided:\n",
        "    if decision is not None and decided and False:\n",
        f"{TESTS_SURVEY}::test_what_a_decision_names_is_never_aborted",
    ),
    Mutant(
        "an operator's abort reads the decision before it fences the driver, which can still decide",
        SURVEY,
        "    generation = yield from two_phase.take_over(sink)\n"
        "    decision = yield from read_decision(sink, barrier=f\"abort {generation}\")\n",
        "    decision = yield from read_decision(sink)\n"
        "    generation = yield from two_phase.take_over(sink)\n",
        f"{TESTS_SURVEY}::test_a_driver_that_decides_at_any_moment_of_an_abort_is_whole_or_fenced",
    ),
    Mutant(
        "an operator's repair fences the driver",
        SURVEY,
        "    if decision is not None:\n        yield from two_phase.finish(sink, decision)\n",
        "    yield from two_phase.take_over(sink)\n"
        "    if decision is not None:\n        yield from two_phase.finish(sink, decision)\n",
        f"{TESTS_SURVEY}::test_a_driver_that_runs_is_not_disturbed",
    ),
    Mutant(
        "what hangs and was perhaps aborted is committed",
        SURVEY,
        "        (hanging if is_visible or is_last else unknown).append(each)\n",
        "        (hanging if each else unknown).append(each)\n",
        f"{TESTS_SURVEY}::test_what_is_not_known_to_be_committed_gets_no_marker",
    ),
    Mutant(
        "any transaction before the last is taken for committed with it",
        SURVEY,
        "    return description.producer_epoch == ids.producer_epoch + raised_by\n",
        "    return description.producer_epoch >= ids.producer_epoch + raised_by\n",
        f"{TESTS_SURVEY}::test_what_leaders_have_open_and_coordinators_not_hangs",
    ),
    Mutant(
        "what began after the coordinator was asked is taken for one that hangs",
        SURVEY,
        "(is_complete and ids.producer_epoch == epoch)\n",
        "ids.producer_epoch == epoch\n",
        f"{TESTS_SURVEY}::test_what_leaders_have_open_and_coordinators_not_hangs",
    ),
    Mutant(
        "looking at a sink waits for its open transactions",
        SURVEY,
        "    markers = yield from read_markers(sink, slots, stable=False)\n",
        "    markers = yield from read_markers(sink, slots)\n",
        f"{TESTS_SURVEY}::test_what_is_decided_is_told_from_what_is_not",
    ),
    Mutant(
        "a topic that one broker does not know is taken for gone, while that broker has just started",
        COORDINATOR_CLIENT,
        "        if is_unknown and self._pause(1, deadline_ms):\n",
        "        if False:\n",
        f"{TESTS_COORDINATOR_CLIENT}::TestPartitions::"
        "test_of_a_topic_that_a_broker_which_has_just_started_does_not_know_yet",
    ),
)

TOPIC_IDS = (
    Mutant(
        "topic ids: a decision forgets them, and a replay passes rows over that went with an old topic",
        TWO_PHASE,
        "for topic in topics if (topic_id := topic_ids.get(topic)) is not None}",
        "for topic, topic_id in ()}",
        f"{TESTS_TWO_PHASE}::test_a_decision_says_which_topics_those_were",
    ),
    Mutant(
        "topic ids: a decision tells them so that code without ids takes them for pins",
        "kafka_sink/commit/markers.py",
        'TOPIC_ID_SIGN = "@@"\n',
        'TOPIC_ID_SIGN = "="\n',
        "tests/unit/commit/test_markers.py::test_code_without_ids_reads_a_decision_that_has_some",
    ),
    Mutant(
        "topic ids: a replay that writes its rows is said to have lost them",
        SPARKS_PART,
        "for each in messages if each.prepared.visible for topic",
        "for each in messages for topic",
        f"{TESTS_SPARKS_PART}::test_a_replay_warns_of_topics_that_took_its_rows_with_them",
    ),
    Mutant(
        "topic ids: the next micro-batch is taken for a replay",
        SPARKS_PART,
        "    if decision is not None and (decision.micro_batch_id, decision.query_id) == decided:\n"
        "        _warn_created_again",
        "    if decision is not None:\n        _warn_created_again",
        f"{TESTS_SPARKS_PART}::test_a_replay_warns_of_topics_that_took_its_rows_with_them",
    ),
    Mutant(
        "topic ids: a version that is passed over does not warn",
        SPARKS_PART,
        "            _warn_created_again(plan, plan.facts.decision, client.topic_ids(topics))\n",
        "",
        f"{TESTS_SPARKS_PART}::test_a_version_again_warns_of_topics_that_took_its_rows_with_them",
    ),
)


EXHAUSTION = (
    Mutant(
        "exhaustion: a producer whose thread cannot start leaves its sockets",
        CLIENT,
        "            # There is no thread that would.\n            self._network.close()\n",
        "            # There is no thread that would.\n",
        f"{TESTS_CLIENT}::test_a_producer_without_a_thread_leaves_no_socket",
    ),
    Mutant(
        "exhaustion: a sender thread that cannot fail its batches leaves its sockets",
        CLIENT,
        "            finally:\n                # Also where there is no memory for more.\n",
        "            except ZeroDivisionError:\n                # Also where there is no memory for more.\n",
        f"{TESTS_CLIENT}::test_a_sender_thread_closes_its_sockets_though_there_is_no_memory_to_fail_batches",
    ),
    Mutant(
        "exhaustion: memory that the sender thread lacks is called a defect",
        CLIENT,
        "            named = exhausted(defect)\n",
        "            named = None\n",
        f"{TESTS_CLIENT}::test_a_sender_thread_without_memory_tells_whoever_waits_and_ends_quietly",
    ),
    Mutant(
        "exhaustion: connections without files are tried again until max.block.ms is over",
        f"{NET}/network_client.py",
        "        if failure is not None and now_ms - began_ms >= PATIENCE_MS:\n",
        "        if False:\n",
        f"{TESTS_NET}/test_network_client.py::TestLack::test_is_waited_for_a_few_seconds",
    ),
    Mutant(
        "exhaustion: files that came free again are forgotten, and the next lack ends the producer at once",
        f"{NET}/network_client.py",
        "                self._lacking_ms = None\n",
        "",
        f"{TESTS_NET}/test_network_client.py::TestLack::test_that_ends_is_forgotten",
    ),
    Mutant(
        "exhaustion: a lack of long ago ends the producer at the next one",
        f"{NET}/network_client.py",
        "            # Nobody has tried since.\n            began_ms = now_ms\n",
        "            # Nobody has tried since.\n            pass\n",
        f"{TESTS_NET}/test_network_client.py::TestLack::test_of_long_ago_does_not_count",
    ),
)


FORGETTING = (
    Mutant(
        "groups: markers are deleted beside their decision, which then tells of rows that are missing",
        "kafka_sink/commit/forgetting.py",
        "    yield from _delete([first])\n    yield from _delete([*others, *(sink.names.slot(slot) for slot, _ in "
        "enumerate(decision.pinned))])\n",
        "    yield from _delete([*(sink.names.slot(slot) for slot, _ in enumerate(decision.pinned))])\n"
        "    yield from _delete([first, *others])\n",
        "tests/unit/commit/test_forgetting.py::"
        "test_wherever_it_stops_nothing_tells_of_rows_that_are_missing_and_an_abort_takes_none_away",
    ),
    Mutant(
        "groups: those of another run's decision are deleted",
        "kafka_sink/commit/forgetting.py",
        "    if decision is None or decision.generation != generation:\n",
        "    if decision is None:\n",
        "tests/unit/commit/test_forgetting.py::test_what_another_run_has_decided_since_is_left",
    ),
    Mutant(
        "groups: a refusal of the first is not looked at, and the others are deleted",
        "kafka_sink/commit/forgetting.py",
        '            check_answer(deleted.error_code, "DeleteGroups", group_id)\n',
        "            pass\n",
        "tests/unit/commit/test_forgetting.py::test_who_may_not_delete_the_decision_deletes_nothing",
    ),
    Mutant(
        "groups: those of a version are deleted, and a rerun writes it again",
        SPARKS_PART,
        "    if plan.batch is not None and not plan.batch.is_versioned:\n        _forget",
        "    if plan.batch is not None:\n        _forget",
        f"{TESTS_SPARKS_PART}::test_what_comes_again_under_its_name_keeps_its_groups",
    ),
    Mutant(
        "groups: a write whose groups cannot be deleted fails, and a job that is done runs again",
        SPARKS_PART,
        "    except Exception as error:\n        log.debug(\"groups of",
        "    except ConfigError as error:\n        log.debug(\"groups of",
        f"{TESTS_SPARKS_PART}::test_groups_that_cannot_be_deleted_fail_no_write_and_nobody_looks_at_hosts_for_them",
    ),
    Mutant(
        "groups: their deletion may take max.block.ms, again and again",
        COORDINATOR_CLIENT,
        "        return deadline_ms if self._ends_ms is None else min(deadline_ms, self._ends_ms)\n",
        "        return deadline_ms\n",
        f"{TESTS_COORDINATOR_CLIENT}::TestWithin::test_all_that_is_asked_has_so_much_time_together",
    ),
)


BATCH_VERSIONS = (
    Mutant(
        "batch versions: one that is visible in part counts as written",
        TWO_PHASE,
        "        is_whole = decision.micro_batch_id == version and not facts.missing\n",
        "        is_whole = decision.micro_batch_id == version\n",
        f"{TESTS_EXACTLY_ONCE}::test_versions_of_batch_writes_may_time_out_at_any_time",
    ),
    Mutant(
        "batch versions: a lower one is written again, as far as the decision is asked",
        TWO_PHASE,
        "        if is_whole or decision.micro_batch_id > version:\n            return True\n",
        "        if is_whole:\n            return True\n",
        f"{TESTS_EXACTLY_ONCE}::test_versions_of_batch_writes_come_once_in_whatever_order",
    ),
    Mutant(
        "batch versions: a stream's micro-batch under the name passes for one",
        TWO_PHASE,
        "    if decision is not None and decision.query_id == query_id:\n        is_whole",
        "    if decision is not None:\n        is_whole",
        f"{TESTS_TWO_PHASE}::test_a_version_is_written_once_and_none_that_is_torn_is_passed",
    ),
    Mutant(
        "batch versions: the first takes a name over that a stream has",
        LINEAGE,
        "        is_new = micro_batch_id == 0 and not (versioned and decision is not None)\n",
        "        is_new = micro_batch_id == 0\n",
        f"{TESTS_TWO_PHASE}::test_a_version_is_written_once_and_none_that_is_torn_is_passed",
    ),
    Mutant(
        "batch versions: an earlier one that is torn is passed over",
        LINEAGE,
        "    if missing and not allow_lost_state:\n",
        "    if missing and not versioned and not allow_lost_state:\n",
        f"{TESTS_EXACTLY_ONCE}::test_no_version_that_is_visible_in_part_is_passed_over",
    ),
    Mutant(
        "batch versions: none may be left out",
        LINEAGE,
        "    is_next = versioned or decision.micro_batch_id == micro_batch_id - 1\n",
        "    is_next = decision.micro_batch_id == micro_batch_id - 1\n",
        f"{TESTS_EXACTLY_ONCE}::test_versions_of_batch_writes_come_once_in_whatever_order",
    ),
    Mutant(
        "batch versions: a later run's markers are an earlier one's that are missing",
        TWO_PHASE,
        "    yield from check_generation(sink, facts.generation)\n    check_lineage(",
        "    check_lineage(",
        f"{TESTS_EXACTLY_ONCE}::test_of_two_writes_under_one_name_one_is_fenced",
    ),
    Mutant(
        "batch versions: other rows under the last number are dropped without a word",
        TWO_PHASE,
        "    elif total(counted) != total(marker.fingerprint for marker in visible.values()):\n",
        "    elif False:\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_version_again_with_other_rows_stops_at_what_is_visible",
    ),
    Mutant(
        "batch versions: the same rows in other slots are taken for others",
        TWO_PHASE,
        "    elif total(counted) != total(marker.fingerprint for marker in visible.values()):\n",
        "    elif counted != [visible[slot].fingerprint for slot in sorted(visible)]:\n",
        f"{TESTS_TWO_PHASE}::test_a_version_that_is_whole_is_compared_as_a_whole",
    ),
    Mutant(
        "of reads that went together each gets the answer to all",
        f"{PRODUCER}/coordinators.py",
        "                self._on_answer(ask, answer, _part_of(answer.response, ask.request), now_ms)\n",
        "                self._on_answer(ask, answer, answer.response, now_ms)\n",
        f"{TESTS_PRODUCER}/test_coordinators.py::TestPipelining::test_reads_of_one_coordinator_are_one_request",
    ),
    Mutant(
        "a run begins behind rows that a leader hides",
        SPARKS_PART,
        "            run(client, two_phase.end_what_hangs(sink, facts, _partitions(client, facts.decision.topics)))\n",
        "            pass\n",
        f"{TESTS_SPARKS_PART}::test_a_run_looks_for_what_hangs_of_the_last_decision",
    ),
    Mutant(
        "batch versions: one that a leader hides counts as written",
        TWO_PHASE,
        "    yield from end_what_hangs(sink, facts, touched)\n",
        "    yield from ()\n",
        f"{TESTS_EXACTLY_ONCE}::test_a_version_that_a_leader_hides_is_not_passed_over_as_written",
    ),
    Mutant(
        "an abort takes the run of another query with its prefix for its own, and ends what that has open",
        "kafka_sink/spark/last_run.py",
        "    name = f\"{prefix}\\n{checkpoint or ''}\"\n",
        "    name = prefix\n",
        f"{TESTS_SPARKS_PART}::test_a_streams_abort_is_not_of_another_query_that_has_its_prefix",
    ),
    Mutant(
        "a batch write that failed is told of a query's restart",
        SPARKS_PART,
        "            write_kind=WriteKind.STREAM if batch is None else batch.kind,\n",
        "            write_kind=WriteKind.STREAM,\n",
        f"{TESTS_SPARKS_PART}::test_errors_say_who_runs_the_write_again",
    ),
    Mutant(
        "batch versions: tasks write one that is written",
        SPARKS_PART,
        "        if plan.is_written:\n            return _count_slot(config, plan, context, chain, arrow_batches)\n",
        "",
        f"{TESTS_SPARKS_PART}::test_a_task_of_a_written_version_reads_its_rows_to_the_end_and_asks_nobody",
    ),
    Mutant(
        "batch versions: a rerun is another query",
        SPARKS_PART,
        '        return app_id, BatchWrite(f"txnAppId:{app_id}", given["txn_version"], is_versioned=True)\n',
        '        return app_id, BatchWrite(uuid.uuid4().hex, given["txn_version"], is_versioned=True)\n',
        f"{TESTS_SPARKS_PART}::test_a_batch_write_with_a_version_is_the_same_in_every_rerun",
    ),
    Mutant(
        "batch versions: one that only the conf knows is written without",
        SPARKS_PART,
        '        if config.txn_app_id is not None and "txn_app_id" not in given:\n',
        "        if False:\n",
        f"{TESTS_SPARKS_PART}::test_a_version_that_only_the_conf_knows_is_refused_by_tasks",
    ),
)

BAD_ROWS_AND_RECEIPTS: tuple[Mutant, ...] = (
    Mutant(
        "bad rows: a fingerprint is of the rows that are good today",
        WRITE_MODULE,
        "            self._fingerprint.update(columns_for_fingerprint(arrow_batch, now_ms=wall_clock_ms()))\n",
        "            good = batch.filter(pa.array(reasons == GOOD))\n"
        "            self._fingerprint.update(columns_for_fingerprint(good, now_ms=wall_clock_ms()))\n",
        f"{TESTS_WRITE}::test_the_fingerprint_is_of_all_rows_whatever_is_bad_about_them_now",
    ),
    Mutant(
        "bad rows: those that were dropped are taken for those that were written",
        "kafka_sink/spark/bad_rows.py",
        "    if acknowledged + bad.dropped_count != write.record_count or dead_letters != bad.dead_lettered_count:\n",
        "    if acknowledged > write.record_count:\n",
        "tests/unit/spark/test_bad_rows.py::test_any_other_sum_is_a_defect",
    ),
    Mutant(
        "bad rows: the commit does not ask how many there are together",
        "kafka_sink/spark/writer.py",
        "            present = check_all_present(messages, micro_batch_id=None)\n"
        "            check_bad_rows(present, rows_are_written=False)\n",
        "            present = check_all_present(messages, micro_batch_id=None)\n",
        "tests/unit/spark/test_writer.py::test_exactly_once_refuses_them_before_anything_is_decided",
    ),
    Mutant(
        "bad rows: a dead letter that does not fit is left out",
        WRITE_MODULE,
        "                raise RecordTooLarge(topic=topic, size_bytes=size_bytes, max_bytes=max_bytes, limit=limit)\n",
        "                letters = letters.filter(pa.array(~too_large))\n",
        f"{TESTS_WRITE}::test_a_dead_letter_that_cannot_be_written_at_all_is_not_lost_silently",
    ),
    Mutant(
        "bad rows: header keys are UTF-8 all together, and not each",
        f"{RECORDS}/columns.py",
        "        array.cast(pa.large_string() if width is np.int64 else pa.string())\n",
        "        content.tobytes().decode()\n",
        f"{TESTS_RECORDS}/test_columns.py::test_header_keys_are_utf8_by_pythons_rule_each_of_its_own",
    ),
    Mutant(
        "bad rows: a header key that is not UTF-8 is written",
        f"{RECORDS}/columns.py",
        "    if not content.size or content.max() <= LAST_ASCII:\n",
        "    if content.size:\n",
        f"{TESTS_RECORDS}/test_bad_rows.py::test_bad_are_exactly_those_that_the_fast_path_refuses",
    ),
    Mutant(
        "bad rows: header keys that are not UTF-8 have the same fingerprint",
        f"{RECORDS}/bad_rows.py",
        "{BYTES_KEY}{key.hex()}",
        "{BYTES_KEY}",
        f"{TESTS_RECORDS}/test_bad_rows.py::test_another_bad_row_is_another_fingerprint",
    ),
    Mutant(
        "bad rows: the cluster is asked for a topic that nothing can be called",
        f"{PRODUCER}/router.py",
        "            if not is_topic_name(name):\n",
        "            if not name:\n",
        f"{TESTS_PRODUCER}/test_router.py::"
        "test_a_name_that_no_topic_can_have_is_a_bad_row_and_shown_with_escapes",
    ),
    Mutant(
        "bad rows: what one topic refuses is refused of all",
        f"{PRODUCER}/judgement.py",
        "        return (lacks_key or is_off) and bool(self.refused(columns, topics, topic_index, now_ms).any())\n",
        "        return bool(lacks_key or is_off)\n",
        f"{TESTS_WRITE}::test_rows_that_another_topic_would_refuse_are_not_judged_one_by_one",
    ),
    Mutant(
        "bad rows: the older setting of times does not count",
        f"{PRODUCER}/judgement.py",
        "for setting in (name, DIFFERENCE_MAX_MS))",
        "for setting in (name,))",
        f"{TESTS_PRODUCER}/test_judgement.py::test_what_settings_ask_of_a_row",
    ),
    Mutant(
        "bad rows: times are judged where the broker writes its own",
        f"{PRODUCER}/judgement.py",
        '    any_time = settings.get(TIMESTAMP_TYPE) == "LogAppendTime"\n',
        "    any_time = False\n",
        f"{TESTS_PRODUCER}/test_judgement.py::test_what_settings_ask_of_a_row",
    ),
    Mutant(
        "bad rows: a time at the edge of what its topic allows is refused",
        f"{PRODUCER}/judgement.py",
        "        is_off = (timestamp_ms < earliest[place]) | (timestamp_ms > latest[place])\n",
        "        is_off = (timestamp_ms <= earliest[place]) | (timestamp_ms >= latest[place])\n",
        f"{TESTS_PRODUCER}/test_judgement.py::test_keys_and_times_are_judged_as_a_leader_does",
    ),
    Mutant(
        "bad rows: rows that their topic refuses are sent",
        WRITE_MODULE,
        "        if is_refused and self._bad_rows is not None:\n",
        "        if False:\n",
        f"{TESTS_WRITE}::test_rows_that_only_their_topics_settings_refuse_are_bad_rows",
    ),
    Mutant(
        "left out: what is behind keeps its numbers",
        f"{PRODUCER}/sequences.py",
        "            state.renumbering = why\n",
        "",
        f"{TESTS_PRODUCER}/test_sender_under_faults.py::test_without_faults_each_write_leaves_them_out",
    ),
    Mutant(
        "left out: others get its numbers while one behind is on the wire",
        f"{PRODUCER}/sequences.py",
        "            if any(other.in_flight for other in state.unanswered):\n",
        "            if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::"
        "test_a_row_that_is_refused_is_left_out_and_those_behind_get_its_sequences",
    ),
    Mutant(
        "left out: a batch that may be written is sent without a row",
        f"{PRODUCER}/sender.py",
        "        if not batch.receipts.leaves_out(batch.topic_partition.topic) or batch.may_be_written:\n",
        "        if not batch.receipts.leaves_out(batch.topic_partition.topic):\n"
        "            return Action.FAIL\n"
        "        batch.may_be_written = False\n"
        "        if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_refusal_of_what_may_be_written_ends_the_write",
    ),
    Mutant(
        "left out: one behind that may be written gets another number",
        f"{PRODUCER}/sequences.py",
        "        return not any(other.may_be_written for other in self._state(batch).unanswered)\n",
        "        return True\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_one_behind_it_that_may_be_written_gets_no_other_number",
    ),
    Mutant(
        "left out: one behind whose outcome is open meanwhile gets another number",
        f"{PRODUCER}/sender.py",
        "        if batch.may_be_written and self._ends_renumbering(batch):\n",
        "        if False:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_one_behind_it_that_may_be_written_gets_no_other_number",
    ),
    Mutant(
        "left out: an answer of a leader that stopped leading means that nothing was written",
        f"{PRODUCER}/error_policy.py",
        "NOT_WRITTEN = frozenset({\n",
        "NOT_WRITTEN = frozenset({\n    _E.NOT_LEADER_OR_FOLLOWER,\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_refusal_of_what_may_be_written_ends_the_write",
    ),
    Mutant(
        "left out: a place that the batch does not have",
        f"{PRODUCER}/sender.py",
        "        if not places or not places <= set(range(batch.record_count)):\n",
        "        if not places:\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_places_that_the_batch_does_not_have_are_no_reason_to_leave_out",
    ),
    Mutant(
        "left out: dead letters that their leader refuses are",
        f"{PRODUCER}/receipts.py",
        "        return self.refused is not None and topic != self.dead_letter_topic\n",
        "        return self.refused is not None\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_refusal_fails_the_write_where_nothing_is_to_be_left_out",
    ),
    Mutant(
        "left out: rows are not accounted for when the last is flushed",
        WRITE_MODULE,
        "        while self._account_for_refused():\n            self._producer.flush(self._receipts)\n",
        "",
        f"{TESTS_WRITE}::test_rows_that_leaders_refuse_are_counted_and_their_dead_letters_are_flushed_too",
    ),
    Mutant(
        "left out: their dead letters are not waited for",
        WRITE_MODULE,
        "        while self._account_for_refused():\n            self._producer.flush(self._receipts)\n",
        "        self._account_for_refused()\n",
        f"{TESTS_WRITE}::test_rows_that_leaders_refuse_are_counted_and_their_dead_letters_are_flushed_too",
    ),
    Mutant(
        "receipts: a micro-batch is decided without one",
        SPARKS_PART,
        "    write_receipt(messages)\n",
        "",
        f"{TESTS_SPARKS_PART}::test_nothing_is_decided_without_the_receipt",
    ),
    Mutant(
        "receipts: a replay replaces a good one by less",
        "kafka_sink/spark/receipt_writer.py",
        "    if len(kept) == len(messages) and old.num_rows and all(part is not None for part in kept.values()):\n"
        "        return None\n",
        "    kept = dict.fromkeys(kept)\n",
        "tests/unit/spark/test_receipt_writer.py::test_a_replay_of_what_was_visible_leaves_the_file",
    ),
    Mutant(
        "row identity: two exports of one receiptName are one, and a reader leaves out the other's rows",
        "kafka_sink/spark/proof.py",
        "    return RowIdentity(identity.query_id, identity.batch_id, slot, config.topic)\n",
        "    return RowIdentity(identity.named, identity.batch_id, slot, config.topic)\n",
        "tests/unit/spark/test_proof.py::test_two_writes_of_one_name_in_receipts_are_two_where_rows_are_told_apart",
    ),
    Mutant(
        "receipts: rows that were left out as bad are not counted in a slot's",
        "kafka_sink/spark/receipt_writer.py",
        "    total = sum(found[\"record_count\"].to_pylist()) + sum(found[\"dropped\"].to_pylist())\n",
        "    total = sum(found[\"record_count\"].to_pylist())\n",
        "tests/unit/spark/test_receipt_writer.py::test_rows_that_were_left_out_are_told_once_a_slot",
    ),
    Mutant(
        "receipts: at-least-once fails for a missing one, and writes its rows again",
        "kafka_sink/spark/receipt_writer.py",
        '        proof = _proof(messages[0])\n        log.warning(\n',
        '        raise\n        proof = _proof(messages[0])\n        log.warning(\n',
        "tests/unit/spark/test_receipt_writer.py::test_at_least_once_logs_it_and_goes_on",
    ),
)

RATE: tuple[Mutant, ...] = (
    Mutant(
        "rate: rows go before they are paid for",
        f"{PRODUCER}/rate_limit.py",
        "        self._paid_until_ms = max(self._paid_until_ms, now_ms - BURST_MS) + count * self._ms_each\n"
        "        return self._paid_until_ms\n",
        "        goes_ms = max(self._paid_until_ms, now_ms - BURST_MS)\n"
        "        self._paid_until_ms = goes_ms + count * self._ms_each\n"
        "        return goes_ms\n",
        f"{TESTS_PRODUCER}/test_rate_limit.py::test_it_is_never_faster_than_asked",
    ),
    Mutant(
        "rate: all that a slow source missed comes at once",
        f"{PRODUCER}/rate_limit.py",
        "max(self._paid_until_ms, now_ms - BURST_MS)",
        "self._paid_until_ms",
        f"{TESTS_PRODUCER}/test_rate_limit.py::test_what_a_slow_source_missed_is_caught_up_with_by_one_burst",
    ),
    Mutant(
        "rate: brokers abort the transaction of a slow task without a word of why",
        f"{PRODUCER}/rate_limit.py",
        "        if transaction is not None and goes_ms",
        "        if False and goes_ms",
        f"{TESTS_PRODUCER}/test_rate_limit.py::"
        "test_a_transaction_that_would_be_outlasted_is_told_before_it_is_waited_for",
    ),
    Mutant(
        "rate: each task takes all of it",
        "kafka_sink/spark/rate.py",
        "whole / tasks",
        "float(whole)",
        "tests/unit/spark/test_rate.py::test_a_task_takes_its_part",
    ),
    Mutant(
        "rate: a slow writer is not told that its rows were refused",
        CLIENT,
        "                self._raise_failure()\n                self._changed.wait(remaining_ms / 1000)\n",
        "                self._changed.wait(remaining_ms / 1000)\n",
        f"{TESTS_CLIENT}::test_a_pause_is_ended_by_rows_that_were_refused_meanwhile",
    ),
)

ROW_IDENTITY: tuple[Mutant, ...] = (
    Mutant(
        "identity: rows are numbered anew in each slice",
        WRITE_MODULE,
        "self._row_identity.added_to(columns, self.record_count + numbers)",
        "self._row_identity.added_to(columns, numbers)",
        f"{TESTS_WRITE}::test_rows_are_numbered_as_spark_delivers_them",
    ),
    Mutant(
        "identity: rows behind a bad one take its number",
        WRITE_MODULE,
        "        self._place(self._identified(columns, good), self._topics_of, started_ms)\n",
        "        self._place(self._identified(columns), self._topics_of, started_ms)\n",
        f"{TESTS_WRITE}::test_bad_rows_keep_their_numbers",
    ),
    Mutant(
        "identity: two writes of one foreachBatch are the same",
        "kafka_sink/spark/writer.py",
        "    if identity is None and (config.receipts_path",
        "    if _conf_of(context) and (config.receipts_path",
        "tests/unit/spark/test_writer.py::test_rows_know_whose_they_are_only_where_that_is_asked",
    ),
    Mutant(
        "identity: it stands before a row's own headers, where it may be of a row that was copied",
        f"{RECORDS}/row_identity.py",
        "    place = own.row_offsets[1:][of_row] + np.arange(len(of_row))\n",
        "    place = own.row_offsets[:-1][of_row] + np.arange(len(of_row))\n",
        f"{TESTS_RECORDS}/test_row_identity.py::test_each_row_has_them_behind_its_own",
    ),
    Mutant(
        "identity: that of another topic is believed, and of a row's parts that were written on there one is kept",
        "kafka_sink/duplicates.py",
        '    is_known = is_whole & (F.get(parts, F.lit(0)) == F.col("topic"))\n',
        "    is_known = is_whole\n",
        "tests/integration/test_row_identity.py::test_only_what_is_the_same_row_of_the_same_topic_is_left_out",
    ),
)

PEERS: tuple[Mutant, ...] = (
    Mutant(
        "peers: a name of somebody else's goes into a line to paste as it is",
        QUOTING,
        "    word = shlex.quote(escaped(value))\n",
        "    word = escaped(value)\n",
        f"{TESTS_QUOTING}::test_a_pasted_command_runs_itself_and_nothing_else",
    ),
    Mutant(
        "peers: a value that begins with a dash becomes an option",
        QUOTING,
        '    return f"{name}={word}" if value.startswith("-") else f"{name} {word}"\n',
        '    return f"{name} {word}"\n',
        f"{TESTS_QUOTING}::test_a_value_with_a_dash_is_no_option",
    ),
    Mutant(
        "peers: control characters move the terminal's cursor",
        QUOTING,
        '    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)\n',
        "    return text\n",
        f"{TESTS_QUOTING}::test_what_does_not_print_is_shown_as_its_escape",
    ),
    Mutant(
        "peers: a message of 8 MB fills the log",
        QUOTING,
        "    if len(text) <= most and len(shown) <= most:\n",
        "    if True:\n",
        f"{TESTS_QUOTING}::test_it_fills_no_log",
    ),
    Mutant(
        "peers: another program's transaction gets a command of this sink's",
        "kafka_sink/transactions.py",
        "    if not is_prefix(sink.names.sink):\n",
        "    if not sink.names.sink:\n",
        f"{TESTS_TRANSACTIONS}::test_names_of_others_are_shown_as_they_print_and_get_no_command",
    ),
    Mutant(
        "peers: an id with a line's end is not listed",
        SURVEY,
        're.compile(r"(.+)\\.(?:[0-9]{1,10}|driver)", re.DOTALL)',
        're.compile(r"(.+)\\.(?:[0-9]{1,10}|driver)")',
        f"{TESTS_SURVEY}::test_a_sink_is_busy_whatever_characters_its_name_has",
    ),
    Mutant(
        "peers: brokers are asked for ids without a line's end",
        "kafka_sink/protocol/transactions.py",
        '"(?s:.*)"',
        '".*"',
        "tests/integration/test_transactions_command.py::test_ids_of_others_run_nothing_and_draw_nothing",
    ),
    Mutant(
        "peers: one sink that nobody can read hides the others",
        "kafka_sink/transactions.py",
        "        except (TransactionRefused, UnreadableState) as error:\n",
        "        except TransactionRefused as error:\n",
        f"{TESTS_TRANSACTIONS}::test_a_sink_that_cannot_be_read_does_not_hide_the_others",
    ),
    Mutant(
        "peers: an error shows its facts as somebody said them",
        "kafka_sink/errors.py",
        "        shown = {name: _fact(name, fact) for name, fact in named.items()}\n",
        "        shown = named\n",
        "tests/unit/test_errors.py::test_whatever_a_peer_says_a_message_is_printed_as_it_reads_and_is_short",
    ),
    Mutant(
        "peers: an error that is raised as it is shows what somebody said",
        "kafka_sink/errors.py",
        '        return super().__call__(*(_fact("", fact) for fact in facts), **shown)\n',
        "        return super().__call__(*facts, **shown)\n",
        "tests/unit/test_errors.py::test_whatever_a_peer_says_a_message_is_printed_as_it_reads_and_is_short",
    ),
    Mutant(
        "peers: a finding shows what somebody said",
        "kafka_sink/doctor/report.py",
        '        object.__setattr__(self, "found", quoted(self.found))\n',
        "",
        "tests/unit/doctor/test_report.py::test_places_and_findings_are_shown_as_they_print",
    ),
    Mutant(
        "peers: the place of a verdict is as somebody named it",
        "kafka_sink/doctor/report.py",
        '        object.__setattr__(self, "where", quoted(self.where, MAX_WHERE_CHARACTERS))\n',
        "",
        "tests/unit/doctor/test_report.py::test_places_and_findings_are_shown_as_they_print",
    ),
    Mutant(
        "peers: a command prints lines of somebody else's",
        "kafka_sink/command_line.py",
        "        print(quoted(line, MAX_LINE_CHARACTERS), file=file, flush=True)\n",
        "        print(line, file=file, flush=True)\n",
        f"{TESTS_WORDS}::test_what_a_peer_says_is_shown_as_it_prints",
    ),
    Mutant(
        "peers: a setting that is no number ends the check",
        "kafka_sink/protocol/describing.py",
        'int(value) if value is not None and re.fullmatch(r"-?[0-9]{1,19}", value) else None',
        "int(value) if value is not None else None",
        f"{TESTS_WORDS}::test_what_a_peer_says_is_shown_as_it_prints",
    ),
    Mutant(
        "peers: JSON of a record moves the terminal's cursor",
        QUOTING,
        'json.dumps(c)[1:-1] for c in text)',
        'c for c in text)',
        f"{TESTS_QUOTING}::test_json_prints_and_is_the_same_when_it_is_read",
    ),
    Mutant(
        "peers: an offset that no log has is believed",
        "kafka_sink/protocol/requests.py",
        "not UNKNOWN_OFFSET <= result.base_offset <= MAX_BASE_OFFSET:\n",
        "False:\n",
        "tests/unit/protocol/test_requests.py::TestDecode::test_offsets_that_no_log_has",
    ),
    Mutant(
        "peers: offset -1 is taken for an offset",
        f"{PRODUCER}/sender.py",
        "action is Action.ACKNOWLEDGE and result.base_offset != UNKNOWN_OFFSET\n",
        "action is Action.ACKNOWLEDGE\n",
        f"{TESTS_PRODUCER}/test_sender.py::test_a_batch_the_leader_had_before_counts_once_and_has_no_offset",
    ),
    Mutant(
        "peers: the check waits as long as a byte comes now and then",
        "kafka_sink/doctor/dialogue.py",
        "        left_s = self._until_s - time.monotonic()\n",
        "        left_s = STEP_TIMEOUT_S\n",
        "tests/unit/doctor/test_dialogue.py::"
        "test_a_peer_that_sends_a_byte_at_a_time_is_waited_for_no_longer_than_one_that_is_silent",
    ),
    Mutant(
        "peers: a cluster that names brokers without end is looked at for as long",
        "kafka_sink/doctor/engine.py",
        "if time.monotonic() < until_s else None\n",
        "if until_s else None\n",
        "tests/unit/doctor/test_engine.py::"
        "test_a_cluster_that_names_brokers_without_end_is_looked_at_for_a_while",
    ),
    Mutant(
        "peers: a token is waited for as long as a byte comes now and then",
        "kafka_sink/oauth.py",
        "            return within(ATTEMPT_TIMEOUT_S, ask)\n",
        "            return ask()\n",
        "tests/unit/test_oauth.py::test_an_endpoint_that_never_comes_to_an_end",
    ),
    Mutant(
        "peers: a token endpoint's connection is left behind",
        "kafka_sink/oauth.py",
        "            hang_up()\n",
        "",
        "tests/unit/test_oauth.py::test_an_endpoint_that_never_comes_to_an_end",
    ),
    Mutant(
        "peers: credentials go out after the attempt is over",
        "kafka_sink/oauth.py",
        "            if self._is_over:\n",
        "            if False:\n",
        "tests/unit/test_oauth.py::test_a_name_server_that_does_not_answer_sends_no_credentials",
    ),
    Mutant(
        "peers: a name server is waited for as long as it likes",
        f"{NET}/resolver.py",
        "        return look_up.result(timeout_s)\n",
        "        return look_up.result()\n",
        f"{TESTS_NET}/test_resolver.py::"
        "test_name_servers_that_do_not_answer_are_waited_for_as_long_as_is_said_and_asked_once",
    ),
    Mutant(
        "peers: addresses that were found long ago are believed",
        f"{NET}/resolver.py",
        "        if look_up is None or look_up.done():\n",
        "        if look_up is None:\n",
        f"{TESTS_NET}/test_resolver.py::"
        "test_name_servers_that_do_not_answer_are_waited_for_as_long_as_is_said_and_asked_once",
    ),
    Mutant(
        "peers: a registry is waited for as long as a byte comes now and then",
        "kafka_sink/registry/registering.py",
        "            return within(ASK_TIMEOUT_S, lambda: getattr(self.client, method)(*arguments, **named))\n",
        "            return getattr(self.client, method)(*arguments, **named)\n",
        "tests/unit/registry/test_registering.py::"
        "test_a_registry_that_answers_a_byte_at_a_time_is_not_waited_for",
    ),
    Mutant(
        "peers: a local broker is waited for as long as a byte comes now and then",
        "kafka_sink/broker/requests.py",
        "        left = until - time.monotonic()\n",
        "        left = 2.0\n",
        "tests/unit/broker/test_requests.py::"
        "test_an_answer_a_byte_at_a_time_is_waited_for_in_all_as_long_as_one_that_does_not_come",
    ),
    Mutant(
        "peers: a certificate is taken for its common name",
        f"{NET}/tls.py",
        "    context.sslsocket_class = _NamedPeer\n",
        "",
        f"{TESTS_NET}/test_tls.py::test_a_broker_that_is_not_verified_hears_nothing",
    ),
    Mutant(
        "peers: a common name beside the certificate's addresses is taken",
        f"{NET}/tls.py",
        "not any(kind == needed for kind, _ in names):\n",
        "not names:\n",
        f"{TESTS_NET}/test_tls.py::test_a_broker_that_is_not_verified_hears_nothing",
    ),
    Mutant(
        "peers: a million iterations of SCRAM hold all connections",
        SASL,
        "computation() if iterations <= MAX_ITERATIONS_AT_ONCE else computation\n",
        "computation()\n",
        f"{TESTS_PROTOCOL}/test_sasl.py::"
        "test_iterations_beyond_kafkas_own_are_left_to_the_caller_and_count_as_well",
    ),
    Mutant(
        "peers: iterations of SCRAM are computed for as long as they take",
        f"{NET}/network_client.py",
        "        if node.computing_since_ms is not None:\n",
        "        if False:\n",
        f"{TESTS_NET}/test_network_client.py::TestManyIterations::"
        "test_that_take_longer_than_a_request_may_are_told",
    ),
    Mutant(
        "peers: what was computed for a connection that is gone answers the next one",
        f"{NET}/network_client.py",
        "            if node.computation is not connection.computation:\n",
        "            if False:\n",
        f"{TESTS_NET}/test_network_client.py::TestManyIterations::"
        "test_are_computed_once_at_a_time_however_often_a_broker_asks",
    ),
)

FAILURES = "kafka_sink/failures.py"
TESTS_FAILURES = "tests/unit/test_failures.py"
PYTHON_API: tuple[Mutant, ...] = (
    Mutant(
        "API: an error of the sink is believed wherever another failure quotes it",
        FAILURES,
        "    found = _ERROR.match(text, at)\n",
        "    found = _ERROR.search(text, at)\n",
        f"{TESTS_FAILURES}::test_what_another_failure_quotes_is_no_error_of_the_sink",
    ),
    Mutant(
        "API: what caused an error stands in front of it, where its text is believed",
        FAILURES,
        "        raise legible(error) from None\n",
        "        raise legible(error)\n",
        f"{TESTS_FAILURES}::test_the_error_is_found_behind_sparks_words",
    ),
    Mutant(
        "API: a peer's text in an error makes lines of its own",
        FAILURES,
        "        error.args = tuple(_one_line(str(text)) for text in error.args)\n",
        "",
        f"{TESTS_FAILURES}::test_it_is_one_line_whatever_a_peer_says_and_a_line_of_fields_follows",
    ),
    Mutant(
        "API: a thread without a session keeps that of an export",
        "kafka_sink/spark/active_session.py",
        "                in_jvm.clearActiveSession()\n",
        "                pass\n",
        "tests/unit/spark/test_active_session.py::test_it_is_the_frames_and_then_what_it_was",
    ),
    Mutant(
        "API: in update mode a new checkpoint's micro-batches are taken for the old one's",
        "kafka_sink/exporting/streams.py",
        '            self._query_id = json.loads(line.value)["id"]\n',
        "            self._query_id = str(len(self._checkpoint))\n",
        "tests/unit/exporting/test_streams.py::test_exactly_once_writes_under_the_querys_id_and_the_micro_batchs_number",
    ),
    Mutant(
        "API: saveAsTable writes its rows and leaves a table that cannot be read",
        "kafka_sink/spark/writer.py",
        "        _refuse_table(_conf_of(TaskContext.get()))\n",
        "",
        "tests/unit/spark/test_writer.py::test_a_write_within_another_execution_is_a_tables",
    ),
)

STREAM_NAMES = (
    Mutant(
        "names: a query inherits the name of another that was in its folder",
        "kafka_sink/stream_name.py",
        "        return str(sink) if query_id == self.query_id else None\n",
        "        return str(sink)\n",
        "tests/unit/test_stream_name.py::"
        "test_a_query_that_begins_in_the_folder_of_another_does_not_inherit_its_name",
    ),
    Mutant(
        "names: a file that cannot be read is taken for one that is not there",
        "kafka_sink/stream_name.py",
        "        except (OSError, ValueError, LookupError, TypeError) as error:\n"
        "            raise CheckpointUnusable(file=str(file), reason=_reason(error)) from error\n"
        "        if version",
        "        except (OSError, ValueError, LookupError, TypeError):\n            return None\n        if version",
        "tests/unit/test_stream_name.py::test_a_file_that_is_not_what_was_written_is_no_missing_one",
    ),
    Mutant(
        "names: a stale answer hides that a query began under its earlier name",
        "kafka_sink/commit/earlier_name.py",
        '        decision = yield from read_decision(sink, barrier=f"name {query_id}")\n',
        "        decision = yield from read_decision(sink)\n",
        "tests/unit/commit/test_earlier_name.py::test_a_coordinator_that_stood_still_does_not_hide_the_querys_decision",
    ),
    Mutant(
        "names: a query that may be about to decide under its earlier name gets another",
        "kafka_sink/commit/earlier_name.py",
        "    return decision is None or decision.is_nothing or decision.query_id == query_id\n",
        "    return decision is not None and decision.query_id == query_id\n",
        "tests/unit/commit/test_earlier_name.py::test_a_sink_that_has_decided_nothing_may_be_about_to",
    ),
    Mutant(
        "names: a task writes as the sink of another query's checkpoint",
        SPARKS_PART,
        "    if plan.query_id not in (None, query_id):\n",
        "    if False:\n",
        f"{TESTS_SPARKS_PART}::test_a_task_of_another_query_than_was_planned_for_asks_nobody",
    ),
    Mutant(
        "names: micro-batches that were written otherwise are followed as if exactly-once",
        LINEAGE,
        "    if not is_next and not allow_lost_state:\n",
        "    if False:\n",
        f"{TESTS_LINEAGE}::test_micro_batches_that_were_written_otherwise_are_no_aborted_transaction",
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *FROM_HISTORY, *ACCUMULATOR, *SPLIT, *SENDER, *METADATA, *NETWORK, *SECURITY, *WRITE, *FINGERPRINT, *COMMIT,
    *BY_HAND, *TOPIC_IDS, *FORGETTING, *EXHAUSTION, *BATCH_VERSIONS, *BAD_ROWS_AND_RECEIPTS, *RATE, *ROW_IDENTITY,
    *PEERS, *PYTHON_API, *STREAM_NAMES,
)  # fmt: skip

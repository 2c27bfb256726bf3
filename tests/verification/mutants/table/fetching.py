"""What a reader asks of whom, and what it takes for a loss."""

from __future__ import annotations

from mutants.mutant import Mutant

_TESTS = "tests/unit/kafka/consumer/test_fetcher.py"

FETCHING: tuple[Mutant, ...] = (
    Mutant(
        name="fetching: the log of a new leader is not checked",
        rule="KIP-320: a reader validates its position when the leader epoch changes",
        pattern="self.$RANGE.leader_epoch >= 0 and self.$EPOCH() > self.$CHECKED",
        replacement="False",
        killer=f"{_TESTS}::TestEpochs::test_a_truncated_log_is_a_loss",
    ),
    Mutant(
        name="fetching: a log that ends before the range is whole",
        rule="KIP-320: an end offset below the position is truncation",
        pattern="$RESPONSE.end_offset < self.$RANGE.end",
        replacement="$RESPONSE.end_offset < 0",
        killer=f"{_TESTS}::TestEpochs::test_a_truncated_log_is_a_loss",
    ),
    Mutant(
        name="fetching: metadata of an older epoch than the range's is believed",
        rule="KIP-320: leader epochs only grow",
        pattern="self.$EPOCH() < self.$END_EPOCH",
        replacement="False",
        killer=f"{_TESTS}::TestEpochs::test_metadata_of_an_older_epoch_is_not_believed",
    ),
    Mutant(
        name="fetching: a topic that was made again is read on",
        rule="KIP-516: a topic is its id",
        pattern="ids_differ($RANGE.topic_id, $TOPIC.topic_id)",
        replacement="False",
        within="missing",
        killer=f"{_TESTS}::TestTopics::test_made_again",
    ),
    Mutant(
        name="fetching: a topic is gone when one broker does not know it",
        rule="A broker that lags is believed only when another answer confirms it",
        pattern="$SENT - self.$SINCE >= ABSENT_PATIENCE_MS",
        replacement="True",
        killer=f"{_TESTS}::TestTopics::test_a_broker_that_still_knows_the_topic_before_is_no_loss",
    ),
    Mutant(
        name="fetching: a pause of the caller confirms that a topic is gone",
        rule="Only an answer to a later request confirms it",
        pattern="$SENT - self.$SINCE >= ABSENT_PATIENCE_MS",
        replacement="now_ms - self._missing_since_ms >= ABSENT_PATIENCE_MS",
        killer="tests/unit/kafka/consumer/test_topic_watch.py::test_when_it_is_gone",
    ),
    Mutant(
        name="fetching: what a replica says to be out of range is believed",
        rule="KIP-392: out of range at a follower is asked of the leader",
        pattern="self.$REPLICA == $ANSWER.node_id",
        replacement="False",
        killer=f"{_TESTS}::TestReplicas::test_in_trouble_the_leader_is_asked",
    ),
    Mutant(
        name="fetching: a preferred replica is never asked for anew",
        rule="KIP-392: until metadata.max.age.ms",
        pattern="$NOW >= self._replica_until_ms",
        replacement="False",
        killer=f"{_TESTS}::TestReplicas::test_it_is_asked_for_anew_after_a_while",
    ),
    Mutant(
        name="fetching: a loss is not told",
        rule="failOnDataLoss: nothing is left out in silence",
        pattern="self.losses.append($LOSS)",
        replacement="pass",
        killer=f"{_TESTS}::TestOutOfRange::test_what_is_there_is_read_if_the_user_says_so",
    ),
    Mutant(
        name="fetching: a loss is no failure",
        rule="failOnDataLoss: a loss ends the query",
        pattern="self.$SETTINGS.fail_on_data_loss",
        replacement="False",
        killer=f"{_TESTS}::TestOutOfRange::test_deleted_records_are_a_loss",
    ),
    Mutant(
        name="fetching: what compaction left empty is waited for",
        rule="SPARK-23685: a range ends when the position passes its end",
        pattern="self.$LOOKS_AHEAD = is_committed and self.$POSITION < $RESPONSE.last_stable_offset",
        replacement="pass",
        killer=f"{_TESTS}::TestARange::test_compaction_may_leave_a_gap_before_an_open_transaction",
    ),
    Mutant(
        name="fetching: an answer without records is a gap",
        rule="KIP-405: a broker whose remote storage is slow answers without records",
        pattern="self.$LOOKS_AHEAD = is_committed and self.$POSITION < $RESPONSE.last_stable_offset",
        replacement="self._position = max(self._position, response.last_stable_offset)",
        killer=f"{_TESTS}::TestARange::test_an_answer_without_records_is_no_gap",
    ),
    Mutant(
        name="fetching: a batch that was only looked at is delivered",
        rule="read_committed: no record of an open transaction",
        pattern="if self.$LOOKS_AHEAD:\n    $PASS\n    return",
        replacement="if self.$LOOKS_AHEAD:\n    $PASS",
        within="Fetcher",
        killer=f"{_TESTS}::TestARange::test_compaction_may_leave_a_gap_before_an_open_transaction",
    ),
    Mutant(
        name="fetching: an answer that only names a replica is a gap",
        rule="KIP-392: the leader answers without records",
        pattern="$RESPONSE.preferred_read_replica != NO_LEADER",
        replacement="False",
        killer=f"{_TESTS}::TestReplicas::test_the_leader_names_a_nearer_one",
    ),
    Mutant(
        name="fetching: the time that Spark takes counts as waiting",
        rule="kafkaConsumer.pollTimeoutMs: how long a task waits for a record",
        pattern="self._waiting_since_ms = None",
        replacement="pass",
        killer=f"{_TESTS}::TestWaiting::test_time_that_the_caller_takes_does_not_count",
    ),
    Mutant(
        name="fetching: an answer that goes no further is asked for again",
        rule="KIP-74: the first batch always comes whole",
        pattern="$FOLLOWING is None or $FOLLOWING <= self.$POSITION",
        replacement="$FOLLOWING is None",
        killer=f"{_TESTS}::TestARange::test_an_answer_that_goes_no_further_is_damage",
    ),
    Mutant(
        name="fetching: an answer to the range before is taken",
        rule="A request belongs to the range that sent it",
        pattern="self.$METADATA, self.$READ = object(), object()",
        replacement="self._of_metadata, self._of_read = 1, 2",
        killer=f"{_TESTS}::TestWaiting::test_an_answer_to_the_range_before_is_left_alone",
    ),
    Mutant(
        name="fetching: the topic of a long range is forgotten",
        rule="KIP-526: a topic in use is kept",
        pattern="self.$METADATA.request((self.$RANGE.topic,), $NOW)",
        replacement="self._metadata.request((), now_ms)",
        killer=f"{_TESTS}::TestWaiting::test_a_range_may_take_longer_than_a_topic_is_remembered",
    ),
)

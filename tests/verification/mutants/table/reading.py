"""What a read of Spark plans: which offsets, in which tasks, and of which rows."""

from __future__ import annotations

from mutants.mutant import Mutant

_READING = "tests/unit/spark/reading"
_READER = "tests/unit/kafka/test_reader.py"

READING: tuple[Mutant, ...] = (
    Mutant(
        name="reading: what an earlier range knew about a topic counts for the next",
        rule="a topic may be made again between two reads of a worker",
        pattern="def fetch(self, $RANGE: FetchRange, $$$ARGS) -> Fetch:\n    $$$BODY",
        replacement="def fetch(self, $RANGE: FetchRange, $$$ARGS) -> Fetch:\n"
        "    if not hasattr(self, 'kept'):\n"
        "        self.kept = self._new_metadata()\n"
        "    self._new_metadata = lambda: self.kept\n"
        "    $$$BODY",
        killer=f"{_READER}::test_a_range_of_a_topic_that_was_made_again_before_its_plan_is_read",
    ),
    Mutant(
        name="reading: what an earlier plan knew about a topic counts for the next",
        rule="a topic may be made again between two plans of a process",
        pattern="client.caller.forget($NAME)",
        replacement="pass",
        within="topics_to_read",
        killer=f"{_READING}/test_plan.py::test_a_topic_that_was_made_again_is_asked_for_again",
    ),
    Mutant(
        name="reading: filters narrow a plan that other queries get too",
        rule="SPARK-58551: Spark up to 4.3 keeps a plan for every later query of a DataFrame",
        pattern="if _IS_PLANNED_FOR_ONE_QUERY:\n    $$$NARROW",
        replacement="if True:\n    $$$NARROW",
        killer=f"{_READING}/test_batch_reader.py::test_pushed_filters_narrow_a_plan_that_no_other_query_gets",
    ),
    Mutant(
        name="reading: deleted offsets are left out in silence",
        rule="failOnDataLoss: nothing is left out in silence",
        pattern="if asked.first < lost_end:\n    raise $ERROR",
        replacement="pass",
        killer=f"{_READING}/test_clip.py::test_deleted_offsets_are_lost_and_told_which",
    ),
    Mutant(
        name="reading: an end that is not written yet is taken for the end of the log",
        rule="a read covers what it is asked for, or fails",
        pattern="offset > there.end",
        replacement="False",
        killer=f"{_READING}/test_clip.py::test_offsets_that_are_not_written_are_told_with_where_the_log_ends",
    ),
    Mutant(
        name="reading: partitions that an option does not name are left out",
        rule="KafkaOffsetReaderAdmin: offsets by partition name every partition",
        pattern="if $EACH not in $NAMED:\n    raise $ERROR",
        replacement="pass",
        within="check_named",
        killer=f"{_READING}/test_plan.py::test_an_option_that_goes_by_partition_names_each_of_the_read_and_no_other",
    ),
    Mutant(
        name="reading: a pattern must match a whole name",
        rule="SubscribePatternStrategy: a pattern is found in a name",
        pattern="not $TOPIC.is_internal and not $TOPIC.error_code and pattern.search($NAME)",
        replacement="not topic.is_internal and not topic.error_code and pattern.fullmatch(name)",
        killer=f"{_READING}/test_plan.py::test_a_pattern_finds_topics_that_may_be_read_or_says_that_there_is_none",
    ),
    Mutant(
        name="reading: the last offset of a cut range is lost",
        rule="SPARK-28489: never drop offsets",
        pattern="yield replace($RANGE, first=$FIRST, end=$FIRST + $SIZE)",
        replacement="yield replace($RANGE, first=$FIRST, end=$FIRST + $SIZE - 1)",
        killer=f"{_READING}/test_divide.py::test_every_offset_is_in_one_range_and_ranges_keep_what_they_know",
    ),
    Mutant(
        name="reading: a filter on a later offset leaves that offset out",
        rule="filters leave out only rows that Spark would drop",
        pattern="(low, INT64_MAX)",
        replacement="(low + 1, INT64_MAX)",
        killer=f"{_READING}/test_filters.py::test_filters_narrow_a_read",
    ),
    Mutant(
        name="reading: a small record of an old format is damage",
        rule="an old format is named, with what to do",
        pattern="HEADER_BYTES - _LENGTH_END if $IS_BATCH else _LEAST_OLD_LENGTH",
        replacement="HEADER_BYTES - _LENGTH_END",
        killer="tests/unit/records/test_record_batch.py::"
        "test_a_record_of_an_older_format_counts_as_a_batch_however_small",
    ),
    Mutant(
        name="reading: a commit of progress that fails ends the stream",
        rule="groupId: a failure is a warning",
        pattern="except KafkaSinkError as $ERROR:\n    $$$WARN",
        replacement="except ZeroDivisionError as $ERROR:\n    $$$WARN",
        within="GroupProgress",
        killer=f"{_READING}/test_group_progress.py::"
        "test_a_failure_is_told_when_it_begins_when_it_changes_and_when_it_is_over",
    ),
    Mutant(
        name="reading: a group that cannot be committed to takes a stream's time with each micro-batch",
        rule="groupId: waits are bounded",
        pattern="$NOW + PAUSE_FACTOR * $ELAPSED",
        replacement="$NOW",
        killer=f"{_READING}/test_group_progress.py::test_a_coordinator_that_is_away_takes_a_tenth_of_the_streams_time",
    ),
    Mutant(
        name="reading: a commit of progress waits as long as any other request",
        rule="groupId: a dead coordinator holds up no stream for a minute",
        pattern="client.within(COMMIT_PATIENCE_MS)",
        replacement="client.within(60_000)",
        killer="tests/unit/kafka/admin/test_group_offsets.py::"
        "test_a_coordinator_that_does_not_answer_is_given_up_in_time",
    ),
    Mutant(
        name="reading: progress in a deleted topic keeps that of all topics waiting",
        rule="KafkaApis.handleOffsetCommitRequest: the other partitions are committed",
        pattern="part.error_code not in _TOPIC_IS_NEW",
        replacement="True",
        killer="tests/unit/kafka/admin/test_group_offsets.py::test_a_refusal_says_at_once_what_to_do",
    ),
)

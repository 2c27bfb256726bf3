"""What a read of Spark plans: which offsets, in which tasks, and of which rows."""

from __future__ import annotations

from mutants.mutant import Mutant

_READING = "tests/unit/spark/reading"
_READER = "tests/unit/kafka/test_reader.py"

READING: tuple[Mutant, ...] = (
    Mutant("reading: what an earlier range knew about a topic counts for the next",
           "a topic may be made again between two reads of a worker",
           "def fetch(self, $RANGE: FetchRange, $$$ARGS) -> Fetch:\n    $$$BODY",
           "def fetch(self, $RANGE: FetchRange, $$$ARGS) -> Fetch:\n" "    if not hasattr(self, 'kept'):\n"
           "        self.kept = self._new_metadata()\n" "    self._new_metadata = lambda: self.kept\n" "    $$$BODY",
           f"{_READER}::test_a_range_of_a_topic_that_was_made_again_before_its_plan_is_read"),
    Mutant("reading: what an earlier plan knew about a topic counts for the next",
           "a topic may be made again between two plans of a process",
           "client.caller.forget($NAME)", "pass",
           f"{_READING}/test_plan.py::test_a_topic_that_was_made_again_is_asked_for_again", within="topics_to_read"),
    Mutant("reading: filters narrow a plan that other queries get too",
           "SPARK-58551: Spark up to 4.3 keeps a plan for every later query of a DataFrame",
           "if _IS_PLANNED_FOR_ONE_QUERY:\n    $$$NARROW", "if True:\n    $$$NARROW",
           f"{_READING}/test_batch_reader.py::test_pushed_filters_narrow_a_plan_that_no_other_query_gets"),
    Mutant("reading: deleted offsets are left out in silence", "failOnDataLoss: nothing is left out in silence",
           "if asked.first < lost_end:\n    raise $ERROR", "pass",
           f"{_READING}/test_clip.py::test_deleted_offsets_are_lost_and_told_which"),
    Mutant("reading: an end that is not written yet is taken for the end of the log",
           "a read covers what it is asked for, or fails",
           "offset > there.end", "False",
           f"{_READING}/test_clip.py::test_offsets_that_are_not_written_are_told_with_where_the_log_ends"),
    Mutant("reading: partitions that an option does not name are left out",
           "KafkaOffsetReaderAdmin: offsets by partition name every partition",
           "if $EACH not in $NAMED:\n    raise $ERROR", "pass",
           f"{_READING}/test_plan.py::test_an_option_that_goes_by_partition_names_each_of_the_read_and_no_other",
           within="check_named"),
    Mutant("reading: a pattern must match a whole name", "SubscribePatternStrategy: a pattern is found in a name",
           "not $TOPIC.is_internal and not $TOPIC.error_code and pattern.search($NAME)",
           "not topic.is_internal and not topic.error_code and pattern.fullmatch(name)",
           f"{_READING}/test_plan.py::test_a_pattern_is_found_anywhere_in_a_name_as_sparks_source_finds_it"),
    Mutant("reading: the last offset of a cut range is lost", "SPARK-28489: never drop offsets",
           "yield replace($RANGE, first=$FIRST, end=$FIRST + $SIZE)",
           "yield replace($RANGE, first=$FIRST, end=$FIRST + $SIZE - 1)",
           f"{_READING}/test_divide.py::test_every_offset_is_in_one_range_and_ranges_keep_what_they_know"),
    Mutant("reading: a filter on a later offset leaves that offset out",
           "filters leave out only rows that Spark would drop",
           "(low, INT64_MAX)", "(low + 1, INT64_MAX)",
           f"{_READING}/test_filters.py::test_filters_narrow_a_read"),
    Mutant("reading: a small record of an old format is damage", "an old format is named, with what to do",
           "HEADER_BYTES - _LENGTH_END if $IS_BATCH else _LEAST_OLD_LENGTH", "HEADER_BYTES - _LENGTH_END",
           "tests/unit/records/test_record_batch.py::"
           "test_a_record_of_an_older_format_counts_as_a_batch_however_small"),
    Mutant("reading: a commit of progress that fails ends the stream", "groupId: a failure is a warning",
           "except KafkaSinkError as $ERROR:\n    $$$WARN", "except ZeroDivisionError as $ERROR:\n    $$$WARN",
           f"{_READING}/test_group_progress.py::"
           "test_a_failure_is_told_when_it_begins_when_it_changes_and_when_it_is_over", within="GroupProgress"),
    Mutant("reading: a group that cannot be committed to takes a stream's time with each micro-batch",
           "groupId: waits are bounded",
           "$NOW + PAUSE_FACTOR * $ELAPSED", "$NOW",
           f"{_READING}/test_group_progress.py::test_a_coordinator_that_is_away_takes_a_tenth_of_the_streams_time"),
    Mutant("reading: a commit of progress waits as long as any other request",
           "groupId: a dead coordinator holds up no stream for a minute",
           "client.within(COMMIT_PATIENCE_MS)", "client.within(60_000)",
           "tests/unit/kafka/admin/test_group_offsets.py::"
           "test_a_coordinator_that_does_not_answer_is_given_up_in_time"),
    Mutant("reading: progress in a deleted topic keeps that of all topics waiting",
           "KafkaApis.handleOffsetCommitRequest: the other partitions are committed",
           "part.error_code not in _TOPIC_IS_NEW", "True",
           "tests/unit/kafka/admin/test_group_offsets.py::test_a_refusal_says_at_once_what_to_do"),
)  # fmt: skip

"""Where a read begins: at a time that people write, and at the last offsets."""

from mutants.mutant import Mutant

_STARTS = "tests/unit/spark/reading/test_starts.py::"
_INSTANTS = "tests/unit/options/test_instants.py::"
_ONE_START = "a start that moves is found once, and recorded"
_SILENCE = "nothing is left out in silence"

STARTS: tuple[Mutant, ...] = (
    Mutant("starts: a time without a zone is taken for UTC", "what could be read in two ways is refused",
           "if zone is None:\n    raise $PROBLEM", "zone = zone or 'Z'",
           f"{_INSTANTS}test_what_could_be_read_in_two_ways_is_refused_with_what_to_write", within="iso_instant"),
    Mutant("starts: a fraction of a millisecond is cut off", "a read begins at the first record that is not older",
           "-(-$FRACTION // 1_000_000)", "$FRACTION // 1_000_000",
           f"{_INSTANTS}test_a_time_with_its_zone_is_one_instant", within="iso_instant"),
    Mutant("starts: a number alone is offsets before the end", "-1 and -2 are names of offsets in JSON",
           "if $NUMBER.fullmatch(text):\n    raise $PROBLEM", "pass",
           f"{_INSTANTS}test_a_number_alone_is_no_start_because_it_can_mean_several", within="_starting_offsets"),
    Mutant("starts: the last offsets of a short log begin before it", "latest-1000: or the first one if it has fewer",
           "max($ENDS[each].offset - count, $BEGINS[each].offset)", "$ENDS[each].offset - count",
           f"{_STARTS}test_the_last_offsets_are_as_many_as_are_there"),
    Mutant("starts: the first micro-batch has rows of a start that moves", _ONE_START,
           "self._begins if self._moves else $AT_END", "$AT_END",
           f"{_STARTS}test_a_stream_whose_first_micro_batch_failed_begins_where_that_was_recorded", within="initial"),
    Mutant("starts: a stream looks again where it begins", _ONE_START, "self._begins is None or not self._moves",
           "True",
           f"{_STARTS}test_the_first_micro_batch_only_records_where_the_stream_begins", within="initial"),
    Mutant("starts: a start that cannot be found any more ends a stream that has recorded it", _ONE_START,
           "if not self._moves:\n    raise", "raise",
           f"{_STARTS}test_where_a_stream_was_recorded_to_begin_needs_no_start", within="initial"),
    Mutant("starts: a new stream without its start reads from the first record", _SILENCE,
           "if self._no_start is not None:\n    raise self._no_start", "pass",
           f"{_STARTS}test_where_a_stream_was_recorded_to_begin_needs_no_start", within="end"),
    Mutant("starts: a later action on a batch looks again where it begins", _ONE_START,
           "replace($LATER, starting=AtOffset(EARLIEST)) if moves($LATER.starting) else $LATER", "later",
           f"{_STARTS}test_a_later_action_begins_where_the_first_one_did", within="again"),
    Mutant("starts: a later action reads an idle partition from its first record", _ONE_START,
           "max(each.first, planned.idle.get($PARTITION, 0))", "each.first",
           f"{_STARTS}test_a_partition_with_nothing_to_read_begins_where_the_plan_saw_its_end"),
    Mutant("starts: before Spark 4.2 available-now loses what the first micro-batch does not record", _ONE_START,
           "self._is_end_fixed and moves($STARTING)", "False",
           f"{_STARTS}test_before_spark_4_2_available_now_is_refused_a_start_that_moves"),
    Mutant("starts: the log does not tell which instant a time before now is", "a time is told as an instant",
           "tell_instants(self._config)", "pass",
           f"{_STARTS}test_the_log_tells_once_which_instant_a_time_is", within="StreamPlan"),
)  # fmt: skip

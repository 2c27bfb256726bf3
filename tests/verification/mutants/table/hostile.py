"""What an answer of a hostile peer costs, and which of its numbers, times and names are believed."""

from __future__ import annotations

from mutants.mutant import Mutant

_THROTTLES = "tests/unit/kafka/net/test_throttles.py"
_RANGES = "tests/verification/fuzz/test_answers.py"
_SCHEMAS = "tests/unit/registry/test_hostile_schemas.py"
_TENANTS = "tests/unit/spark/test_tenants.py"
_COSTS = "tests/verification/fuzz/test_answers.py"

HOSTILE: tuple[Mutant, ...] = (
    Mutant("hostile: an answer may have more elements than were asked for",
           "docs/security.md: what an answer costs is bounded by what was asked",
           "$LEFT is not None", "False", f"{_COSTS}::test_more_than_was_asked_is_refused_before_it_is_read",
           within="Budget.take"),
    Mutant("hostile: a topic has as many partitions as fit into a frame",
           "docs/security.md: what an answer costs is bounded by what was asked",
           "min($COUNT * MOST_PARTITIONS_OF_A_TOPIC, MOST_PARTITIONS)", "MOST_PARTITIONS",
           f"{_COSTS}::test_parts_of_what_was_asked_are_as_many_as_there_can_be"),
    Mutant("hostile: an answer may have as many elements as fit into a frame",
           "docs/security.md: what an answer costs is bounded by what was asked",
           "$COUNT > self.$ELEMENTS", "False", f"{_COSTS}::test_tagged_fields_count_too", within="Budget.take"),
    Mutant("hostile: tagged fields are not counted",
           "docs/security.md: what an answer costs is bounded by what was asked",
           '$BUDGET.take("tagged fields", $COUNT)', "pass", f"{_COSTS}::test_tagged_fields_count_too"),
    Mutant("hostile: an answer is read for as long as that takes", "docs/security.md: each step has one deadline",
           "if self.is_late():\n    raise $ERROR", "pass",
           f"{_COSTS}::test_reading_an_answer_ends_at_its_deadline"),
    Mutant("hostile: the answer to any request may be as large as records",
           "docs/security.md: what an answer costs is bounded by what was asked",
           "min(self.$MOST, api_of($ENTRY.request).largest_frame($ENTRY.request))", "self.$MOST",
           f"{_COSTS}::TestFrames::test_are_limited_by_the_request_that_waits"),
    Mutant("hostile: a throttle lasts for as long as a broker says", "docs/security.md: each step has one deadline",
           "min($TIME, MAX_THROTTLE_MS)", "$TIME",
           f"{_THROTTLES}::test_a_forged_throttle_ends_after_an_hour_and_is_logged_with_its_time"),
    Mutant("hostile: a throttle stops every limit of time", "docs/security.md: each step has one deadline",
           "$NOW - $THROTTLED + $THROTTLED // THROTTLED_LIMITS", "$NOW - $THROTTLED",
           f"{_THROTTLES}::test_a_limit_of_time_passes_while_brokers_throttle_without_end"),
    Mutant("hostile: a batch is kept for as long as its broker throttles",
           "docs/operations.md: kafka.delivery.timeout.ms leaves throttled time out, up to ten times its value",
           "$BATCH.throttled_ms >= THROTTLED_LIMITS * $LIMIT", "False",
           f"{_THROTTLES}::test_a_batch_is_not_kept_for_longer_than_ten_times_its_limit"),
    Mutant("hostile: check says nothing about a broker that throttles",
           "docs/operations.md: check shows a throttle of 1 s or more",
           "self.throttle_time_ms = max(self.throttle_time_ms, $ANSWER.response.throttle_time_ms)", "pass",
           f"{_THROTTLES}::test_check_shows_a_broker_that_throttles"),
    Mutant("hostile: a number that no log has is believed", "nothing is lost",
           "not $LEAST <= $NUMBER <= $MOST", "False", f"{_RANGES}::test_an_offset_that_no_log_has",
           within="check_number"),
    Mutant("hostile: the end of a log may be no offset", "nothing is lost",
           "NO_OFFSET if ($EACH.topic, $EACH.partition) in $OF_TIME else 0", "NO_OFFSET",
           f"{_RANGES}::test_an_offset_that_no_log_has"),
    Mutant("hostile: a topic may have any name", "docs/security.md: text of a peer is escaped and cut",
           'check_topic_name("Metadata", topic.name)', "pass",
           f"{_RANGES}::test_a_topic_of_a_cluster_has_a_name_that_kafka_allows"),
    Mutant("hostile: an unclosed quote is looked for at each quote", "the driver is not stopped by a schema",
           """re.compile(r'"[^"\\\\]*(?:\\\\.[^"\\\\]*)*(?:(?P<end>")|\\\\?\\Z)|[\\[\\]{}]', re.DOTALL)""",
           """re.compile(r'"(?:[^"\\\\]|\\\\.)*(?P<end>")|[\\[\\]{}]', re.DOTALL)""",
           f"{_SCHEMAS}::test_unclosed_quotes_are_scanned_once"),
    Mutant("hostile: a reference is looked at wherever it is", "the driver is not stopped by a schema",
           "self.$KNOWN[$REF] = $FOUND", "return $FOUND",
           f"{_SCHEMAS}::test_references_that_double_are_looked_at_once", within="_branches"),
    Mutant("hostile: a value may have any number of schemas", "the driver is not stopped by a schema",
           "len($BRANCHES) > MAX_BRANCHES", "False", f"{_SCHEMAS}::test_a_value_may_have_only_so_many_schemas"),
    Mutant("hostile: tenants whose token callables are equal share their tokens",
           "docs/security.md: each registration has its own tokens", "uuid.uuid4().hex", '""',
           f"{_TENANTS}::test_a_registration_is_one_configuration_and_another_one_is_another", within="registered"),
    Mutant("hostile: a worker keeps the tokens of every registration",
           "memory has an upper bound per worker", "len(_kept) > MAX_KEPT_TOKENS", "False",
           f"{_TENANTS}::test_a_process_keeps_tokens_of_so_many_registrations"),
)  # fmt: skip

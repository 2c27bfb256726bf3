"""What an answer of a hostile peer costs, and which of its numbers, times and names are believed."""

from __future__ import annotations

from mutants.mutant import Mutant

_COSTS = "tests/verification/fuzz/test_answer_costs.py"

HOSTILE: tuple[Mutant, ...] = (
    Mutant("hostile: an answer may have more elements than were asked for",
           "docs/security.md: what an answer costs is bounded by what was asked",
           "$LEFT is not None", "False", f"{_COSTS}::test_more_than_was_asked_is_refused_before_it_is_read",
           within="Budget.take"),
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
)  # fmt: skip

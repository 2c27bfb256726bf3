"""`subscribePattern` finds the topics that Java's java.util.regex finds, or is refused."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kafka_sink.options.java_pattern import java_pattern
from kafka_sink.options.kinds import Problem

NAMES = ["a", "b", "ab", "orders", "Orders-eu", "a.b", "__x", "1.2-c", "aab", "zz9", "K", "-", "A_b.C-0", "xyzxyz"]
ATOMS = [
    "a", "b", "z", "K", "9", ".", "-", "_", "é", "#", " ", "&", "]", "}", "{", r"\.", r"\-", r"\_", r"\d", r"\W", r"\s",
    r"\b", r"\B", r"\A", r"\Z", r"\z", r"\G", r"\h", r"\v", r"\R", r"\x61", r"\u0062", r"\x{61}", r"\07", r"\cA", r"\e",
    r"\Qa.b\E", r"\Q-", r"\p{Alpha}", r"\P{Lower}", r"\p{Punct}", r"\p{L}", r"\1", r"\11", r"\k<n>", r"\N{DOT}",
    "^", "$",
]  # fmt: skip
MEMBERS = [
    "a", "z", "a-c", "[b]", "[^b]", "&&", "&", "^", "-", "|", r"\w", r"\D", r"\.", r"\]", r"\b", "]", "[", "K", "_",
    "{", r"\p{Upper}", r"\Qa-\E", " ", "#", "x-z", "--", "0-9", r"\x61",
]  # fmt: skip
OPENINGS = [
    "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?P<n>", "(?i:", "(?s-i:", "(?x)", "(?i)", "(?u)",
]  # fmt: skip
classes = st.tuples(st.sampled_from(["[", "[^"]), st.lists(st.sampled_from(MEMBERS), max_size=5)).map(
    lambda parts: f"{parts[0]}{''.join(parts[1])}]"
)
quantifiers = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{,2}", "*?", "++", "{1,2}+"])
atoms = st.tuples(st.sampled_from(ATOMS) | classes, quantifiers).map("".join)
sequences = st.lists(atoms, max_size=4).map("".join)
groups = st.tuples(
    st.sampled_from(OPENINGS), sequences, st.sampled_from(["", "|"]), sequences, st.just(")"), quantifiers
)
patterns = st.lists(atoms | groups.map("".join), min_size=1, max_size=3).map("".join)


def test_a_pattern_finds_what_java_finds_or_is_refused(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    read = 0

    @settings(deadline=None, max_examples=300)
    @given(st.sampled_from(["", "", "(?i)"]), patterns)
    def finds_the_same(flags: str, rest: str) -> None:
        nonlocal read
        text = flags + rest
        try:
            ours = java_pattern(text)
        except (Problem, re.error):
            return
        java = jvm.java.util.regex.Pattern.compile(text)
        read += 1
        assert [bool(ours.search(name)) for name in NAMES] == [java.matcher(name).find() for name in NAMES]

    finds_the_same()
    assert read > 50
    assert java_pattern("^[a-z&&[^b]]+$").search("ac") and not java_pattern("[a-z&&[^b]]").search("b")

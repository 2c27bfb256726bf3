"""How much a test with a count of its own looks at: `make unit` takes a fifth, as it does of every property."""

from __future__ import annotations

import hypothesis


def examples(count: int) -> int:
    """`count` where a property looks at 100 examples, and in proportion elsewhere."""
    return count * hypothesis.settings().max_examples // 100

from __future__ import annotations

from types import SimpleNamespace

import pytest

import kafka_sink


@pytest.mark.parametrize("missing", ["headers", "topic"])
def test_columns_that_it_takes_are_named(missing: str) -> None:
    columns = [name for name in ("value", "headers", "topic", "partition", "offset") if name != missing]
    with pytest.raises(ValueError, match=f"needs the column '{missing}'.*includeHeaders=true"):
        kafka_sink.dedupe(SimpleNamespace(columns=columns))  # type: ignore[arg-type]

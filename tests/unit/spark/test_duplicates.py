from __future__ import annotations

from unittest import mock

import pytest
from pyspark.sql import DataFrame

import kafka_sink


@pytest.mark.parametrize("missing", ["headers", "topic"])
def test_columns_that_it_takes_are_named(missing: str) -> None:
    columns = [name for name in ("value", "headers", "topic", "partition", "offset") if name != missing]
    with pytest.raises(ValueError, match=f"needs the column '{missing}'.*includeHeaders=true"):
        kafka_sink.dedupe(mock.Mock(DataFrame, columns=columns))

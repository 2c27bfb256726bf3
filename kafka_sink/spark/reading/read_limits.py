"""Spark's limits on what a micro-batch reads, which Python sources have since Spark 4.2.

A Python source gets no limit that combines two. So the reader applies its options itself, unless Spark asks for all
that is there (trigger once).

Source: pyspark/sql/streaming/datasource.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

from kafka_sink.errors import RefusedOption
from kafka_sink.options.reading import ReadConfig

_limits: Any = None
if TYPE_CHECKING:
    StreamReader = DataSourceStreamReader
else:
    try:
        from pyspark.sql.streaming import datasource as _limits
    except ImportError:
        # Spark 4.0 and 4.1.
        StreamReader = DataSourceStreamReader
    else:

        class StreamReader(DataSourceStreamReader, _limits.SupportsTriggerAvailableNow):
            """The base of a reader that ends with trigger(availableNow=True)."""


def check_limits(config: ReadConfig) -> None:
    """Raise RefusedOption if the options limit a micro-batch and this Spark cannot."""
    if _limits is not None:
        return
    for option, value in (
        ("maxOffsetsPerTrigger", config.max_offsets_per_trigger),
        ("minOffsetsPerTrigger", config.min_offsets_per_trigger),
    ):
        if value is not None:
            instead = f"it needs Spark 4.2, and this is {pyspark.__version__}: a micro-batch reads all that is there."
            raise RefusedOption(option=option, instead=instead)


def read_limit(config: ReadConfig) -> Any:
    """Return Spark's ReadLimit for the options of a stream."""
    if config.max_offsets_per_trigger is not None:
        return _limits.ReadMaxRows(config.max_offsets_per_trigger)
    if config.min_offsets_per_trigger is not None:
        return _limits.ReadMinRows(config.min_offsets_per_trigger)
    return _limits.ReadAllAvailable()


def is_limited(limit: Any) -> bool:
    """Return whether the reader's options count. `limit`: Spark's ReadLimit; None before Spark 4.2."""
    return _limits is not None and limit is not None and not isinstance(limit, _limits.ReadAllAvailable)

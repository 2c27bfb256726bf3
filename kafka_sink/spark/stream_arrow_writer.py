"""Spark's class of stream writers that receive Arrow batches, also on Spark 4.0, which has none.

Spark 4.0 asks one question before it calls a writer of a batch or a stream: is it a DataSourceArrowWriter? Then it
hands over Arrow batches instead of rows (write_into_data_source.py). So a stream writer that inherits from both classes
receives Arrow batches there too. Spark 4.1 asks for DataSourceStreamArrowWriter instead.

Source: pyspark/sql/datasource.py, pyspark/sql/worker/write_into_data_source.py of 4.0.0 to 4.3.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A stream writer that Spark 4.0 takes for a batch writer where it decides what `write` receives."""


__all__ = ["StreamArrowWriter"]

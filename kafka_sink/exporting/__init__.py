"""`kafka_sink.export` and `kafka_sink.to_kafka`: write a DataFrame to a topic by one call, with Spark's own functions.

    the user's arguments ->  columns.py       the record's columns, from any DataFrame
                             co_partition.py  one Spark partition for each partition of the topic
                             progress.py      a bar, in a terminal or notebook
                         ->  writing.py       options, check, write, report; queries of to_kafka, also in update mode
    ExportResult         <-  result.py        the written rows as a table, from the receipt on the driver's machine

All of it runs in the user's Python process. `format("pykafka")` writes the rows.
"""

from kafka_sink.errors.installed import needs_pyspark

with needs_pyspark():
    import pyspark  # noqa: F401

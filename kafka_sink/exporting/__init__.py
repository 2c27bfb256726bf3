"""`kafka_sink.export` and `kafka_sink.to_kafka`: a DataFrame into a topic by one call, with Spark's own functions.

    what the user says  ->  words.py         options of the sink, as Spark takes them
                            columns.py       the record's columns, of any DataFrame
                            co_partition.py  one Spark partition for each of the topic's
                            progress.py      a bar, where somebody looks
                        ->  writing.py       look before, write, and tell:
    ExportResult             <-  receipt_place.py the receipt file, from the driver's machine
                            receipt.py       what was written, as a table

All of it runs where the user's Python runs. What is written is written by `format("pykafka")`, with nothing added.
"""

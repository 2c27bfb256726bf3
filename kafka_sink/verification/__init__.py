"""Compares receipts with the records in the topics. The consumer that reads the records shares no code with the sink.

    receipts.py   the runs in receipt files, and the micro-batches without a receipt
    encoding.py   records from a consumer -> the checksum of their run
    checking.py   one partition's runs against its records: missing, altered or unknown
    cluster.py    the consumer: reads the records, and the reasons for missing ones

`kafka_sink/cli/verify.py` is the command.
"""

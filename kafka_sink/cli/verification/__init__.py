"""Compares receipts with the records in the topics. The consumer that reads the records shares no code with the sink.

    receipts.py       the runs in receipt files, and the micro-batches without a receipt
    checking.py       a run against its records, encoded again: equal, altered, missing or unknown
    cluster.py        the consumer: reads the records, and the reasons for missing ones

`cli/verify.py` is the command, `records/receipt_file.py` has the file of one micro-batch.
"""

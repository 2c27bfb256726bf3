"""Rows to bytes: Arrow columns -> checked columns -> a partition per row -> the records of record batches v2.

    columns.py       the allowed columns of the DataFrame, checked once per batch; numpy and Arrow views of them
    partitioner.py   explicit partition, else the key's (murmur.py, byte_hashes.py over key_words.py), else sticky
                     or in turn
    encoder.py       all records of an Arrow batch without gaps (varint.py, record_size.py)
    record_batch.py  the 61 bytes of header before the records, with the CRC
    compression.py   codecs for the bytes after those 61 bytes

And back: record sets of a Fetch answer -> Arrow batches.

    decoder.py       a record set in steps, for a range of offsets (batch_table.py, aborted_transactions.py)
    decompression.py codecs of any client, within a limit
    arrow_rows.py    the columns of Spark's Kafka source
    undecodable.py   what cannot be read, as facts

All code here works on whole columns: no Python statement runs once per row.
"""

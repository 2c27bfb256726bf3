"""Rows to bytes: Arrow columns -> checked columns -> a partition per row -> the records of record batches v2.

    columns.py       the allowed columns of the DataFrame, checked once per batch; numpy and Arrow views of them
    partitioner.py   explicit partition, else the key's (murmur.py, byte_hashes.py over key_words.py), else sticky
                     or in turn
    encoder.py       all records of an Arrow batch without gaps (varint.py, record_size.py)
    record_batch.py  the 61 bytes of header before the records, with the CRC
    compression.py   codecs for the bytes after those 61 bytes

All code here works on whole columns: no Python statement runs once per row.
"""

"""Rows to bytes: Arrow columns -> checked columns -> a partition per row -> the records of record batches v2.

    columns.py       what the DataFrame may hold, checked once a batch; numpy and Arrow views of it afterwards
    partitioner.py   explicit partition, else the key's (murmur.py, byte_hashes.py over key_words.py), else sticky
                     or in turn
    encoder.py       all records of an Arrow batch back to back (varint.py, record_size.py)
    record_batch.py  the 61 bytes in front of them, CRC included
    compression.py   codecs for what lies behind those 61 bytes

Everything here works on whole columns: no Python statement runs once a row.
"""

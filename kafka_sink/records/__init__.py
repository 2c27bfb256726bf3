"""Rows to bytes: Arrow columns -> checked columns -> a partition per row -> the records of record batches v2.

    columns.py       the allowed columns of the DataFrame, checked once per batch; numpy and Arrow views of them
    partitioner.py   explicit partition, else the key's (key_hashes.py), else sticky or in turn
    kernel.py        chooses who does the work per row: compiled.py over _kernel.c, or the folder fallback/
    record_size.py   the layout of a record, its varints and its size
    record_batch.py  the 61 bytes of header before the records, with the CRC; what headers say of a record set
    compression.py   codecs for the bytes after those 61 bytes, and of any client, within a limit
    record_runs.py   cuts the records of a refused batch into smaller ones

And back: record sets of a Fetch answer -> Arrow batches.

    decoder.py       a record set in steps, for a range of offsets
    batch_table.py   the table of batches that decoder and kernel share; what cannot be decoded, as facts
    arrow_rows.py    the columns of Spark's Kafka source
    record_walk.py   one record after the other, for markers and errors

What rows are beside their bytes:

    fingerprint.py   tells if a replay has the same rows (row_hashes.py defines a row's hash)
    row_identity.py  headers that name a row
    receipt_file.py  the file that says what one micro-batch wrote (receipts_in_hdfs.py where HDFS has it)
    bad_rows.py      which rows cannot be records, and why; dead_letters.py writes them as rows of another topic

All code here works on whole columns: no Python statement runs once per row.
"""

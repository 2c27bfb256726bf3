"""What a row is on the wire, where it goes, and what tells it apart."""

from __future__ import annotations

from mutants.mutant import Mutant

RECORDS: tuple[Mutant, ...] = (
    Mutant("a key's hash loses its sign by its magnitude", "BuiltInPartitioner.partitionForKey: toPositive(murmur2)",
           "KERNEL.murmur2($KEYS) & POSITIVE_MASK", "np.abs(KERNEL.murmur2($KEYS).astype(np.int64))",
           "tests/unit/records/test_partitioner.py::test_a_key_goes_to_the_partition_of_its_hash"),
    Mutant("the CRC covers itself", "DefaultRecordBatch: the CRC begins at attributes",
           "$CRC.pack_into($BATCH, $CRC_OFFSET, crc32c($BATCH[$ATTRIBUTES_OFFSET:]))",
           "$CRC.pack_into($BATCH, $CRC_OFFSET, crc32c($BATCH[$CRC_OFFSET:]))",
           "tests/unit/records/test_record_batch.py::test_same_bytes_as_kafka_python"),
    Mutant("the CRC of a header is not moved on by its records",
           "DefaultRecordBatch: the CRC ends with the last record",
           "$CRC = product($CRC, $POWERS[$I]);", "$CRC ^= $POWERS[$I];",
           "tests/unit/records/test_record_batch.py::test_the_crc_is_right_whatever_the_length", language="c"),
    Mutant("the last offset delta is the number of records", "DefaultRecordBatch: lastOffsetDelta",
           "$RECORD_COUNT - 1", "$RECORD_COUNT",
           "tests/unit/records/test_record_batch.py::test_same_bytes_as_kafka_python", within="write_header"),
    Mutant("a row that comes twice is as if it never came", "docs/guarantees.md: a replay must give the same rows",
           ("$LOW += (uint64_t)$HASH.sum;", "$HIGH += (uint64_t)($HASH.sum >> 64);"),
           "$LOW ^= (uint64_t)$HASH.sum;\n$HIGH ^= (uint64_t)($HASH.sum >> 64);",
           "tests/unit/records/test_fingerprint.py::test_a_row_twice_is_not_a_row_once_nor_none", language="c"),
    Mutant("identity: rows are numbered anew in each slice", "docs/guarantees.md: rows that are there twice",
           "self.$ROW_IDENTITY.added_to($COLUMNS, self.record_count + $NUMBERS)",
           "self.$ROW_IDENTITY.added_to($COLUMNS, $NUMBERS)",
           "tests/unit/kafka/test_write.py::test_rows_are_numbered_as_spark_delivers_them"),
)  # fmt: skip

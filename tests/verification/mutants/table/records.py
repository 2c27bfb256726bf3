"""What a row is on the wire, where it goes, and what tells it apart."""

from __future__ import annotations

from mutants.mutant import Mutant

RECORDS: tuple[Mutant, ...] = (
    Mutant(
        name="a key's hash loses its sign by its magnitude",
        rule="BuiltInPartitioner.partitionForKey: toPositive(murmur2)",
        pattern="KERNEL.murmur2($KEYS) & POSITIVE_MASK",
        replacement="np.abs(KERNEL.murmur2($KEYS).astype(np.int64))",
        killer="tests/unit/records/test_partitioner.py::test_a_key_goes_to_the_partition_of_its_hash",
    ),
    Mutant(
        name="the CRC covers itself",
        rule="DefaultRecordBatch: the CRC begins at attributes",
        pattern="$CRC.pack_into($BATCH, $CRC_OFFSET, crc32c($BATCH[$ATTRIBUTES_OFFSET:]))",
        replacement="$CRC.pack_into($BATCH, $CRC_OFFSET, crc32c($BATCH[$CRC_OFFSET:]))",
        killer="tests/unit/records/test_record_batch.py::test_same_bytes_as_kafka_python",
    ),
    Mutant(
        name="the CRC of a header is not moved on by its records",
        rule="DefaultRecordBatch: the CRC ends with the last record",
        pattern="$CRC = product($CRC, $POWERS[$I]);",
        replacement="$CRC ^= $POWERS[$I];",
        killer="tests/unit/records/test_record_batch.py::test_the_crc_is_right_whatever_the_length",
        language="c",
    ),
    Mutant(
        name="the last offset delta is the number of records",
        rule="DefaultRecordBatch: lastOffsetDelta",
        pattern="$RECORD_COUNT - 1",
        replacement="$RECORD_COUNT",
        within="write_header",
        killer="tests/unit/records/test_record_batch.py::test_same_bytes_as_kafka_python",
    ),
    Mutant(
        name="a row that comes twice is as if it never came",
        rule="docs/guarantees.md: a replay must give the same rows",
        pattern=(
            "$LOW += (uint64_t)$HASH.sum;",
            "$HIGH += (uint64_t)($HASH.sum >> 64);",
        ),
        replacement="$LOW ^= (uint64_t)$HASH.sum;\n$HIGH ^= (uint64_t)($HASH.sum >> 64);",
        killer="tests/unit/records/test_fingerprint.py::test_a_row_twice_is_not_a_row_once_nor_none",
        language="c",
    ),
    Mutant(
        name="identity: rows are numbered anew in each slice",
        rule="docs/guarantees.md: rows that are there twice",
        pattern="self.$ROW_IDENTITY.added_to($COLUMNS, self.record_count + $NUMBERS)",
        replacement="self.$ROW_IDENTITY.added_to($COLUMNS, $NUMBERS)",
        killer="tests/unit/kafka/test_write.py::test_rows_are_numbered_as_spark_delivers_them",
    ),
)

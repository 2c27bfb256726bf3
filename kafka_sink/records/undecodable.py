"""Why a record set cannot be decoded, as facts. The caller knows topic and partition, and what a user can do."""

from __future__ import annotations

from kafka_sink.records.batch_table import Fault

# What is wrong with the batch; each completes the sentence "the record batch at offset N ...".
REASONS = {
    Fault.MAGIC: "has a format that Kafka does not have",
    Fault.SIZE: "has fewer bytes than the header of a batch",
    Fault.CRC: "has bytes that do not match its CRC-32C",
    Fault.OFFSETS: "has offsets that do not ascend, or are below 0",
    Fault.COUNT: "has more or fewer records than its header says",
    Fault.RECORD: "has a record whose lengths do not fit it",
}


class Undecodable(ValueError):
    """A batch of the record set cannot be decoded. All batches before it can. `base_offset`: the batch's own, or where
    it should begin. `next_offset`: where the log goes on behind it, None if that is not known."""

    def __init__(self, base_offset: int, reason: str, next_offset: int | None = None) -> None:
        super().__init__(f"the record batch at offset {base_offset} {reason}")
        self.base_offset, self.reason, self.next_offset = base_offset, reason, next_offset


class OldFormat(Undecodable):
    """The batch has message format 0 or 1, as Kafka wrote before 0.11. `base_offset` is that of its last message."""

    def __init__(self, base_offset: int, magic: int) -> None:
        super().__init__(base_offset, f"has message format {magic}, which this decoder does not read")
        self.magic = magic


class CorruptBatch(Undecodable):
    """The bytes of the batch are damaged, on the broker's disk or on their way. `fault` is None if its codec found
    it."""

    def __init__(self, base_offset: int, fault: Fault | None, next_offset: int | None = None) -> None:
        super().__init__(base_offset, "cannot be decompressed" if fault is None else REASONS[fault], next_offset)
        self.fault = fault


class BatchTooLarge(Undecodable):
    """The records of the batch are larger than `most_bytes` after decompression."""

    def __init__(self, base_offset: int, most_bytes: int, next_offset: int | None = None) -> None:
        super().__init__(base_offset, f"has more than {most_bytes} bytes of records after decompression", next_offset)
        self.most_bytes = most_bytes


class TooManyHeaders(Undecodable):
    """The records of the batch have more than `most_headers` headers."""

    def __init__(self, base_offset: int, most_headers: int, next_offset: int) -> None:
        super().__init__(base_offset, f"has more than {most_headers} headers", next_offset)
        self.most_headers = most_headers


class TimestampOutOfRange(Undecodable):
    """The timestamp of the record at `offset`, in milliseconds, does not fit into 64 bits as microseconds."""

    def __init__(self, base_offset: int, offset: int, timestamp_ms: int) -> None:
        super().__init__(base_offset, "has a timestamp whose microseconds do not fit into 64 bits")
        self.offset, self.timestamp_ms = offset, timestamp_ms

"""Chooses the implementation of the work per row: the compiled kernel, or the vectorised fallback.

Chosen once, at import. The fallback (the folder fallback/) is used if the package was installed without a C compiler.
It writes the same bytes at a sixth of the speed, and reads the same rows at less than a hundredth. Two environment
variables control the choice:

    PYKAFKA_REQUIRE_KERNEL=1    importing fails without the compiled kernel
    PYKAFKA_KERNEL=off          always the fallback

`KERNEL.name` names the choice. If the kernel is missing although it was not switched off, a warning is logged when rows
are written, and when rows are read.
"""

from __future__ import annotations

import functools
import logging
import os
import zipimport
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

log = logging.getLogger(__name__)

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
# Of each column: the validity's bits, numbers or offsets, the bytes of texts, and how many values.
AvroColumns = list[tuple[bytes, bytes, bytes, int]]

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafka_sink.records.arrow_rows import ColumnBuffers
    from kafka_sink.records.columns import RecordColumns

    # The batch, and the parameters of record_batch.write_header.
    WriteHeader = Callable[[memoryview, int | None, int, int, int, int, int, int, int], None]
    # The parameters of the functions of these names in fallback/decoder.py.
    ScanBatches = Callable[[Buffer, Int64s, int, int, bool, Int64s], int]
    MeasureRecords = Callable[[tuple[Buffer, ...], Int64s, int, int, int, int, bool, Int64s], None]
    # The program, its columns, the records' column, the rows of it, and where each payload begins.
    DecodeAvro = Callable[[Int64s, int, pa.Array, Int64s, Int64s], tuple[AvroColumns, npt.NDArray[np.bool_]]]
    # The program, its columns, the first bytes of each row, and the rows: all bytes, and where each row ends.
    EncodeAvro = Callable[[Int64s, tuple[Any, ...], bytes, int], tuple[bytes, npt.NDArray[np.int32]] | None]
    FillColumns = Callable[[tuple[Buffer, ...], Int64s, int, int, int, int, ColumnBuffers], None]


@dataclass(frozen=True, slots=True, eq=False)
class OpenBatches:
    """What an encoder needs to continue to fill many open batches.

    A write with thousands of partitions has thousands of them, and each Arrow batch has a few rows for each. So their
    numbers are columns and their bytes one memory: one call can read and advance all of them without the GIL.

    `memory`: uint8, writable. All others are int64[p], one place per batch:
    `end`: the position in `memory` one past the batch's last record.
    `limit`: the position one past the last byte that the batch may use.
    `record_count`: the records before `end`.
    `base_timestamp` (ms): the records' timestamps are differences to it.
    `max_timestamp` (ms): the latest timestamp.
    `records_crc`: the CRC-32C of the records, or None if the encoder does not compute it.
    The bytes between `end` and `limit`, and places without a batch, are undefined.
    """

    memory: UInt8s
    base_timestamp: Int64s
    end: Int64s
    limit: Int64s
    record_count: Int64s
    max_timestamp: Int64s
    records_crc: Int64s | None


class Encoder(Protocol):
    """Encodes the rows of some columns in wire order: row i of this object is row `order[i]` of the Arrow batch.

    `order`: int64[n], a permutation or a selection of the batch's rows. Keeps the Arrow batch in memory, so release the
    encoder as soon as its rows are in their buffers. `payload_sizes`: of all rows of the Arrow batch.
    """

    payload_sizes: Int64s

    def fill(self, places: Int64s, next_row: Int64s, end_row: Int64s, batches: OpenBatches) -> None:
        """Encode as many rows as fit into the batch of each of `places` (int64[k], all different).

        A batch's rows go in wire order from `next_row[place]` up to, not including, `end_row[place]` (int64[p] both).
        Advances `next_row` and the batch's numbers. Batches may have a `records_crc` only if the kernel `sums_records`.
        """


@dataclass(frozen=True, slots=True)
class Loss:
    """Why the compiled kernel is not in use although it was not switched off, and what to do."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    murmur2: Callable[[pa.Array], Int32s]
    wire_order: Callable[[Int64s, int], tuple[Int64s, Int64s]]
    payload_sizes: Callable[[RecordColumns], Int64s]
    sum_row_hashes: Callable[[RecordColumns], tuple[int, int]]
    encoder: Callable[[RecordColumns, Int64s], Encoder]
    # True if the encoder computes the CRC-32C while it writes, which is cheaper than reading the bytes again.
    sums_records: bool
    write_header: WriteHeader
    scan_batches: ScanBatches
    measure_records: MeasureRecords
    fill_columns: FillColumns
    # None: only fastavro decodes and encodes Avro.
    decode_avro: DecodeAvro | None = None
    encode_avro: EncodeAvro | None = None
    loss: Loss | None = None


@functools.cache
def fallback() -> Kernel:
    """Return the vectorised kernel. A process does not import it if it has the compiled one, and a processor that
    computes CRC-32C."""
    from kafka_sink.records.fallback.decoder import fill_columns, measure_records, scan_batches
    from kafka_sink.records.fallback.encoder import RecordEncoder, payload_sizes, wire_order
    from kafka_sink.records.fallback.row_hashes import sum_row_hashes
    from kafka_sink.records.key_hashes import murmur2
    from kafka_sink.records.record_batch import write_header

    return Kernel(
        "vectorised",
        murmur2,
        wire_order,
        payload_sizes,
        sum_row_hashes,
        RecordEncoder,
        False,
        write_header,
        scan_batches,
        measure_records,
        fill_columns,
    )


def compiled_kernel() -> Kernel:
    """Return the compiled kernel. Raises ImportError if it was not built, or was built for another machine."""
    from kafka_sink.records import compiled

    return Kernel(
        "compiled",
        compiled.murmur2,
        compiled.wire_order,
        compiled.payload_sizes,
        compiled.sum_row_hashes,
        compiled.CompiledEncoder,
        compiled.SUMS_RECORDS,
        compiled.write_header if compiled.SUMS_RECORDS else fallback().write_header,
        compiled.scan_batches if compiled.SUMS_RECORDS else fallback().scan_batches,
        compiled.measure_records,
        compiled.fill_columns,
        compiled.decode_avro,
        compiled.encode_avro,
    )


def choose(environment: Mapping[str, str]) -> Kernel:
    """Return the kernel to use. Raises ImportError if the environment requires a kernel that is missing."""
    if environment.get("PYKAFKA_KERNEL") == "off":
        return fallback()
    try:
        return compiled_kernel()
    except ImportError as error:
        if environment.get("PYKAFKA_REQUIRE_KERNEL") == "1":
            raise ImportError(
                "PYKAFKA_REQUIRE_KERNEL=1, but the compiled kernel of pyspark-pykafka cannot be loaded "
                f"({error}). Install a C compiler and the package again, or unset the variable: the sink then "
                "writes the same bytes more slowly."
            ) from error
        return replace(fallback(), loss=_loss(error, from_zip=isinstance(__spec__.loader, zipimport.zipimporter)))


def _loss(error: ImportError, *, from_zip: bool) -> Loss:
    if from_zip:
        return Loss(
            "this package is in a zip, and Python loads compiled modules only from folders",
            "install the wheel into the Python that runs Spark's tasks, or ship a packed environment with --archives",
        )
    return Loss(
        f"it was not built, or not for this machine: {error}",
        "install the package again on a machine like this one that has a C compiler",
    )


SLOW_WRITING = "The same bytes are written, but a core encodes only about a sixth of the rows."
SLOW_READING = "The same rows are read, but a core decodes less than a hundredth of them."


@functools.cache
def warn_of_loss(kernel: Kernel, cost: str = SLOW_WRITING) -> None:
    """Log a warning, once per process and cost, if `kernel` is the slow one although it was not chosen."""
    if kernel.loss is not None:
        log.warning(
            "the compiled kernel is not in use: %s. %s To change that, %s. PYKAFKA_KERNEL=off in the environment of "
            "Spark's workers silences this warning.",
            kernel.loss.reason,
            cost,
            kernel.loss.remedy,
        )


KERNEL = choose(os.environ)

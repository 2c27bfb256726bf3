"""The framing against the official client's."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.registry.framing import framed, prefix

IDS = st.integers(0, 2**31 - 1)


@given(IDS, st.lists(st.integers(0, 2**20), max_size=3))
def test_the_official_client_reads_and_writes_the_same(schema_id: int, indexes: list[int]) -> None:
    head = prefix(schema_id, indexes)
    official = SchemaId("PROTOBUF" if indexes else "AVRO")
    rest = official.from_bytes(io.BytesIO(head + b"payload"))
    assert (official.id, official.message_indexes or []) == (schema_id, indexes)
    assert rest.read() == b"payload"
    assert SchemaId("PROTOBUF", schema_id, None, indexes or None).id_to_bytes() == head


@given(st.lists(st.none() | st.binary(max_size=9), max_size=20))
def test_rows_are_framed_and_null_stays_null(rows: list[bytes | None]) -> None:
    array = framed(b"\0id", rows, lambda data, row: data.write(row))
    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == [None if row is None else b"\0id" + row for row in rows]


def test_more_than_an_array_of_binary_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(io.BytesIO):
        def tell(self) -> int:
            return 2**31

    monkeypatch.setattr("kafka_sink.registry.framing.io.BytesIO", Far)
    with pytest.raises(OverflowError, match="maxRecordsPerBatch"):
        framed(b"", [b""], lambda data, row: data.write(row))

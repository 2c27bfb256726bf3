"""The aborted transactions of a Fetch answer, one batch after the other; and what a marker is."""

from __future__ import annotations

import struct

import pytest

from kafka_sink.records.aborted_transactions import is_abort_marker
from kafka_sink.records.record_walk import Wrong
from record_cases import Row, scalar_record


def marker(key: bytes | None) -> memoryview:
    return memoryview(scalar_record(Row(key, bytes(6), None, 0), 0, 0))


@pytest.mark.parametrize(("kind", "is_one"), [(0, True), (1, False), (2, False), (-1, False)])
@pytest.mark.parametrize("version", [0, 1, 2**15 - 1])
def test_only_the_marker_of_an_abort_is_one(version: int, kind: int, is_one: bool) -> None:
    """Other kinds are of snapshots and leaders, or not known yet: they mean nothing here."""
    assert is_abort_marker(marker(struct.pack(">hh", version, kind))) is is_one
    assert is_abort_marker(marker(struct.pack(">hh", version, kind) + b"later fields")) is is_one


def test_what_cannot_be_a_marker() -> None:
    cut_off = [marker(bytes(4))[:size] for size in range(len(marker(bytes(4))))]
    for wrong in (*map(marker, [None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)]), *cut_off):
        with pytest.raises(Wrong):
            is_abort_marker(wrong)

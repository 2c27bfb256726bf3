"""Codecs: what they write, a decompressor that is not ours reads (whole batches: test_encoder.py)."""

from __future__ import annotations

import pytest
from kafka.codec import zstd_decode

from kafka_sink.errors import InvalidOption
from kafka_sink.records.compression import CODECS, codec_for

RECORDS = b"rows rows rows " * 10_000


@pytest.mark.parametrize("level", [None, -5, 1, 22])
def test_zstd_reads_back(level: int | None) -> None:
    codec = codec_for("zstd", level)
    assert codec.id == 4
    for records in (RECORDS, b"x", RECORDS[:100]):  # one object, several batches
        assert zstd_decode(bytes(codec.compress(memoryview(records)))) == records
    assert len(codec.compress(memoryview(RECORDS))) < len(RECORDS) / 10


def test_zstd_level_reaches_the_compressor() -> None:
    text = bytes(i * i % 251 for i in range(100_000)) + RECORDS
    sizes = {level: len(codec_for("zstd", level).compress(memoryview(text))) for level in (-100, 19)}
    assert sizes[19] < sizes[-100]


def test_none_copies_nothing() -> None:
    codec = codec_for("none")
    records = memoryview(RECORDS)
    assert codec.id == 0
    assert codec.compress(records) is records


def test_each_call_makes_an_object_of_its_own() -> None:
    assert codec_for("zstd") is not codec_for("zstd")


@pytest.mark.parametrize(("name", "level"), [("zstd", 23), ("zstd", -(2**17) - 1)])
def test_level_out_of_range(name: str, level: int) -> None:
    with pytest.raises(InvalidOption, match=str(level)) as raised:
        codec_for(name, level)
    assert raised.value.option == "kafka.compression.zstd.level"


def test_unknown_codec_names_those_there_are() -> None:
    with pytest.raises(InvalidOption, match=", ".join(CODECS)) as raised:
        codec_for("brotli")
    assert raised.value.option == "kafka.compression.type"

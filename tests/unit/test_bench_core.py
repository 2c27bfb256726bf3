"""That the benchmark moves the rows it says it moves, and can do so again. How fast is nobody's test."""

from __future__ import annotations

import dataclasses

import pytest

from bench_core import Case, CorePath
from kafka_sink.options.config import sink_config

CONFIG = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer


@pytest.mark.parametrize(("partition_count", "buffer_memory"), [(4, 64 * 1024), (4, 64 << 20), (50, 1 << 20)])
def test_a_round_encodes_every_row_and_gives_all_memory_back(partition_count: int, buffer_memory: int) -> None:
    config = dataclasses.replace(CONFIG, buffer_memory=buffer_memory, batch_size=16 * 1024)
    path = CorePath(Case(100, partition_count), 1_000, config)
    for _ in range(2):
        rate = path.round(20_000)
        assert path.record_count == 24_000  # three times the eight Arrow batches
        assert rate == path.record_count / path.cpu_s
        # A record: 108 bytes of key and value, 4 of lengths, 2 of attributes and header count, 2 to 6 of deltas.
        assert 24_000 * 116 <= path.wire_bytes - path.batch_count * 61 <= 24_000 * 120
        assert path.batch_count >= 24_000 * 116 // (16 * 1024)
        assert path.held_bytes == 0

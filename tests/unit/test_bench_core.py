"""That the benchmark moves the rows it says it moves, and can do so again. How fast is nobody's test."""

from __future__ import annotations

import dataclasses

import pytest

import bench_core
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


def test_figures_are_compared_with_few_partitions() -> None:
    class Worker:
        kernel = "compiled"

        def round(self, case: Case) -> float:
            return 1e6 if case.partition_count == bench_core.FEW else 0.5e6

    figures = bench_core.measure([Worker()], rounds=3)  # type: ignore[list-item]
    assert [(each.partition_count, each.times_the_cost_at_few) for each in figures] == [(4, 1.0), (2_000, 2.0)] * 2
    assert [each.ns_per_record for each in figures] == [1_000, 2_000] * 2
    assert [each.goal for each in figures] == ["15 M records/s", "1.5 x", "3 GB/s", "1.5 x"]
    line = " ".join(bench_core.table(figures).splitlines()[2].split())
    assert line == "compiled 100 2,000 0.50 (0.50 - 0.50) 0.05 2000 2.00 1.5 x"

"""The blocks of docs/declarative-pipelines.md, run by Spark's own `spark-pipelines` against a broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from code_blocks import run_bash
from committed_rows import read_values
from kafka_sink.broker import LocalKafka

ONE_RETRY = 'configuration:\n  spark.sql.pipelines.maxFlowRetryAttempts: "1"\nlibraries:'

pytestmark = pytest.mark.long


def lines(first: int, end: int) -> str:
    return "".join(f'{{"id": {number}, "amount": 0.5}}\n' for number in range(first, end))


def read_ids(kafka: LocalKafka, topic: str) -> Counter[int]:
    values = read_values(kafka, topic).items()
    return Counter({int(json.loads(value)["id"]): times for value, times in values})


def test_a_pipeline_writes_each_row_once_until_a_full_refresh(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, incoming = topic(2), tmp_path / "incoming"
    replaced = {
        "localhost:9092": kafka.bootstrap_servers, '"topic": "orders"': f'"topic": "{name}"',
        '.json("/data/incoming")': f'.json("{incoming}", mode="FAILFAST")',
        "/data/pipelines/orders": f"{tmp_path}/storage", "libraries:": ONE_RETRY,
    }  # fmt: skip

    def run(*arguments: str) -> tuple[int, str]:
        """Return the exit code of `spark-pipelines`, and what it printed."""
        line = {"pipelines run": " ".join(["pipelines run", *arguments])}
        ended = run_bash("docs/declarative-pipelines.md", "A pipeline that writes to a topic", 1, line, tmp_path)
        return ended.returncode, ended.stdout

    made = run_bash("docs/declarative-pipelines.md", "A pipeline that writes to a topic", 0, replaced, tmp_path)
    assert made.returncode == 0, made.stdout
    incoming.mkdir()
    (incoming / "whole.json").write_text(lines(0, 1_000))
    # A task writes rows until Spark finds the damage.
    (incoming / "damaged.json").write_text(lines(1_000, 1_500) + "{\n" + lines(1_500, 1_510))
    code, said = run()
    assert code != 0 and "MALFORMED_RECORD_IN_PARSING" in said, said
    assert not read_ids(kafka, name)

    (incoming / "damaged.json").write_text(lines(1_000, 1_510))
    code, said = run()
    assert code == 0, said
    once = Counter(range(1_510))
    assert read_ids(kafka, name) == once

    # The run ended before Spark recorded its micro-batch.
    commits = tmp_path / "storage" / "_checkpoints" / "orders_topic" / "orders" / "0" / "commits"
    for file in list(commits.iterdir()):
        file.unlink()
    code, said = run("--full-refresh", "orders_topic")
    assert code == 0 and "EXCLUDED" in said, said
    code, said = run()
    assert code == 0, said
    assert read_ids(kafka, name) == once

    code, said = run("--full-refresh-all")
    assert code == 0, said
    assert read_ids(kafka, name) == once + once

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.commit.markers import Ids
from kafka_sink.spark.last_run import recall, remember


def test_the_last_run_of_each_sink_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another/disk")
    assert recall("orders") is None
    remember("orders", Ids(5, 0))
    remember("a/sink with any name", Ids(7, 1))
    remember("orders", Ids(5, 1))
    assert (recall("orders"), recall("a/sink with any name")) == (Ids(5, 1), Ids(7, 1))
    assert len(list(tmp_path.iterdir())) == 2


def test_two_queries_that_have_one_prefix_by_mistake_have_runs_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    remember("orders", Ids(5, 0), "/checkpoints/one")
    remember("orders", Ids(5, 1), "/checkpoints/other")
    assert recall("orders", "/checkpoints/one") == Ids(5, 0)
    assert recall("orders", "/checkpoints/other") == Ids(5, 1)
    assert recall("orders") is None


def test_nothing_is_known_of_another_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    remember("orders", Ids(5, 0))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "another"))
    assert recall("orders") is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert recall("orders") is None

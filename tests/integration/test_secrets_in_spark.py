"""A canary in every secret option of a real application that fails: it is nowhere in what Spark prints, in its event
log and in the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from applications import run_application

CANARY = "canary-8f3e"


@pytest.mark.long
def test_nothing_that_spark_leaves_behind_shows_a_secret(tmp_path: Path) -> None:
    event_log = tmp_path / "events"
    event_log.mkdir()
    status, said = run_application("secrets_app.py", CANARY, event_log, tmp_path / "checkpoint", folder=tmp_path)
    assert status == 0, said
    # The two writes and the query got as far as the network, and the wrong key no further than its own error.
    assert said.count("kafka_sink.errors.BrokersUnreachable") >= 3
    assert "kafka_sink.errors.InvalidOption: option 'kafka.ssl.keystore.key' is not usable" in said
    assert CANARY not in said
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 10_000 for path in left if event_log in path.parents)
    assert not [path for path in left if CANARY.encode() in path.read_bytes()]

"""A canary in every secret option of a real application that fails: it is nowhere in what Spark prints, in its event
log and in the checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parents[1] / "support" / "secrets_app.py"
CANARY = "canary-8f3e"
DEADLINE_S = 180


@pytest.mark.long
def test_nothing_that_spark_leaves_behind_shows_a_secret(tmp_path: Path) -> None:
    event_log = tmp_path / "events"
    event_log.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    ended = subprocess.run(
        [sys.executable, APP, CANARY, event_log, tmp_path / "checkpoint"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE_S, start_new_session=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    # The two writes and the query got as far as the network, and the wrong key no further than its own error.
    assert ended.stdout.count("kafka_sink.errors.BrokersUnreachable") >= 3
    assert "kafka_sink.errors.InvalidOption: option 'kafka.ssl.keystore.key' is not usable" in ended.stdout
    assert CANARY not in ended.stdout
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 10_000 for path in left if event_log in path.parents)
    assert not [path for path in left if CANARY.encode() in path.read_bytes()]

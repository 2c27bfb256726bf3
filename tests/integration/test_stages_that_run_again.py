"""Spark runs a stage again in the midst of an exactly-once write: rows are there once, at the latest when the write was
repeated as its error says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from applications import told_by
from committed_rows import open_transactions, read
from kafka_sink.broker import LocalKafka
from stage_again_app import ROWS, SLOTS

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# Of some starts of JVMs, on a machine that is busy.
DEADLINE_S = 800
DELETED, KILLED, GONE = "shuffle files deleted", "executor killed", "executor decommissioned"
LOCAL = "spark.master=local[2,4]"
CLUSTER = ("spark.master=local-cluster[2,1,1024]", "spark.executor.memory=512m")
DECOMMISSION = (
    "spark.decommission.enabled=true", "spark.storage.decommission.enabled=true",
    "spark.storage.decommission.shuffleBlocks.enabled=true",
)  # fmt: skip
# A second attempt took over what the first had prepared, or the first was fenced before that.
REPLACED = "AttemptReplaced"


@pytest.mark.parametrize(
    ("fault", "how", "conf", "error"),
    [
        pytest.param(DELETED, "batch", (LOCAL,), REPLACED, id="batch"),
        pytest.param(DELETED, "stream", (LOCAL,), REPLACED, id="stream"),
        pytest.param(DELETED, "batch", (LOCAL, "spark.sql.adaptive.enabled=false"), REPLACED, id="without AQE"),
        pytest.param(
            DELETED, "batch", (LOCAL, "spark.stage.maxConsecutiveAttempts=1"),
            "has failed the maximum allowable number of times: 1", id="no second attempt",
        ),
        pytest.param(
            "worker killed", "barrier", ("spark.master=local[4,4]",),
            "Could not recover from a failed barrier ResultStage", id="barrier",
        ),
        pytest.param(KILLED, "batch", CLUSTER, REPLACED, id="executor killed"),
        pytest.param(GONE, "batch", (*CLUSTER, *DECOMMISSION), REPLACED, id="executor decommissioned"),
        pytest.param(GONE, "stream", (*CLUSTER, *DECOMMISSION), REPLACED, id="executor decommissioned under a stream"),
    ],
)  # fmt: skip
def test_each_row_is_there_once(
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    fault: str,
    how: str,
    conf: tuple[str, ...],
    error: str,
) -> None:
    name = topic(3)
    arguments = kafka.bootstrap_servers, name, fault, tmp_path, how, *conf
    told = told_by("stage_again_app.py", *arguments, deadline_s=DEADLINE_S)
    assert len(told["errors"]) <= 1 and all(error in each for each in told["errors"]), told
    # An executor that is decommissioned ends its tasks first.
    assert sum(told["attempts"]) >= SLOTS + (fault != GONE), told
    assert read(kafka, name) == Counter(range(ROWS))
    assert open_transactions(kafka, name) == []

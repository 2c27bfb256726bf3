"""The planning process of a stream's micro-batch stores the run's generation here, for the process that aborts.

Spark gives `abort` no message of a task that did not finish. For a stream it does not give it the planned writer
either. So the aborting process knows nothing about a micro-batch that was stopped. All processes of a driver share one
folder with no other driver: the folder that Spark makes for its blocks, and deletes at the end.

Two queries of one driver may use the same prefix by mistake. So the file belongs to a sink and, if known, a checkpoint.
Otherwise an abort of one query would end the open transactions of the other query.

The file is only a hint. Without it the abort ends nothing, and the next plan or the brokers' timeout ends the
transactions.

Source: PythonPlannerRunner and PythonStreamingSinkCommitRunner set SPARK_LOCAL_DIRS for their workers, from
DiskBlockManager (`blockmgr-<uuid>`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from kafka_sink.commit.markers import Ids


def remember(prefix: str, generation: Ids, checkpoint: str | None = None) -> None:
    """Store the generation of the last run that began on this driver, for the sink `prefix` and a checkpoint."""
    file = _file(prefix, checkpoint)
    if file is None:
        return
    # A full disk must not fail the plan.
    with contextlib.suppress(OSError):
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(str(generation), encoding="ascii")
        new.replace(file)


def recall(prefix: str, checkpoint: str | None = None) -> Ids | None:
    """Return the stored generation, or None if unknown."""
    file = _file(prefix, checkpoint)
    try:
        return None if file is None else Ids.read(file.read_text(encoding="ascii"))
    except OSError:
        return None


def _file(prefix: str, checkpoint: str | None) -> Path | None:
    first, _, _ = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")
    if not first:
        return None
    # A newline separates the parts: no prefix has one, because it is part of transactional ids.
    name = f"{prefix}\n{checkpoint or ''}"
    return Path(first) / f"pykafka-run-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

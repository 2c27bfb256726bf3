"""What the process that plans a stream's micro-batch leaves for the one that aborts it: the run's generation.

Spark hands `abort` no message of a task that did not end, and of a stream not the writer that was planned either: of a
micro-batch that is stopped in its middle, the aborting process is told nothing at all. What a driver's processes do
share, and with no other driver's, is the folder that Spark makes for its own blocks and deletes when it ends.

Two queries of one driver may have one prefix by mistake; so a run is the sink's and the checkpoint's, where that is
known. Or the abort of the one, taking the other's run for its own, would end what that has open.

A hint and no state: without it nothing is aborted by then, and the next plan does it, or the brokers' timeout.

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
    """Of the sink `prefix` and a checkpoint, the run that has begun last on this driver."""
    file = _file(prefix, checkpoint)
    if file is None:
        return
    # Planning does not fail for a full disk.
    with contextlib.suppress(OSError):
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(str(generation), encoding="ascii")
        new.replace(file)


def recall(prefix: str, checkpoint: str | None = None) -> Ids | None:
    """None where that is not known."""
    file = _file(prefix, checkpoint)
    try:
        return None if file is None else Ids.read(file.read_text(encoding="ascii"))
    except OSError:
        return None


def _file(prefix: str, checkpoint: str | None) -> Path | None:
    first, _, _ = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")
    if not first:
        return None
    # No prefix has a line's end: it is part of transactional ids.
    name = f"{prefix}\n{checkpoint or ''}"
    return Path(first) / f"pykafka-run-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

"""Keeps what this sink's modules hold out of Spark's collections of garbage.

Spark's Python workers run `gc.collect()` after every task, plan and commit (pyspark/daemon.py), which looks at all
objects of all modules, over and over. What is there when a first task has gone well is modules, classes and caches, and
lives as long as the process: it is frozen, and later collections look at what came since.
"""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def freeze_modules() -> None:
    """To be called where a worker has done its work. Does something only after modules were imported: rarely, as what
    is garbage at that moment, and in a cycle, is never collected."""
    global _modules_seen
    if len(sys.modules) > _modules_seen:
        _modules_seen = len(sys.modules)
        gc.freeze()

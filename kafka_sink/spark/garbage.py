"""Keeps the objects of imported modules out of garbage collections.

Spark's Python workers run `gc.collect()` after every task, plan and commit (pyspark/daemon.py). Each collection visits
all objects of all modules. The objects after the first successful task are mostly modules, classes and caches, which
live as long as the process. So they are frozen, and later collections visit only newer objects.
"""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def freeze_modules() -> None:
    """Freeze all objects if modules were imported since the last call. Call it when a worker has finished its work.

    It must freeze rarely, because cyclic garbage that exists at that moment is never collected.
    """
    global _modules_seen
    if len(sys.modules) > _modules_seen:
        _modules_seen = len(sys.modules)
        gc.freeze()

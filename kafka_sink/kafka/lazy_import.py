"""Imports what is needed late, in one thread at a time.

Python locks each module while it is imported. A package that imports its own modules (kio's do) is a trap for two
threads: one imports the package and needs a module of it, the other imports that module and needs the package. Python
ends one of the two imports with a `_DeadlockError`.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

_lock = threading.Lock()


def import_late(name: str) -> ModuleType:
    """Return the module. Raises ImportError."""
    with _lock:
        return importlib.import_module(name)

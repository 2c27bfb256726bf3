"""Imports a module when it is needed, in one thread at a time.

Python locks each module while it imports it. kio's packages import their own modules. So two threads can block each
other: one imports a package and needs a module of it, the other imports that module and needs the package. Python then
ends one of the two imports with a `_DeadlockError`.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

_lock = threading.Lock()


def import_lazily(name: str) -> ModuleType:
    """Return the module. Raises ImportError."""
    with _lock:
        return importlib.import_module(name)

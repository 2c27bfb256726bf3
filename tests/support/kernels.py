"""The compiled kernel, unless it was not built, and its fallback."""

from contextlib import suppress
from typing import Any

import pytest

from kafka_sink.records.kernel import compiled_kernel, fallback

COMPILED: Any = None
with suppress(ImportError):
    COMPILED = compiled_kernel()

needs_kernel = pytest.mark.skipif(COMPILED is None, reason="the kernel was not compiled")
KERNELS = [pytest.param(fallback(), id="vectorised"), pytest.param(COMPILED, id="compiled", marks=needs_kernel)]

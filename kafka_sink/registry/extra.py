"""Imports the packages of the extra `registry` only when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from kafka_sink.errors import RegistryExtraMissing


def extra(module: str, *, on_executor: bool = False) -> Any:
    """Return a module of `pyspark-pykafka[registry]`. Raises RegistryExtraMissing.

    With `on_executor` the error says that other tasks may have written rows.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RegistryExtraMissing(module=module, reason=str(error), on_executor=on_executor) from error

"""What the extra `registry` brings, imported where it is needed and not before."""

from __future__ import annotations

import importlib
from typing import Any

from kafka_sink.errors import RegistryExtraMissing


def extra(module: str) -> Any:
    """The module, one of `pyspark-pykafka[registry]`. Raises RegistryExtraMissing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RegistryExtraMissing(module=module, reason=str(error)) from error

"""What the extra `registry` brings, imported where it is needed and not before."""

from __future__ import annotations

import importlib
from typing import Any

from kafka_sink.errors import RegistryExtraMissing


def extra(module: str, *, on_executor: bool = False) -> Any:
    """The module, one of `pyspark-pykafka[registry]`. Raises RegistryExtraMissing, which says of rows what
    is true `on_executor`, where others may have written, or on the driver."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RegistryExtraMissing(module=module, reason=str(error), on_executor=on_executor) from error

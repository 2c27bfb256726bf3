"""All APIs, for pages and tests. A process of a query imports only those of the requests that it sends."""

from __future__ import annotations

import importlib
import pkgutil

from kafka_sink.kafka.protocol import apis
from kafka_sink.kafka.protocol.api import Request

_MODULES = [importlib.import_module(each.name) for each in pkgutil.iter_modules(apis.__path__, f"{apis.__name__}.")]
_CLASSES = [each for module in _MODULES for each in vars(module).values() if isinstance(each, type)]
APIS = tuple(dict.fromkeys(each.api for each in _CLASSES if issubclass(each, Request) and each is not Request))

"""The rows of all APIs, for pages and tests. A process of a query imports only those of the requests that it sends."""

from __future__ import annotations

import importlib
import pkgutil

from kafka_sink.kafka.protocol import apis
from kafka_sink.kafka.protocol.api import Api

_MODULES = [importlib.import_module(each.name) for each in pkgutil.iter_modules(apis.__path__, f"{apis.__name__}.")]
# What each guarantee needs of these: `needs.py`.
APIS = tuple(row for module in _MODULES for row in vars(module).values() if isinstance(row, Api))

"""What is public: the names in `__all__` of these modules. docs/api.md has each."""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from enum import Enum

MODULES = (
    "kafka_sink",
    "kafka_sink.broker",
    "kafka_sink.broker.fixtures",
    "kafka_sink.errors",
    "kafka_sink.functions",
    "kafka_sink.monitoring.bar",
    "kafka_sink.monitoring.listener",
    "kafka_sink.monitoring.micro_batch",
    "kafka_sink.monitoring.opentelemetry",
    "kafka_sink.monitoring.prometheus",
    "kafka_sink.monitoring.transactions",
    "kafka_sink.registry",
    "kafka_sink.spark.tally",
)


def public() -> dict[str, object]:
    """Each public name with its module's name in front, and what it is."""
    return dict(_public())


def _public() -> Iterator[tuple[str, object]]:
    for name in MODULES:
        module = importlib.import_module(name)
        yield from ((f"{name}.{each}", getattr(module, each)) for each in module.__all__)


def with_examples() -> dict[str, str]:
    """The docstrings of what people call. Constants, records of facts and errors need no example."""
    return {name: what.__doc__ or "" for name, what in public().items() if _is_called(what)}


def _is_called(what: object) -> bool:
    if not isinstance(what, type):
        return callable(what) and not name_of_errors(what)
    is_record = dataclasses.is_dataclass(what) or issubclass(what, tuple | Enum | Exception)
    return what.__name__ == "KafkaSinkError" or not is_record


def name_of_errors(what: object) -> bool:
    """Functions of `kafka_sink.errors` make texts, and are for the package."""
    return inspect.isfunction(what) and what.__module__.startswith("kafka_sink.errors") and what.__name__ != "error_of"

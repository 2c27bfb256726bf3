"""All errors that users can see, by section, and an example of each with placeholders for its facts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from kafka_sink import errors
from kafka_sink.broker.errors import LocalKafkaError
from kafka_sink.errors import KafkaSinkError

# In the order of the page. "Other" has the errors that are direct subclasses of KafkaSinkError.
_SECTIONS = (
    ("Options", errors.ConfigError),
    ("Columns", errors.SchemaError),
    ("Rows", errors.BadRow),
    ("Schema registry", errors.RegistryError),
    ("Cluster", errors.ClusterError),
    ("Delivery", errors.DeliveryError),
    ("Exactly once", errors.ExactlyOnceError),
    ("Reads", errors.ReadError),
    ("Other", KafkaSinkError),
    ("The local broker", LocalKafkaError),
)
# The sink handles these internally, and never raises them to a user.
_INSIDE = errors.ProtocolError


def by_section() -> list[tuple[str, list[type[KafkaSinkError]]]]:
    """Return the errors that the sink raises, grouped by heading."""
    return [(title, list(raised(base))) for title, base in _SECTIONS]


def raised(base: type[KafkaSinkError]) -> Iterator[type[KafkaSinkError]]:
    """Yield the leaves of the tree below `base`, without the leaves of other sections."""
    elsewhere = {_INSIDE, *(of for _, of in _SECTIONS if of is not base)}
    for cls in base.__subclasses__():
        if cls not in elsewhere:
            yield from raised(cls) if cls.__subclasses__() else (cls,)


# --- an error without facts -------------------------------------------------------------------------------------------


class _Number(int):
    """A number that prints as its name. Messages may compute with it."""

    def __new__(cls, name: str) -> _Number:
        made = super().__new__(cls, 7)
        made.name = name
        return made

    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)

    def __sub__(self, other: int) -> _Number:
        return _Number(f"{self.name} - {other}")

    def __radd__(self, _: int) -> _Number:
        return self


_MADE_UP = {
    "Mapping[str, int]": lambda name: {name: _Number("count")},
    "Sequence[int]": lambda name: [_Number(name)],
    "Sequence[str]": lambda name: [f"<{name}>"],
    "Sequence[tuple[int, int]]": lambda name: [f"<{name}>"],
    "int": _Number,
    "float": _Number,
}


def example(cls: type[KafkaSinkError]) -> KafkaSinkError:
    """Return an instance with placeholders for the facts. Parameters with a default keep it."""
    facts: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is parameter.empty:
            annotation = str(parameter.annotation).removesuffix(" | None")
            facts[name] = _MADE_UP.get(annotation, "<{}>".format)(name)
    return cls(**facts)

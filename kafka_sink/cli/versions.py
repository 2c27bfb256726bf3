"""Shows the installed versions of this package, of Python and of the packages that it uses.

`kernel`: the code that encodes rows, compiled or numpy. numpy writes the same bytes several times slower.

examples:
    pykafka version
    pykafka version --json | jq -r .pyspark

exit status: 0 always; 2 wrong usage
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence

from kafka_sink.command_line import add_json, answer, parser_of
from kafka_sink.kafka.config import VERSION

OK = 0
PACKAGES = ("pyspark", "pyarrow", "numpy", "kio", "confluent-kafka")


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser_of(__doc__, "pykafka version")
    add_json(made, "one document with a version for each name (null: not installed)")
    as_json = made.parse_args(arguments).json
    found = versions()
    width = max(map(len, found))
    answer(as_json, found, *(f"{name:<{width}}  {version or 'not installed'}" for name, version in found.items()))
    return OK


def versions() -> dict[str, str | None]:
    """Return the version for each name; None: not installed."""
    from kafka_sink.records.kernel import KERNEL

    found: dict[str, str | None] = {"pykafka": VERSION, "kernel": KERNEL.name, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found

"""Shows the installed versions of this package, of Python and of the packages that it uses.

`kernel`: the code that encodes rows, compiled or numpy. numpy writes the same bytes several times slower.
`pyspark`: the one that Python imports here, and whose it is: the cluster's, or a package's, which may be a client of
Spark Connect.

examples:
    pykafka version
    pykafka version --json | jq -r '.pyspark, .pyspark_from'

exit status: 0 always; 2 wrong usage
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence

from kafka_sink.command_line import add_json, answer, parser_of, say
from kafka_sink.errors.installed import found_pyspark
from kafka_sink.kafka.config import VERSION

OK = 0
PACKAGES = ("pysail", "pyarrow", "numpy", "kio", "confluent-kafka")
# Whose pyspark it is: a line has it behind the version.
ORIGIN = "pyspark_from"


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser_of(__doc__, "pykafka version")
    add_json(made, "one document with a version for each name (null: not installed)")
    as_json = made.parse_args(arguments).json
    found = versions()
    origin = found[ORIGIN]
    shown = found | {"pyspark": f"{found['pyspark']}, {origin}" if origin else None}
    width = max(map(len, PACKAGES))
    lines = (f"{name:<{width}}  {text or 'not installed'}" for name, text in shown.items() if name != ORIGIN)
    answer(as_json, found, *lines)
    trouble = (pyspark := found_pyspark()) and pyspark.trouble()
    if trouble:
        say(f"warning: {trouble[0]}. To fix it: {trouble[1]}.", OK)
    return OK


def versions() -> dict[str, str | None]:
    """Return the version for each name, and whose pyspark it is; None: not installed."""
    from kafka_sink.records.kernel import KERNEL

    found: dict[str, str | None] = {"pykafka": VERSION, "kernel": KERNEL.name, "python": platform.python_version()}
    pyspark = found_pyspark()
    found["pyspark"], found[ORIGIN] = (None, None) if pyspark is None else (pyspark.version, pyspark.origin)
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found

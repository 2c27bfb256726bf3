"""`pykafka COMMAND ...`, or `python -m kafka_sink COMMAND ...`: the commands of this package under one name."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Sequence

from kafka_sink.config import VERSION

OK = 0
# Each is a module with `main(arguments) -> exit status`, and runs alone by `python -m` too. Imported when it is asked
# for: Spark and Arrow take half a second that `pykafka broker status` need not pay.
COMMANDS = {
    "check": ("kafka_sink.check", "would a write work? Each step from DNS to the topic's settings"),
    "read": ("kafka_sink.read", "print a topic's records as JSON lines, or count them"),
    "verify": ("kafka_sink.verify", "compare receipts with what is in the topics"),
    "transactions": ("kafka_sink.transactions", "list, describe, repair and abort a sink's transactions"),
    "explain": ("kafka_sink.explain", "what an option or an error is, and what to do"),
    "broker": ("kafka_sink.broker.__main__", "a local Kafka, for development and tests"),
}
PACKAGES = ("pyspark", "pyarrow", "numpy", "kio", "confluent-kafka")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status. Whoever closes the pipe that it writes to (`| head`) has read enough."""
    args = parser().parse_args(arguments)
    try:
        status = run(args.command, args.arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return status


def parser() -> argparse.ArgumentParser:
    listed = [*((name, text) for name, (_, text) in COMMANDS.items()), ("version", "which versions are installed here")]
    width = max(len(name) for name, _ in listed)
    made = argparse.ArgumentParser(
        prog="pykafka",
        usage="pykafka COMMAND ...",
        description="A Kafka sink for PySpark. Its commands, each with --help and examples:",
        epilog="\n".join(f"  {name:<{width}}  {text}" for name, text in listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"pykafka {VERSION}")
    names = [name for name, _ in listed]
    made.add_argument("command", choices=names, metavar="COMMAND", help=argparse.SUPPRESS)
    made.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def run(command: str, arguments: Sequence[str]) -> int:
    if command == "version":
        return tell_version(as_json="--json" in arguments)
    module, _ = COMMANDS[command]
    status: int = importlib.import_module(module).main(arguments)
    return status


def tell_version(*, as_json: bool) -> int:
    from kafka_sink.records.kernel import KERNEL

    found: dict[str, str] = {"pykafka": VERSION, "kernel": KERNEL.name, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    if as_json:
        print(json.dumps(found))
    else:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {version}" for name, version in found.items()))
    return OK


if __name__ == "__main__":
    sys.exit(main())

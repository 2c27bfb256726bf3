"""`pykafka COMMAND ...`, or `python -m kafka_sink COMMAND ...`: the commands of this package under one name."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from kafka_sink.command_line import run_to_the_end
from kafka_sink.kafka.config import VERSION

# Each command is a module with `main(arguments) -> exit status`. It is imported when it is called, because importing
# Spark and Arrow takes 0.5 s, and `pykafka broker status` needs neither.
COMMANDS = {
    "check": ("kafka_sink.cli.check", "would a write work? Each step from DNS to the topic's settings"),
    "read": ("kafka_sink.cli.read", "print a topic's records as JSON lines, or count them"),
    "verify": ("kafka_sink.cli.verify", "compare receipts with what is in the topics"),
    "transactions": ("kafka_sink.cli.transactions", "list, describe, repair and abort a sink's transactions"),
    "explain": ("kafka_sink.cli.explain", "what an option or an error is, and what to do"),
    "broker": ("kafka_sink.broker.__main__", "a local Kafka, for development and tests"),
    "warm": ("kafka_sink.cli.warm", "compile pyspark once, so that Spark's Python workers start faster"),
    "version": ("kafka_sink.cli.versions", "which versions are installed here"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    args = parser().parse_args(arguments)
    module, _ = COMMANDS[args.command]
    return run_to_the_end(lambda: importlib.import_module(module).main(args.arguments))


def parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    made = argparse.ArgumentParser(
        prog="pykafka",
        usage="pykafka COMMAND ...",
        description="A Kafka sink for PySpark. Its commands, each with --help and examples:",
        epilog="\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"pykafka {VERSION}")
    made.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    made.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    sys.exit(main())

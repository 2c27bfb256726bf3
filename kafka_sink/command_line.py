"""Shared parts of the commands: the help from the module's docstring, and the sink's options as `--preset FILE` and
`--option KEY=VALUE`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from kafka_sink.errors.quoting import json_line, quoted
from kafka_sink.errors.redaction import redacted

MAX_LINE_CHARACTERS = 16_000
INTERRUPTED = 128 + signal.SIGINT


def run_to_the_end(main: Callable[[], int]) -> int:
    """Run a command and return its exit status.

    A reader that closes the pipe (`| head`) and Ctrl-C are not errors, so neither prints a traceback.
    """
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout again at its end, so send the rest to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def parser_of(module_doc: str | None, prog: str) -> argparse.ArgumentParser:
    """Return a parser with the module's docstring as its help, including the examples."""
    assert module_doc is not None
    summary, _, rest = module_doc.partition("\n\n")
    return argparse.ArgumentParser(
        prog=prog,
        description=filled(summary),
        epilog=filled(rest),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def examples_of(module_doc: str | None, command: str) -> str:
    """Return the examples of the module's docstring that begin with `command`, as the epilog of a subcommand's help."""
    assert module_doc is not None
    lines = [line for line in module_doc.splitlines() if f"{line.strip()} ".startswith(f"{command} ")]
    return "\n".join(["examples:", *lines])


def filled(text: str) -> str:
    """Wrap the paragraphs of `text` to argparse's width. Indented examples and tables stay unchanged."""
    width = shutil.get_terminal_size().columns - 2
    paragraphs = text.strip("\n").split("\n\n")
    return "\n\n".join(each if "\n " in f"\n{each}" else textwrap.fill(each, width) for each in paragraphs)


def add_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, example: str) -> None:
    """Add `--preset` and `--option`. `example`: an option that is useful for this command."""
    add_preset(parser)
    parser.add_argument(
        "--option", type=assignment, action="append", default=[], metavar="KEY=VALUE",
        help=f"an option of the sink, repeatable: {example}; wins over the preset's. Others of this machine see it in "
        "the list of processes: a password belongs into the preset",
    )  # fmt: skip


def add_preset(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument("--preset", type=preset, default={}, metavar="FILE", help="sink options, `key = value` lines")


def options_of(args: argparse.Namespace, over: dict[str, str | None]) -> dict[str, str]:
    """Return the sink's options in lower case. `--option` wins over the preset, and `over` wins over both."""
    last = {name: text for name, text in over.items() if text is not None}
    return {name.lower(): text for given in (args.preset, dict(args.option), last) for name, text in given.items()}


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json`, which prints `what` instead of text."""
    parser.add_argument("--json", action="store_true", help=f"for scripts: {what} on stdout, and nothing else there")


def say(text: str, status: int) -> int:
    """Print to stderr, and return the exit status."""
    tell(text, file=sys.stderr)
    return status


def tell(*lines: str, file: TextIO | None = None) -> None:
    """Print to stdout or `file`. Each of `lines` stays one line, because newlines in quoted names are escaped."""
    for line in lines:
        print(quoted(line, MAX_LINE_CHARACTERS), file=file, flush=True)


def tell_json(document: object) -> None:
    """Print one line of JSON to stdout. With --json a command prints nothing else there."""
    print(json_line(document), flush=True)


def answer(as_json: bool, document: object, *lines: str) -> None:
    """Print the document with --json, else the lines."""
    if as_json:
        tell_json(document)
    else:
        tell(*lines)


def terminal_width() -> int | None:
    """Return the width of stdout, or None if it is not a terminal: files and programs get whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def needs_confluent_kafka(missing: ModuleNotFoundError) -> str:
    """Return the error message for a missing confluent-kafka. Raise `missing` if another module is missing."""
    if missing.name != "confluent_kafka":
        raise missing
    return 'error: records are read with confluent-kafka: pip install "pyspark-pykafka[verify]"'


# --- argparse's types -------------------------------------------------------------------------------------------------


def assignment(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key.strip() and separator):
        raise argparse.ArgumentTypeError(f"{redacted(text)!r} is not KEY=VALUE")
    return key.strip(), value


def preset(path: str) -> dict[str, str]:
    """Return the sink's options in a preset file. As in Java's properties, spaces before a value are left out, and
    those behind it are kept: a password may end with one."""
    options: dict[str, str] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(map(str.lstrip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, separator, value = line.partition("=")
        key, value = key.strip(), value.lstrip()
        # The message leaves out the line, because its value may be a password.
        if not (key and separator):
            raise argparse.ArgumentTypeError(f"{path}, line {number} is not `key = value`")
        if key.lower() in map(str.lower, options):
            raise argparse.ArgumentTypeError(f"{path}, line {number} sets {key} again")
        options[key] = value
    return options

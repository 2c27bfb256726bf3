"""What commands have in common: a help that is the module's docstring, and the sink's options as `--preset FILE` and
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

from kafka_sink.text.quoting import json_line, quoted
from kafka_sink.text.redaction import redacted

MAX_LINE_CHARACTERS = 16_000
INTERRUPTED = 128 + signal.SIGINT


def run_to_the_end(main: Callable[[], int]) -> int:
    """A command's exit status. Whoever closes the pipe that it writes to (`| head`) has read enough, and Ctrl-C is no
    error: neither is a traceback."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def parser_of(module_doc: str | None, prog: str) -> argparse.ArgumentParser:
    """A parser whose help is the module's docstring, examples and all."""
    assert module_doc is not None
    summary, _, rest = module_doc.partition("\n\n")
    return argparse.ArgumentParser(
        prog=prog,
        description=filled(summary),
        epilog=filled(rest),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def examples_of(module_doc: str | None, command: str) -> str:
    """Those in the module's docstring that begin with `command`: the epilog of a subcommand's help."""
    assert module_doc is not None
    lines = [line for line in module_doc.splitlines() if f"{line.strip()} ".startswith(f"{command} ")]
    return "\n".join(["examples:", *lines])


def filled(text: str) -> str:
    """`text` as wide as argparse's own: paragraphs anew, examples and tables, which are indented, as they are."""
    width = shutil.get_terminal_size().columns - 2
    paragraphs = text.strip("\n").split("\n\n")
    return "\n\n".join(each if "\n " in f"\n{each}" else textwrap.fill(each, width) for each in paragraphs)


def add_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, example: str) -> None:
    """`example`: of an option that is of use here."""
    add_preset(parser)
    parser.add_argument(
        "--option", type=assignment, action="append", default=[], metavar="KEY=VALUE",
        help=f"an option of the sink, repeatable: {example}; wins over the preset's. Others of this machine see it in "
        "the list of processes: a password belongs into the preset",
    )  # fmt: skip


def add_preset(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument("--preset", type=preset, default={}, metavar="FILE", help="sink options, `key = value` lines")


def options_of(args: argparse.Namespace, over: dict[str, str | None]) -> dict[str, str]:
    """The sink's options, in lower case: the preset's, over them those of `--option`, and over both what `over` has."""
    last = {name: text for name, text in over.items() if text is not None}
    return {name.lower(): text for given in (args.preset, dict(args.option), last) for name, text in given.items()}


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """`what` is printed instead of text for people."""
    parser.add_argument("--json", action="store_true", help=f"for scripts: {what} on stdout, and nothing else there")


def say(text: str, status: int) -> int:
    """To whoever reads errors; the exit status."""
    tell(text, file=sys.stderr)
    return status


def tell(*lines: str, file: TextIO | None = None) -> None:
    """To stdout, unless `file` is another. Each of `lines` stays one, whatever is in the names that it quotes."""
    for line in lines:
        print(quoted(line, MAX_LINE_CHARACTERS), file=file, flush=True)


def tell_json(document: object) -> None:
    """To stdout, in one line: all that a command prints there with --json."""
    print(json_line(document), flush=True)


def terminal_width() -> int | None:
    """Of stdout. None where that is no terminal: a file or a program gets whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def needs_confluent_kafka(missing: ModuleNotFoundError) -> str:
    """What a command that reads says where the client it reads with is not installed. Raises `missing` if that is
    another module."""
    if missing.name != "confluent_kafka":
        raise missing
    return 'error: records are read with confluent-kafka: pip install "pyspark-pykafka[verify]"'


# --- argparse's types -------------------------------------------------------------------------------------------------


def assignment(text: str) -> tuple[str, str]:
    key, separator, value = (part.strip() for part in text.partition("="))
    if not (key and separator):
        raise argparse.ArgumentTypeError(f"{redacted(text)!r} is not KEY=VALUE")
    return key, value


def preset(path: str) -> dict[str, str]:
    """The sink's options that a preset file holds."""
    options: dict[str, str] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, separator, value = (part.strip() for part in line.partition("="))
        # The line itself stays out of the message: its value may be a password.
        if not (key and separator):
            raise argparse.ArgumentTypeError(f"{path}, line {number} is not `key = value`")
        if key.lower() in map(str.lower, options):
            raise argparse.ArgumentTypeError(f"{path}, line {number} sets {key} again")
        options[key] = value
    return options

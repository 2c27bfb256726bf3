"""What a command line says of the sink's options: `--option KEY=VALUE` and `--preset FILE`, as argparse's types."""

from __future__ import annotations

import argparse
from pathlib import Path


def assignment(text: str) -> tuple[str, str]:
    key, separator, value = (part.strip() for part in text.partition("="))
    if not (key and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
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

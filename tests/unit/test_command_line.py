from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kafka_sink.command_line import assignment, preset


def written(folder: Path, text: str) -> str:
    file = folder / "some.conf"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("text", ["", "kafka.acks", "=all"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="KEY=VALUE"):
        assignment(text)


@pytest.mark.parametrize(
    ("text", "words"), [("kafka.acks all secret", "line 1 is not"), ("a = 1\nA = secret", "line 2 sets A again")]
)
def test_a_line_that_is_wrong_is_told_without_its_text(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=words) as raised:
        preset(written(tmp_path, text))
    assert "secret" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="No such file"):
        preset(str(tmp_path / "none.conf"))

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kafka_sink.command_line import add_options, assignment, options_of, parser_of, preset


def written(folder: Path, text: str) -> str:
    file = folder / "some.conf"
    file.write_text(text)
    return str(file)


def test_an_assignment_is_a_key_and_whatever_follows_and_a_help_a_docstring() -> None:
    assert assignment("kafka.acks =all") == ("kafka.acks", "all")
    assert assignment("kafka.sasl.password= s ") == ("kafka.sasl.password", " s ")
    assert assignment("a=b=c") == ("a", "b=c")
    assert parser_of("What it does.\n\nexamples:\n    x  y", "x").format_help().endswith("examples:\n    x  y\n")


@pytest.mark.parametrize("text", ["", "kafka.acks", "=all"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="KEY=VALUE"):
        assignment(text)


def test_a_preset_is_key_value_lines(tmp_path: Path) -> None:
    text = '# a comment\n\n  kafka.acks = all  \nkafka.sasl.jaas.config = a b="c" # d;\nkafka.client.id =\n'
    assert preset(written(tmp_path, text)) == {
        "kafka.acks": "all  ",
        "kafka.sasl.jaas.config": 'a b="c" # d;',
        "kafka.client.id": "",
    }


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


def test_arguments_win_over_options_and_options_over_the_preset(tmp_path: Path) -> None:
    parser = parser_of("What it does.\n\nexamples:\n    x", "x")
    add_options(parser, example="kafka.acks=1")
    file = written(tmp_path, "Topic = of preset\nkafka.acks = 0\nkafka.linger.ms = 7")
    args = parser.parse_args(["--preset", file, "--option", "KAFKA.acks=1", "--option", "TOPIC=of option"])
    expected = {"topic": "of argument", "kafka.acks": "1", "kafka.linger.ms": "7"}
    assert options_of(args, {"topic": "of argument", "kafka.client.id": None}) == expected

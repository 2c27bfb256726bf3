"""What others say, in one line that prints; and commands that a shell takes as they were meant."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from kafka_sink.doctor.report import table
from kafka_sink.errors.quoting import MAX_QUOTED_CHARACTERS, json_line, quoted, quoted_tail, shell_command
from kafka_sink.options.bounds import kafka_offsets


@pytest.mark.parametrize(("said", "shown"), [
    ("orders", "orders"), ("grün, 注文", "grün, 注文"), ("C:\\new", "C:\\new"), ("\x1b[2J\rgone", r"\x1b[2J\rgone"),
    ("one\nERROR two\x85three\u2028four", r"one\nERROR two\x85three\u2028four"),
    ("safe\u202egnp.exe\ufeff", r"safe\u202egnp.exe\ufeff"),
    ("\x00\x7f\x9b\udc80\U000e0041", r"\x00\x7f\x9b\udc80\U000e0041"),
])  # fmt: skip
def test_what_does_not_print_is_shown_as_its_escape(said: str, shown: str) -> None:
    assert quoted(said) == shown
    assert quoted(quoted(said)) == shown


@pytest.mark.parametrize("character", ["x", "\x1b", "\U000e0041"])
def test_it_fills_no_log(character: str) -> None:
    assert quoted(character * 8_000_000).endswith("... (cut)")
    for length in (0, 1, 9, 10, 11, 99, 100, 101, 8_000_000):
        shown = quoted(character * length, 100)
        assert len(shown) <= 100
        assert shown.isprintable()
    assert quoted("x" * MAX_QUOTED_CHARACTERS) == "x" * MAX_QUOTED_CHARACTERS


HOSTILE = ["$(touch {0})", "`touch {0}`", "x;touch {0}", "x' ; touch {0} '", "x\ntouch {0}\n", "x|touch {0}", "*", ""]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_pasted_command_runs_itself_and_nothing_else(value: str, tmp_path: Path) -> None:
    value = value.format(tmp_path / "ran")
    command = shell_command("printf '%s|'", {"--name": value, "--flag": None, "--other": "b:9092,c:1"})
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stdout == f"--name|{quoted(value)}|--flag|--other|b:9092,c:1|"
    assert not list(tmp_path.iterdir())


def test_a_value_with_a_dash_is_no_option() -> None:
    assert shlex.split(shell_command("run it", {"--prefix": "--take-over"})) == ["run", "it", "--prefix=--take-over"]


def test_of_a_log_the_last_lines_are_shown() -> None:
    assert quoted_tail("one\n\x1b[2Jtwo\r\n") == "one\n\\x1b[2Jtwo\\r\n"
    log = "\n".join(f"{number}" + "x" * 100_000 for number in range(1_000))
    assert [line[:3] for line in quoted_tail(log).split("\n")] == [f"{number}" for number in range(970, 1_000)]
    assert len(quoted_tail(log)) < 31_000


@pytest.mark.parametrize("text", ["grün", "\x1b[2J\x9b\x7f", "\u202e\u2028\n", "\U000e0041", '"\\'])
def test_json_prints_and_is_the_same_when_it_is_read(text: str) -> None:
    line = json_line({"value": text})
    assert line.isprintable()
    assert json.loads(line) == {"value": text}
    assert text not in ("grün",) or text in line


HEADS = ("NAME", "STATE", "READERS SEE NOTHING OF")
ROWS = [("pykafka-4711.12", "Ongoing, prepared", "orders-0 from offset 40, orders-1"), ("b", "hangs", "")]


def test_a_column_is_as_wide_as_its_widest_cell() -> None:
    assert table(HEADS, ROWS) == [
        "NAME             STATE              READERS SEE NOTHING OF",
        "pykafka-4711.12  Ongoing, prepared  orders-0 from offset 40, orders-1",
        "b                hangs",
    ]


def test_cells_wrap_to_the_terminal_between_words() -> None:
    assert table(HEADS, ROWS, 50) == [
        "NAME             STATE            READERS SEE",
        "                                  NOTHING OF",
        "pykafka-4711.12  Ongoing,         orders-0 from",
        "                 prepared         offset 40,",
        "                                  orders-1",
        "b                hangs",
    ]


@pytest.mark.parametrize("width", range(8, 80, 3))
def test_no_line_is_wider_than_the_terminal_and_none_is_cut(width: int) -> None:
    lines = table(HEADS, ROWS, width)
    assert max(map(len, lines)) <= width
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(map("".join, (HEADS, *ROWS))).split()))


def test_words_are_broken_only_where_nothing_else_fits_and_newlines_stay() -> None:
    narrow = table(("A", "B"), [("four", "twelve-chars")], 10)
    assert narrow == ["A     B", "four  twel", "      ve-c", "      hars"]
    assert table(("A", "B"), [("x", "found\nto do: y")]) == ["A  B", "x  found", "   to do: y"]


@pytest.mark.parametrize("text", ['{"t":{"0":5,"12":7},"u":{"0":1}}', "{'t': {'0': 5, '12': 7}, 'u': {'0': 1}}"])
def test_offsets_are_by_topic_and_partition(text: str) -> None:
    assert kafka_offsets(text) == {"t": {0: 5, 12: 7}, "u": {0: 1}}


@pytest.mark.parametrize("text", [
    "", "-", "19", "null", "{}", '{"logOffset":3}', '{"t":{"0":true}}', '{"t":{"0":"5"}}', '{"t":{"-1":5}}',
    '{"t":{"\N{SUPERSCRIPT TWO}":5}}', '{"t":{"a":5}}', "[" * 100_000, "not an offset(",
])  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert kafka_offsets(text) is None

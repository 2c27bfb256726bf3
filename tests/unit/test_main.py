import argparse
import json
import sys
from pathlib import Path

import pytest

from kafka_sink.__main__ import COMMANDS, main
from kafka_sink.command_line import assignment, preset, run_to_the_end


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_under_its_own_name_that_fits_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
        said = capsys.readouterr().out
        assert said.startswith(f"usage: pykafka {command}")
        assert "\nexamples:\n    pykafka " in said and "exit status: 0" in said
        text = [line for line in said.splitlines() if not line.startswith(" ")]
        assert max(len(line) for line in text if "with --json" not in line) <= columns


def test_a_command_that_there_is_not_names_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["chekc"])
    assert end.value.code == 2
    assert "'check', 'read', 'verify'" in capsys.readouterr().err


def test_the_exit_status_is_the_commands_and_control_c_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "kafka.bootstrap.servers" in capsys.readouterr().err

    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run_to_the_end(interrupted) == 130


def test_version_for_people_and_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: version or "not installed" for name, version in found.items()} == lines
    assert lines["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("text", ["", "kafka.acks", "=all"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="KEY=VALUE"):
        assignment(text)


@pytest.mark.parametrize(
    ("text", "words"), [("kafka.acks all secret", "line 1 is not"), ("a = 1\nA = secret", "line 2 sets A again")]
)
def test_a_line_that_is_wrong_is_told_without_its_text(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "some.conf"
    with pytest.raises(argparse.ArgumentTypeError, match="No such file"):
        preset(str(file))
    file.write_text(text)
    with pytest.raises(argparse.ArgumentTypeError, match=words) as raised:
        preset(str(file))
    assert "secret" not in str(raised.value)

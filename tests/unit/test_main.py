from __future__ import annotations

import json
import sys

import pytest

from kafka_sink.__main__ import COMMANDS, main
from kafka_sink.command_line import run_to_the_end


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_under_its_own_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: pykafka {command}")
    assert "\nexamples:\n    pykafka " in said and "exit status: 0" in said


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_text_of_the_help_fits_the_terminal(
    command: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
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

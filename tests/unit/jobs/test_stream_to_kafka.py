from __future__ import annotations

import pytest

import stream_to_kafka as job

NEEDED = ["--source", "in", "--schema", "id INT", "--topic", "t", "--checkpoint", "c", "--available-now"]


@pytest.mark.parametrize("triggers", [[], ["--available-now", "--processing-time", "1 second"]])
def test_exactly_one_trigger(capsys: pytest.CaptureFixture[str], triggers: list[str]) -> None:
    with pytest.raises(SystemExit):
        job.parse([*NEEDED[:-1], *triggers])
    assert "--processing-time" in capsys.readouterr().err


def test_options_path_and_schema_of_the_source() -> None:
    args = job.parse([*NEEDED, "--source-option", "header=true", "--source-option", "sep=="])
    assert dict(args.source_option) == {"header": "true", "sep": "="}
    args = job.parse(["--format", "rate", "--topic", "t", "--checkpoint", "c", "--available-now"])
    assert (args.source, args.schema) == (None, None)

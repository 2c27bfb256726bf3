from __future__ import annotations

import pytest

import stream_to_kafka as job

NEEDED = ["--source", "in", "--schema", "id INT", "--topic", "t", "--checkpoint", "c", "--available-now"]


@pytest.mark.parametrize("triggers", [[], ["--available-now", "--processing-time", "1 second"]])
def test_exactly_one_trigger(capsys: pytest.CaptureFixture[str], triggers: list[str]) -> None:
    with pytest.raises(SystemExit):
        job.parse([*NEEDED[:-1], *triggers])
    assert "--processing-time" in capsys.readouterr().err


def test_a_source_option_keeps_what_follows_the_first_equals_sign() -> None:
    args = job.parse([*NEEDED, "--source-option", "header=true", "--source-option", "sep=="])
    assert dict(args.source_option) == {"header": "true", "sep": "="}


def test_path_and_schema_are_for_sources_that_have_them() -> None:
    args = job.parse(["--format", "rate", "--topic", "t", "--checkpoint", "c", "--available-now"])
    assert (args.source, args.schema) == (None, None)

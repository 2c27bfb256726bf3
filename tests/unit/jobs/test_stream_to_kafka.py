from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stream_to_kafka as job

CONF = Path(__file__).resolve().parents[3] / "conf"
NEEDED = ["--source", "in", "--schema", "id INT", "--topic", "t", "--checkpoint", "c", "--available-now"]


def written(folder: Path, text: str) -> str:
    file = folder / "some.conf"
    file.write_text(text)
    return str(file)


def test_a_preset_is_key_value_lines(tmp_path: Path) -> None:
    text = '# a comment\n\n  kafka.acks = all  \nkafka.sasl.jaas.config = a b="c" # d;\nkafka.client.id =\n'
    assert job.preset(written(tmp_path, text)) == {
        "kafka.acks": "all",
        "kafka.sasl.jaas.config": 'a b="c" # d;',
        "kafka.client.id": "",
    }


@pytest.mark.parametrize("preset", sorted(CONF.glob("*.conf")), ids=lambda path: path.name)
def test_the_presets_of_this_repository_are_read(preset: Path) -> None:
    assert job.preset(str(preset))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka.acks all", "line 1 is not `key = value`"),
        ("kafka.acks = all\n= hunter2", "line 2 is not `key = value`"),
        ("kafka.acks = all\nKafka.Acks = all", "line 2 sets Kafka.Acks again"),
    ],
)
def test_a_wrong_preset_ends_the_job_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        job.parse([*NEEDED, "--preset", written(tmp_path, text)])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hunter2" not in error


def test_a_preset_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        job.parse([*NEEDED, "--preset", str(tmp_path / "none.conf")])
    assert "none.conf: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("triggers", [[], ["--available-now", "--processing-time", "1 second"]])
def test_exactly_one_trigger(capsys: pytest.CaptureFixture[str], triggers: list[str]) -> None:
    with pytest.raises(SystemExit):
        job.parse([*NEEDED[:-1], *triggers])
    assert "--processing-time" in capsys.readouterr().err


def test_a_source_option_keeps_what_follows_the_first_equals_sign() -> None:
    args = job.parse([*NEEDED, "--source-option", "header=true", "--source-option", "sep=="])
    assert dict(args.source_option) == {"header": "true", "sep": "="}


class Query:
    """A streaming query as `follow` sees it: some progress at each look; at the last look it has ended."""

    def __init__(self, looks: list[list[dict[str, Any]]]) -> None:
        self.looks = looks
        self.recentProgress: list[dict[str, Any]] = []

    def awaitTermination(self, timeout: float) -> bool:
        self.recentProgress = self.looks.pop(0)
        return not self.looks


def progress(batch_id: int, rows: int, duration_ms: int = 500) -> dict[str, Any]:
    return {"batchId": batch_id, "numInputRows": rows, "batchDuration": duration_ms}


def test_every_micro_batch_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = progress(0, 2000), progress(1, 1000, 1000)
    waiting_for_files = progress(1, 0)
    job.follow(Query([[], [first, waiting_for_files], [first, waiting_for_files, second]]))  # type: ignore[arg-type]
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "micro-batch 0 2,000 rows 0.50 s 4,000 rows/s",
        "micro-batch 1 1,000 rows 1.00 s 1,000 rows/s",
        "3,000 rows in 2 micro-batches, 1.50 s, 2,000 rows/s",
    ]

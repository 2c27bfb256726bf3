from __future__ import annotations

import pytest

import read_back as job

NEEDED = ["--bootstrap-servers", "localhost:9092", "--topic", "t"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "end"], "is not committed, beginning or PARTITION:OFFSET"),
        (["--from", "1:2:3"], "is not committed, beginning or PARTITION:OFFSET"),
        (["--from", "committed"], "need --group"),
        (["--members", "2"], "need --group"),
        (["--follow"], "need --group"),
        (["--group", "g", "--members", "0"], "at least one member"),
        (["--group", "g", "--assignment", "sticky"], "cooperative-sticky"),
    ],
)
def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        job.parse([*NEEDED, *arguments])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def group(members: int = 2, *, follow: bool = False) -> tuple[job.Group, list[job.Placed]]:
    seen: list[job.Placed] = []
    return job.Group("t", [0, 1, 2], {0: 5, 1: 6}, seen.append, members=members, follow=follow), seen


def test_it_ends_when_all_is_read_and_every_member_has_its_share() -> None:
    shared, _ = group()
    shared.rebalanced(0, "gets", [0, 1, 2], {0, 1, 2})
    for partition in (0, 1, 2):
        shared.read_to_end(partition)
    assert not shared.ended  # the other member has not joined
    shared.rebalanced(1, "gets", [], set())
    assert not shared.ended  # it has, and is to get some: a cooperative rebalance comes in two steps
    shared.rebalanced(0, "gives back", [2], {0, 1})
    assert not shared.ended
    shared.rebalanced(1, "gets", [2], {2})
    assert shared.ended

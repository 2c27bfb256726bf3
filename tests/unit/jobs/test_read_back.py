from __future__ import annotations

import json
from typing import Any

import pytest

import read_back as job
from record_digest import Record

NEEDED = ["--bootstrap-servers", "localhost:9092", "--topic", "t"]


@pytest.mark.parametrize(
    ("text", "start"), [("committed",) * 2, ("beginning",) * 2, ("0:5", {0: 5}), ("3:0,12:700", {3: 0, 12: 700})]
)
def test_where_to_start(text: str, start: Any) -> None:
    assert job.parse([*NEEDED, "--group", "g", "--from", text]).start == start


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


def test_a_record_is_a_line_of_json() -> None:
    record = Record(key="schlüssel".encode(), value=b"a\n\xff", headers=(("h", None), ("h", b"1")), timestamp_ms=7)
    line = job.json_line((2, 40, record))
    assert "\n" not in line
    assert json.loads(line) == {
        "partition": 2, "offset": 40, "timestamp": 7, "key": "schlüssel", "headers": [["h", None], ["h", "1"]],
        "value": {"hex": "610aff"},
    }  # fmt: skip


def group(members: int = 2, *, follow: bool = False) -> tuple[job.Group, list[job.Placed]]:
    seen: list[job.Placed] = []
    return job.Group("t", [0, 1, 2], {0: 5, 1: 6}, seen.append, members=members, follow=follow), seen


RECORD = Record(None, b"v", (), 0)


def test_a_given_offset_holds_until_somebody_has_read_from_there() -> None:
    shared, seen = group()
    shared.read((0, 5, RECORD))
    assert seen == [(0, 5, RECORD)]
    assert shared.starts == {1: 6}


def test_owners_are_told_when_every_partition_has_one_again(capsys: pytest.CaptureFixture[str]) -> None:
    shared, _ = group()
    shared.rebalanced(0, "gets", [0, 1, 2], {0, 1, 2})
    shared.rebalanced(0, "gives back", [2], {0, 1})
    shared.rebalanced(1, "gets", [2], {2})
    assert capsys.readouterr().err.splitlines() == [
        "member 0 gets 0 1 2", "owners: member 0: 0 1 2", "member 0 gives back 2", "member 1 gets 2",
        "owners: member 0: 0 1, member 1: 2",
    ]  # fmt: skip


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


def test_with_more_members_than_partitions_some_get_none() -> None:
    shared, _ = group(members=4)
    for partition in (0, 1, 2):
        shared.read_to_end(partition)
        shared.rebalanced(partition, "gets", [partition], {partition})
    assert not shared.ended
    shared.rebalanced(3, "gets", [], set())
    assert shared.ended


def test_follow_goes_on_at_the_end() -> None:
    shared, _ = group(members=1, follow=True)
    shared.rebalanced(0, "gets", [0, 1, 2], {0, 1, 2})
    for partition in (0, 1, 2):
        shared.read_to_end(partition)
    assert not shared.ended

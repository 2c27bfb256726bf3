"""The source archive has the same bytes, whoever packed it, when and in which order."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from release.source import release_time, without_origin

NAMES = ("p-1/b.py", "p-1/a.py", "p-1/a-b.py")
TIME = 1_700_000_000


def archive(names: Sequence[str], *, time: int, user: int, mode: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as target:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.uname, member.mode = len(name), time, user, f"u{user}", mode
            target.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_time_owner_mode_and_order_leave_no_trace_and_contents_stay() -> None:
    one = archive(NAMES, time=5, user=0, mode=0o600)
    other = archive(NAMES[::-1], time=7, user=1000, mode=0o755)
    packed = without_origin(one, TIME)
    assert one != other
    assert packed == without_origin(other, TIME)
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        members = files.getmembers()
        assert [member.name for member in members] == sorted(NAMES)
        assert {(member.mtime, member.mode, member.uid, member.uname) for member in members} == {(TIME, 0o644, 0, "")}
        for member in members:
            content = files.extractfile(member)
            assert content is not None and content.read() == member.name.encode()


def test_the_time_of_the_caller_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "17")
    assert release_time(tmp_path) == 17

"""kafka_sink.broker.storage: a full disk and an unusable folder, told apart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka_sink.broker.errors import DirectoryUnusable, DiskFull
from kafka_sink.broker.storage import tells_of_full_disk, writing_to


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_without_space() -> None:
    refused = pytest.raises(DiskFull, match=r"no space left .* in /some/where")
    with refused as raised, writing_to(Path("/some/where")), open("/dev/full", "w") as full:
        full.write("x")
    assert raised.value.directory == "/some/where"
    assert isinstance(raised.value.__cause__, OSError)


def test_a_process_without_files_is_no_matter_of_the_folder() -> None:
    with pytest.raises(OSError, match="Too many open files"), writing_to(Path("/d")):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_quota() -> None:
    with pytest.raises(DiskFull), writing_to(Path("/d")):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(DirectoryUnusable, match=r"cannot be used by the local broker: .*irectory")
    with refused, writing_to(tmp_path / "file"):
        (tmp_path / "file" / "below").mkdir()


def test_what_java_says_of_a_full_disk() -> None:
    assert tells_of_full_disk("ERROR Error while writing\njava.io.IOException: No space left on device")
    assert tells_of_full_disk(
        "java.lang.InternalError: a fault occurred in a recent unsafe memory access operation in compiled Java code"
    )
    assert not tells_of_full_disk("java.io.IOException: Permission denied")

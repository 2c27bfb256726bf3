"""kafka_sink.broker.storage: a full disk and an unusable folder, told apart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka_sink.broker.errors import DirectoryUnusable, DiskFull
from kafka_sink.broker.storage import tells_of_full_disk, writing_to


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (errno.ENOSPC, DiskFull, "no space left .* in /some/where"),
        (errno.EDQUOT, DiskFull, "no space left .* in /some/where"),
        (errno.ENOTDIR, DirectoryUnusable, "cannot be used by the local broker: .*irectory"),
        # No matter of the folder.
        (errno.EMFILE, OSError, "Too many open files"),
    ],
)
def test_an_error_of_the_system_in_a_folder(number: int, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised, writing_to(Path("/some/where")):
        raise OSError(number, os.strerror(number))
    if isinstance(raised.value, DiskFull):
        assert raised.value.directory == "/some/where"
        assert isinstance(raised.value.__cause__, OSError)


def test_what_java_says_of_a_full_disk() -> None:
    assert tells_of_full_disk("ERROR Error while writing\njava.io.IOException: No space left on device")
    assert tells_of_full_disk(
        "java.lang.InternalError: a fault occurred in a recent unsafe memory access operation in compiled Java code"
    )
    assert not tells_of_full_disk("java.io.IOException: Permission denied")

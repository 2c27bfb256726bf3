"""Where an export's receipt is, by its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_sink.errors import ReceiptsPathUnusable
from kafka_sink.exporting.receipt_place import place_of
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.verification.receipt_file import columns_of

# Nobody is asked where the file is on the same machine.
NO_SPARK: Any = None


def config(**options: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", **options})


def test_a_folder_nobody_asked_for_is_gone_afterwards_or_on_the_server() -> None:
    with place_of(config(), is_remote=False) as place:
        assert place.is_temporary and Path(place.folder).is_dir()
        Path(place.folder, "x").touch()
    assert not Path(place.folder).exists()
    with place_of(config(), is_remote=True) as one, place_of(config(), is_remote=True) as other:
        assert one.is_temporary and one.folder != other.folder
        assert not Path(one.folder).exists()


def test_a_host_without_room_for_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(ReceiptsPathUnusable) as raised, place_of(config(), is_remote=False):
        pass
    assert (raised.value.path, raised.value.reason) == (str(tmp_path / "gone"), "No such file or directory")


def test_a_folder_that_was_asked_for_stays_and_two_exports_into_it_are_told_apart(tmp_path: Path) -> None:
    asked = config(receiptsPath=str(tmp_path))
    with place_of(asked, is_remote=False) as one, place_of(asked, is_remote=False) as other:
        assert one.path != other.path and not one.is_temporary
    assert tmp_path.is_dir()


def test_what_is_there_is_read_and_nothing_where_nothing_is(tmp_path: Path) -> None:
    runs = columns_of([{"topic": "t", "rows": 7, "record_count": 7}])
    with place_of(config(receiptsPath=str(tmp_path)), is_remote=False) as place:
        assert place.read(NO_SPARK).num_rows == 0
        Path(place.path).parent.mkdir()
        pq.write_table(runs, place.path)
        assert place.read(NO_SPARK).equals(runs)

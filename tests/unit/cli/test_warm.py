"""`pykafka warm`, on an archive like pyspark's: which modules a Python takes from it then."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from kafka_sink.cli import warm
from kafka_sink.doctor import pyspark_archives
from kafka_sink.doctor.pyspark_archives import compile_archive, compiles_pyspark, is_compiled

SOURCES = {"pyspark/__init__.py": "x = 1\n", "pyspark/daemon.py": "x = 2\n", "pyspark/py.typed": ""}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    library = tmp_path / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    with zipfile.ZipFile(library / "pyspark.zip", "w") as opened:
        for name, text in SOURCES.items():
            opened.writestr(name, text)
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(library / "pyspark.zip"), str(tmp_path)])
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return library / "pyspark.zip"


def loaded(archive: Path) -> list[str]:
    """The file and the value of a module that another process takes from `archive`."""
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import pyspark.daemon as d; print(d.__file__, d.x)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def entries(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_a_python_takes_the_compiled_modules_until_they_are_removed(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = entries(archive)
    for arguments, told, suffix in [
        ([], "2 modules compiled", "pyc"), ([], "compiled already", "pyc"),
        (["--undo"], "2 compiled modules removed", "py"), (["--undo"], "0 compiled modules removed", "py"),
    ]:  # fmt: skip
        assert warm.main(arguments) == 0
        assert capsys.readouterr().out == f"{archive}: {told}\n"
        assert loaded(archive) == [f"{archive}/pyspark/daemon.{suffix}", "2"]
    assert entries(archive) == before
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]


def test_what_is_of_another_python_or_of_another_source_is_not_taken_for_compiled(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark_archives, "MAGIC_NUMBER", b"\x01\x02\r\n")
    compile_archive(archive)
    assert loaded(archive) == [f"{archive}/pyspark/daemon.py", "2"]
    monkeypatch.undo()
    assert not is_compiled(archive)
    assert compile_archive(archive) == 2
    assert loaded(archive)[0].endswith(".pyc")
    stale = entries(archive) | {"pyspark/daemon.py": b"x = 3\n"}
    with zipfile.ZipFile(archive, "w") as opened:
        for name, data in stale.items():
            opened.writestr(name, data)
    assert compile_archive(archive) == 2
    assert loaded(archive)[1] == "3"


def test_a_running_python_finds_the_sources_where_they_were(archive: Path) -> None:
    before = archive.read_bytes()
    end = before.index(b"PK\x01\x02")  # of the entries
    compile_archive(archive)
    assert archive.read_bytes()[:end] == before[:end]


def test_a_spark_of_another_place_is_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert warm.main([]) == 1
    assert "SPARK_HOME is /opt/spark, which is not the pyspark of this Python" in capsys.readouterr().err
    assert not is_compiled(archive)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "pyspark"))
    assert warm.main([]) == 0


def test_without_pyspark_or_with_a_broken_archive_nothing_is_changed(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write_bytes(b"no archive")
    assert warm.main([]) == 1
    assert f"{archive} was not changed: File is not a zip file" in capsys.readouterr().err
    assert archive.read_bytes() == b"no archive"
    archive.unlink()
    assert warm.main([]) == 1
    assert "no pyspark of pip" in capsys.readouterr().err


def test_a_process_knows_that_it_compiles(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compiles_pyspark()
    for name, compiles in (("__init__.py", True), ("__init__.pyc", False)):
        monkeypatch.setattr(pyspark, "__file__", f"{archive}/pyspark/{name}")
        assert compiles_pyspark() is compiles

"""`pykafka check`, `explain` and `warm`: lines, statuses and words. What a check finds: `unit/doctor`."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from effort import each
from kafka_sink.cli import check, warm
from kafka_sink.cli.check import main as check_main
from kafka_sink.cli.error_catalogue import example
from kafka_sink.cli.explain import ERRORS, main
from kafka_sink.doctor import pyspark_archives
from kafka_sink.doctor.pyspark_archives import compile_archive, compiles_pyspark, is_compiled
from kafka_sink.doctor.report import Report, Verdict, failed, ok, warning
from kafka_sink.errors import UnknownOption
from kafka_sink.options.config import SinkConfig
from kafka_sink.options.table import OPTIONS, REFUSED

OK, FAILED, WRONG_USAGE = 0, 1, 2
SERVERS = ("--option", "kafka.bootstrap.servers=b:9092")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    verdicts: list[Verdict] = []
    monkeypatch.setattr(check, "examine", lambda config: Report(tuple(verdicts)))
    return verdicts


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--topic", "t"], ["--option", "x"], [*SERVERS, "--option", "kafka.ack=1"], ["--preset", "none"],
        *([*SERVERS, "--checkpoint", "c", "--wait", each] for each in ("-1", "nan", "inf", "1 s")),
        [*SERVERS, "--read", "--option", "subscribe=t", "--checkpoint", "c"],
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused(arguments: list[str], found: list[Verdict]) -> None:
    try:
        assert check_main(arguments) == WRONG_USAGE
    except SystemExit as ended:
        assert ended.code == WRONG_USAGE


def test_warnings_are_no_failure(found: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    found += [Verdict("dns", "b:9092", ok("10.0.0.1")), Verdict("acks", "topic t", warning("acks=1", "set all"))]
    assert check_main(SERVERS) == OK
    assert "1 OK, 1 WARNING" in capsys.readouterr().out
    found.append(Verdict("tcp", "b:9092", failed("refused", "check the port")))
    assert check_main(SERVERS) == FAILED
    assert "to fix it: check the port" in capsys.readouterr().out
    assert check_main([*SERVERS, "--json"]) == FAILED
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["verdicts"][2]["remedy"] == "check the port"


def test_spark_adds_what_executors_see(
    found: list[Verdict], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    masters: list[str] = []

    def from_spark(config: SinkConfig, master: str) -> Report:
        masters.append(master)
        return Report((Verdict("tcp", "b:9092", failed("refused", "open it"), seen_from="worker-7"),))

    monkeypatch.setattr(check, "from_spark", from_spark)
    assert check_main([*SERVERS, "--spark"]) == FAILED
    assert check_main([*SERVERS, "--spark", "local[2]"]) == FAILED
    assert masters == ["", "local[2]"]
    assert "worker-7" in capsys.readouterr().out
    assert check_main(SERVERS) == OK


def test_it_runs_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["check", "--option", "kafka.bootstrap.servers=localhost:1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kafka_sink.check", run_name="__main__")
    assert ended.value.code == FAILED


def said(capsys: pytest.CaptureFixture[str], *names: str) -> str:
    assert main(names) == 0
    return capsys.readouterr().out


def test_an_option_has_its_default_and_its_meaning_and_all_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "kafka.linger.ms  (default 100)" in said(capsys, "KAFKA.linger.ms")
    assert "createTopics  (default false)" in said(capsys, "createtopics")
    listed = set(re.findall(r"[\w.]+", said(capsys)))
    assert {option.name for option in OPTIONS} | ERRORS.keys() <= listed


def test_a_part_of_a_name_finds_all_and_a_whole_name_comes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "timeout")
    assert "kafka.request.timeout.ms" in found and "DeliveryTimeout" in found
    lines = said(capsys, "topic").splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == ["topic  (default none)"]


@each("name", REFUSED)
def test_a_refused_name_has_what_to_do_instead(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(said(capsys, name).split())
    assert found == f"{name} (refused) {' '.join(REFUSED[name].split())}"


@each("name", ERRORS)
def test_an_error_has_its_whole_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(said(capsys, name).split())
    assert " ".join(str(example(ERRORS[name])).split()) in found


def test_a_name_that_is_in_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka.nonsense", "TornBatch"]) == 1
    ended = capsys.readouterr()
    assert "'kafka.nonsense' is neither an option nor an error" in ended.err
    assert ended.out.startswith("TornBatch\n")


def test_errors_name_no_page_that_pip_does_not_install() -> None:
    texts = [str(example(cls)) for cls in ERRORS.values()]
    assert [text for text in texts if "docs/" in text or ".md" in text] == []
    assert "`pykafka explain`" in str(UnknownOption(option="x"))


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
    """A Python that runs finds the sources where they were."""
    before, of_sources = entries(archive), archive.read_bytes().partition(b"PK\x01\x02")[0]
    for arguments, told, suffix in [
        ([], "2 modules compiled", "pyc"), ([], "compiled already", "pyc"),
        (["--undo"], "2 compiled modules removed", "py"), (["--undo"], "0 compiled modules removed", "py"),
    ]:  # fmt: skip
        assert warm.main(arguments) == 0
        assert capsys.readouterr().out == f"{archive}: {told}\n"
        assert loaded(archive) == [f"{archive}/pyspark/daemon.{suffix}", "2"]
        assert suffix == "py" or archive.read_bytes().startswith(of_sources)
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

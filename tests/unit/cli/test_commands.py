"""`pykafka` and its `check`, `explain`, `warm`: lines, statuses, words; a checkpoint's folder, how far a source is."""

import argparse
import json
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyarrow.fs import LocalFileSystem

from effort import each
from kafka_sink.__main__ import COMMANDS, main
from kafka_sink.cli import check, checkpoint, warm
from kafka_sink.cli.check import main as check_main
from kafka_sink.cli.checkpoint import Checkpoint, Log, PartitionProgress, SourceOffsets, TopicProgress, topic_progress
from kafka_sink.cli.explain import ERRORS, example
from kafka_sink.cli.explain import main as explain_main
from kafka_sink.command_line import assignment, preset, run_to_the_end
from kafka_sink.commit.markers import Decision, Ids
from kafka_sink.doctor import interpreter
from kafka_sink.doctor.interpreter import compile_archive, compiles_pyspark, is_compiled
from kafka_sink.doctor.report import Report, Verdict, failed, ok, warning
from kafka_sink.errors import UnknownOption
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import SinkConfig
from kafka_sink.options.reading import READING
from kafka_sink.options.table import REFUSED, WRITING

OK, FAILED, WRONG_USAGE = 0, 1, 2
SERVERS = ("--option", "kafka.bootstrap.servers=b:9092")
SOURCES = {
    "pyspark/__init__.py": "x = 1\n", "pyspark/daemon.py": "x = 2\n", "pyspark/py.typed": "",
    "pyspark/sql/tests/test_daemon.py": "x = 3\n",
}  # fmt: skip
QUERY = "7e1c"
METADATA = '{"batchWatermarkMs":0,"conf":{"a":"b"}}'


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    verdicts: list[Verdict] = []
    monkeypatch.setattr(check, "examine", lambda config: Report(tuple(verdicts)))
    return verdicts


@pytest.mark.parametrize("arguments", [
    [], ["--topic", "t"], ["--option", "x"], [*SERVERS, "--option", "kafka.ack=1"], ["--preset", "none"],
    *([*SERVERS, "--checkpoint", "c", "--wait", each] for each in ("-1", "nan", "inf", "1 s")),
    [*SERVERS, "--read", "--option", "subscribe=t", "--checkpoint", "c"],
])  # fmt: skip
def test_a_wrong_line_is_refused(arguments: list[str], found: list[Verdict]) -> None:
    try:
        assert check_main(arguments) == WRONG_USAGE
    except SystemExit as ended:
        assert ended.code == WRONG_USAGE


def test_warnings_are_no_failure(found: list[Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    found += [Verdict("dns", "b:9092", ok("10.0.0.1")), Verdict("acks", "topic t", warning("acks=1", "set all"))]
    assert check_main(SERVERS) == OK
    assert "2 OK, 1 WARNING" in capsys.readouterr().out
    found.append(Verdict("tcp", "b:9092", failed("refused", "check the port")))
    assert check_main(SERVERS) == FAILED
    assert "to fix it: check the port" in capsys.readouterr().out
    assert check_main([*SERVERS, "--json"]) == FAILED
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["verdicts"][3]["remedy"] == "check the port"


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
    monkeypatch.setattr(sys, "argv", ["pykafka", "check", "--option", "kafka.bootstrap.servers=localhost:1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("kafka_sink", run_name="__main__")
    assert ended.value.code == FAILED


def said(capsys: pytest.CaptureFixture[str], *names: str) -> str:
    assert explain_main(names) == 0
    return capsys.readouterr().out


def test_an_option_has_its_default_and_its_meaning_and_all_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "kafka.linger.ms  (default 100)" in said(capsys, "KAFKA.linger.ms")
    assert "createTopics  (default false)" in said(capsys, "createtopics")
    listed = set(re.findall(r"[\w.]+", said(capsys)))
    assert {option.name for option in (*WRITING.options, *READING.options)} | ERRORS.keys() <= listed


def test_an_option_of_reads_is_told_as_one_and_a_refused_prefix_finds_its_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "startingOffsets  (of reads, default none)" in said(capsys, "startingoffsets")
    both = said(capsys, "includeHeaders")
    assert "includeHeaders  (default true)" in both and "includeHeaders  (of reads, default false)" in both
    assert said(capsys, "kafka.metrics.recording.level").startswith("kafka.metrics.*  (refused)")


def test_a_part_of_a_name_finds_all_and_a_whole_name_comes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "timeout")
    assert "kafka.request.timeout.ms" in found and "DeliveryTimeout" in found
    lines = said(capsys, "topic").splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == ["topic  (default none)"]


@each("name", REFUSED)
def test_a_refused_name_has_what_to_do_instead(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(said(capsys, name).split())
    assert re.search(rf"{re.escape(name)} \(refused( by writes)?\) {re.escape(' '.join(REFUSED[name].split()))}", found)


@each("name", ERRORS)
def test_an_error_has_its_whole_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(said(capsys, name).split())
    assert " ".join(str(example(ERRORS[name])).split()) in found


def test_a_name_that_is_in_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_main(["kafka.nonsense", "TornBatch"]) == 1
    ended = capsys.readouterr()
    assert "'kafka.nonsense' is neither an option nor an error" in ended.err
    assert ended.out.startswith("TornBatch\n")


def test_errors_name_no_page_that_pip_does_not_install() -> None:
    texts = [str(example(cls)) for cls in ERRORS.values()]
    assert [text for text in texts if "docs/" in text or ".md" in text] == []
    assert "`pykafka explain`" in str(UnknownOption(option="x"))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = archive_in(tmp_path / "pyspark" / "python" / "lib")
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(made), str(tmp_path)])
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return made


def archive_in(library: Path) -> Path:
    library.mkdir(parents=True)
    with zipfile.ZipFile(library / "pyspark.zip", "w") as opened:
        for name, text in SOURCES.items():
            opened.writestr(name, text)
    return library / "pyspark.zip"


def loaded(archive: Path) -> list[str]:
    """The file and the value of a module that another process takes from `archive`."""
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import pyspark.daemon as d; print(d.__file__, d.x)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def entries(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_compiled_modules_are_taken_until_they_are_removed(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    monkeypatch.setattr(interpreter, "MAGIC_NUMBER", b"\x01\x02\r\n")
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


def test_the_archive_of_a_cluster_s_spark_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Spark's own folder pyspark and its archive are side by side. Another zip there is not Spark's."""
    of_spark, other = archive_in(tmp_path / "python" / "lib"), tmp_path / "python" / "lib" / "other.zip"
    shutil.copy(of_spark, other)
    (tmp_path / "python" / "pyspark").mkdir()
    (tmp_path / "python" / "pyspark" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(of_spark), str(tmp_path / "python")])
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert warm.main([]) == 0
    assert capsys.readouterr().out == f"{of_spark}: 2 modules compiled\n"
    assert (is_compiled(of_spark), is_compiled(other)) == (True, False)


def test_without_pyspark_or_with_a_broken_archive_nothing_is_changed(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write_bytes(b"no archive")
    assert warm.main([]) == 1
    assert f"{archive} was not changed: File is not a zip file" in capsys.readouterr().err
    assert archive.read_bytes() == b"no archive"
    archive.unlink()
    assert warm.main([]) == 1
    assert "no pyspark that has archives" in capsys.readouterr().err


def test_a_process_knows_that_it_compiles(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compiles_pyspark()
    for name, compiles in (("__init__.py", True), ("__init__.pyc", False)):
        monkeypatch.setattr(pyspark, "__file__", f"{archive}/pyspark/{name}")
        assert compiles_pyspark() is compiles


def checkpoint_in(folder: Path, **logs: dict[str, str]) -> Path:
    for log, files in logs.items():
        (folder / log).mkdir(parents=True)
        for name, text in files.items():
            (folder / log / name).write_text(text)
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    return folder


def decided(micro_batch_id: int, query_id: str = QUERY) -> Decision:
    return Decision(micro_batch_id, query_id, Ids(1, 0), 2, 0, (Ids(2, 0),))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["orders", "check point ü", "a%20b#?"])
def test_the_last_of_each_log_counts_by_number(tmp_path: Path, name: str, scheme: str) -> None:
    """Spark takes each character of a location as it is."""
    offsets, commits = (dict.fromkeys(names.split(), "v1") for names in ("8 9 10 .10.crc 11.tmp", "8 9 notes"))
    folder = checkpoint_in(tmp_path / name, offsets=offsets, commits=commits)
    (folder / "offsets" / "12").mkdir()
    assert checkpoint.read_checkpoint(f"{scheme}{folder}") == Checkpoint(QUERY, planned=10, recorded=9)


@pytest.mark.parametrize(("location", "uri"), [
    ("s3a://bucket/a%20b ü", "s3://bucket/a%2520b%20%C3%BC"), ("gs://bucket/a%b", "gs://bucket/a%25b"),
    ("s3://k:s%2F@bucket/a%20b?endpoint_override=h%3A1", "s3://k:s%2F@bucket/a%2520b?endpoint_override=h%3A1"),
])  # fmt: skip
def test_a_checkpoint_elsewhere_is_where_spark_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, uri: str
) -> None:
    asked, folder = list[str](), checkpoint_in(tmp_path, offsets={"0": "v1"})

    def opened(uri: str) -> tuple[LocalFileSystem, str]:
        asked.append(uri)
        return LocalFileSystem(), str(folder)

    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=opened))
    assert checkpoint.read_checkpoint(location).planned == 0
    assert asked == [uri]


def test_a_query_that_has_just_begun_has_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError):
        checkpoint.read_checkpoint(str(tmp_path))
    (tmp_path / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    monkeypatch.chdir(tmp_path.parent)
    assert checkpoint.read_checkpoint(tmp_path.name) == Checkpoint(QUERY, planned=None, recorded=None)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{"])
def test_a_location_that_cannot_be_opened_and_a_folder_without_a_query_are_oserrors(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text(text)
    with pytest.raises(OSError, match="no query id"):
        checkpoint.read_checkpoint(str(tmp_path))
    for location in ("gopher://a/b", "hdfs://a b/c", "s3a://"):
        with pytest.raises(OSError):
            checkpoint.read_checkpoint(location)


@pytest.mark.parametrize(("recorded", "planned"), [
    (f'v1\n{METADATA}\n{{"t":{{"0":5}}}}\n-', f'v1\n{METADATA}\n{{"t":{{"0":9}}}}\n{{"logOffset":3}}'),
    (f'v2\n{METADATA}\n0:{{"t":{{"0":5}}}}\n', f'v2\n{METADATA}\n1:{{"logOffset":3}}\n0:{{"t":{{"0":9}}}}\n'),
])  # fmt: skip
def test_offsets_of_sources_are_those_of_both_micro_batches(tmp_path: Path, recorded: str, planned: str) -> None:
    folder = checkpoint_in(tmp_path, offsets={"7": recorded, "8": planned})
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=8, recorded=7)) == {
        "0": SourceOffsets('{"t":{"0":5}}', '{"t":{"0":9}}'), "1": SourceOffsets(None, '{"logOffset":3}')
    }  # fmt: skip
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=7, recorded=None)) == {
        "0": SourceOffsets(None, '{"t":{"0":5}}')
    }
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=None, recorded=None)) == {}


def test_sources_are_those_that_the_planned_micro_batch_names(tmp_path: Path) -> None:
    """As Spark 4.3 writes them: one source was left out, and another has no offsets yet."""
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{},"sourceMetadataInfo":{}}'
    folder = checkpoint_in(tmp_path, offsets={
        "7": f'v2\n{metadata}\nreturns:{{"r":{{"0":5}}}}\norders:{{"t":{{"0":5}}}}',
        "8": f'v2\n{metadata}\nrefunds:-\norders:{{"t":{{"0":9}}}}',
    })  # fmt: skip
    assert checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=8, recorded=7)) == {
        "orders": SourceOffsets('{"t":{"0":5}}', '{"t":{"0":9}}')
    }
    sinks = '{"a":{"sinkName":"a","commitOffset":"-","providerName":"p","apiVersion":"v2","isActive":true}}'
    checkpoint_in(tmp_path, commits={"7": f'v3\n{{"nextBatchWatermarkMs":0,"sinkMetadataMap":{sinks}}}'})
    assert checkpoint.read_checkpoint(str(folder)) == Checkpoint(QUERY, planned=8, recorded=7)


@pytest.mark.parametrize(("text", "words"), [
    ("", "another format than v1 and v2"), ("v3\n{}\n{}", "another format than v1 and v2"),
    (f"v1\n{METADATA}\n".ljust(checkpoint.MAX_OFFSETS_BYTES + 1), "more than 16,777,216 bytes"),
])  # fmt: skip
def test_a_log_of_offsets_that_cannot_be_read_is_an_oserror(tmp_path: Path, text: str, words: str) -> None:
    folder = checkpoint_in(tmp_path, offsets={"7": text})
    with pytest.raises(OSError, match=f"offsets/7 has {words}"):
        checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=7, recorded=None))
    with pytest.raises(FileNotFoundError):
        checkpoint.read_sources(str(folder), Checkpoint(QUERY, planned=8, recorded=None))


def test_both_together() -> None:
    for planned, recorded, decision, words in (
        (None, None, None, "no micro-batch was planned yet"),
        (0, None, None, "micro-batch 0 planned, none recorded; nothing was decided. Either the query does not write"),
        (0, None, decided(9, "another"), "another query's micro-batch was decided. Either the query"),
        (7, 7, decided(7), "in step with the sink"),
        (7, 6, decided(7), "decided and not recorded yet. A start finds its rows visible"),
        (8, 7, decided(7), "being written, or the query ended while it was written. A start writes it"),
        (5, 5, decided(7), "2 behind the sink: an older copy of the checkpoint. A start from it stops with Checkp"),
        (9, 9, decided(7), "2 ahead of the sink"),
    ):
        assert words in checkpoint.compared(Checkpoint(QUERY, planned, recorded), decision)


@pytest.mark.parametrize(("position", "planned", "log", "told"), [
    pytest.param(20, 25, Log(0, 100, 100), {"behind": 80, "planned": 5}, id="what the log has after its position"),
    pytest.param(100, 100, Log(0, 100, 100), {}, id="nothing"),
    pytest.param(100, None, Log(100, 100, 100), {}, id="nothing of an empty log"),
    pytest.param(20, 20, Log(0, 70, 100), {"behind": 80, "unstable": 30}, id="a part behind open transactions"),
    pytest.param(90, 90, Log(0, 70, 100), {"behind": 10, "unstable": 10}, id="all behind open transactions"),
    pytest.param(20, 20, Log(50, 100, 100), {"behind": 80, "deleted": 30}, id="retention has overtaken it"),
    pytest.param(50, 50, Log(50, 100, 100), {"behind": 50}, id="retention is at it"),
    pytest.param(20, 20, Log(100, 100, 100), {"behind": 80, "deleted": 80}, id="DeleteRecords up to the end"),
    pytest.param(50, 50, Log(0, 10, 10), {"ahead": 40}, id="the log ends before the position"),
])  # fmt: skip
def test_a_partition_is_behind_by_what_the_log_has_after_its_position(
    position: int, planned: int | None, log: Log, told: dict[str, int]
) -> None:
    logs = {TopicPartition("t", 0): log}
    found = topic_progress("t", {0: position}, {} if planned is None else {0: planned}, logs)
    nothing = PartitionProgress(0, position, behind=0, planned=0, unstable=0, deleted=0, ahead=0)
    assert found.partitions == (replace(nothing, **told),)


def test_a_new_partition_is_read_from_its_earliest_offset_and_what_is_not_told_is_named() -> None:
    logs = {TopicPartition("t", number): Log(3, 10, 10) for number in range(2)} | {TopicPartition("u", 0): Log(0, 9, 9)}
    found = topic_progress("t", {0: 10}, {0: 10, 1: 5}, logs)
    assert [(each.position, each.behind, each.planned) for each in found.partitions] == [(10, 0, 0), (3, 7, 2)]
    assert (found.behind, found.planned, found.slowest) == (7, 2, found.partitions[1])
    untold = {TopicPartition("t", 0): Log(0, 10, 10), TopicPartition("t", 1): None}
    found = topic_progress("t", {0: 10, 1: 5, 2: 7}, {}, untold)
    assert (len(found.partitions), found.not_looked_at, found.gone, found.slowest) == (1, (1,), (2,), None)
    assert topic_progress("u", {0: 10}, {}, untold) == TopicProgress("u", (), gone=(0,))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_under_its_own_name_that_fits_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
        said = capsys.readouterr().out
        assert said.startswith(f"usage: pykafka {command}")
        assert "\nexamples:\n    pykafka " in said and "exit status: 0" in said
        text = [line for line in said.splitlines() if not line.startswith(" ")]
        assert max(len(line) for line in text if "with --json" not in line) <= columns


def test_a_command_that_there_is_not_names_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["chekc"])
    assert end.value.code == 2
    assert "'check', 'read', 'verify'" in capsys.readouterr().err


def test_the_exit_status_is_the_commands_and_control_c_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "kafka.bootstrap.servers" in capsys.readouterr().err

    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run_to_the_end(interrupted) == 130


def test_version_for_people_and_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    origin = found.pop("pyspark_from")
    assert {name: version or "not installed" for name, version in found.items()} == lines | {
        "pyspark": found["pyspark"]
    }
    assert lines["pyspark"] == f"{found['pyspark']}, {origin}"
    assert lines["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("text", ["", "kafka.acks", "=all"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="KEY=VALUE"):
        assignment(text)


@pytest.mark.parametrize(("text", "words"), [
    ("kafka.acks all secret", "line 1 is not"), ("a = 1\nA = secret", "line 2 sets A again"),
])  # fmt: skip
def test_a_line_that_is_wrong_is_told_without_its_text(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "some.conf"
    with pytest.raises(argparse.ArgumentTypeError, match="No such file"):
        preset(str(file))
    file.write_text(text)
    with pytest.raises(argparse.ArgumentTypeError, match=words) as raised:
        preset(str(file))
    assert "secret" not in str(raised.value)

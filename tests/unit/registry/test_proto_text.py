"""What protoc makes of the text of a .proto file, and what is said where it cannot."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry.proto_text import compiled
from registry_rows import ORDER


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_text_is_compiled_to_its_file_alone(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = FileDescriptorProto.FromString(compiled(ORDER))
    assert (file.package, file.syntax) == ("shop", "proto3")
    assert [message.name for message in file.message_type] == ["Order", "Other"]
    assert {field.name: field.number for field in file.message_type[0].field} == {"id": 1, "day": 4, "at": 7}
    assert list(file.dependency) == ["google/type/date.proto", "google/protobuf/timestamp.proto"]
    assert list(scratch.iterdir()) == [] and capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('syntax = "proto3";\nmessage M { int32 a = 0; }', r"schema\.proto:2:"),
        ('syntax = "proto3"; import "shop/line.proto"; message M {}', r"shop/line\.proto"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_with_its_line(
    text: str, words: str, scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SchemaUnreadable, match=words) as refused:
        compiled(text)
    assert str(scratch) not in str(refused.value)
    assert list(scratch.iterdir()) == [] and capfd.readouterr() == ("", "")


def test_a_host_without_room_for_a_file_is_named(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(scratch / "gone"))
    with pytest.raises(SchemaUnreadable, match=r"temporary files \(TMPDIR\): No such file or directory"):
        compiled(ORDER)


PLANTED = "from pathlib import Path\nPath(__file__).parent.with_name('was_run').touch()\n"


@pytest.mark.parametrize("here", ["", ".", None])
def test_no_module_of_the_working_directory_is_run(
    here: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    for name in ("grpc_tools", "google", "pkg_resources"):
        (work / name).mkdir(parents=True)
        for module in ("__init__.py", "protoc.py"):
            (work / name / module).write_text(PLANTED)
    monkeypatch.chdir(work)
    # As in a shell, a notebook, or `python -m`; and where the environment says it.
    monkeypatch.setattr(sys, "path", [*([] if here is None else [here]), str(work), *sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert FileDescriptorProto.FromString(compiled('syntax = "proto3"; message M {}')).message_type[0].name == "M"
    assert not (work / "was_run").exists()


def test_a_compiler_of_the_working_directory_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grpc_tools").mkdir()
    (tmp_path / "grpc_tools" / "__init__.py").write_text(PLANTED)
    monkeypatch.chdir(tmp_path)
    elsewhere = [place for place in sys.path if not Path(place, "grpc_tools").exists()]
    monkeypatch.setattr(sys, "path", ["", *elsewhere])
    with pytest.raises(SchemaUnreadable, match="pip install grpcio-tools"):
        compiled('syntax = "proto3"; message M {}')
    assert not (tmp_path / "was_run").exists()


def test_a_compiler_that_does_not_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_sink.registry.proto_text.TIMEOUT_S", 0.001)
    with pytest.raises(SchemaUnreadable, match=r"did not end within 0\.001 s") as refused:
        compiled('syntax = "proto3"; message M {}')
    assert refused.value.__suppress_context__

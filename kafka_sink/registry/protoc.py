"""Compiles the text of a .proto file with protoc of grpcio-tools, in a process of its own.

protoc writes its errors to stderr. Modules in the working directory never run: they are neither searched nor on that
process's path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry.forms import extra

FORM = "Protobuf"
PROTO_FILE = "schema.proto"
PROTOC_TIMEOUT_S = 60


def compiled(text: str) -> bytes:
    """Return a serialized FileDescriptorProto. The text may import files of google/protobuf and google/type.

    Raises SchemaUnreadable with protoc's message, or if grpcio-tools is not installed.
    """
    if PathFinder.find_spec("grpc_tools", _module_path()) is None:
        reason = (
            "it is not a FileDescriptorProto in base64, and to compile the text of a .proto file takes protoc: pip "
            "install grpcio-tools, on the driver. Or give the message class that protoc has made of it, or register it "
            "and set use.latest.version=true"
        )
        raise SchemaUnreadable(form=FORM, reason=reason)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _compiled_in(folder, text)
    except OSError as error:
        reason = f"protoc cannot run in a folder for temporary files (TMPDIR): {error.strerror or error}"
        raise SchemaUnreadable(form=FORM, reason=reason) from error


def _compiled_in(folder: str, text: str) -> bytes:
    Path(folder, PROTO_FILE).write_text(text, encoding="utf-8")
    known = Path(extra("google.type.date_pb2").__file__).parents[2]
    arguments = ["grpc_tools.protoc", f"-I{folder}", f"-I{known}", f"--descriptor_set_out={folder}/set", PROTO_FILE]
    # -P and cwd: `-m`, or an empty entry in PYTHONPATH, would put the working directory first.
    command = [sys.executable, "-P", "-m", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_module_path())}
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROTOC_TIMEOUT_S, cwd=folder,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SchemaUnreadable(form=FORM, reason=f"protoc did not end within {PROTOC_TIMEOUT_S} s") from None
    errors = ran.stderr.replace(f"{folder}/", "").strip()
    if ran.returncode:
        raise SchemaUnreadable(form=FORM, reason=errors or "protoc gives no reason")
    files = extra("google.protobuf.descriptor_pb2").FileDescriptorSet.FromString(Path(folder, "set").read_bytes())
    file: bytes = files.file[0].SerializeToString()
    return file


def _module_path() -> list[str]:
    """Return this process's module path without the working directory."""
    here = os.getcwd()
    return [place for place in sys.path if place and os.path.abspath(place) != here]

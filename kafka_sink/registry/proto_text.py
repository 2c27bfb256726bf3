"""The text of a .proto file as a descriptor: by protoc, from grpcio-tools, as the official client has no parser.

In a process of its own, since protoc says on its standard error what is wrong with a text.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry.extra import extra

NAME = "schema.proto"
TIMEOUT_S = 60


def compiled(text: str) -> bytes:
    """A serialized FileDescriptorProto. The text may import what google/protobuf and google/type have.

    Raises SchemaUnreadable with what protoc says, or where grpcio-tools is not installed.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        reason = (
            "it is not a FileDescriptorProto in base64, and to compile the text of a .proto file takes protoc: pip "
            "install grpcio-tools, on the driver. Or give the message class that protoc has made of it, or register it "
            "and set use.latest.version=true"
        )
        raise SchemaUnreadable(form="Protobuf", reason=reason)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, NAME).write_text(text, encoding="utf-8")
        known = Path(extra("google.type.date_pb2").__file__).parents[2]
        command = ["-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}", f"--descriptor_set_out={folder}/set", NAME]
        ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=TIMEOUT_S)
        said = ran.stderr.replace(f"{folder}/", "").strip()
        if ran.returncode:
            raise SchemaUnreadable(form="Protobuf", reason=said or "protoc gives no reason")
        files = extra("google.protobuf.descriptor_pb2").FileDescriptorSet.FromString(Path(folder, "set").read_bytes())
    file: bytes = files.file[0].SerializeToString()
    return file

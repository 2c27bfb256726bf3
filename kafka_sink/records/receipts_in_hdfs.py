"""Receipts and checkpoints in HDFS by hdfs-native, a client without Java. pyarrow's own needs Hadoop's libhdfs.

hdfs-native raises RuntimeError for what a NameNode refuses. Here it is OSError, as with pyarrow's file systems.

It tries a NameNode that refuses connections for 3 minutes, and waits without end for one that takes them and never
answers. Here both end: by its settings, and by the `within` that is handed in (kafka/clock.py).
"""

import io
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from hdfs_native import Client, WriteOptions
from pyarrow import NativeFile, PythonFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType, PyFileSystem

NAME = "hdfs-native"
# Tries that end after 32 s. Without them it is 15 tries, with up to 15 s between two. Whoever has receipts to write
# comes twice more, so that a standby NameNode has time to become active.
SETTINGS = {"dfs.client.failover.max.attempts": "8", "dfs.client.failover.sleep.max.millis": "5000"}
# Of one request. A file's bytes are at a DataNode, which hdfs-native replaces after 60 s without an answer.
TIMEOUT_S = 60.0
DATA_TIMEOUT_S = 180.0


Within = Callable[[float, Callable[[], Any]], Any]


def opened(uri: str, within: Within) -> tuple[FileSystem, str]:
    """Return the file system of a URI (hdfs:, viewfs:), and the path in it. Raises OSError."""
    parts = urlsplit(uri)
    if parts.query:
        raise OSError(f"{NAME} takes no parameters behind a question mark. HADOOP_CONF_DIR names its settings")
    answers = _Answers(within)
    client = answers.to(Client, f"{parts.scheme}://{parts.netloc}", SETTINGS)
    # A NameNode refuses an empty name, which Hadoop's own client leaves out.
    return PyFileSystem(_Handler(client, answers)), re.sub("/+", "/", f"/{unquote(parts.path)}").rstrip("/")


class _Handler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no annotations
    """What receipts and checkpoints need."""

    def __init__(self, client: Any, answers: "_Answers") -> None:
        self._client = client
        self._answers = answers

    def get_type_name(self) -> str:
        return NAME

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        try:
            return _info_of(self._answers.to(self._client.get_file_info, path))
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        # Each step of the iterator may ask the NameNode.
        found = lambda: list(self._client.list_status(selector.base_dir, selector.recursive))  # noqa: E731
        try:
            return list(map(_info_of, self._answers.to(found)))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def create_dir(self, path: str, recursive: bool) -> None:
        self._answers.to(self._client.mkdirs, path, create_parent=recursive)

    def delete_file(self, path: str) -> None:
        self._answers.to(self._client.delete, path)

    def move(self, source: str, target: str) -> None:
        """Replace `target`, as in a local file system."""
        self._answers.to(self._client.rename, source, target, overwrite=True)

    def open_input_file(self, path: str) -> NativeFile:
        return PythonFile(_File(self._answers.to(self._client.read, path), self._answers), mode="r")

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: object) -> NativeFile:
        file = self._answers.to(self._client.create, path, WriteOptions(overwrite=True))
        return PythonFile(_File(file, self._answers), mode="w")

    def _refuse(self, *_: object) -> Any:
        raise NotImplementedError(NAME)

    delete_dir = delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _refuse


class _File(io.RawIOBase):
    def __init__(self, file: Any, answers: "_Answers") -> None:
        self._file = file
        self._answers = answers

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._asked(self._file.read, size)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: Any) -> int:
        return int(self._asked(self._file.write, data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._asked(self._file.close)

    def _asked(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._answers.to(call, *arguments, timeout_s=DATA_TIMEOUT_S)
        except TimeoutError:
            super().close()  # which has nothing to wait for then
            raise


def _info_of(status: Any) -> FileInfo:
    return FileInfo(status.path, FileType.Directory if status.isdir else FileType.File, size=status.length)


class _Answers:
    def __init__(self, within: Within) -> None:
        self._within = within

    def to(self, call: Callable[..., Any], *arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
        """Return what `call` returns. Raises OSError, also if it has not returned in time."""
        try:
            return self._within(TIMEOUT_S if timeout_s is None else timeout_s, partial(call, *arguments, **named))
        except TimeoutError as error:
            raise TimeoutError(f"HDFS did not answer ({error})") from None
        except RuntimeError as error:
            # A NameNode's answer goes on with lines of its stack, whose ends are written as two characters.
            raise OSError(str(error).partition("\\n")[0]) from None

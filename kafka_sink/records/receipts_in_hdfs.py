"""Receipts and checkpoints in HDFS by hdfs-native, a client without Java. pyarrow's own needs Hadoop's libhdfs.

hdfs-native raises RuntimeError for what a NameNode refuses. Here it is OSError, as with pyarrow's file systems.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from hdfs_native import Client, WriteOptions
from pyarrow import NativeFile, PythonFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType, PyFileSystem

NAME = "hdfs-native"


def opened(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI (hdfs:, viewfs:), and the path in it. Raises OSError."""
    parts = urlsplit(uri)
    if parts.query:
        raise OSError(f"{NAME} takes no parameters behind a question mark. HADOOP_CONF_DIR names its settings")
    with _as_os_errors():
        client = Client(f"{parts.scheme}://{parts.netloc}")
    # A NameNode refuses an empty name, which Hadoop's own client leaves out.
    return PyFileSystem(_Handler(client)), re.sub("/+", "/", f"/{unquote(parts.path)}").rstrip("/")


class _Handler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no annotations
    """What receipts and checkpoints need."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_type_name(self) -> str:
        return NAME

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        try:
            with _as_os_errors():
                return _info_of(self._client.get_file_info(path))
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        try:
            with _as_os_errors():
                return [_info_of(each) for each in self._client.list_status(selector.base_dir, selector.recursive)]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def create_dir(self, path: str, recursive: bool) -> None:
        with _as_os_errors():
            self._client.mkdirs(path, create_parent=recursive)

    def delete_file(self, path: str) -> None:
        with _as_os_errors():
            self._client.delete(path)

    def move(self, source: str, target: str) -> None:
        """Replace `target`, as in a local file system."""
        with _as_os_errors():
            self._client.rename(source, target, overwrite=True)

    def open_input_file(self, path: str) -> NativeFile:
        with _as_os_errors():
            return PythonFile(_File(self._client.read(path)), mode="r")

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: object) -> NativeFile:
        with _as_os_errors():
            return PythonFile(_File(self._client.create(path, WriteOptions(overwrite=True))), mode="w")

    def _refuse(self, *_: object) -> Any:
        raise NotImplementedError(NAME)

    delete_dir = delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _refuse


class _File(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def read(self, size: int = -1) -> bytes:
        with _as_os_errors():
            found: bytes = self._file.read(size)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: Any) -> int:
        with _as_os_errors():
            return int(self._file.write(data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _as_os_errors():
                self._file.close()


def _info_of(status: Any) -> FileInfo:
    return FileInfo(status.path, FileType.Directory if status.isdir else FileType.File, size=status.length)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # A NameNode's answer goes on with lines of its stack, whose ends are written as two characters.
        raise OSError(str(error).partition("\\n")[0]) from None

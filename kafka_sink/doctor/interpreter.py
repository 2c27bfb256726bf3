"""The Python processes of a write: their version and kernel, if a worker starts in time, and pyspark's archives.

Spark starts the processes of one write by several rules, so their Pythons may differ (docs/deploying.md).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from importlib.util import MAGIC_NUMBER, source_hash
from marshal import dumps
from pathlib import Path

from kafka_sink.doctor.report import Finding, Verdict, failed, ok, warning
from kafka_sink.errors.installed import found_pyspark
from kafka_sink.kafka.config import VERSION
from kafka_sink.records.kernel import KERNEL


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter of one process.

    `folder` is the folder or zip that contains the package. `loss` and `remedy` say why the compiled kernel is not in
    use, and what to do. Both are empty if it is in use, or was switched off. `compiles`: the process compiles pyspark's
    modules, because nobody has called `pykafka warm`. `pyspark`: its version, and whose it is.
    """

    executable: str
    python: str
    version: str
    folder: str
    kernel: str
    loss: str = ""
    remedy: str = ""
    compiles: bool = False
    pyspark: str = ""

    def __str__(self) -> str:
        return (
            f"{self.executable}, Python {self.python}, kafka_sink {self.version} in {self.folder}, {self.kernel} "
            f"kernel, pyspark {self.pyspark}"
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def this_interpreter() -> Interpreter:
    """Return the interpreter of the calling process."""
    loss = KERNEL.loss
    return Interpreter(
        executable=sys.executable,
        python=platform.python_version(),
        version=VERSION,
        folder=str(Path(__file__).parents[2]),
        kernel=KERNEL.name,
        loss="" if loss is None else loss.reason,
        remedy="" if loss is None else loss.remedy,
        compiles=compiles_pyspark(),
        pyspark=str(found_pyspark()),
    )


def interpreter_of(text: str) -> Interpreter:
    """Return the interpreter that another process wrote by `to_json`."""
    return Interpreter(**json.loads(text))


def judged(found: Interpreter, driver: Interpreter) -> Finding:
    """Judge the interpreter `found`: it needs the driver's package version and the compiled kernel."""
    if found.version != driver.version:
        return warning(
            f"{found}: another version than the driver's {driver.version}",
            f"install pyspark-pykafka {driver.version} there too: one write uses both processes",
        )
    if found.loss:
        return warning(f"{found}: {found.loss}. One core encodes only about a sixth of the rows/s", found.remedy)
    cold = ". It compiles pyspark in each process: `pykafka warm` on this host saves 0.4 s a process"
    return ok(f"{found}{cold if found.compiles else ''}")


# --- whether a worker can start ---------------------------------------------------------------------------------------

STEP = "python worker"
# As long as Spark waits.
LIMIT_S = 10.0
# On a quiet machine a worker needs about a second.
SLOW_S = 5.0
_POLL_S = 0.1
_PROGRAM = "import socket, sys, pyspark.worker, kafka_sink; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


def look_at_worker() -> Verdict:
    """Start a worker as Spark does: it listens on the loopback address, and gives up after LIMIT_S.

    The worker is the Python that runs `format("pykafka")`, with the imports of a worker. Source:
    PythonWorkerFactory.createSimpleWorker.
    """
    python = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"
    return Verdict(STEP, f"{python} on this host", _started(python))


def _started(python: str) -> Finding:
    correct = "set PYSPARK_PYTHON to the Python that has pyspark and kafka_sink, in the environment of the driver"
    if shutil.which(python) is None:
        return failed("there is no such program, so no worker starts", correct)
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as errors:
        server.settimeout(_POLL_S)
        began_s = time.monotonic()
        worker = subprocess.Popen([python, "-c", _PROGRAM, str(server.getsockname()[1])], stderr=errors)
        try:
            while (took_s := time.monotonic() - began_s) < LIMIT_S:
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    if worker.poll():
                        errors.seek(0)
                        last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
                        return failed(f"it ended with status {worker.returncode}: {last}", correct)
                else:
                    return _judged(took_s)
            return failed(
                f"it had not connected back to 127.0.0.1 after {LIMIT_S:g} s, as long as Spark waits: Python worker "
                f"failed to connect back. {_load()}",
                "give the machine fewer tasks at a time (spark.executor.cores, local[N]) or more cores, look for "
                "a slow disk of the Python environment, and allow connections on the loopback interface. Then start "
                "the query again with its checkpoint",
            )
        finally:
            worker.kill()
            worker.wait()


def _judged(took_s: float) -> Finding:
    connected = f"it connected back after {took_s:.1f} s; Spark waits {LIMIT_S:g} s"
    if took_s < SLOW_S:
        return ok(connected)
    return warning(
        f"{connected}. {_load()}", "give the machine fewer tasks at a time (spark.executor.cores), or more cores"
    )


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f} processes want its {os.cpu_count()} cores"


# --- archives of pyspark ----------------------------------------------------------------------------------------------
# `pyspark.zip` and `py4j-*-src.zip` go before the path of Spark's Python workers. They hold sources only, and Python
# keeps no compiled module of an archive, so each worker compiles what it imports.

# PEP 552: a module with the hash of its source, which Python does not compare.
_UNCHECKED_HASH = (1).to_bytes(4, "little")


def own_archives() -> list[Path]:
    """Return the archives of the pyspark that this Python imports: pip's, or a Spark's whose folder is on its path."""
    spec = PathFinder.find_spec("pyspark", [each for each in sys.path if not each.endswith(".zip")])
    places = [] if spec is None else spec.submodule_search_locations or []
    # pip puts Spark's folder into pyspark. In Spark's folder both are below `python`.
    folders = [folder for place in places for folder in (Path(place, "python", "lib"), Path(place).with_name("lib"))]
    return sorted(each for folder in folders for name in ("pyspark.zip", "py4j-*.zip") for each in folder.glob(name))


def compiles_pyspark() -> bool:
    """Whether this process has taken the sources of pyspark from an archive of its own pyspark."""
    loaded = Path(getattr(sys.modules.get("pyspark"), "__file__", None) or "")
    return loaded.suffix == ".py" and any(loaded.is_relative_to(each) for each in own_archives())


def is_compiled(archive: Path) -> bool:
    """Whether this Python finds each module of `archive` but tests compiled from its source.

    Raises OSError, BadZipFile."""
    with zipfile.ZipFile(archive) as opened:
        return not any(True for _ in _missing(opened))


def compile_archive(archive: Path) -> int:
    """Put `x.pyc` beside each `x.py` that lacks it, and return their number. Raises OSError, BadZipFile.

    Python takes it first, without a look at the source, if it is of its own version. Any other Python takes the source.
    Sources stay where they are in the file, because a running Python has noted the places. Tests, two thirds of the
    modules, stay sources alone: when a worker starts, Python 3.11 reads the list of the archive for each package.

    Source: zipimport (_zip_searchorder, _unmarshal_code), PEP 552; PythonUtils.scala (sparkPythonPath).
    """
    if is_compiled(archive):
        return 0
    strip_archive(archive)
    with _replaced(archive) as copy, zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED) as opened:
        missing = list(_missing(opened))
        for name, source in missing:
            opened.writestr(f"{name}c", _compiled(source, f"{archive}/{name}"))
    return len(missing)


def strip_archive(archive: Path) -> int:
    """Remove all compiled modules, and return their number. Raises OSError, BadZipFile."""
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        kept = [each for each in entries if not each.filename.endswith(".pyc")]
        if len(kept) < len(entries):
            with _replaced(archive) as copy, zipfile.ZipFile(copy, "w") as written:
                for each in kept:
                    written.writestr(each, opened.read(each))
    return len(entries) - len(kept)


def _missing(opened: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the source of each module without a compiled one that is of this Python and of this source."""
    names = set(opened.namelist())
    for name in sorted(each for each in names if each.endswith(".py") and "/tests/" not in each):
        source = opened.read(name)
        if f"{name}c" not in names or not opened.read(f"{name}c").startswith(_header(source)):
            yield name, source


def _header(source: bytes) -> bytes:
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source)


def _compiled(source: bytes, path: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a compiler warns of in pyspark is nothing for its users
        return _header(source) + dumps(compile(source, path, "exec", dont_inherit=True, optimize=0))


@contextmanager
def _replaced(archive: Path) -> Iterator[Path]:
    """A copy of `archive` to change, which takes its place at the end. An error leaves `archive` as it is."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        copy = Path(shutil.copy2(archive, folder))
        yield copy
        os.replace(copy, archive)

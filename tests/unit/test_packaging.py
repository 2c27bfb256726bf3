"""What the installed wheel holds, and that a stranger's interpreter finds it.

Compared with the sources file by file: a package that setup.cfg does not name, a folder that is no package, a
wheel older than the sources: each fails here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    os.environ.get("PYKAFKA_TEST_SOURCES") == "1", reason="the sources are under test, not the wheel"
)


@pytest.fixture
def installed() -> Distribution:
    return distribution("pyspark-pykafka")


def of_the_package(names: Iterable[PurePosixPath]) -> set[str]:
    """Without the installer's own records and byte code."""
    return {str(name) for name in names if not name.parts[0].endswith(".dist-info") and "__pycache__" not in name.parts}


def sources() -> set[str]:
    files = (path for path in (ROOT / "kafka_sink").rglob("*") if path.is_file())
    return of_the_package(PurePosixPath(path.relative_to(ROOT)) for path in files) | {"pyspark_pykafka.py"}


def test_the_wheel_holds_the_sources_and_nothing_else(installed: Distribution) -> None:
    assert of_the_package(installed.files or ()) == sources()


def test_the_wheel_is_as_new_as_the_sources(installed: Distribution) -> None:
    def differs(name: str) -> bool:
        return Path(str(installed.locate_file(name))).read_bytes() != (ROOT / name).read_bytes()

    assert [name for name in sources() if differs(name)] == []


def test_the_installation_is_not_editable(installed: Distribution) -> None:
    """An editable one hides pyspark_pykafka: an import hook finds it, which iter_modules does not ask."""
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    assert "dir_info" not in origin


def test_spark_finds_the_module_from_any_folder(tmp_path: Path) -> None:
    """As PySpark looks for formats that nobody registered (pyspark/sql/worker/lookup_data_sources.py)."""
    look = "import pkgutil; print([m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')])"
    assert python(look, tmp_path, PYTHONSAFEPATH="") == "['pyspark_pykafka']"


def test_a_worker_started_among_the_sources_takes_the_wheel(installed: Distribution) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    look = "import kafka_sink; print(kafka_sink.__file__)"
    wheel = str(installed.locate_file("kafka_sink/__init__.py"))
    assert python(look, ROOT) == wheel
    assert python(look, ROOT, PYTHONSAFEPATH="") != wheel  # the trap is there, and it is closed


def python(code: str, folder: Path, **environment: str) -> str:
    """What this interpreter prints for `code`, run in `folder`."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout.strip()

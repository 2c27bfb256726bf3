"""What the installed wheel holds, file by file as the sources, and that a stranger's interpreter finds it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from email import message_from_string
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "kafka_sink/records/_kernel.abi3.so"

pytestmark = pytest.mark.skipif(
    os.environ.get("PYKAFKA_TEST_SOURCES") == "1", reason="the sources are under test, not the wheel"
)


COMMAND = ("bin", "pykafka")


@pytest.fixture
def installed() -> Distribution:
    return distribution("pyspark-pykafka")


def of_the_package(names: Iterable[PurePosixPath]) -> set[str]:
    """Without the installer's own records, byte code, and the command that it makes."""
    return {
        str(name)
        for name in names
        if not name.parts[0].endswith(".dist-info") and "__pycache__" not in name.parts and name.parts[-2:] != COMMAND
    }


def sources() -> set[str]:
    """What is packed as it is: not the kernel's sources, nor a kernel that was built beside them."""
    paths = (path for path in (ROOT / "kafka_sink").rglob("*") if path.is_file())
    packed = (PurePosixPath(path.relative_to(ROOT)) for path in paths if path.suffix not in (".c", ".h", ".so"))
    return of_the_package(packed) | {"pyspark_pykafka.py"}


def test_the_wheel_holds_the_sources_as_they_are_and_nothing_else(installed: Distribution) -> None:
    kernel = {KERNEL} if has_kernel(installed) else set()
    assert of_the_package(installed.files or ()) == sources() | kernel
    for name in sources():
        assert Path(str(installed.locate_file(name))).read_bytes() == (ROOT / name).read_bytes(), name


def test_the_command_is_installed(installed: Distribution) -> None:
    (command,) = [name for name in installed.files or () if name.parts[-2:] == COMMAND]
    line = [str(installed.locate_file(command)), "--version"]
    said = subprocess.run(line, capture_output=True, text=True, check=True)
    assert said.stdout == f"pykafka {installed.version}\n"


def test_the_wheel_is_tagged_by_what_it_holds(installed: Distribution) -> None:
    """CI requires the kernel; who has no compiler has a pure wheel, and these tests."""
    assert tag(installed).startswith("cp311-abi3-" if has_kernel(installed) else "py3-none-any")
    assert has_kernel(installed) or os.environ.get("PYKAFKA_REQUIRE_KERNEL") != "1"


def test_the_installation_is_not_editable(installed: Distribution) -> None:
    """An editable one hides pyspark_pykafka: an import hook finds it, which iter_modules does not ask."""
    assert "dir_info" not in json.loads(installed.read_text("direct_url.json") or "{}")


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


def has_kernel(distribution: Distribution) -> bool:
    return PurePosixPath(KERNEL) in (distribution.files or ())


def tag(distribution: Distribution) -> str:
    return message_from_string(distribution.read_text("WHEEL") or "")["Tag"]


def install(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds a copy of the sources, which has no kernel yet, and installs it into `tmp_path / "site"`."""
    copy = tmp_path / "sources"
    copy.mkdir(parents=True)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "pyspark_pykafka.py"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "kafka_sink", copy / "kafka_sink", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "site"))
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(copy)],
        env=os.environ | environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def kernel_in_use(tmp_path: Path, **environment: str) -> str:
    look = "import kafka_sink.records.kernel as kernel; print(kernel.__file__, kernel.KERNEL.name)"
    file, name = python(look, tmp_path, PYTHONPATH=str(tmp_path / "site"), **environment).split()
    assert Path(file).is_relative_to(tmp_path)
    return name


NO_COMPILER = {"CC": "false", "PYKAFKA_REQUIRE_KERNEL": "0"}


def built(tmp_path: Path, **environment: str) -> Distribution:
    ended = install(tmp_path, **environment)
    assert ended.returncode == 0, ended.stderr
    (found,) = distributions(path=[str(tmp_path / "site")])
    return found


def assert_pure(distribution: Distribution) -> None:
    assert tag(distribution) == "py3-none-any"
    assert of_the_package(distribution.files or ()) == sources()


def test_without_a_compiler_the_wheel_is_pure_and_works(tmp_path: Path) -> None:
    pure = built(tmp_path, **NO_COMPILER)
    assert_pure(pure)
    assert (pure.read_text("WHEEL") or "").count("Root-Is-Purelib: true") == 1
    assert kernel_in_use(tmp_path, PYKAFKA_REQUIRE_KERNEL="0") == "vectorised"
    with pytest.raises(subprocess.CalledProcessError) as failure:
        kernel_in_use(tmp_path, PYKAFKA_REQUIRE_KERNEL="1")
    assert "Install a C compiler" in failure.value.stderr


def test_a_required_kernel_that_cannot_be_built_fails_the_build(tmp_path: Path) -> None:
    ended = install(tmp_path, **NO_COMPILER | {"PYKAFKA_REQUIRE_KERNEL": "1"})
    assert ended.returncode != 0
    assert re.search(r"error: .*'false'", ended.stderr)  # the compiler, and nothing else


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_free_threaded_python_gets_a_kernel_for_itself_alone(tmp_path: Path) -> None:
    """setuptools refuses a wheel for the stable ABI there, which it tells by this variable."""
    pretence = tmp_path / "free-threaded"
    pretence.mkdir()
    (pretence / "sitecustomize.py").write_text("import sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n")
    made = built(tmp_path, PYTHONPATH=str(pretence), PYKAFKA_REQUIRE_KERNEL="1")
    assert re.match(r"(cp\d+)-\1-", tag(made))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_with_a_compiler_one_wheel_serves_every_python_from_3_11_on(tmp_path: Path) -> None:
    assert tag(built(tmp_path, PYKAFKA_REQUIRE_KERNEL="1")).startswith("cp311-abi3-")
    assert kernel_in_use(tmp_path, PYKAFKA_REQUIRE_KERNEL="1") == "compiled"


def python(code: str, folder: Path, **environment: str) -> str:
    """What this interpreter prints for `code`, run in `folder`."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return ended.stdout.strip()

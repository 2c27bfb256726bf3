"""Without a pyspark: what works, and what says which to install. With several: which one an import takes, and whose."""

import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_sink.errors.installed as installed
from bare_python import BarePython, without
from kafka_sink.cli import check, versions
from kafka_sink.doctor.report import Report, Status, Verdict, ok
from kafka_sink.errors.installed import NEEDED, PACKAGES, Pyspark, found_pyspark

VERSION = '__version__: str = "{}"\n'
EXTRAS = ("[spark]", "[connect]", "[sail]")


# --- none -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def no_pyspark(tmp_path_factory: pytest.TempPathFactory) -> BarePython:
    return without(("pyspark", "py4j"), tmp_path_factory.mktemp("no-pyspark"))


IMPORTS = """
import importlib, json, sys
import kafka_sink

def said(call):
    try:
        call()
    except ImportError as error:
        return [type(error).__name__, error.name, str(error)]

modules = ("pyspark_pykafka", "kafka_sink.functions", "kafka_sink.registry", "kafka_sink.exporting.writing",
           "kafka_sink.monitoring.listener", "kafka_sink.monitoring.prometheus", "kafka_sink.spark.source")
calls = {name: lambda name=name: importlib.import_module(name) for name in modules}
calls |= {name: lambda name=name: getattr(kafka_sink, name)(None) for name in ("register", "dedupe", "partition_count")}
calls |= {name: lambda name=name: getattr(kafka_sink, name)(None, "t") for name in ("export", "to_kafka", "validate")}
print(json.dumps({name: said(call) for name, call in calls.items()}))
"""


def test_an_import_without_any_pyspark_ends_with_one_sentence_that_names_the_extras(no_pyspark: BarePython) -> None:
    ended = no_pyspark.run(IMPORTS)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert len(told) == 13
    assert {name: said for name, said in told.items() if said != ["ModuleNotFoundError", "pyspark", NEEDED]} == {}
    assert all(extra in NEEDED for extra in EXTRAS) and NEEDED.count(". ") == 0 and NEEDED.endswith(".")
    # The import of the package, which works, says it too: a user's own import of pyspark comes next.
    assert ended.stderr.splitlines() == [NEEDED]


def test_another_module_that_is_missing_is_named_itself() -> None:
    with pytest.raises(ModuleNotFoundError, match="py4j"), installed.needs_pyspark():
        raise ModuleNotFoundError("No module named 'py4j'", name="py4j")


COMMANDS = """
import contextlib, io, json, sys
sys.argv = ["pykafka"]
from kafka_sink.__main__ import main

told = {}
for line in sys.argv_of_test:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(line)
    told[" ".join(line)] = [status, out.getvalue()]
print(json.dumps(told))
"""


def test_commands_that_need_no_spark_work_without_pyspark(no_pyspark: BarePython, tmp_path: Path) -> None:
    servers = ["--bootstrap-servers", "localhost:1"]
    lines = [
        ["version"], ["explain", "StateExpired"], ["check", *servers], ["check", "--read", *servers, "--topic", "t"],
        ["read", *servers, "--topic", "t", "--option", "kafka.max.block.ms=1"],
        ["verify", *servers, "--receipts", str(tmp_path / "none")],
        ["transactions", "list", *servers, "--option", "kafka.max.block.ms=1"],
        ["broker", "status", "--dir", str(tmp_path)], ["warm"], ["check", *servers, "--spark"],
    ]  # fmt: skip
    ended = no_pyspark.run(COMMANDS.replace("sys.argv_of_test", repr(lines)))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "", "commands need none, and say nothing of it"
    told = list(json.loads(ended.stdout).values())
    assert [status for status, _ in told[:4]] == [0, 0, 1, 1]
    assert all("pyspark" not in said for _, said in told[4:8])
    assert "pyspark          not installed" in told[0][1]
    for _, said in told[2:4]:
        assert "SKIPPED  pyspark" in said and "none is installed here" in said
    assert told[9] == [2, f"error: {NEEDED}\n"]


# --- a client of Spark Connect ----------------------------------------------------------------------------------------

MODULES = """
import importlib, pkgutil
import kafka_sink, pyspark.util
assert pyspark.util.is_remote_only()
importlib.import_module("pyspark_pykafka")
for each in pkgutil.walk_packages(kafka_sink.__path__, "kafka_sink."):
    if not each.name.endswith(("__main__", ".leash", "._kernel", ".compiled")):
        try:
            importlib.import_module(each.name)
        except ImportError as error:
            print(each.name, error)
"""


def test_every_module_imports_where_only_the_client_of_spark_connect_is(tmp_path: Path) -> None:
    """Without py4j, and without Spark's classes for the JVM: by this variable pyspark is as pyspark-client is."""
    ended = without(("py4j",), tmp_path).run(MODULES, SPARK_SKIP_CONNECT_COMPAT_TESTS="1")
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


# --- several ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder of packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    yield folder


def pyspark_in(folder: Path, version: str, *, is_client: bool = False) -> Path:
    package = folder / "pyspark"
    for name in ("", "" if is_client else "core"):
        (package / name).mkdir(parents=True, exist_ok=True)
        (package / name / "__init__.py").touch()
    (package / "version.py").write_text(VERSION.format(version))
    return package


def registered(site: Path, name: str, version: str) -> str:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return f"{name} {version}"


def found(**environ: str) -> Pyspark:
    pyspark = found_pyspark(environ)
    assert pyspark is not None
    return pyspark


def test_there_is_none(site: Path) -> None:
    assert found_pyspark({}) is None
    assert versions.versions()["pyspark"] is None


def test_it_is_that_of_a_package(site: Path) -> None:
    folder = pyspark_in(site, "4.2.0", is_client=True)
    name = registered(site, "pyspark-client", "4.2.0")
    pyspark = found()
    assert (pyspark.version, pyspark.folder, pyspark.packages) == ("4.2.0", str(folder), (name,))
    assert str(pyspark) == "4.2.0, package pyspark-client 4.2.0: a client of Spark Connect, without Java"
    assert pyspark.trouble() is None


@pytest.mark.parametrize("is_zip", [False, True], ids=["a folder", "a zip"])
def test_it_is_the_clusters(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_zip: bool) -> None:
    """spark-submit puts it first on the path. Workers have it as a zip."""
    home = tmp_path / "spark"
    package = pyspark_in(home / "python", "4.0.2")
    place = package.parent
    if is_zip:
        place = home / "python" / "lib" / "pyspark.zip"
        place.parent.mkdir()
        with zipfile.ZipFile(place, "w") as archive:
            for each in package.rglob("*.py"):
                archive.write(each, each.relative_to(package.parent))
        shutil.rmtree(package)
    monkeypatch.setattr(sys, "path", [str(place), str(site)])
    pyspark = found(SPARK_HOME=str(home))
    assert str(pyspark) == f"4.0.2, the cluster's (SPARK_HOME={home})"
    assert not pyspark.is_client and pyspark.trouble() is None
    # A package that pip installed beside it.
    pyspark_in(site, "4.3.0")
    name = registered(site, "pyspark", "4.3.0")
    assert str(found(SPARK_HOME=str(home))) == f"4.0.2, the cluster's (SPARK_HOME={home}); not imported: {name}"
    # Without the variable nobody knows whose it is.
    assert str(found()).startswith("4.0.2, the platform's, of no package, in ")


def test_pips_pyspark_is_its_own_spark_home(site: Path) -> None:
    folder = pyspark_in(site, "4.3.0")
    registered(site, "pyspark", "4.3.0")
    pyspark = found(SPARK_HOME=str(folder))
    assert str(pyspark) == "4.3.0, package pyspark 4.3.0" and pyspark.trouble() is None


def test_a_package_before_the_clusters_of_another_version_is_a_trouble(site: Path, tmp_path: Path) -> None:
    pyspark_in(site, "4.3.0")
    registered(site, "pyspark", "4.3.0")
    home = tmp_path / "spark"
    pyspark_in(home / "python", "4.0.2")
    trouble = found(SPARK_HOME=str(home)).trouble()
    assert trouble is not None and "SPARK_HOME has pyspark 4.0.2" in trouble[0]
    pyspark_in(home / "python", "4.3.0")
    assert found(SPARK_HOME=str(home)).trouble() is None


def test_a_client_does_not_care_for_spark_home(site: Path, tmp_path: Path) -> None:
    pyspark_in(site, "4.2.0", is_client=True)
    registered(site, "pyspark-client", "4.2.0")
    pyspark_in(tmp_path / "python", "4.0.2")
    assert found(SPARK_HOME=str(tmp_path)).trouble() is None


def test_two_packages_in_one_folder_are_a_trouble(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pyspark_in(site, "4.3.0")
    pyspark_in(site, "4.2.0", is_client=True)
    names = [registered(site, "pyspark", "4.3.0"), registered(site, "pyspark-client", "4.2.0")]
    pyspark = found()
    assert str(pyspark) == f"4.2.0, packages {' and '.join(names)}"
    trouble = pyspark.trouble()
    assert trouble is not None and f"share the folder {folder}" in trouble[0]
    assert trouble[1].startswith("pip uninstall pyspark pyspark-client, then ")
    assert versions.main(["--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["pyspark_from"] == f"packages {' and '.join(names)}"
    assert "warning: " in said.err and trouble[1] in said.err
    # pip uninstall pyspark-client
    shutil.rmtree(site / "pyspark_client-4.2.0.dist-info")
    for name in ("__init__.py", "version.py"):
        (folder / name).unlink()
    trouble = found().trouble()
    assert trouble is not None and "was uninstalled" in trouble[0] and "pip uninstall pyspark, then" in trouble[1]


def test_a_package_is_named_as_pip_names_it() -> None:
    assert set(PACKAGES) >= {"pyspark", "pyspark-client"}


@pytest.mark.parametrize(("pyspark", "status", "says"), [
    (Pyspark("4.3.0", "/site/pyspark", False, ("pyspark 4.3.0",)), Status.OK, "4.3.0, package pyspark 4.3.0"),
    (Pyspark("4.3.0", "/site/pyspark", False, ("pyspark 4.3.0", "pyspark-client 4.2.0")), Status.WARNING, "share"),
    (None, Status.SKIPPED, "none is installed here"),
])  # fmt: skip
def test_a_check_begins_with_the_pyspark_of_its_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pyspark: Pyspark | None, status: Status,
    says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(check, "found_pyspark", lambda: pyspark)
    monkeypatch.setattr(check, "examine", lambda config: Report((Verdict("dns", "b:9092", ok("10.0.0.1")),)))
    assert check.main(["--bootstrap-servers", "b:9092", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["verdicts"]
    assert (first["step"], first["status"], second["step"]) == ("pyspark", status, "dns")
    assert says in first["found"]

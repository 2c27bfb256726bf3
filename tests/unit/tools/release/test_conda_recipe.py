"""conda/recipe.yaml says what setup.cfg and pyproject.toml say, in conda's words; and how `make conda` reads it."""

import configparser
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from release.stand_in_channel import as_conda_says

ROOT = Path(__file__).resolve().parents[4]
# Where conda-forge has another name than the package index.
CONDA_NAMES = {"confluent-kafka": "python-confluent-kafka", "prometheus-client": "prometheus_client"}
# Those of one package each. `registry` and `demo` ask for the same packages; `connect` and `sail` for what conda-forge
# may not have.
EXTRAS = ("spark", "verify", "keystores", "progress", "prometheus", "opentelemetry", "aws")


@pytest.fixture
def recipe() -> dict[str, Any]:
    """The recipe with the values of its own context."""
    text = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    for name, value in yaml.safe_load(text)["context"].items():
        text = text.replace(f"${{{{ {name} }}}}", value)
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.fixture
def settings() -> configparser.ConfigParser:
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg")
    return read


def in_conda_words(lines: str) -> set[str]:
    found = set()
    for line in lines.splitlines():
        if line and not line.startswith("#"):
            name, _, versions = as_conda_says(Requirement(line)).partition(" ")
            found.add(f"{CONDA_NAMES.get(name, name)} {versions}")
    return found


def as_requirements(lines: list[str]) -> set[str]:
    """The same lines with their bounds in one order."""
    return {as_conda_says(Requirement(line)) if "python_" not in line else line for line in lines}


def test_it_requires_what_the_package_requires(recipe: dict[str, Any], settings: configparser.ConfigParser) -> None:
    asked, of_setup = recipe["requirements"], settings["options"]
    expected = {"python " + of_setup["python_requires"].replace(" ", "")} | in_conda_words(of_setup["install_requires"])
    assert as_requirements(asked["run"]) == expected
    # What extras ask for is a constraint.
    extras = settings["options.extras_require"]
    assert set(asked["run_constraints"]) == {line for extra in EXTRAS for line in in_conda_words(extras[extra])}
    # pip runs the build. python-abi3 makes one package serve every later Python.
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    python = of_setup["python_requires"].removeprefix(">= ") + ".*"
    expected = {f"python {python}", f"python-abi3 {python}", "pip", *map(as_conda_says, map(Requirement, build))}
    assert set(asked["host"]) == expected
    assert recipe["build"]["python"]["version_independent"] is True


def test_it_has_the_metadata_of_the_package(recipe: dict[str, Any], settings: configparser.ConfigParser) -> None:
    metadata = settings["metadata"]
    assert recipe["package"] == {"name": metadata["name"], "version": metadata["version"]}
    archive = f"{metadata['name'].replace('-', '_')}-{metadata['version']}.tar.gz"
    assert Path(recipe["source"]["path"]).name == archive
    about = {"license": "license", "license_file": "license_files", "summary": "description"}
    assert recipe["about"] == {ours: metadata[theirs] for ours, theirs in about.items()}


def test_it_installs_and_tests_the_command(recipe: dict[str, Any], settings: configparser.ConfigParser) -> None:
    (script,) = settings["options.entry_points"]["console_scripts"].strip().splitlines()
    assert recipe["build"]["python"]["entry_points"] == [script]
    imports, commands = recipe["tests"]
    assert imports["python"]["imports"][0] == "kafka_sink" and imports["python"]["pip_check"] is True
    assert commands["script"][0] == f"{script.split()[0]} --help"

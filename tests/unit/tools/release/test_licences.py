"""The table of licences names what a user installs, and agrees with what those packages say of themselves."""

import configparser
import re
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.licences import LICENCES, LICENCES_OF_EXTRAS

ROOT = Path(__file__).resolve().parents[4]
EXTRAS = (
    "spark", "connect", "sail", "verify", "keystores", "progress", "prometheus", "opentelemetry", "aws", "registry",
)  # fmt: skip
# Their metadata name the licence in other words than SPDX.
IN_OTHER_WORDS = {"confluent-kafka": "Apache Software License"}


def of_setup_cfg(section: str, key: str) -> list[Requirement]:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings[section][key].splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def is_needed(requirement: Requirement) -> bool:
    """True if it is required here, and without an extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def with_their_own(names: set[str]) -> set[str]:
    """Add what the packages require, of whatever is installed here, without extras."""
    every: set[str] = set()
    while names:
        name = names.pop()
        every.add(name)
        needed = [each for each in map(Requirement, requires(name) or ()) if is_needed(each)]
        names |= {canonicalize_name(each.name) for each in needed} - every
    return every


def test_every_package_of_an_installation_and_its_extras_is_in_the_tables() -> None:
    required = {canonicalize_name(each.name) for each in of_setup_cfg("options", "install_requires")}
    assert with_their_own(required) == set(LICENCES)
    named = {each.name for extra in EXTRAS for each in of_setup_cfg("options.extras_require", extra)}
    assert named == set(LICENCES_OF_EXTRAS)
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", page, re.MULTILINE))
    assert rows == LICENCES | LICENCES_OF_EXTRAS


@pytest.mark.parametrize(("name", "licence"), (LICENCES | LICENCES_OF_EXTRAS).items())
def test_the_package_says_the_same(name: str, licence: str) -> None:
    try:
        said = metadata(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    words = [said["License-Expression"] or "", said["License"] or "", *(said.get_all("Classifier") or ())]
    assert any(IN_OTHER_WORDS.get(name, licence) in text for text in words), words

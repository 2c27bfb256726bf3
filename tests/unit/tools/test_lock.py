"""The locks of `make lock` fit setup.cfg: a requirement that changed there needs the lock to be written again."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]


def requirements(extra: str) -> set[Requirement]:
    """Those of the package and of an extra, which may take over others (`%(test)s`)."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"] + settings["options.extras_require"][extra]
    return {Requirement(line) for line in lines.splitlines() if line and not line.startswith("#")}


def locked(extra: str) -> dict[str, list[Requirement]]:
    """The pins of each package: several, if the version depends on the platform."""
    pins: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^([a-z0-9].*?) \\$", (ROOT / f"requirements/{extra}.txt").read_text(), re.MULTILINE):
        pin = Requirement(line)
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    return pins


def versions_of(pins: list[Requirement]) -> set[str]:
    return {str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("extra", ["dev", "release"])
def test_every_requirement_is_locked_with_a_hash_to_a_version_that_it_allows(extra: str) -> None:
    pins = locked(extra)
    for requirement in requirements(extra):
        versions = versions_of(pins.get(canonicalize_name(requirement.name), []))
        allowed = set(requirement.specifier.filter(versions))
        assert versions == allowed != set(), f"{requirement}: locked is {versions or 'nothing'}; run `make lock`"
    text = (ROOT / f"requirements/{extra}.txt").read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) > 10
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert "://" not in text, "no index is named"


def test_both_locks_have_the_same_versions() -> None:
    dev, release = locked("dev"), locked("release")
    for name in dev.keys() & release.keys():
        assert versions_of(release[name]) <= versions_of(dev[name]), f"{name}: run `make lock`"

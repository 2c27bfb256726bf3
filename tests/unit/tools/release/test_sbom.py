"""The list of a wheel's parts, read as a scanner reads it."""

import json
from email.message import Message
from typing import Any

import pytest

from release.sbom import sbom

TIME = 1_700_000_000


def metadata() -> Message:
    fields = Message()
    fields["Name"], fields["Version"], fields["License"] = "pyspark-pykafka", "0.1.0", "Apache-2.0"
    for requirement in ("crc32c>=2.7", "kio<0.7,>=0.6", 'tqdm>=4.65; extra == "progress"'):
        fields["Requires-Dist"] = requirement
    return fields


@pytest.fixture
def parts() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(sbom(metadata(), TIME))
    return read


def test_the_project_is_named_with_version_licence_and_what_it_depends_on(parts: dict[str, Any]) -> None:
    project = parts["metadata"]["component"]
    assert project["purl"] == "pkg:pypi/pyspark-pykafka@0.1.0"
    assert project["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert parts["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    edges = {edge["ref"]: edge.get("dependsOn") for edge in parts["dependencies"]}
    assert edges["pkg:pypi/pyspark-pykafka@0.1.0"] == ["pkg:pypi/crc32c", "pkg:pypi/kio"]
    assert json.loads(sbom(metadata(), TIME)) == parts


def test_dependencies_are_external_with_their_range_and_extras_are_left_out(parts: dict[str, Any]) -> None:
    ranges = {part["name"]: part["properties"][0]["value"] for part in parts["components"]}
    assert ranges == {"crc32c": ">=2.7", "kio": "<0.7,>=0.6"}
    assert all(part["isExternal"] and "version" not in part for part in parts["components"])
    assert parts["components"][0]["licenses"][0]["license"]["id"] == "LGPL-2.1-or-later"

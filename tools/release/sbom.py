"""The list of a wheel's parts: CycloneDX in `*.dist-info/sboms` (PEP 770).

A wheel contains this project alone. The packages that pip installs beside it are listed too, as external components
with the range of versions that the wheel asks for: pip chooses the versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot7
from packageurl import PackageURL
from packaging.requirements import Requirement

from release.layout import SBOM
from release.licences import LICENCES

# A property of CycloneDX has a name of its author's choice.
REQUIREMENT = "pyspark-pykafka:requires"


def add_sbom(wheel: Path, folder: Path, scratch: Path, time: int) -> Path:
    """Write a copy of `wheel` with the list of its parts into `folder`, and return its path."""
    tree = scratch / "tree"
    _wheel("unpack", "--dest", tree, wheel, time=time)
    (project,) = tree.iterdir()
    (information,) = project.glob("*.dist-info")
    metadata = Parser().parsestr((information / "METADATA").read_text(encoding="utf-8"))
    (information / "sboms").mkdir()
    (information / "sboms" / SBOM).write_text(sbom(metadata, time), encoding="utf-8")
    _wheel("pack", "--dest-dir", folder, project, time=time)
    return folder / wheel.name


def sbom(metadata: Message, time: int) -> str:
    """Return CycloneDX as JSON, of a wheel with these core metadata. `time`: s since 1970."""
    name, version = metadata["Name"], metadata["Version"]
    project = _component(name, metadata["License-Expression"] or metadata["License"], version=version)
    dependencies = [
        _component(requirement.name, LICENCES[requirement.name], requires=str(requirement.specifier))
        for requirement in map(Requirement, metadata.get_all("Requires-Dist", []))
        if requirement.marker is None
    ]
    bom = Bom(components=dependencies, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"pkg:pypi/{name}@{version}"))
    bom.metadata.component = project
    bom.metadata.timestamp = datetime.fromtimestamp(time, UTC)
    bom.register_dependency(project, dependencies)
    text: str = JsonV1Dot7(bom).output_as_string(indent=2)
    return text + "\n"


def _component(name: str, licence: str, *, version: str | None = None, requires: str | None = None) -> Component:
    purl = PackageURL("pypi", None, name, version)
    declared = LicenseFactory().make_from_string(licence, license_acknowledgement=LicenseAcknowledgement.DECLARED)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=[declared],
        is_external=True if requires is not None else None,
        properties=[Property(name=REQUIREMENT, value=requires)] if requires else (),
    )


def _wheel(*arguments: object, time: int) -> None:
    line = [sys.executable, "-m", "wheel", *map(str, arguments)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(time)}
    subprocess.run(line, check=True, env=environment, stdout=subprocess.DEVNULL)

"""What a release uploads: what must keep a wheel from it, the list of its parts, the bytes of the source archive, and
that conda's recipe and the table of licences say what setup.cfg says. The checks of twine, abi3audit and others are
theirs."""

import configparser
import io
import json
import platform
import re
import runpy
import struct
import tarfile
import tomllib
from collections.abc import Sequence
from email.message import Message
from importlib.metadata import PackageNotFoundError, files, metadata, requires
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name

from code_blocks import ROOT
from release.checks import Unfit, check_addresses, check_description, check_macos, check_names, is_at_most
from release.licences import LICENCES, LICENCES_OF_EXTRAS
from release.sbom import sbom
from release.source import release_time, without_origin
from release.stand_in_channel import as_conda_says
from release.targets import TARGETS, System, Target

TIME = 1_700_000_000


# --- checks of wheels -------------------------------------------------------------------------------------------------


def command(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<II", kind, 8 + len(body)) + body


def mach_o(cpu: int, *commands: bytes) -> bytes:
    return struct.pack("<8I", 0xFEEDFACF, cpu, 0, 6, len(commands), sum(map(len, commands)), 0, 0) + b"".join(commands)


ARM64, X86_64 = 0x0100000C, 0x01000007
# The name of a library begins 24 bytes into its command.
NEEDS = command(0x0C, struct.pack("<IIII", 24, 2, 0, 0) + b"/usr/lib/libSystem.B.dylib\0")
NEEDS_ANOTHER = command(0x0C, b"\x18\0\0\0" + bytes(12) + b"/opt/lib/libomp.dylib\0")
SIGNED = command(0x1D, struct.pack("<II", 4096, 512))
SINCE_11 = command(0x32, struct.pack("<IIII", 1, 11 << 16, 14 << 16, 0))
SINCE_10_13 = command(0x24, struct.pack("<II", 10 << 16 | 13 << 8, 14 << 16))
BY_TAG = {target.tag: target for target in TARGETS}
LINUX, MACOS = BY_TAG["manylinux_2_17_x86_64"], BY_TAG["macosx_11_0_arm64"]
SOURCES = ("pyspark_pykafka.py", "kafka_sink/__init__.py", "kafka_sink/py.typed", "kafka_sink/records/_kernel.pyi")
NOT_PACKED = ("kafka_sink/records/_kernel.c", "kafka_sink/records/_kernel.h", "tests/test_a.py", "jobs/job.py")
METADATA, KERNEL = "pyspark_pykafka-0.1.0.dist-info/METADATA", "kafka_sink/records/_kernel.abi3.so"


@pytest.mark.parametrize(("names", "target", "named"), [
    ([*SOURCES, METADATA, KERNEL], LINUX, None), ([*SOURCES, METADATA], None, None),
    ([*SOURCES, METADATA], LINUX, KERNEL), ([*SOURCES, METADATA, KERNEL], None, KERNEL),
    ([*SOURCES[1:], METADATA], None, SOURCES[0]),
    *(([*SOURCES, METADATA, name], None, name) for name in NOT_PACKED),
])  # fmt: skip
def test_sources_metadata_and_the_kernel_are_all_and_one_file_too_many_or_too_few_is_named(
    tmp_path: Path, names: list[str], target: Target | None, named: str | None
) -> None:
    for name in (*SOURCES, *NOT_PACKED, KERNEL):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    if named is None:
        check_names(names, target, tmp_path)
        return
    with pytest.raises(Unfit, match=named):
        check_names(names, target, tmp_path)


def test_a_description_has_no_relative_link() -> None:
    check_description("Name: p\n\n[a](https://example.org/a) [b](#b)")
    check_description("Name: p\n\n[a][a]\n\n[a]: https://example.org/a")
    for broken in ("[a](docs/a.md)", "[a][b]\n\n[b]: docs/a.md"):
        with pytest.raises(Unfit, match=r"docs/a\.md"):
            check_description(f"Name: p\n\n{broken}")


def test_the_readme_becomes_a_description_without_relative_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with patch("setuptools.setup") as setup:
        description = runpy.run_path("setup.py")["description"]
    check_description(f"Name: p\n\n{setup.call_args.kwargs['long_description']}")
    links = "[a](a.md), [b][b], [c][c] and [d](#d)\n\n[b]: docs/b.md#x\n[c]: https://example.org/c\n"
    expected = "a (`a.md`), b (`docs/b.md#x`), [c][c] and [d](#d)\n\n[c]: https://example.org/c\n"
    assert description(links) == expected


ADDRESS = "Name: p\nProject-URL: Source, https://{}/p\n"


def test_a_release_names_its_addresses_and_none_is_a_placeholder() -> None:
    check_addresses(ADDRESS.format("example.org") + "Project-URL: Invalid, https://example.org/invalid\n")
    refused = {
        "Name: p\n": "which has none",
        ADDRESS.format("repository.invalid"): "https://repository.invalid/p",
        ADDRESS.format("example.org") + "Project-URL: Issues, https://a.invalid:443/\n": r"has https://a.invalid:443/$",
        "Name: p\nProject-URL: Source, no address\n": "no address",
    }
    for fields, named in refused.items():
        with pytest.raises(Unfit, match=f"project_urls of setup.cfg.*{named}"):
            check_addresses(fields)


@pytest.mark.parametrize(("needed", "offered", "fits"), [
    ("manylinux_2_5_x86_64", "manylinux_2_17_x86_64", True), ("manylinux_2_17_x86_64", "manylinux_2_17_x86_64", True),
    ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", False),
    ("manylinux_2_17_aarch64", "manylinux_2_17_x86_64", False),
    ("manylinux_2_5_x86_64", "musllinux_1_2_x86_64", False), ("linux_x86_64", "manylinux_2_17_x86_64", False),
])  # fmt: skip
def test_an_older_library_is_enough_and_a_newer_one_is_too_much(needed: str, offered: str, fits: bool) -> None:
    assert is_at_most(needed, offered) is fits


@pytest.mark.parametrize(("kernel", "says"), [
    (mach_o(ARM64, SINCE_11, NEEDS), "not signed"), (mach_o(X86_64, SINCE_11, NEEDS, SIGNED), "for x86_64"),
    (mach_o(ARM64, SINCE_10_13, NEEDS, SIGNED), r"macOS \(10, 13\)"),
    (mach_o(ARM64, SINCE_11, NEEDS_ANOTHER, SIGNED), "libomp"),
])  # fmt: skip
def test_what_macos_would_refuse_is_unfit(kernel: bytes, says: str) -> None:
    with pytest.raises(Unfit, match=says):
        check_macos(kernel, MACOS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.tag)
def test_triple_and_tag_name_the_same_processor_and_version(target: Target) -> None:
    assert target.tag.endswith(f"_{target.machine}")
    assert target.triple.startswith({"arm64": "aarch64"}.get(target.machine, target.machine))
    if target.system is not System.MUSL:
        major, minor = target.tag.split("_")[1:3]
        assert target.triple.endswith(f".{major}.{minor}")


@pytest.mark.skipif(platform.system() not in ("Linux", "Darwin"), reason="there is no wheel for this system")
def test_a_target_runs_here_if_this_interpreter_takes_its_tag() -> None:
    """pip's own rules decide which wheel is taken."""
    taken = {tag.platform for tag in sys_tags() if tag.abi == "abi3"}
    assert [target for target in TARGETS if target.runs_here()] == [t for t in TARGETS if t.tag in taken]


# --- parts and bytes --------------------------------------------------------------------------------------------------


def test_the_list_of_parts_names_the_project_and_what_it_depends_on_without_extras() -> None:
    """Read as a scanner reads it. Dependencies are external, with their range."""
    fields = Message()
    fields["Name"], fields["Version"], fields["License"] = "pyspark-pykafka", "0.1.0", "Apache-2.0"
    for requirement in ("crc32c>=2.7", "kio<0.7,>=0.6", 'tqdm>=4.65; extra == "progress"'):
        fields["Requires-Dist"] = requirement
    parts = json.loads(sbom(fields, TIME))
    project = parts["metadata"]["component"]
    assert project["purl"] == "pkg:pypi/pyspark-pykafka@0.1.0"
    assert project["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert parts["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    edges = {edge["ref"]: edge.get("dependsOn") for edge in parts["dependencies"]}
    assert edges["pkg:pypi/pyspark-pykafka@0.1.0"] == ["pkg:pypi/crc32c", "pkg:pypi/kio"]
    assert json.loads(sbom(fields, TIME)) == parts
    ranges = {part["name"]: part["properties"][0]["value"] for part in parts["components"]}
    assert ranges == {"crc32c": ">=2.7", "kio": "<0.7,>=0.6"}
    assert all(part["isExternal"] and "version" not in part for part in parts["components"])
    assert parts["components"][0]["licenses"][0]["license"]["id"] == "LGPL-2.1-or-later"


NAMES = ("p-1/b.py", "p-1/a.py", "p-1/a-b.py")


def archive(names: Sequence[str], *, time: int, user: int, mode: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as target:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.uname, member.mode = len(name), time, user, f"u{user}", mode
            target.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_time_owner_mode_and_order_leave_no_trace_in_the_source_archive_and_contents_stay() -> None:
    one = archive(NAMES, time=5, user=0, mode=0o600)
    other = archive(NAMES[::-1], time=7, user=1000, mode=0o755)
    packed = without_origin(one, TIME)
    assert one != other
    assert packed == without_origin(other, TIME)
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        members = files.getmembers()
        assert [member.name for member in members] == sorted(NAMES)
        assert {(member.mtime, member.mode, member.uid, member.uname) for member in members} == {(TIME, 0o644, 0, "")}
        for member in members:
            content = files.extractfile(member)
            assert content is not None and content.read() == member.name.encode()


def test_the_time_of_the_caller_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "17")
    assert release_time(tmp_path) == 17


# --- conda/recipe.yaml and docs/licences.md ---------------------------------------------------------------------------

SETTINGS = configparser.ConfigParser()
SETTINGS.read(ROOT / "setup.cfg")
# Where conda-forge has another name than the package index.
CONDA_NAMES = {"confluent-kafka": "python-confluent-kafka", "prometheus-client": "prometheus_client"}
# Those of one package each. `registry` and `demo` ask for the same packages; `connect` and `sail` for what conda-forge
# may not have.
EXTRAS_OF_CONDA = ("spark", "verify", "keystores", "progress", "prometheus", "opentelemetry", "aws")
EXTRAS = (*EXTRAS_OF_CONDA, "connect", "hdfs", "sail", "registry")
# Their metadata name the licence in other words than SPDX.
IN_OTHER_WORDS = {"confluent-kafka": "Apache Software License"}


def requirements(section: str, key: str) -> list[Requirement]:
    return [Requirement(line) for line in SETTINGS[section][key].splitlines() if line and not line.startswith("#")]


@pytest.fixture
def recipe() -> dict[str, Any]:
    """The recipe with the values of its own context."""
    text = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    for name, value in yaml.safe_load(text)["context"].items():
        text = text.replace(f"${{{{ {name} }}}}", value)
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def in_conda_words(section: str, key: str) -> set[str]:
    found = (as_conda_says(each).partition(" ") for each in requirements(section, key))
    return {f"{CONDA_NAMES.get(name, name)} {versions}" for name, _, versions in found}


def test_the_recipe_requires_what_the_package_requires(recipe: dict[str, Any]) -> None:
    asked, python = recipe["requirements"], SETTINGS["options"]["python_requires"]
    expected = {"python " + python.replace(" ", "")} | in_conda_words("options", "install_requires")
    # Their bounds in one order.
    assert {line if "python_" in line else as_conda_says(Requirement(line)) for line in asked["run"]} == expected
    # What extras ask for is a constraint.
    extras = [in_conda_words("options.extras_require", extra) for extra in EXTRAS_OF_CONDA]
    assert set(asked["run_constraints"]) == set().union(*extras)
    # pip runs the build. python-abi3 makes one package serve every later Python.
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    python = python.removeprefix(">= ") + ".*"
    expected = {f"python {python}", f"python-abi3 {python}", "pip", *map(as_conda_says, map(Requirement, build))}
    assert set(asked["host"]) == expected
    assert recipe["build"]["python"]["version_independent"] is True


def test_the_recipe_has_the_metadata_of_the_package_and_tests_its_command(recipe: dict[str, Any]) -> None:
    fields = SETTINGS["metadata"]
    assert recipe["package"] == {"name": fields["name"], "version": fields["version"]}
    source = f"{fields['name'].replace('-', '_')}-{fields['version']}.tar.gz"
    assert Path(recipe["source"]["path"]).name == source
    about = {"license": "license", "license_file": "license_files", "summary": "description"}
    assert recipe["about"] == {ours: fields[theirs] for ours, theirs in about.items()}
    (script,) = SETTINGS["options.entry_points"]["console_scripts"].strip().splitlines()
    assert recipe["build"]["python"]["entry_points"] == [script]
    imports, commands = recipe["tests"]
    assert imports["python"]["imports"][0] == "kafka_sink" and imports["python"]["pip_check"] is True
    assert commands["script"][0] == f"{script.split()[0]} --help"


def with_their_own(names: set[str]) -> set[str]:
    """Add what the packages require here, of whatever is installed, without extras."""
    every: set[str] = set()
    while names:
        name = names.pop()
        every.add(name)
        for each in map(Requirement, requires(name) or ()):
            if each.marker is None or each.marker.evaluate({"extra": ""}):
                names |= {canonicalize_name(each.name)} - every
    return every


def test_every_package_of_an_installation_and_its_extras_is_in_the_tables_of_licences() -> None:
    required = {canonicalize_name(each.name) for each in requirements("options", "install_requires")}
    assert with_their_own(required) == set(LICENCES)
    named = {each.name for extra in EXTRAS for each in requirements("options.extras_require", extra)}
    assert named == set(LICENCES_OF_EXTRAS)
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", page, re.MULTILINE))
    assert rows == LICENCES | LICENCES_OF_EXTRAS


@pytest.mark.parametrize(("name", "licence"), (LICENCES | LICENCES_OF_EXTRAS).items())
def test_the_package_says_the_same_of_its_licence(name: str, licence: str) -> None:
    try:
        said = metadata(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    words = [said["License-Expression"] or "", said["License"] or "", *(said.get_all("Classifier") or ())]
    if name == "hdfs-native":  # has it in its list of parts alone
        words += [part.read_text() for part in files(name) or () if part.parent.name == "sboms"]
    assert any(IN_OTHER_WORDS.get(name, licence) in text for text in words), words

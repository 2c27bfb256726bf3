"""What must keep a wheel from being uploaded. The checks of twine, abi3audit and others are theirs."""

import runpy
import struct
from pathlib import Path
from unittest.mock import patch

import pytest

from release.checks import Unfit, check_addresses, check_description, check_macos, check_names, is_at_most
from release.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[4]
ARM64, X86_64, POWERPC = 0x0100000C, 0x01000007, 0x01000012
LIBRARY = b"/usr/lib/libSystem.B.dylib\0"


def command(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<II", kind, 8 + len(body)) + body


def mach_o(cpu: int, *commands: bytes, magic: int = 0xFEEDFACF) -> bytes:
    return struct.pack("<IIIIIIII", magic, cpu, 0, 6, len(commands), sum(map(len, commands)), 0, 0) + b"".join(commands)


# The name of a library begins 24 bytes into its command.
NEEDS = command(0x0C, struct.pack("<IIII", 24, 2, 0, 0) + LIBRARY)
SIGNED = command(0x1D, struct.pack("<II", 4096, 512))
SINCE_11 = command(0x32, struct.pack("<IIII", 1, 11 << 16, 14 << 16, 0))
SINCE_10_13 = command(0x24, struct.pack("<II", 10 << 16 | 13 << 8, 14 << 16))


BY_TAG = {target.tag: target for target in TARGETS}
LINUX, MACOS = BY_TAG["manylinux_2_17_x86_64"], BY_TAG["macosx_11_0_arm64"]
SOURCES = ("pyspark_pykafka.py", "kafka_sink/__init__.py", "kafka_sink/py.typed", "kafka_sink/records/_kernel.pyi")
NOT_PACKED = ("kafka_sink/records/_kernel.c", "kafka_sink/records/_kernel.h", "tests/test_a.py", "jobs/job.py")
METADATA = "pyspark_pykafka-0.1.0.dist-info/METADATA"
KERNEL = "kafka_sink/records/_kernel.abi3.so"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (*SOURCES, *NOT_PACKED, KERNEL):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_sources_metadata_and_the_kernel_are_all(root: Path) -> None:
    check_names([*SOURCES, METADATA, KERNEL], LINUX, root)
    check_names([*SOURCES, METADATA], None, root)


@pytest.mark.parametrize(
    ("names", "target", "named"),
    [
        ([*SOURCES, METADATA], LINUX, KERNEL),
        ([*SOURCES, METADATA, KERNEL], None, KERNEL),
        ([*SOURCES[1:], METADATA], None, SOURCES[0]),
        *(([*SOURCES, METADATA, name], None, name) for name in NOT_PACKED),
    ],
)
def test_one_file_too_many_or_too_few_is_named(root: Path, names: list[str], target: Target | None, named: str) -> None:
    with pytest.raises(Unfit, match=named):
        check_names(names, target, root)


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
    for metadata, named in refused.items():
        with pytest.raises(Unfit, match=f"project_urls of setup.cfg.*{named}"):
            check_addresses(metadata)


@pytest.mark.parametrize(
    ("needed", "offered", "fits"),
    [
        ("manylinux_2_5_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_17_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", False),
        ("manylinux_2_17_aarch64", "manylinux_2_17_x86_64", False),
        ("manylinux_2_5_x86_64", "musllinux_1_2_x86_64", False),
        ("linux_x86_64", "manylinux_2_17_x86_64", False),
    ],
)
def test_an_older_library_is_enough_and_a_newer_one_is_too_much(needed: str, offered: str, fits: bool) -> None:
    assert is_at_most(needed, offered) is fits


OTHER_LIBRARY = command(0x0C, b"\x18\0\0\0" + bytes(12) + b"/opt/lib/libomp.dylib\0")


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (mach_o(ARM64, SINCE_11, NEEDS), "not signed"),
        (mach_o(X86_64, SINCE_11, NEEDS, SIGNED), "for x86_64"),
        (mach_o(ARM64, SINCE_10_13, NEEDS, SIGNED), r"macOS \(10, 13\)"),
        (mach_o(ARM64, SINCE_11, OTHER_LIBRARY, SIGNED), "libomp"),
    ],
)
def test_what_macos_would_refuse_is_unfit(kernel: bytes, says: str) -> None:
    with pytest.raises(Unfit, match=says):
        check_macos(kernel, MACOS)

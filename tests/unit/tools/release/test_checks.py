"""What must keep a wheel from being uploaded. The checks of twine, abi3audit and others are theirs."""

from pathlib import Path

import pytest

from mach_o import ARM64, NEEDS, SIGNED, SINCE_10_13, SINCE_11, X86_64, command, mach_o
from release.checks import Unfit, check_description, check_macos, check_names, is_at_most
from release.targets import TARGETS, Target

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
    with pytest.raises(Unfit, match=r"docs/a\.md"):
        check_description("Name: p\n\n[a](docs/a.md)")


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

"""What is read from the headers of a Mach-O file."""

from __future__ import annotations

import pytest

from mach_o import ARM64, NEEDS, POWERPC, SIGNED, SINCE_10_13, SINCE_11, X86_64, mach_o
from release.machine_code import read_mach_o


def test_all_facts_are_read() -> None:
    facts = read_mach_o(mach_o(ARM64, SINCE_11, NEEDS, SIGNED))
    assert (facts.machine, facts.signed, facts.libraries, facts.oldest_macos) == (
        "arm64", True, ("/usr/lib/libSystem.B.dylib",), (11, 0),
    )  # fmt: skip


def test_the_older_command_of_the_oldest_system_is_known() -> None:
    facts = read_mach_o(mach_o(X86_64, SINCE_10_13))
    assert (facts.machine, facts.signed, facts.libraries, facts.oldest_macos) == ("x86_64", False, (), (10, 13))


@pytest.mark.parametrize("code", [mach_o(POWERPC), mach_o(ARM64, magic=0xFEEDFACE), b"\x7fELF" + bytes(60)])
def test_another_processor_and_another_format_are_refused(code: bytes) -> None:
    with pytest.raises(ValueError, match="Mach-O"):
        read_mach_o(code)

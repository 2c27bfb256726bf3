"""The platforms that get a wheel with the compiled kernel."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from enum import Enum


class System(Enum):
    GLIBC = "glibc"
    MUSL = "musl"
    MACOS = "macOS"


@dataclass(frozen=True, slots=True)
class Target:
    """`triple`: Zig's name, with the oldest version of the system's library. `tag`: the wheel's name for the same.
    `machine`: the processor, as `platform.machine` names it."""

    triple: str
    tag: str
    system: System
    machine: str

    def runs_here(self) -> bool:
        """True if this interpreter can import the kernel."""
        here = {"Linux": System.GLIBC if platform.libc_ver()[0] == "glibc" else System.MUSL, "Darwin": System.MACOS}
        return self.machine == platform.machine() and here.get(platform.system()) is self.system


# glibc 2.17 is the oldest that wheels for aarch64 can name, and pyarrow has no wheel for an older one. macOS 10.13 and
# 11.0 are the oldest of CPython's own installers since 3.12.
TARGETS = (
    Target("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", System.GLIBC, "x86_64"),
    Target("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", System.GLIBC, "aarch64"),
    Target("x86_64-linux-musl", "musllinux_1_2_x86_64", System.MUSL, "x86_64"),
    Target("aarch64-linux-musl", "musllinux_1_2_aarch64", System.MUSL, "aarch64"),
    Target("aarch64-macos.11.0", "macosx_11_0_arm64", System.MACOS, "arm64"),
    Target("x86_64-macos.10.13", "macosx_10_13_x86_64", System.MACOS, "x86_64"),
)

"""What macOS asks of a kernel, read from its headers: no tool for it runs on Linux.

    mach_header_64   magic u32 | cputype u32 | ... | ncmds u32 at 16 | load commands from 32 on: type u32, size u32

Source: mach-o/loader.h of Apple's SDK. macOS on arm64 ends a process that loads code without a signature.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC_64 = 0xFEEDFACF
MACHINES = {0x01000007: "x86_64", 0x0100000C: "arm64"}
HEADER_BYTES = 32
LC_CODE_SIGNATURE = 0x1D
# Its libraries: the kernel may need the system's own, and nothing else.
LC_LOAD_DYLIB = 0x0C
LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX = 0x32, 0x24

_U32S = struct.Struct("<II")
_DYLIB_NAME_AT = 8


@dataclass(frozen=True, slots=True)
class MachO:
    machine: str
    signed: bool
    libraries: tuple[str, ...]
    oldest_macos: tuple[int, int] | None


def read_mach_o(code: bytes) -> MachO:
    """Return the facts of a 64-bit Mach-O file. Raises ValueError if it is none, or for another processor."""
    magic, cpu = _U32S.unpack_from(code)
    if magic != MAGIC_64 or cpu not in MACHINES:
        raise ValueError(f"no 64-bit Mach-O file for a processor that we know: {magic:#x}, {cpu:#x}")
    (count,) = struct.unpack_from("<I", code, 16)
    at, signed, libraries, oldest = HEADER_BYTES, False, [], None
    for _ in range(count):
        command, size = _U32S.unpack_from(code, at)
        if command == LC_CODE_SIGNATURE:
            signed = True
        elif command == LC_LOAD_DYLIB:
            (name_at,) = struct.unpack_from("<I", code, at + _DYLIB_NAME_AT)
            libraries.append(code[at + name_at : at + size].split(b"\0", 1)[0].decode())
        elif command in (LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX):
            version_at = at + (12 if command == LC_BUILD_VERSION else 8)
            (version,) = struct.unpack_from("<I", code, version_at)
            oldest = version >> 16, version >> 8 & 0xFF
        at += size
    return MachO(MACHINES[cpu], signed, tuple(libraries), oldest)

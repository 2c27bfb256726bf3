"""Mach-O files with headers alone, made field by field as mach-o/loader.h of Apple's SDK has them."""

import struct

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

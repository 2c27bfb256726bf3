"""Checks of the archives as they are: metadata, contents, size, and what the kernel asks of its host."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from email.parser import Parser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from zipfile import ZipFile

from release.layout import KERNEL, MODULES, SBOM
from release.machine_code import read_mach_o
from release.targets import System, Target

# More than twice today's size: a wheel that is larger holds something that does not belong there.
MOST_BYTES = 2 * 2**20
MACOS_LIBRARIES = ("/usr/lib/libSystem.B.dylib",)


class Unfit(Exception):
    """An archive must not be uploaded."""


def check_metadata(archives: list[Path]) -> None:
    _tool("twine", "check", "--strict", *archives)


def check_wheel(wheel: Path, target: Target | None, root: Path) -> None:
    """Raises Unfit if the wheel holds anything but the package of `root` and its metadata, or its kernel needs more
    than `target` has. None: the pure wheel."""
    _tool("check-wheel-contents", "--no-config", f"--toplevel={','.join(MODULES)}", wheel)
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        check_names(names, target, root)
        (information,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        json.loads(archive.read(f"{information}/sboms/{SBOM}"))
        kernel = archive.read(KERNEL) if target else b""
    check_description(metadata_of(wheel))
    if wheel.stat().st_size > MOST_BYTES:
        raise Unfit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    if target is None:
        return
    _tool("abi3audit", "--strict", "--summary", wheel)
    if target.system is System.MACOS:
        check_macos(kernel, target)
    else:
        _check_linux(wheel, target)


def check_names(names: list[str], target: Target | None, root: Path) -> None:
    """The package's files in `root` without the kernel's sources, and the metadata. No tests, no jobs."""
    sources = {
        str(path.relative_to(root))
        for module in MODULES
        for path in ([root / module] if module.endswith(".py") else (root / module).rglob("*"))
        if path.is_file() and path.suffix not in (".c", ".h", ".so", ".pyc")
    }
    expected = sources | ({KERNEL} if target else set())
    packed = {name for name in names if ".dist-info/" not in name}
    if packed != expected:
        raise Unfit(f"too much: {sorted(packed - expected)}; missing: {sorted(expected - packed)}")


# In the text, and the definition of one that the text names by a label.
_LINK = re.compile(r"\]\(([^)\s]+)\)|^ {0,3}\[[^\]]+\]:\s+(\S+)", re.MULTILINE)


def check_description(metadata: str) -> None:
    """The package index shows the description alone: its links, inline or by reference, are addresses or anchors."""
    links = _LINK.findall(str(Parser().parsestr(metadata).get_payload()))
    targets = (inline or defined for inline, defined in links)
    if broken := [target for target in targets if "://" not in target and not target.startswith("#")]:
        raise Unfit(f"these links of the description break on the index's page: {broken}")


def check_addresses(metadata: str) -> None:
    """Raises Unfit if the metadata names no address of the project, or one that is a placeholder (RFC 2606)."""
    named = Parser().parsestr(metadata).get_all("Project-URL", [])
    addresses = [str(each).partition(",")[2].strip() for each in named]
    open_ones = [address for address in addresses if (urlsplit(address).hostname or ".invalid").endswith(".invalid")]
    if open_ones or not addresses:
        raise Unfit(
            f"put the project's addresses into project_urls of setup.cfg, which has {', '.join(open_ones) or 'none'}"
        )


def metadata_of(wheel: Path) -> str:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()


def check_macos(kernel: bytes, target: Target) -> None:
    facts = read_mach_o(kernel)
    major, minor = map(int, target.tag.split("_")[1:3])
    if facts.machine != target.machine or facts.oldest_macos != (major, minor):
        raise Unfit(f"the kernel of {target.tag} is for {facts.machine} and macOS {facts.oldest_macos}")
    if not set(facts.libraries) <= set(MACOS_LIBRARIES):
        raise Unfit(f"the kernel of {target.tag} needs {facts.libraries}")
    if target.machine == "arm64" and not facts.signed:
        raise Unfit(f"the kernel of {target.tag} is not signed: macOS ends a process that loads it")


def _check_linux(wheel: Path, target: Target) -> None:
    """auditwheel reads the processor, the libraries and the versions of their symbols.

    It knows musl's library by Alpine's name for it. The kernel asks for `libc.so`, which musl's loader takes for itself
    on every system (load_library in ldso/dynlink.c)."""
    with TemporaryDirectory() as nothing:  # else it takes this machine's libraries for the target's
        facts = json.loads(_tool("auditwheel", "show", "--json", "--ldpaths", nothing, wheel))
    allowed = {System.GLIBC: set(), System.MUSL: {"libc.so"}}[target.system]
    others = set(facts["external_libs"]) - allowed
    if others or not is_at_most(facts["sym_tag"], target.tag):
        raise Unfit(f"the kernel of {target.tag} needs {facts['sym_tag']}, and these libraries: {sorted(others)}")


_TAG = re.compile(r"(?P<library>[a-z]+)_(?P<major>\d+)_(?P<minor>\d+)_(?P<machine>\w+)")


def is_at_most(needed: str, offered: str) -> bool:
    """True if a host of the tag `offered` (manylinux_2_17_x86_64) satisfies the tag `needed`."""
    ours, of_host = _TAG.fullmatch(needed), _TAG.fullmatch(offered)
    if (
        ours is None
        or of_host is None
        or ours["library"] != of_host["library"]
        or ours["machine"] != of_host["machine"]
    ):
        return False
    return (int(ours["major"]), int(ours["minor"])) <= (int(of_host["major"]), int(of_host["minor"]))


def _tool(name: str, *arguments: object) -> str:
    """Run a program of this environment. Raises Unfit with its output if it fails."""
    program = Path(sysconfig.get_path("scripts")) / name
    ended = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True)
    if ended.returncode != 0:
        raise Unfit(f"{name}: {ended.stdout}{ended.stderr}")
    return ended.stdout

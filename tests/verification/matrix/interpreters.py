"""Other Pythons for the matrix: those of Debian's next release, unpacked beside the system, else those on the PATH.

They need a newer C library than most machines have, so a script starts each by the loader that is unpacked with it. It
needs apt-get, dpkg-deb, Debian as the machine's system, and no root.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SUITE = "testing"
# For zstandard, which has no wheel for the newest Python, the headers too.
PACKAGES = ("python{}-venv", "python{}-dev")
LIBRARIES = ("libstdc++6",)
TIMEOUT_S = 300
# Nothing of the machine's apt but its mirror and its keys: no list, no lock, no installed package.
SETTINGS = """\
Dir::State "{folder}";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
"""
STARTED = '#!/bin/sh\nexec {loader} --argv0 "$0" --library-path {libraries} {program} "$@"\n'
# Where Debian's `venv` finds pip.
WHEELS = "usr/share/python-wheels"


def interpreters(versions: Sequence[str], folder: Path) -> dict[str, str]:
    """By minor version; one that cannot be had has no entry. `folder` is filled again."""
    unpacked = debian(versions, folder) if versions and shutil.which("apt-get") else {}
    found = {version: unpacked.get(version) or on_the_path(version) for version in versions}
    return {version: program for version, program in found.items() if program}


def on_the_path(version: str) -> str | None:
    """pyenv has a `python3.x` on the PATH, which runs only if a variable allows it."""
    command = [f"python{version}", "-c", "import ensurepip, sys, venv; print(sys.executable)"]
    try:
        ended = subprocess.run(command, env=os.environ | {"PYENV_VERSION": version}, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return ended.stdout.strip() or None


def debian(versions: Sequence[str], folder: Path) -> dict[str, str]:
    """Unpack what Debian has of `versions`."""
    shutil.rmtree(folder, ignore_errors=True)
    for needed in ("lists/partial", "archives/partial", "root"):
        (folder / needed).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text("".join(f"deb {site} {SUITE} main\n" for site in sites()))
    (folder / "apt.conf").write_text(SETTINGS.format(folder=folder))
    apt(folder, "update")
    known = set(apt(folder, "pkgnames", program="apt-cache").split())
    versions = [version for version in versions if PACKAGES[0].format(version) in known]
    if not versions:
        return {}
    packages = [package.format(version) for version in versions for package in PACKAGES]
    apt(folder, "install", "--yes", "--download-only", *packages, *LIBRARIES)
    root = folder / "root"
    for archive in sorted((folder / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True, timeout=TIMEOUT_S)
    for file in root.glob("usr/lib/python3.*/_sysconfigdata*.py"):
        file.write_text(file.read_text().replace(f"'/{WHEELS}/'", f"'{root}/{WHEELS}/'"))
    return {version: started_by_script(root, version) for version in versions}


def sites() -> set[str]:
    """The machine's mirrors of Debian's main archive."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(SITE)", "Created-By: Packages"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    lines = (line.split("|") for line in said.splitlines())
    # Updates and security have a codename of their own, as bookworm-security.
    return {site for origin, codename, site in lines if origin == "Debian" and "-" not in codename}


def apt(folder: Path, *arguments: str, program: str = "apt-get") -> str:
    keep = os.environ | {"APT_CONFIG": str(folder / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
    ended = subprocess.run(
        [program, "--quiet", *arguments], env=keep, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S
    )
    return ended.stdout


def started_by_script(root: Path, version: str) -> str:
    (loader,) = root.glob("usr/lib/*/ld-linux*.so.*")
    # The headers include one by its path below /usr/include.
    headers = root / "usr" / "include" / f"python{version}"
    (headers / loader.parent.name).symlink_to(f"../{loader.parent.name}")
    script = root / "usr" / "bin" / f"python{version}"
    program = script.rename(script.with_name(f"{script.name}.elf"))
    script.write_text(STARTED.format(loader=loader, libraries=loader.parent, program=program))
    script.chmod(0o755)
    return str(script)

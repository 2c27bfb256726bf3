"""Runs the kernel of a wheel for another processor, under qemu-user.

    wheel, numpy, pyarrow, ...   for that processor, from the package index ─> a folder
    Python for that processor    Debian's packages, unpacked into a folder: nothing is installed on this machine
    the kernel's own tests       compare the kernel with the fallback, row by row

Needs Debian, and the program qemu-aarch64-static of its package qemu-user-static. Tests that start a second interpreter
are left out, because Linux would have to know of the emulator.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from release.checks import Unfit
from release.targets import Target

TESTS = ("tests/unit/records/test_kernel.py", "tests/unit/records/test_decoder_kernel.py")
# pyspark has no wheel and the kernel needs none of it.
PACKAGES = ("pyarrow", "numpy", "zstandard", "kio", "crc32c", "pytest", "hypothesis", "pytest-timeout")
# Debian's names of processors.
DEBIAN = {"aarch64": "arm64", "x86_64": "amd64"}
DEBIAN_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
# Debian 12's, which is also the oldest that the wheel is for.
PYTHON = "3.11"
# A second interpreter, and 4 GiB of memory.
LEFT_OUT = "not in_a_zip and not beyond_32_bits"
LIMIT_S = 1_200


def try_emulated(wheel: Path, target: Target, root: Path) -> str:
    """Run the kernel's tests of the clone `root` with `wheel`, and return in words what was run.

    Raises Unfit if a test fails."""
    emulator = shutil.which(f"qemu-{target.machine}-static")
    if emulator is None or not is_debian():
        return f"built, and not run: that needs Debian, and qemu-{target.machine}-static"
    with TemporaryDirectory(prefix="pykafka-emulated.") as name:
        folder = Path(name)
        install(wheel, target, folder / "site")
        python = interpreter(DEBIAN[target.machine], folder)
        environment = os.environ | {
            "PYTHONPATH": f"{folder / 'site'}:{root / 'tests' / 'support'}",
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYKAFKA_TEST_SOURCES": "1",
            "PYKAFKA_REQUIRE_KERNEL": "1",
        }
        # The tests' conftest.py needs Spark. Hypothesis' own profile "ci" has no deadline and no chance.
        line = [emulator, "-L", folder / "root", python, "-m", "pytest", "--quiet", "--noconftest"]
        line += ["-p", "no:cacheprovider", "--import-mode=importlib", "--override-ini=addopts="]
        line += ["--hypothesis-profile=ci", "-k", LEFT_OUT, *TESTS]
        ended = subprocess.run(
            list(map(str, line)), cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    if ended.returncode != 0:
        raise Unfit(f"{wheel.name} under {Path(emulator).name}: {ended.stdout}{ended.stderr}")
    return f"ran the kernel's tests under {Path(emulator).name}: {ended.stdout.splitlines()[-1]}"


def is_debian() -> bool:
    """True on Debian itself: Ubuntu's servers have packages for no other processor."""
    return platform.system() == "Linux" and platform.freedesktop_os_release().get("ID") == "debian"


def install(wheel: Path, target: Target, site: Path) -> None:
    """Install the wheel, and what its kernel's tests need, for the target's processor into the folder `site`."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), "--python-version", PYTHON]
    pip += ["--only-binary=:all:"]
    pip += [f"--platform=manylinux_2_{minor}_{target.machine}" for minor in (17, 28)]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", "--upgrade", str(wheel)], check=True)


def interpreter(architecture: str, folder: Path) -> Path:
    """Unpack Debian's Python for another architecture into `folder / "root"`, and return its path.

    apt keeps its lists and archives below `folder`, so the machine's own state stays as it is."""
    state, cache = folder / "state", folder / "cache"
    for part in (state / "lists" / "partial", cache / "archives" / "partial"):
        part.mkdir(parents=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": cache,
        # root downloads as _apt otherwise, which may not write here, and says so.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "--quiet=2", *(f"--option={name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True)
    line = [*apt, "install", "--yes", "--download-only", "--no-install-recommends", *DEBIAN_PACKAGES]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    for package in (cache / "archives").glob("*.deb"):
        subprocess.run(["dpkg", "--extract", str(package), str(folder / "root")], check=True)
    return folder / "root" / "usr" / "bin" / f"python{PYTHON}"

"""`make release`: PYTHONPATH=tools python -m release --flights build/flights/<...>.tar.gz --out build/release

Prints each archive that it builds, and what it did with it. Exit status 1 if an archive must not be uploaded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from release.checks import Unfit, check_addresses, check_metadata, check_wheel, metadata_of
from release.emulated import try_emulated
from release.source import build_source_archive, release_time
from release.targets import TARGETS, System, Target
from release.trial import try_wheel
from release.wheels import build_wheel

ROOT = Path(__file__).resolve().parents[2]
# None: the pure wheel, for every other platform.
WHEELS: tuple[Target | None, ...] = (None, *TARGETS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--flights", type=Path, required=True, help="the demo's archive of flights")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release", help="folder of the archives")
    parser.add_argument("--no-trial", action="store_true", help="build and check, and run nothing")
    arguments = parser.parse_args()
    # Modes of files go into archives, and follow the umask.
    os.umask(0o022)
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    try:
        release(arguments.out.resolve(), arguments.flights.resolve(), runs=not arguments.no_trial)
    except Unfit as unfit:
        print(f"not fit for upload: {unfit}", file=sys.stderr)
        return 1
    return 0


def release(folder: Path, flights: Path, *, runs: bool) -> None:
    """Fill `folder` with the archives and their digests. Raises Unfit for the first archive that is not fit."""
    time = release_time(ROOT)
    archive, wheels = build(folder, time)
    with TemporaryDirectory(prefix="pykafka-again.") as name:
        again, _ = build(Path(name), time)
        compare(folder, again.parent)
    say(f"two builds: the same bytes in {1 + len(wheels)} archives")
    check_metadata([archive, *wheels])
    for wheel, target in wheels.items():
        check_wheel(wheel, target, ROOT)
    write_digests(folder, [archive, *wheels])
    for wheel, target in wheels.items():
        say(f"{wheel.name}: {wheel.stat().st_size:,} bytes, checked, {ran(wheel, target, flights, runs=runs)}")
    # Last: who only wants archives has them.
    check_addresses(metadata_of(next(iter(wheels))))


def say(text: str) -> None:
    print(text, flush=True)


def build(folder: Path, time: int) -> tuple[Path, dict[Path, Target | None]]:
    """Build all archives into `folder`: the source archive, and the wheels with their targets."""
    say("building the source archive")
    with TemporaryDirectory(prefix="pykafka-sources.") as name:
        archive = build_source_archive(ROOT, folder, Path(name), time)
    wheels = {}
    for target in WHEELS:
        say(f"building the wheel for {target.tag if target else 'every other platform'}")
        with TemporaryDirectory(prefix="pykafka-build.") as name:
            wheels[build_wheel(archive, target, folder, Path(name), time)] = target
    return archive, wheels


def compare(folder: Path, again: Path) -> None:
    """Raises Unfit if an archive has other bytes in the other folder."""
    differ = [path.name for path in sorted(folder.iterdir()) if path.read_bytes() != (again / path.name).read_bytes()]
    if differ:
        raise Unfit(f"two builds of one commit differ: {differ}")


def write_digests(folder: Path, archives: list[Path]) -> None:
    """Write SHA256SUMS, as `sha256sum --check` reads it."""
    lines = [f"{sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n" for archive in archives]
    (folder / "SHA256SUMS").write_text("".join(lines))


def ran(wheel: Path, target: Target | None, flights: Path, *, runs: bool) -> str:
    """Run the wheel if this machine can, and return in words what was run."""
    if not runs:
        return "not run"
    if target is None or target.runs_here():
        try_wheel(wheel, "compiled" if target else "vectorised", ROOT, flights)
        return "ran the demo in an empty environment"
    if target.system is System.GLIBC:
        return try_emulated(wheel, target, ROOT)
    return "built, and not run: this machine cannot"


if __name__ == "__main__":
    sys.exit(main())

"""One more look at the tests that failed: only `.ci/run` takes it, after `make test`, when nothing else runs.

    make test ARGS="--failed-tests FILE" || PYTHONPATH=tests/support python -m second_look FILE

Up to two failed tests run once more, in one process. If both pass, the exit status is 0, and the last lines name them.
A failed collection, a crashed worker, and an exit status of pytest's that is not 1 get no second look.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from failed_tests import FailedTests

AT_MOST = 2
TESTS_FAILED = 1


def main(first: Path) -> int:
    try:
        seen = FailedTests.read(first)
    except FileNotFoundError:
        print("No second look: pytest did not come to its end.")
        return 1
    if refusal := refused(seen):
        print(f"No second look: {refusal}.")
        return 1
    print(f"\n== second look at {len(seen.failed)} failed tests", flush=True)
    if not pass_alone(seen.failed):
        return 1
    print("\n".join(f"FLAKY: {test}" for test in seen.failed))
    return 0


def refused(seen: FailedTests) -> str:
    """Return why the failures cannot be chance, or nothing."""
    if seen.broken:
        return f"not only tests failed: {', '.join(seen.broken)}"
    if seen.status != TESTS_FAILED:
        return f"pytest ended with {seen.status}"
    if not 0 < len(seen.failed) <= AT_MOST:
        return f"{len(seen.failed)} tests failed"
    return ""


def pass_alone(tests: list[str]) -> bool:
    """Whether each of `tests` passes; one that is skipped or not found does not."""
    with tempfile.TemporaryDirectory(prefix="second-look-") as folder:
        again = Path(folder, "failed.json")
        pytest = Path(sys.executable).with_name("pytest")
        # An empty -m: no mark leaves a test out.
        options = ("--numprocesses", "0", "-m", "", "--failed-tests", again)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        status = subprocess.run([pytest, *options, *tests], env=environment).returncode
        return status == 0 and FailedTests.read(again).passed == len(tests)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

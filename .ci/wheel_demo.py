"""`make wheel`: install the wheel into an empty environment outside the sources, and run the demo there.

    python3 .ci/wheel_demo.py build/wheel/<...>.whl build/flights/<...>.tar.gz [compiled | vectorised]

The wheel must bring the compiled kernel, unless the last argument says otherwise (`make release` tries the pure wheel).
First only the wheel's own requirements are installed, as on a cluster: they bring no pyspark, and commands work. With
the extra `spark` Spark must find the format (`fresh_install.py`). Then, with the extra `demo`, copies of the demo's
scripts run, which are not in the wheel. Uses only the standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ("demo", "jobs", "conf")
CALLERS = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "PYKAFKA")
NO_PYSPARK = """\
import importlib.util
assert importlib.util.find_spec("pyspark") is None and importlib.util.find_spec("py4j") is None
try:
    import pyspark_pykafka
except ModuleNotFoundError as error:
    assert all(extra in str(error) for extra in ("[spark]", "[connect]", "[sail]")), error
else:
    raise AssertionError("it needs a pyspark")
"""


def main() -> int:
    wheel, archive = (Path(argument).resolve() for argument in sys.argv[1:3])
    kernel = sys.argv[3] if len(sys.argv) > 3 else "compiled"
    if kernel == "compiled" and "-cp311-abi3-" not in wheel.name:
        print(f"{wheel.name} has no compiled kernel: install a C compiler, and remove build/wheel", file=sys.stderr)
        return 1
    environment = {name: value for name, value in os.environ.items() if not name.startswith(CALLERS)}
    with tempfile.TemporaryDirectory(prefix="pykafka-wheel.") as name:
        folder = Path(name)
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"

        def run(*arguments: object) -> None:
            subprocess.run([python, *map(str, arguments)], cwd=elsewhere, env=environment, check=True)

        run("-m", "pip", "install", "--quiet", wheel)
        run("-c", f"from kafka_sink.records.kernel import KERNEL as is_; assert is_.name == {kernel!r}, is_.name")
        run("-c", NO_PYSPARK)
        run("-m", "kafka_sink", "version")
        run("-m", "pip", "install", "--quiet", f"{wheel}[spark]")
        run(ROOT / ".ci" / "fresh_install.py")
        run("-m", "pip", "install", "--quiet", f"{wheel}[demo]")
        for scripts in SCRIPTS:
            shutil.copytree(ROOT / scripts, folder / "scripts" / scripts)
        run(folder / "scripts" / "demo", "--archive", archive, "--workspace", folder / "workspace")
    print(f"\n{wheel.name}: installed into an empty environment, where it ran the demo")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The compiled kernel, which the package can do without, and the description; everything else is in setup.cfg.

Where no C compiler works the wheel is a pure one, and the sink uses its vectorised fallback. PYKAFKA_REQUIRE_KERNEL=1
makes that an error instead.
"""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel


class MaybePureWheel(bdist_wheel):
    """Tagged by what was built, not by what was tried."""

    def run(self) -> None:
        self.run_command("build_ext")
        build_ext = self.get_finalized_command("build_ext")
        if not all(map(os.path.exists, build_ext.get_outputs())):
            self.distribution.ext_modules = None
            self.root_is_pure = True
        super().run()


def description(readme: str) -> str:
    """Return the README for the package index, which shows it alone: without pictures and marks for the site, and with
    the names of files instead of links to them."""
    unmarked = re.sub(r"(<!-- --8<-- \[(start|end):[^]]*\] -->|!\[[^]]*\]\([^)]*\))\n\n?", "", readme)
    inline = re.sub(r"\[([^]]+)\]\((?!https?://|#)([^)\s]+)\)", r"\1 (`\2`)", unmarked)
    definition = re.compile(r"^\[([^]]+)\]: (?!https?://|#)(\S+)\n?", re.MULTILINE)
    for label, target in definition.findall(inline):
        inline = re.sub(rf"\[([^]]+)\]\[{re.escape(label)}\]", rf"\1 (`{target}`)", inline)
    return definition.sub("", inline)


REQUIRED = os.environ.get("PYKAFKA_REQUIRE_KERNEL") == "1"
# Free-threaded Python has no stable ABI before 3.15 (PEP 803), so each of its versions gets a kernel of its own.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")

RECORDS = Path("kafka_sink/records")

kernel = Extension(
    "kafka_sink.records._kernel",
    sorted(map(str, RECORDS.glob("*.c"))),
    depends=sorted(map(str, RECORDS.glob("*.h"))),
    # One module: its files call each other, and nobody else calls them.
    extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden"],
    py_limited_api=STABLE_ABI,
    optional=not REQUIRED,
)

setup(
    long_description=description(Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    ext_modules=[kernel],
    cmdclass={"bdist_wheel": MaybePureWheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)

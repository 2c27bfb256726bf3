"""Adds compiled modules to the pyspark.zip that Spark puts in front of the path of each of its Python workers.

    python tests/support/compiled_pyspark.py

Without them each worker compiles what it imports, for 0.5 s of CPU; in the tests thousands of them start.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import tempfile
import warnings
import zipfile
from pathlib import Path

import pyspark

ARCHIVE = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"


def main() -> None:
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        modules, compiled = Path(name, "modules"), Path(name, ARCHIVE.name)
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall(modules)
        # Not by the time of the source, which an archive has in steps of two seconds.
        warnings.simplefilter("ignore", SyntaxWarning)
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(
            modules, quiet=1, legacy=True, stripdir=modules, prependdir=ARCHIVE, invalidation_mode=unchecked
        )
        with zipfile.ZipFile(compiled, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(modules.rglob("*")):
                archive.write(file, file.relative_to(modules))
        os.replace(compiled, ARCHIVE)


if __name__ == "__main__":
    main()

"""The environment of a process that starts Spark: this Python, the installed Spark, these scripts for its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONF = HERE.parent.parent / "conf"


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without another Spark and another Python of the machine's owner, which would be measured otherwise."""
    return {name: value for name, value in environ.items() if name != "SPARK_HOME"} | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), environ.get("PYTHONPATH")))),
        # Spark starts its workers with `python -m`, which would put the working directory first.
        "PYTHONSAFEPATH": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

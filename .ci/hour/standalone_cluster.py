"""Submits an application to a standalone cluster of the pyspark that pip installed.

    PYTHONPATH=tests/support python .ci/hour/standalone_cluster.py APPLICATION [ARGUMENT ...]

The application uses the Python that runs this script.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from standalone_spark import SPARK_HOME, bare_environment, standalone_spark

folder = Path("cluster")
folder.mkdir()
with standalone_spark(folder.resolve()) as cluster:
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *sys.argv[1:]]
    status = subprocess.run(submit, env=bare_environment(PYSPARK_PYTHON=sys.executable)).returncode
sys.exit(status)

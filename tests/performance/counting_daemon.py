"""Spark's Python daemon, with one difference: what its ended workers used can still be counted.

`pyspark.daemon` ignores SIGCHLD, and the kernel then forgets a worker, with its CPU time, the moment it ends. Here it
"ignores" SIGURG instead, which nobody sends and which does nothing anyway; so ended workers stay as zombies, whose
counts /proc goes on to show. Spark runs this module when `spark.python.daemon.module` names it.
"""

import signal

from pyspark import daemon

if __name__ == "__main__":
    vars(daemon)["SIGCHLD"] = signal.SIGURG
    daemon.manager()

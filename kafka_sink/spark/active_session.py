"""Makes a DataFrame's session the active session of the calling thread.

Spark looks up a format's name in the thread's active session. In threads that the user's Python starts, such as those
of a ThreadPoolExecutor or `InheritableThread`, the active session is not the DataFrame's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Return True if `spark` is a Spark Connect session.

    The check uses the module's name, because importing Spark Connect needs grpc, which may not be installed.
    """
    return type(spark).__module__.startswith("pyspark.sql.connect.")


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the thread's active session in the block, and restore the previous one afterwards.

    Nothing is needed with Spark Connect: its server runs each request in the request's own session.
    """
    if is_connect(spark):
        yield
        return
    from py4j.protocol import Py4JError

    in_jvm = SparkSession._get_j_spark_session_class(spark._jvm)
    before = in_jvm.getActiveSession()
    in_jvm.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        # If the JVM has ended, the block has already raised an error.
        with suppress(Py4JError):
            if before.isDefined():
                in_jvm.setActiveSession(before.get())
            else:
                in_jvm.clearActiveSession()

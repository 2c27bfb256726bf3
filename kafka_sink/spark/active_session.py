"""A DataFrame's session as the calling thread's.

Spark looks the name of a format up in the session that is active in the thread, which is a session of nobody in a
thread that the user's Python has started, as those of a ThreadPoolExecutor or `InheritableThread`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether `spark` is another process's. By its name, as to import Spark Connect takes grpc, which may not be
    there."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """In the block the thread's active session is `spark`, and afterwards what it was. Spark Connect has one thread a
    request, of the request's session."""
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
        # A JVM that has ended has told so.
        with suppress(Py4JError):
            if before.isDefined():
                in_jvm.setActiveSession(before.get())
            else:
                in_jvm.clearActiveSession()

"""Which session a thread has while an export runs, and afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from kafka_sink.spark.active_session import active


class InJvm:
    """The JVM's SparkSession, as one thread sees it."""

    def __init__(self, session: str | None) -> None:
        self.session, self.is_gone = session, False

    def getActiveSession(self) -> Any:
        session = self.session
        return SimpleNamespace(isDefined=lambda: session is not None, get=lambda: session)

    def setActiveSession(self, session: str) -> None:
        self.session = session

    def clearActiveSession(self) -> None:
        if self.is_gone:
            raise Py4JError("the JVM has ended")
        self.session = None


@pytest.fixture(params=[None, "before"])
def in_jvm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> InJvm:
    jvm = InJvm(request.param)
    monkeypatch.setattr("pyspark.sql.SparkSession._get_j_spark_session_class", lambda _: jvm)
    return jvm


SPARK: Any = SimpleNamespace(_jvm=None, _jsparkSession="the frame's")


def test_it_is_the_frames_and_then_what_it_was(in_jvm: InJvm) -> None:
    before = in_jvm.session
    with active(SPARK):
        assert in_jvm.session == "the frame's"
    assert in_jvm.session == before
    with pytest.raises(KeyError), active(SPARK):
        raise KeyError("of the write")
    assert in_jvm.session == before


def test_a_jvm_that_has_ended_hides_no_error() -> None:
    with pytest.MonkeyPatch.context() as patch:
        jvm = InJvm(None)
        patch.setattr("pyspark.sql.SparkSession._get_j_spark_session_class", lambda _: jvm)
        with pytest.raises(KeyError), active(SPARK):
            jvm.is_gone = True
            raise KeyError("of the write")

from __future__ import annotations

import errno

import pytest

from kafka_sink.doctor import engine
from kafka_sink.doctor.first_aid import look_at_hosts
from kafka_sink.doctor.report import Report, Verdict, failed, ok
from kafka_sink.errors import BrokersUnreachable, TopicNotFound
from kafka_sink.options.config import SinkConfig, sink_config


def config(**more: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", **more})


def unreachable() -> BrokersUnreachable:
    return BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=5, last_error="b:9092: Connection refused")


def test_the_first_failure_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Report((Verdict("dns", "b:9092", ok("")), Verdict("tcp", "b:9092", failed("nothing listens", "check it"))))
    monkeypatch.setattr(engine, "examine_hosts", lambda config: found)
    error = unreachable()
    look_at_hosts(error, config().producer)
    assert (error.step, error.where, error.remedy) == ("tcp", "b:9092", "check it")
    happened, data, advice = error.parts()
    assert happened.endswith("step 'tcp' of b:9092 fails: nothing listens.")
    assert advice.startswith("To fix it: check it. All steps, ")
    assert "`pykafka check --bootstrap-servers b:9092`." in advice
    assert advice.endswith("To outlast a longer outage, raise kafka.max.block.ms.")
    assert "Check kafka.bootstrap.servers, and" not in str(error)
    assert data == unreachable().parts().data


@pytest.mark.parametrize(
    "lack", [None, RuntimeError("can't start new thread"), OSError(errno.EMFILE, "files"), MemoryError()]
)
def test_brokers_that_are_back_or_not_looked_at_leave_the_error_as_it_was(
    monkeypatch: pytest.MonkeyPatch, lack: Exception | None
) -> None:
    def examine(config: object) -> Report:
        if lack is not None:
            raise lack
        return Report((Verdict("dns", "b:9092", ok("")),))

    monkeypatch.setattr(engine, "examine_hosts", examine)
    error = unreachable()
    look_at_hosts(error, config().producer)
    assert str(error) == str(unreachable())
    # Others are not looked at.
    monkeypatch.delattr(engine, "examine_hosts")
    look_at_hosts(TopicNotFound(topic="t", waited_ms=1), config().producer)
